"""An export that is not what its manifest says is refused before it is run, in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from export_helpers import taught

from dinosaur_ad import Dinosaur, EncoderOptions
from dinosaur_ad.encoders.backends.exported import Manifest, open_exported, read_manifest, write_manifest
from dinosaur_ad.encoders.providers import why_not
from dinosaur_ad.errors import EncoderError
from dinosaur_ad.export.exporting import export


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return export(tmp_path / "out", store=taught(tmp_path)).folder


def refused(folder: Path, says: str, **options: Any) -> None:
    with pytest.raises(EncoderError, match=says) as error:
        open_exported(folder, **options)
    sentence = str(error.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest by hand."""
    path = folder / "manifest.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def rewrite(folder: Path, change: Callable[[onnx.ModelProto], object]) -> None:
    """Change the model, and the manifest with it, as another program might."""
    model = onnx.load(folder / "model.onnx")
    change(model)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    write_manifest(folder, Manifest.from_json(json.loads((folder / "manifest.json").read_text())))


def test_a_truncated_model_is_refused(folder: Path) -> None:
    path = folder / "model.onnx"
    path.write_bytes(path.read_bytes()[:-100])
    refused(folder, "model.onnx is missing or not the file that was written")


def test_a_model_with_one_changed_byte_is_refused(folder: Path) -> None:
    path = folder / "model.onnx"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    refused(folder, "model.onnx is missing or not the file that was written")


def test_a_missing_licence_is_refused(folder: Path) -> None:
    (folder / "LICENCE.txt").unlink()
    refused(folder, "LICENCE.txt is missing")


def test_a_model_behind_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "model.onnx").rename(tmp_path / "elsewhere.onnx")
    (folder / "model.onnx").symlink_to(tmp_path / "elsewhere.onnx")
    refused(folder, "model.onnx is missing or not the file that was written")


def test_a_graph_that_is_cut_off_is_refused_even_where_its_hash_is_right(folder: Path) -> None:
    path = folder / "model.onnx"
    path.write_bytes(path.read_bytes()[:-100])
    write_manifest(folder, Manifest.from_json(json.loads((folder / "manifest.json").read_text())))
    refused(folder, "does not run here")


def test_an_opset_that_the_run_time_does_not_know_is_refused(folder: Path) -> None:
    def newer(model: onnx.ModelProto) -> None:
        model.opset_import[0].version = 99

    rewrite(folder, newer)
    edit(folder, lambda document: document["made"].update(opset=99))
    refused(folder, "does not run here: .*opset 99.*update the run time, or export again")


def test_outputs_of_other_shapes_are_refused(folder: Path) -> None:
    def cut(model: onnx.ModelProto) -> None:
        del model.graph.output[1:]

    rewrite(folder, cut)
    refused(folder, "does not run here")


def test_the_model_of_another_export_is_refused(folder: Path, tmp_path: Path) -> None:
    def forge(model: onnx.ModelProto) -> None:
        onnx.helper.set_model_props(model, {"dinosaur_fingerprint": "0123456789abcdef"})

    rewrite(folder, forge)
    refused(folder, "another one than its manifest says")


def test_weights_that_give_no_numbers_are_refused(folder: Path) -> None:
    def poison(model: onnx.ModelProto) -> None:
        tensor = next(each for each in model.graph.initializer if len(each.dims) == 2)
        value = np.full(list(tensor.dims), np.nan, np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))

    rewrite(folder, poison)
    refused(folder, "not finite")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda document: document.update(format=2), "another format"),
        (lambda document: document.pop("licence"), "'licence' is missing"),
        (lambda document: document.update(surprise=1), "'surprise' is not known"),
        (lambda document: document.update(size="70"), "'size' is '70' instead of a whole number"),
        (lambda document: document.update(kind="coreml"), "'kind' is 'coreml' instead of one of onnx"),
        (lambda document: document.update(precision="int4"), "'precision' is 'int4' instead of one of float32"),
        (lambda document: document["files"].pop("model.onnx"), "does not list the model"),
        (
            lambda document: document["files"].update({"../secret.txt": {"bytes": 1, "sha256": "0" * 64}}),
            "names that no file of an export has",
        ),
        (lambda document: document["files"].update({"a.txt": 5}), "'files.a.txt' is 5 instead of an object"),
        (lambda document: document.update(weights_sha256="0" * 64), "does not fit itself"),
        (lambda document: document.update(layers=[0, 2]), "does not fit itself"),
        (lambda document: document.update(size=84), "does not fit itself"),
        (lambda document: document.update(size=71), "multiple of its patch size"),
        (lambda document: document.update(layers=[7]), "Layers must be"),
        (lambda document: document.update(encoder="nobody"), "no encoder 'nobody'"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    edit(folder, change)
    refused(folder, says)


def test_what_is_no_manifest_or_no_export_is_refused(folder: Path, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "There is no export")
    (folder / "manifest.json").write_text("{")
    refused(folder, "cannot be used")
    (folder / "manifest.json").write_text("[]")
    refused(folder, "another format")


def test_other_layers_or_another_size_than_the_export_has_are_refused(folder: Path) -> None:
    refused(folder, r"gives layers \(0, 1\) at 70 px, but \(0, 2\) at 70 px", layers=(0, 2))
    refused(folder, "84 px are asked for", size=84)
    assert open_exported(folder, layers=(0, 1), size=70).grid == (5, 5)


def test_an_export_without_a_bank_scores_nothing(folder: Path) -> None:
    with pytest.raises(EncoderError, match="--with-bank"):
        open_exported(folder).score(np.zeros((1, 70, 70, 3), np.uint8))


def test_a_store_stays_as_it_is_when_its_export_is_broken(folder: Path, tmp_path: Path) -> None:
    (folder / "model.onnx").write_bytes(b"")
    store = tmp_path / "store"
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    with pytest.raises(EncoderError, match="damaged"):
        Dinosaur.load(store, options=EncoderOptions(export=folder)).learn("nut", np.zeros((3, 70, 70, 3), np.uint8))
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_truncated_openvino_export_is_refused(tmp_path: Path) -> None:
    if reason := why_not("openvino", "float32"):
        pytest.skip(f"OpenVINO is not here: {reason}")
    folder = export(tmp_path / "out", kind="openvino", store=taught(tmp_path)).folder
    weights = folder / "model.bin"
    weights.write_bytes(weights.read_bytes()[:1000])
    refused(folder, "model.bin is missing or not the file that was written")
    write_manifest(folder, Manifest.from_json(json.loads((folder / "manifest.json").read_text())))
    refused(folder, "does not run here")
    assert read_manifest(folder).kind == "openvino"
