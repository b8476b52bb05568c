"""An export of a pair is one graph with both networks, and says what the detector says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from export_helpers import NORMALS, TESTS, write_images

from detector_helpers import TINY
from dinosaur_ad import Dinosaur, EncoderOptions
from dinosaur_ad.encoders import prepare
from dinosaur_ad.encoders.backends.exported import open_exported
from dinosaur_ad.encoders.providers import why_not
from dinosaur_ad.errors import EncoderError
from dinosaur_ad.export.exporting import check, export

PAIRS = ("tiny-dinov2+tiny-resnet", "tiny-dinov3+tiny-dinov2")


def taught(folder: Path, encoder: str) -> Path:
    detector = Dinosaur(folder / "store", encoder=encoder, preset=replace(TINY, size=112))
    detector.learn("plate", NORMALS)
    return folder / "store"


@pytest.mark.parametrize("encoder", PAIRS)
def test_the_graph_with_a_bank_says_what_the_detector_says(tmp_path: Path, encoder: str) -> None:
    store = taught(tmp_path, encoder)
    exported = export(tmp_path / "out", store=store, task="plate", with_bank=True, false_alarms=0.1)
    expected = Dinosaur.load(store).inspect(TESTS, task="plate", false_alarms=0.1)
    scored = open_exported(exported.folder).score(prepare(TESTS, 112))
    np.testing.assert_allclose(scored.score, [each.score for each in expected], rtol=1e-4)
    np.testing.assert_allclose(scored.map, np.stack([each.map for each in expected]), rtol=1e-3, atol=1e-4)
    assert scored.anomalous.tolist() == [each.anomalous for each in expected]
    assert scored.anomalous[6:].all()
    graph = onnx.load(exported.folder / "model.onnx").graph
    assert [value.name for value in graph.input] == ["images"]


@pytest.mark.parametrize("encoder", PAIRS)
@pytest.mark.parametrize(
    ("kind", "precision"),
    [("onnx", "float32"), ("onnx", "float16"), ("onnx", "int8"), ("openvino", "float32"), ("openvino", "int8")],
)
def test_a_store_is_inspected_through_an_export(tmp_path: Path, encoder: str, kind: str, precision: str) -> None:
    if kind == "openvino" and (reason := why_not("openvino", "float32")):
        pytest.skip(f"OpenVINO cannot run it here: {reason}")
    images = write_images(tmp_path / "images") / "train"
    store = taught(tmp_path, encoder)
    exported = export(tmp_path / "out", kind=kind, precision=precision, store=store, images=[images])
    found = Dinosaur(store, options=EncoderOptions(export=exported.folder)).inspect(TESTS)
    exact = Dinosaur(store).inspect(TESTS)
    near = 1e-4 if precision == "float32" else 0.15
    np.testing.assert_allclose([each.score for each in found], [each.score for each in exact], rtol=near)
    assert exported.manifest.encoder == encoder
    assert check(exported.folder, store=store, images=[images]).failure() is None


def test_the_readme_and_the_licence_of_an_export_name_both(tmp_path: Path) -> None:
    exported = export(tmp_path / "out", store=taught(tmp_path, PAIRS[0]))
    readme = (exported.folder / "README.txt").read_text()
    assert "three random DINOv2 blocks" in readme
    assert "three random residual blocks" in readme
    assert "float32 (N, 8, 8, 48)" in readme
    assert "16 channels of the second network" in readme
    assert "three random residual blocks" in (exported.folder / "LICENCE.txt").read_text()


def test_an_export_of_one_encoder_is_refused_for_a_pair(tmp_path: Path) -> None:
    store = taught(tmp_path, PAIRS[0])
    Dinosaur(tmp_path / "single", encoder="tiny-dinov2", preset=replace(TINY, size=112)).learn("plate", NORMALS)
    single = export(tmp_path / "out", store=tmp_path / "single")
    with pytest.raises(EncoderError, match=r"of the encoder 'tiny-dinov2', but 'tiny-dinov2\+tiny-resnet' is asked"):
        Dinosaur(store, options=EncoderOptions(export=single.folder)).inspect(TESTS[:1])
