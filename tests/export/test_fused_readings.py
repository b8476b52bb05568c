"""A graph with several readings and matched brightness says what the detector says: score, map and all verdicts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from export_helpers import NORMALS, TESTS, taught
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper
from test_fused import run, tokens_alone

import dinosaur_ad.export.exporting as export_module
from detector_helpers import product, shared_folder
from dinosaur_ad import Dinosaur, EncoderOptions, Inspection
from dinosaur_ad.bank.bank import Memory, PackedVectors, levels, read_images
from dinosaur_ad.core.exposure import Exposure, match_exposure, measure_exposure
from dinosaur_ad.core.projection import principal_axes
from dinosaur_ad.core.readings import READINGS, Distances, reading_scale, windows
from dinosaur_ad.core.zones import Zone
from dinosaur_ad.datasets import mvtec_scenario
from dinosaur_ad.encoders import prepare
from dinosaur_ad.encoders.backends.exported import ExportedEncoder, Scored, open_exported, write_manifest
from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.export.exporting import check, export
from dinosaur_ad.export.exposure_graph import add_exposure
from dinosaur_ad.export.fused import GraphBank, add_bank
from dinosaur_ad.presets import DEFAULT, FAST, Preset

Pixels = NDArray[np.uint8]

SEVERAL = replace(DEFAULT, name="several", layers=(0, 1), size=70)
SINGLE = replace(FAST, name="single", layers=(0, 1), size=70)


def lit(image: Pixels, gain: float, shift: float) -> Pixels:
    """The image under another light."""
    return np.clip(image * gain + shift, 0, 255).astype(np.uint8)


# Parts good and bad under several lights, another product, and frames that show nothing.
SHOWN = [
    *(lit(image, gain, shift) for gain, shift in ((1, 0), (0.4, 0), (0.7, 70), (0.1, 120)) for image in TESTS[3:9]),
    *product(1, 2, seed=3),
    np.zeros((70, 70, 3), np.uint8),
    np.full((70, 70, 3), 255, np.uint8),
    np.random.default_rng(0).integers(0, 256, (70, 70, 3), np.uint8),
]


def verdicts(scored: Scored) -> list[str]:
    """In words, as the README of an export says them."""
    pairs = zip(scored.unknown, scored.anomalous, strict=True)
    return ["unknown" if unknown else "anomalous" if anomalous else "normal" for unknown, anomalous in pairs]


def assert_same(scored: Scored, expected: list[Inspection], rtol: float = 1e-4) -> None:
    np.testing.assert_allclose(scored.score, [each.score for each in expected], rtol=rtol)
    np.testing.assert_allclose(scored.map, np.stack([each.map for each in expected]), rtol=10 * rtol)
    assert verdicts(scored) == [each.verdict for each in expected]


# --- brightness ---


def pixels_alone(size: int) -> onnx.ModelProto:
    """A graph that gives its pixels as numbers: all there is to see is how they are matched."""
    shape, value = ["N", size, size, 3], helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Cast", ["images"], ["seen"], to=TensorProto.FLOAT)],
        "pixels",
        [value("images", TensorProto.UINT8, shape)],
        [value("seen", TensorProto.FLOAT, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from([1, 8, 63]), st.integers(0, 15), st.integers(1, 15), st.floats(0, 1.5)
)
def test_pixels_are_matched_as_the_core_matches_them(
    seed: int, size: int, mean: int, spread: int, contrast: float
) -> None:
    rng, target = np.random.default_rng(seed), Exposure(16.0 * mean, 8.0 * spread)
    images = [lit(rng.integers(0, 256, (size, size, 3)), contrast, rng.uniform(-50, 150)) for _ in range(3)]
    pixels = np.stack([*images, np.full((size, size, 3), rng.integers(0, 256), np.uint8)])
    model = add_exposure(pixels_alone(size), target)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (seen,) = session.run(["seen"], {"images": pixels})
    expected = match_exposure(pixels, measure_exposure(pixels), target)
    # A value half way between two grey levels may be rounded to either.
    assert np.abs(seen - expected).max() <= 1
    assert (seen != expected).mean() < 0.02


# --- readings ---


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(0, 2),
    st.sampled_from(["float32", "float16", "int8"]),
    st.sampled_from([("point", "located"), ("located", "coarse"), READINGS]),
    st.booleans(),
    st.sampled_from([1.0, 2.5, DEFAULT.map_softness, 1000.0]),
    st.sampled_from([(0.0, 0.0), (DEFAULT.map_closing, DEFAULT.map_relative), (1.0, 0.0), (0.0, 1.0)]),
    st.floats(0.05, 1.0),
)
def test_any_grid_and_readings_are_fused_as_the_core_fuses_them(
    side: int,
    radius: int,
    precision: str,
    names: tuple[str, ...],
    narrow: bool,
    softness: float,
    shape: tuple[float, float],
    inspected: float,
) -> None:
    rng = np.random.default_rng(side + 10 * radius)
    tokens_NHWC = rng.normal(size=(3, side, side, 6)).astype(np.float32)
    tokens_NHWC[1] *= 3
    basis_CK = principal_axes(tokens_NHWC, 4) if narrow and precision == "int8" else None
    patches_HWMC = rng.normal(size=(side, side, 3, 6)).astype(np.float32)
    own = patches_HWMC if basis_CK is None else patches_HWMC @ basis_CK
    patches = PackedVectors.projected(own, precision, basis_CK)
    coarse_hwMC = windows(own.transpose(2, 0, 1, 3)).transpose(1, 2, 0, 3)
    memory = Memory(patches, coarse=PackedVectors.projected(coarse_hwMC, precision, basis_CK))
    distances = memory.distances(tokens_NHWC, radius)
    mask_HW = rng.random((side, side)) < inspected
    mask_HW[0, 0] = True
    zone = None if mask_HW.all() else Zone.of(mask_HW)
    scale = reading_scale(Distances(distances.point_NHW * 0.8, distances.coarse_Nhw * 0.7), names, zone)
    scale = scale._replace(map_rest=0.9)
    changes: dict[str, Any] = {"radius": radius, "readings": names, "map_softness": softness}
    changes |= dict(zip(("map_closing", "map_relative"), shape, strict=True))
    preset = replace(DEFAULT, layers=(0,), normalise=False, average=False, **changes)
    expected = read_images(distances, preset, scale, zone)
    threshold, limit = float(np.median(expected.score_N)) * 1.001, float(np.median(levels(distances, zone))) * 1.001
    graph = add_bank(tokens_alone(side, 6), GraphBank(memory, threshold, limit, scale, zone=zone), preset)
    score, fused_map, anomalous, unknown = run(graph, tokens_NHWC)
    np.testing.assert_allclose(score, expected.score_N, rtol=1e-4)
    np.testing.assert_allclose(fused_map, expected.map_NHW, rtol=1e-4)
    assert anomalous.tolist() == (expected.score_N > threshold).tolist()
    assert unknown.tolist() == (levels(distances, zone) > limit).tolist()


# --- a task of a store ---


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taught(tmp_path_factory.mktemp("several"), SEVERAL)


@pytest.fixture(scope="module")
def folder(store: Path) -> Path:
    return export(store.parent / "out", store=store, task="plate", with_bank=True, false_alarms=0.1).folder


@pytest.fixture(scope="module")
def encoder(folder: Path) -> ExportedEncoder:
    return open_exported(folder)


@pytest.mark.parametrize("at_once", [1, 3])
def test_scores_maps_and_verdicts_are_those_of_inspect(store: Path, encoder: ExportedEncoder, at_once: int) -> None:
    expected = Dinosaur.load(store).inspect(SHOWN, task="plate", false_alarms=0.1)
    pixels = prepare(SHOWN, 70)
    parts = [encoder.score(pixels[start : start + at_once]) for start in range(0, len(pixels), at_once)]
    assert_same(Scored(*(np.concatenate(each) for each in zip(*parts, strict=True))), expected)
    assert {each.verdict for each in expected} == {"normal", "anomalous", "unknown"}  # all of them were there to see


def test_the_bank_lies_in_the_file_as_it_is_stored(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    kinds = {each.name: each.data_type for each in model.graph.initializer if each.name.startswith("bank")}
    wide = TensorProto.FLOAT
    assert kinds == {
        **{"bank": TensorProto.INT8, "bank_scale": wide},
        **{"bank_coarse": TensorProto.INT8, "bank_coarse_scale": wide},
    }
    readme = (folder / "README.txt").read_text()
    assert "unknown    bool (N,)" in readme
    assert "1 is usual for a good part" in readme


def test_its_encoder_matches_brightness_itself_and_serves_its_own_task_alone(store: Path, folder: Path) -> None:
    plain = Dinosaur.load(store).inspect(SHOWN)
    detector = Dinosaur.load(store, options=EncoderOptions(export=folder))
    other = detector.inspect(SHOWN)
    np.testing.assert_allclose([each.score for each in other], [each.score for each in plain], rtol=1e-4)
    assert [each.verdict for each in other] == [each.verdict for each in plain]
    with pytest.raises(EncoderError, match=r"can inspect no other; export the encoder without --with-bank\.$"):
        detector.learn("dark", [lit(image, 0.3, 0) for image in NORMALS])


def test_an_export_of_the_encoder_alone_serves_every_task(store: Path, tmp_path: Path) -> None:
    alone = export(tmp_path / "alone", store=store)
    detector = Dinosaur.load(store, options=EncoderOptions(export=alone.folder))
    assert alone.parity.bank_error is None
    np.testing.assert_allclose(
        [each.score for each in detector.inspect(SHOWN)],
        [each.score for each in Dinosaur.load(store).inspect(SHOWN)],
        rtol=1e-4,
    )


def test_the_gate_compares_scores_and_verdicts(store: Path, folder: Path) -> None:
    parity = check(folder, store=store)
    assert parity.bank_error is not None
    assert parity.bank_error < 1e-4
    assert parity.bank_verdicts == 0


def test_a_graph_with_other_verdicts_is_refused(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(model: onnx.ModelProto, bank: GraphBank, *rest: object) -> onnx.ModelProto:
        return add_bank(model, bank._replace(unknown_level=math.inf), *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(export_module, "add_bank", blind)
    with pytest.raises(EncoderError, match="its graph gives other verdicts than the detector on 12 images"):
        export(tmp_path / "out", store=store, with_bank=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("preset", [SEVERAL, SINGLE])
def test_a_graph_leaves_out_what_a_zone_leaves_out(tmp_path: Path, preset: Preset) -> None:
    store = taught(tmp_path, preset)
    detector = Dinosaur.load(store)
    whole = detector.inspect(SHOWN, task="plate", false_alarms=0.1)
    detector.set("plate", zones=[{"inspect": [[0, 0], [40, 0], [40, 70], [0, 70]]}])
    expected = detector.inspect(SHOWN, task="plate", false_alarms=0.1)
    made = export(tmp_path / "out", store=store, task="plate", with_bank=True, false_alarms=0.1)
    assert_same(open_exported(made.folder).score(prepare(SHOWN, 70)), expected)
    assert [each.score for each in expected] != [each.score for each in whole]
    assert (made.manifest.bank or {})["inspected"] == detector.settings("plate").inspected
    assert "Only 60% of the image is inspected" in (made.folder / "README.txt").read_text()
    assert check(made.folder, store=store).bank_verdicts == 0


def test_a_task_with_a_smallest_area_is_not_exported(tmp_path: Path) -> None:
    store = taught(tmp_path, SEVERAL)
    Dinosaur.load(store).set("plate", smallest_area=300)
    with pytest.raises(InputError, match=r"smallest area.*dinosaur set plate --smallest-area 0"):
        export(tmp_path / "out", store=store, task="plate", with_bank=True)


def test_an_export_from_before_the_verdict_unknown_still_runs(tmp_path: Path) -> None:
    store = taught(tmp_path, SINGLE)
    made = export(tmp_path / "out", store=store, with_bank=True)
    before = open_exported(made.folder).score(prepare(SHOWN, 70))
    model = onnx.load(made.folder / "model.onnx")
    kept = [output for output in model.graph.output if output.name != "unknown"]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    onnx.save(model, made.folder / "model.onnx")
    assert made.manifest.bank is not None
    later = ("unknown_level", "exposure", "readings")
    bank = {key: value for key, value in made.manifest.bank.items() if key not in later}
    scoring = {
        key: value
        for key, value in made.manifest.made["scoring"].items()
        if key not in ("exposure", "readings", "precision", "budget")
    }
    write_manifest(made.folder, replace(made.manifest, bank=bank, made={**made.manifest.made, "scoring": scoring}))
    after = open_exported(made.folder).score(prepare(SHOWN, 70))
    np.testing.assert_array_equal(after.score, before.score)
    assert before.unknown.any()
    assert not after.unknown.any()
    assert check(made.folder, store=store).bank_verdicts == 0


# --- the real encoder, on real images ---


@pytest.mark.slow
def test_the_preset_that_ships_says_the_same_on_real_images(tmp_path: Path) -> None:
    (task,) = (
        each for each in mvtec_scenario(shared_folder("DINOSAUR_DATA") / "mvtec_ad").tasks if each.name == "bottle"
    )
    detector = Dinosaur(tmp_path / "store", preset=DEFAULT)
    detector.learn("bottle", [sample.image() for sample in task.train[::8]])
    shown = [sample.image() for sample in task.test[::8]]
    shown += [lit(shown[0], 0.5, 10), np.zeros((100, 100, 3), np.uint8)]
    made = export(tmp_path / "out", store=tmp_path / "store", with_bank=True)
    scored = open_exported(made.folder).score(prepare(shown, DEFAULT.size))
    assert_same(scored, detector.inspect(shown, task="bottle"), rtol=1e-3)
    assert scored.unknown[-1]
