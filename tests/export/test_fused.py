"""One file from pixels to score and map says what the detector says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from export_helpers import PRESETS, TESTS, taught
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from detector_helpers import TINY, product
from dinosaur_ad import Dinosaur
from dinosaur_ad.bank.bank import Memory, PackedVectors
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.projection import principal_axes
from dinosaur_ad.encoders import prepare
from dinosaur_ad.encoders.backends.exported import open_exported
from dinosaur_ad.errors import InputError
from dinosaur_ad.export.exporting import export
from dinosaur_ad.export.fused import GraphBank, add_bank, neighbourhoods
from dinosaur_ad.presets import FAST, Preset


def tokens_alone(side: int, channels: int) -> onnx.ModelProto:
    """A graph whose patches are its input: all there is to see is the scoring."""
    shape = ["N", side, side, channels]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["tokens"], ["patches"])],
        "tokens",
        [value("tokens", TensorProto.FLOAT, shape)],
        [value("patches", TensorProto.FLOAT, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def run(model: onnx.ModelProto, tokens: np.ndarray) -> list[np.ndarray]:
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["score", "map", "anomalous", "unknown"], {"tokens": tokens})


def test_a_bank_that_cannot_judge_is_not_exported(tmp_path: Path) -> None:
    odd = [np.zeros((70, 70, 3), np.uint8), np.full((70, 70, 3), 255, np.uint8), *product(0, 1)]
    detector = Dinosaur(tmp_path / "store", encoder="tiny-dinov2", preset=TINY)
    detector.learn("odd", odd, force=True)
    with pytest.raises(InputError, match="teach it more normal images"):
        export(tmp_path / "out", store=tmp_path / "store", task="odd", with_bank=True, false_alarms=0.001)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("position", "words"), [("free", "'free'"), ("moving", "'moving, registered'")])
def test_a_bank_whose_images_are_registered_or_lie_anywhere_is_not_exported(
    tmp_path: Path, position: str, words: str
) -> None:
    detector = Dinosaur(tmp_path / "store", encoder="tiny-dinov2", preset=TINY)
    detector.learn("plate", product(0, 8), position=position)
    with pytest.raises(InputError, match=f"position of the task 'plate' is {words}.*leave out --with-bank"):
        export(tmp_path / "out", store=tmp_path / "store", task="plate", with_bank=True)
    assert not (tmp_path / "out").exists()
    assert export(tmp_path / "out", store=tmp_path / "store").manifest.bank is None


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("encoder", ["tiny-dinov2", "tiny-dinov3"])
def test_the_graph_with_a_bank_says_what_the_detector_says(tmp_path: Path, name: str, encoder: str) -> None:
    store = taught(tmp_path, PRESETS[name], encoder)
    exported = export(tmp_path / "out", store=store, task="plate", with_bank=True, false_alarms=0.1)
    expected = Dinosaur.load(store).inspect(TESTS, task="plate", false_alarms=0.1)
    scored = open_exported(exported.folder).score(prepare(TESTS, exported.manifest.size))
    np.testing.assert_allclose(scored.score, [each.score for each in expected], rtol=1e-4)
    np.testing.assert_allclose(scored.map, np.stack([each.map for each in expected]), rtol=1e-3, atol=1e-4)
    assert scored.anomalous.tolist() == [each.anomalous for each in expected]
    assert scored.anomalous[6:].all()
    assert name == "paper" or not scored.anomalous[:6].all()  # its in-sample threshold calls every unseen image odd
    assert exported.manifest.bank is not None
    assert exported.manifest.bank["threshold"] == expected[0].threshold


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from(["float32", "float16", "int8"]),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_any_grid_radius_precision_and_share_is_scored_as_the_core_scores_it(
    side: int, radius: int, members: int, images: int, precision: str, top: float
) -> None:
    rng = np.random.default_rng(side + 10 * radius + 100 * members)
    tokens_NHWC = rng.normal(size=(images, side, side, 6)).astype(np.float32)
    kept = PackedVectors.of(rng.normal(size=(side, side, members, 6)).astype(np.float32), precision)
    preset = replace(FAST, layers=(0,), normalise=False, average=False, radius=radius, top=top)
    expected_NHW = kept.distances(tokens_NHWC, radius)
    bank = GraphBank(Memory(kept), threshold=2.0, unknown_level=2.5)
    score, distances, anomalous, unknown = run(add_bank(tokens_alone(side, 6), bank, preset), tokens_NHWC)
    np.testing.assert_allclose(distances, expected_NHW, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(score, pool(expected_NHW, top), rtol=1e-4)
    assert anomalous.tolist() == (score > 2.0).tolist()
    assert unknown.tolist() == (np.median(distances, axis=(1, 2)) > 2.5).tolist()


def test_a_bank_of_fewer_channels_is_scored_along_its_own_directions() -> None:
    rng = np.random.default_rng(0)
    tokens_NHWC = rng.normal(size=(9, 3, 3, 8)).astype(np.float32) * np.arange(1, 9, dtype=np.float32)
    kept = PackedVectors.of(rng.normal(size=(3, 3, 4, 8)).astype(np.float32), "int8", principal_axes(tokens_NHWC, 5))
    preset: Preset = replace(FAST, layers=(0,), normalise=False, average=False)
    _, distances, _, _ = run(add_bank(tokens_alone(3, 8), GraphBank(Memory(kept), 1.0), preset), tokens_NHWC)
    np.testing.assert_allclose(distances, kept.distances(tokens_NHWC, preset.radius), rtol=1e-4)


def test_a_patch_of_zeros_stays_zero_when_blocks_are_normalised() -> None:
    tokens_NHWC = np.zeros((1, 2, 2, 4), np.float32)
    kept = PackedVectors.of(np.full((2, 2, 1, 2), 3.0, np.float32), "float32")
    preset = replace(FAST, layers=(0, 1), normalise=True, average=True)
    _, distances, _, _ = run(add_bank(tokens_alone(2, 4), GraphBank(Memory(kept), 1.0), preset), tokens_NHWC)
    np.testing.assert_allclose(distances, np.sqrt(18.0), rtol=1e-6)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 4))
def test_every_patch_asks_exactly_the_places_within_the_radius(height: int, width: int, radius: int) -> None:
    around_LS, back_LS = neighbourhoods(height, width, radius)
    shifts = (2 * radius + 1) ** 2
    for patch in range(height * width):
        place_S, shift_S = np.divmod(back_LS[patch], shifts)
        assert (around_LS[place_S, shift_S] == patch).all()  # what it takes was found for it, and for no other
        row, column = divmod(patch, width)
        expected = {
            r * width + c for r in range(height) for c in range(width) if max(abs(r - row), abs(c - column)) <= radius
        }
        assert set(place_S.tolist()) == expected
