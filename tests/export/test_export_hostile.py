"""An export may come from anywhere: what its manifest and its model say is checked before anything is run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from export_helpers import taught
from onnx import TensorProto, helper

from dinosaur_ad.encoders.backends.exported import Manifest, open_exported, read_manifest, write_manifest
from dinosaur_ad.encoders.providers import why_not
from dinosaur_ad.errors import DinosaurError, EncoderError
from dinosaur_ad.export.exporting import check, export

KINDS = ["onnx", "openvino"]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The files of one export a kind, with a bank."""
    folder = tmp_path_factory.mktemp("exports")
    store, made = taught(folder), {}
    for kind in KINDS:
        if kind == "openvino" and why_not("openvino", "float32"):
            continue
        out = export(folder / kind, kind=kind, store=store, task="plate", with_bank=True, progress=lambda _: None)
        made[kind] = {path.name: path.read_bytes() for path in out.folder.iterdir()}
    return made


@pytest.fixture
def folder(exports: dict[str, dict[str, bytes]], tmp_path: Path) -> Path:
    return laid_out(exports["onnx"], tmp_path / "out")


def laid_out(files: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def refused(folder: Path, says: str | None = None) -> None:
    with pytest.raises(EncoderError, match=says) as error:
        open_exported(folder)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1500


def said(folder: Path) -> str:
    """Nothing for an export that runs, or the sentence that refuses it."""
    try:
        open_exported(folder)
    except EncoderError as error:
        return str(error)
    return ""


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "manifest.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def rewrite(folder: Path, change: Callable[[onnx.ModelProto], object]) -> None:
    """Change the model, and the hashes with it."""
    model = onnx.load(folder / "model.onnx")
    change(model)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    write_manifest(folder, Manifest.from_json(json.loads((folder / "manifest.json").read_text())))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(encoder="x\n\x1b[2J" * 1000),
        lambda d: d.update(weights_source="file:\x1b[31m"),
        lambda d: d.update(licence="a" * 100_000),
        lambda d: d.update(size=True),
        lambda d: d.update(size=14 * 10**9),
        lambda d: d.update(size=10**400),
        lambda d: d.update(size=-14),
        lambda d: d.update(layers=[{}]),
        lambda d: d.update(layers=[[0]]),
        lambda d: d.update(layers=list(range(100_000))),
        lambda d: d.update(layers=["x" * 10_000]),
        lambda d: d.update(files=[]),
        lambda d: d["files"].update({"model.onnx": {"bytes": "1", "sha256": ""}}),
        lambda d: d["files"].update({"model.onnx": {"bytes": 2**80, "sha256": ""}}),
        lambda d: d["files"].update({"model.onnx": {"bytes": -1, "sha256": 3}}),
        lambda d: d["files"].update({f"{n}.txt": {"bytes": 1, "sha256": ""} for n in range(1000)}),
        lambda d: d["files"].update({"/etc/passwd": {"bytes": 1, "sha256": ""}}),
        lambda d: d["files"].update({"a" * 300 + ".txt": {"bytes": 1, "sha256": ""}}),
        lambda d: d.update(bank={}),
        lambda d: d.update(bank={"task": 1, "id": "x", "threshold": 1.0}),
        lambda d: d["bank"].update(threshold=float("nan")),
        lambda d: d["bank"].update(threshold=None),
        lambda d: d.clear(),
        lambda d: d.update({"\x1b[2J": 1}),
    ],
)
def test_a_hostile_manifest_is_one_sentence(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    edit(folder, change)
    refused(folder)


@pytest.mark.parametrize("content", [b"", b"[" * 500_000, b"\xff" * 100, b"1" * 5000, b" " * 2_000_000, b"null"])
def test_a_manifest_that_is_none_is_one_sentence(folder: Path, content: bytes) -> None:
    (folder / "manifest.json").write_bytes(content)
    refused(folder, "cannot be used")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("name", ["manifest.json", "model.onnx"])
def test_a_pipe_is_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    if name != "manifest.json":
        edit(folder, lambda document: document["files"][name].update(bytes=0))
    refused(folder)


def test_a_manifest_behind_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "manifest.json").rename(tmp_path / "elsewhere.json")
    (folder / "manifest.json").symlink_to(tmp_path / "elsewhere.json")
    refused(folder, "cannot be read")


def external(place: str) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=place)

    return change


def looping(model: onnx.ModelProto) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [helper.make_tensor_value_info(n, t, []) for n, t in (("i", TensorProto.INT64), ("go", TensorProto.BOOL))],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, [])],
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2**62), "times"))
    model.graph.node.append(helper.make_node("Loop", ["times", ""], [], body=body))


def foreign_operator(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "com.example"


def many_nodes(model: onnx.ModelProto) -> None:
    model.graph.node.extend(helper.make_node("Identity", ["images"], [f"x{n}"]) for n in range(20_001))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (external("../../secret.bin"), "takes weights from other files"),
        (external("/etc/passwd"), "takes weights from other files"),
        (external("README.txt"), "takes weights from other files"),
        (looping, "loops or branches"),
        (foreign_operator, "operators of its own"),
        (many_nodes, "more than 20000 nodes"),
    ],
)
def test_a_model_that_is_more_than_a_graph_is_refused(
    folder: Path, change: Callable[[onnx.ModelProto], None], says: str
) -> None:
    rewrite(folder, change)
    refused(folder, says)


def test_outputs_of_other_shapes_are_refused(folder: Path) -> None:
    def swapped(model: onnx.ModelProto) -> None:
        names = {"score": "map", "map": "score"}
        for node in model.graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
        del model.graph.output[2:4]
        for name in names:
            model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))

    rewrite(folder, swapped)
    refused(folder, "outputs of other shapes|does not run here")


def test_a_description_with_entities_or_loops_is_refused(exports: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    if "openvino" not in exports:
        pytest.skip("OpenVINO is not here")
    for number, (before, after) in enumerate(
        [(b"<net ", b"<!DOCTYPE x [<!ENTITY a 'b'>]><net "), (b'type="Result"', b'type="Loop"')]
    ):
        folder = laid_out(exports["openvino"], tmp_path / str(number))
        xml = (folder / "model.xml").read_bytes()
        assert before in xml
        (folder / "model.xml").write_bytes(xml.replace(before, after, 1))
        write_manifest(folder, Manifest.from_json(json.loads((folder / "manifest.json").read_text())))
        refused(folder, "entities|loops or branches")


def test_files_are_used_as_they_were_hashed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is exchanged after it was compared with its hash is not the one that runs."""
    from dinosaur_ad.encoders.backends import exported

    def exchange(*arguments: Any) -> str | None:
        (folder / "model.onnx").write_bytes(b"another model")
        return None

    monkeypatch.setattr(exported, "model_problem", exchange)
    assert open_exported(folder).grid == (5, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_exports_are_one_sentence(kind: str, exports: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    """Forty bits flipped in the files that describe the model, with hashes that fit: run, or refused in a sentence."""
    if kind not in exports:
        pytest.skip("OpenVINO is not here")
    rng, files = np.random.default_rng(5), exports[kind]
    name = "model.onnx"
    for number in range(40):
        if kind == "openvino":
            name = "manifest.json"  # what OpenVINO makes of a damaged description is its own business
        folder = laid_out(files, tmp_path / str(number))
        content = bytearray(files[name])
        for _ in range(1 + number % 3):
            content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        (folder / name).write_bytes(content[: -number * 7] if number % 4 == 3 else content)
        if name != "manifest.json":
            write_manifest(folder, Manifest.from_json(json.loads(files["manifest.json"])))
        assert said(folder).isprintable()


@pytest.mark.parametrize(
    "scoring",
    [{"radius": 300}, {"radius": 1.5}, {"ratio": "a"}, {"top": -1}, {"normalise": 1}, {"minimum": True}, {"preset": 3}],
)
def test_scoring_that_cannot_be_is_refused_by_the_check(folder: Path, scoring: dict[str, Any]) -> None:
    edit(folder, lambda document: document["made"]["scoring"].update(scoring))
    with pytest.raises(DinosaurError, match="out of range"):
        check(folder, progress=lambda _: None)


def test_a_score_that_is_no_number_alarms(folder: Path) -> None:
    """In the graph as everywhere: what cannot be judged is not normal."""
    import onnxruntime

    from dinosaur_ad.encoders.backends.onnx_backend import session_options

    model = onnx.load(folder / "model.onnx")
    for node in model.graph.node:
        if "anomalous" in node.output:
            within = next(each for each in model.graph.node if node.input[0] in each.output)
            within.input[0] = "given"
    model.graph.input.append(helper.make_tensor_value_info("given", TensorProto.FLOAT, ["N"]))
    session = onnxruntime.InferenceSession(model.SerializeToString(), session_options(1))
    size = read_manifest(folder).size
    scores = np.array([np.nan, np.inf, -np.inf], np.float32)
    pixels = np.zeros((3, size, size, 3), np.uint8)
    assert session.run(["anomalous"], {"images": pixels, "given": scores})[0].tolist() == [True, True, False]
