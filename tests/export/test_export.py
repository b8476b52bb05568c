"""Exports as a user makes and uses them: every format and precision, with the licence, and only when they are right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from export_helpers import TESTS, taught, write_images

import dinosaur_ad.export.exporting as export_module
from dinosaur_ad import Dinosaur, EncoderOptions, load_encoder
from dinosaur_ad.encoders import prepare
from dinosaur_ad.encoders.backends import exported
from dinosaur_ad.encoders.backends.exported import open_exported, read_manifest
from dinosaur_ad.encoders.providers import why_not
from dinosaur_ad.errors import DinosaurError, EncoderError, InputError
from dinosaur_ad.export import gate
from dinosaur_ad.export.exporting import Exported, check, export

WAYS = [
    ("onnx", "float32"),
    ("onnx", "float16"),
    ("onnx", "int8"),
    ("openvino", "float32"),
    ("openvino", "float16"),
    ("openvino", "bfloat16"),
    ("openvino", "int8"),
    ("tensorrt", "float16"),
    ("tensorrt", "int8"),
]


def need(kind: str, precision: str) -> None:
    """Skip where the run time of an export is not here."""
    if kind == "openvino" and (reason := why_not("openvino", precision if precision == "bfloat16" else "float32")):
        pytest.skip(f"OpenVINO cannot run it here: {reason}")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return taught(tmp_path, from_files=True)


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def refusal(error: pytest.ExceptionInfo[DinosaurError]) -> str:
    """What was said, which is one sentence."""
    sentence = str(error.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


@pytest.mark.parametrize(("kind", "precision"), WAYS)
def test_an_export_runs_as_the_encoder_of_its_store(tmp_path: Path, store: Path, kind: str, precision: str) -> None:
    need(kind, precision)
    exported = export(tmp_path / "out", kind=kind, precision=precision, store=store)
    assert hidden(tmp_path) == []
    plain, other = Dinosaur.load(store), Dinosaur.load(store, options=EncoderOptions(export=exported.folder))
    assert other.info()["precision"] == precision
    assert other.info()["backend"] == ("openvino" if kind == "openvino" else "onnx")
    assert other.encoder.fingerprint == plain.encoder.fingerprint
    expected, found = ([each.score for each in each_one.inspect(TESTS)] for each_one in (plain, other))
    limit = gate.LIMITS[precision]
    assert np.corrcoef(expected, found)[0, 1] >= limit.correlation
    assert np.allclose(expected, found, rtol=3 * limit.shift)


@pytest.mark.parametrize(("kind", "precision"), WAYS)
def test_the_figures_and_the_licence_travel(tmp_path: Path, store: Path, kind: str, precision: str) -> None:
    need(kind, precision)
    exported = export(tmp_path / "out", kind=kind, precision=precision, store=store)
    manifest = json.loads((exported.folder / "manifest.json").read_text())
    assert manifest["licence"] == "Apache-2.0"
    assert "Apache-2.0" in (exported.folder / "LICENCE.txt").read_text()
    readme = (exported.folder / "README.txt").read_text()
    assert "uint8 (N, 70, 70, 3)" in readme
    assert "float32 (N, 5, 5, 32)" in readme
    assert manifest["precision"] == precision
    assert manifest["parity"]["tokens"]["finite"] is True
    assert manifest["parity"]["pearson"] >= manifest["parity"]["limits"]["correlation"]
    assert manifest["made"]["calibration_images"] == (20 if precision == "int8" else 0)
    assert read_manifest(exported.folder) == exported.manifest
    assert "/" not in "".join(manifest["files"])
    assert str(tmp_path) not in json.dumps(manifest)  # where the images lie is nobody's business


@pytest.mark.parametrize(("kind", "precision"), [("openvino", "float32"), ("openvino", "int8"), ("onnx", "int8")])
def test_a_bank_in_the_graph_survives_format_and_precision(
    tmp_path: Path, store: Path, kind: str, precision: str
) -> None:
    need(kind, precision)
    exported = export(tmp_path / "out", kind=kind, precision=precision, store=store, with_bank=True)
    encoder = open_exported(exported.folder)
    detector = Dinosaur.load(store, options=EncoderOptions(export=exported.folder))
    expected = detector.inspect(TESTS, task="plate")
    scored = encoder.score(prepare(TESTS, 70))
    # The same tokens, scored here by the graph and there by the detector.
    np.testing.assert_allclose(scored.score, [each.score for each in expected], rtol=2e-3)
    assert scored.anomalous.tolist() == [each.anomalous for each in expected]


def test_labelled_images_give_the_change_of_auroc(tmp_path: Path, store: Path) -> None:
    exported = export(
        tmp_path / "out", precision="int8", store=store, labelled=tmp_path / "images" / "test", task="plate"
    )
    assert exported.parity.auroc_reference == 1.0
    assert exported.parity.auroc_change is not None
    assert exported.parity.auroc_change >= -0.003
    assert exported.manifest.parity["auroc"] == exported.parity.auroc


def test_an_encoder_without_a_store_is_exported_and_loaded_by_name(tmp_path: Path) -> None:
    from detector_helpers import TINY

    exported = export(tmp_path / "out", encoder="tiny-dinov2", preset=TINY)
    assert exported.parity.source.startswith("drawn")
    encoder = load_encoder("tiny-dinov2", layers=(0, 1), size=70, export=exported.folder)
    reference = load_encoder("tiny-dinov2", layers=(0, 1), size=70)
    np.testing.assert_allclose(encoder.encode(TESTS).cls, reference.encode(TESTS).cls, rtol=1e-4, atol=1e-5)


def test_many_images_in_batches_go_through_streams_and_come_out_the_same(tmp_path: Path, store: Path) -> None:
    need("openvino", "float32")
    encoder = open_exported(export(tmp_path / "out", kind="openvino", store=store).folder, threads=2)
    pixels = np.concatenate([prepare(TESTS, 70)] * 8)
    first, later = encoder.encode_prepared(pixels[:12]), encoder.encode_prepared(pixels)
    assert encoder._runner._queue is not None  # type: ignore[attr-defined]
    np.testing.assert_allclose(later.patches[-12:], first.patches, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(later.cls[-12:], first.cls, rtol=1e-4, atol=1e-5)


def test_making_and_running_an_export_needs_no_torch(tmp_path: Path, store: Path) -> None:
    code = f"""
import sys
sys.modules.update(torch=None, transformers=None, scipy=None)  # importing them fails
from dinosaur_ad.export.exporting import check, export
made = export({str(tmp_path / "out")!r}, precision="int8", store={str(store)!r}, with_bank=True)
check(made.folder, store={str(store)!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


# --- refusals ---


def test_what_is_not_near_enough_is_refused_with_the_figures_and_leaves_nothing(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gate.LIMITS, "int8", gate.Limits(correlation=1.1, shift=0.03))
    with pytest.raises(EncoderError, match=r"scores correlate 0\.9\d+ with those of float32 \(1\.1 asked\)") as error:
        export(tmp_path / "out", precision="int8", store=store)
    assert "token cosine at least 0.9" in refusal(error)
    assert not (tmp_path / "out").exists()
    assert hidden(tmp_path) == []


def test_tokens_that_are_far_off_are_refused(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_weights(monkeypatch, lambda value: -value)
    (tmp_path / "out").mkdir()
    with pytest.raises(EncoderError, match="too far from those of float32") as error:
        export(tmp_path / "out", store=store)
    refusal(error)
    assert list((tmp_path / "out").iterdir()) == []
    assert hidden(tmp_path) == []


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_weights(monkeypatch, lambda value: value * np.float32(np.inf))
    with pytest.raises(EncoderError, match=f"The export {tmp_path / 'out'} gives numbers that are not finite") as error:
        export(tmp_path / "out", store=store)
    refusal(error)
    assert not (tmp_path / "out").exists()


def spoil_weights(monkeypatch: pytest.MonkeyPatch, change: object) -> None:
    """Let the next graph come out wrong, as a faulty conversion would make it."""
    real = export_module._in_precision

    def wrong(model: onnx.ModelProto, *rest: object) -> onnx.ModelProto:
        converted = real(model, *rest)  # type: ignore[arg-type]
        tensor = next(each for each in converted.graph.initializer if len(each.dims) == 2)
        value = change(onnx.numpy_helper.to_array(tensor))  # type: ignore[operator]
        tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
        return converted

    monkeypatch.setattr(export_module, "_in_precision", wrong)


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, store: Path) -> None:
    with pytest.raises(InputError, match="not an empty folder") as error:
        export(store, store=store)
    refusal(error)
    assert Dinosaur.load(store).tasks()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kind": "coreml"}, "no format 'coreml'; choose one of: onnx, openvino, tensorrt"),
        ({"precision": "int4"}, "no precision 'int4'"),
        ({"precision": "bfloat16"}, "use --format openvino"),
        ({"kind": "tensorrt", "precision": "bfloat16"}, "use --format openvino"),
        ({"kind": "openvino", "precision": "bfloat16", "with_bank": True}, "too coarse"),
        ({"task": "nut"}, "nut"),
        ({"encoder": "tiny-dinov3"}, "leave out --encoder"),
        ({"with_bank": True, "false_alarms": 1.5}, "between 0 and 1"),
        ({"store": None, "with_bank": True}, "name it with --store"),
        ({"store": None, "precision": "int8"}, "a store keeps none; give those it was taught from with --images"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, store: Path, options: dict[str, object], says: str) -> None:
    if options.get("kind") == "openvino":
        need("openvino", "bfloat16")
    with pytest.raises(DinosaurError, match=says) as error:
        export(tmp_path / "out", **({"store": store} | options))  # type: ignore[arg-type]
    refusal(error)
    assert not (tmp_path / "out").exists()


def test_the_task_must_be_named_where_there_are_several(tmp_path: Path, store: Path) -> None:
    Dinosaur.load(store).learn("nut", tmp_path / "images" / "test" / "good")
    with pytest.raises(InputError, match=r"--task: plate, nut\.$") as error:
        export(tmp_path / "out", store=store, with_bank=True)
    refusal(error)


def test_int8_needs_images_that_are_still_there(tmp_path: Path) -> None:
    store = taught(tmp_path)  # from arrays: the store has labels, and no files lie behind them
    with pytest.raises(InputError, match="--images") as error:
        export(tmp_path / "out", precision="int8", store=store)
    refusal(error)
    normals = write_images(tmp_path / "images") / "train"
    assert export(tmp_path / "out", precision="int8", store=store, images=[normals]).manifest.precision == "int8"


# --- on the target ---


@pytest.fixture
def made(tmp_path: Path, store: Path) -> Exported:
    return export(tmp_path / "out", store=store, with_bank=True)


def test_the_gate_runs_again_on_any_machine(
    made: Exported, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in made.folder.iterdir()}
    assert check(made.folder).source.startswith("drawn")
    assert "the bank in the graph is not compared" in capsys.readouterr().err
    assert check(made.folder, store=store).pearson > 0.9999
    assert "not compared" not in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in made.folder.iterdir()} == before
    monkeypatch.setitem(gate.LIMITS, "float32", gate.Limits(correlation=1.1, shift=0.1))
    with pytest.raises(EncoderError, match="The export is refused") as error:
        check(made.folder)
    refusal(error)


def test_an_export_of_other_weights_cannot_be_checked(
    made: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.numpy import save_file

    from dinosaur_ad.encoders.weights.local import ensure

    tensors = {name: value + 1 for name, value in ensure("tiny-dinov2").tensors().items()}
    save_file(tensors, tmp_path / "other.safetensors")
    with pytest.raises(EncoderError, match="other weights") as error:
        check(made.folder, weights=tmp_path / "other.safetensors")
    refusal(error)


def test_bfloat16_on_a_cpu_without_it_falls_back_aloud_and_not_with_strict(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need("openvino", "bfloat16")
    made = export(tmp_path / "out", kind="openvino", precision="bfloat16", store=store)
    old = exported.why_not
    monkeypatch.setattr(
        exported, "why_not", lambda name, kind: "the CPU is old" if kind == "bfloat16" else old(name, kind)
    )
    encoder = open_exported(made.folder)
    assert encoder.info()["precision"] == "float32"
    assert str(encoder.info()["fallback"]) in capsys.readouterr().err
    with pytest.raises(EncoderError, match="the CPU is old") as error:
        open_exported(made.folder, strict=True)
    refusal(error)


def test_tensorrt_is_an_onnx_file_a_script_and_a_check_to_be_run_there(tmp_path: Path, store: Path) -> None:
    if why_not("tensorrt", "float32") is None:
        pytest.skip("TensorRT is here: nothing is fallen back from")
    made = export(tmp_path / "out", kind="tensorrt", precision="float16", store=store)
    script = (made.folder / "build_engine.sh").read_text()
    assert "trtexec --onnx=model.onnx" in script
    assert "--maxShapes=images:8x70x70x3" in script
    model = onnx.load(made.folder / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node if "images" in node.input] == ["Cast"]
    assert made.parity.provider == "onnx-cpu"
    assert "TensorRT" in str(open_exported(made.folder).fallback)
    with pytest.raises(EncoderError, match="TensorRT"):
        open_exported(made.folder, strict=True)
