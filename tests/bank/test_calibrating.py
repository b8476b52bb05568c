"""Calibration images: their distances are kept, so that a reopened task goes on where it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from detector_helpers import TINY, TINY_FAST
from dinosaur_ad.bank.bank import read_images
from dinosaur_ad.bank.calibrating import Calibration
from dinosaur_ad.core.readings import Distances
from dinosaur_ad.presets import Preset

PRESETS = {"several readings": TINY, "without windows": replace(TINY, readings=("point", "located")), "one": TINY_FAST}


def some_distances(images: int, seed: int = 0, *, coarse: bool = True) -> Distances:
    rng = np.random.default_rng(seed)
    point = rng.lognormal(-1, 0.2, (images, 6, 6)).astype(np.float32)
    return Distances(point, rng.lognormal(-1, 0.2, (images, 2, 2)).astype(np.float32) if coarse else None)


def calibrated(preset: Preset, images: int = 12) -> Calibration:
    calibration = Calibration(preset)
    calibration.take(some_distances(images, coarse="coarse" in preset.readings), range(images))
    return calibration


def reopened(preset: Preset, calibration: Calibration) -> Calibration:
    return Calibration.stored(preset, calibration.arrays(), calibration.maps())


@pytest.fixture(params=PRESETS.values(), ids=PRESETS)
def preset(request: pytest.FixtureRequest) -> Preset:
    return request.param  # type: ignore[no-any-return]


def test_stored_and_reopened_it_gives_the_same_arrays(preset: Preset) -> None:
    calibration = calibrated(preset)
    again = reopened(preset, calibration)
    assert len(again) == len(calibration) == 12
    for one, other in ((calibration.arrays(), again.arrays()), (calibration.maps(), again.maps())):
        assert one.keys() == other.keys()
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name], err_msg=name)


def test_images_in_parts_count_as_at_once(preset: Preset) -> None:
    at_once, parts = calibrated(preset, 12), Calibration(preset)
    whole = some_distances(12, coarse="coarse" in preset.readings)
    for rows in (slice(0, 5), slice(5, 6), slice(6, 12)):
        parts.take(Distances(*(None if each is None else each[rows] for each in whole)), range(12)[rows])
        _ = parts.scores  # asked for in between
    for name, values in at_once.arrays().items():
        np.testing.assert_allclose(values, parts.arrays()[name], rtol=1e-6, err_msg=name)


def test_an_inspected_image_scores_as_it_did_when_it_calibrated(preset: Preset) -> None:
    calibration, distances = calibrated(preset), some_distances(12, coarse="coarse" in preset.readings)
    fused = read_images(distances, preset, calibration.scale)
    np.testing.assert_allclose(calibration.scores, fused.score_N, rtol=2e-3)  # distances are kept in float16
    np.testing.assert_allclose(calibration.levels, np.median(distances.point_NHW, axis=(1, 2)), rtol=1e-3)


def test_with_several_readings_one_is_the_usual_score() -> None:
    assert float(np.median(calibrated(TINY, 100).scores)) == pytest.approx(1.0, abs=0.03)
    assert calibrated(TINY).arrays()["map_level"][0] < 1


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_all_distances_fall_by_their_share(preset: Preset, share: float) -> None:
    calibration = calibrated(preset)
    scores, levels = calibration.scores.copy(), calibration.levels.copy()
    calibration.rescale([share] * 12, [share] * 12)
    np.testing.assert_allclose(calibration.levels, share * levels, rtol=2e-3)
    # Where all fall alike, what is usual falls too, and a fused score is relative to it.
    expected = scores if len(preset.readings) > 1 else share * scores
    np.testing.assert_allclose(calibration.scores, expected, rtol=2e-3)


def test_an_image_whose_distances_fall_scores_less(preset: Preset) -> None:
    calibration = calibrated(preset)
    before = calibration.scores.copy()
    calibration.rescale([0.7] + [1.0] * 11, [0.7] + [1.0] * 11)
    assert calibration.scores[0] < before[0]
    assert reopened(preset, calibration).scores.tolist() == calibration.scores.tolist()


def test_maps_are_kept_only_where_they_are_needed() -> None:
    assert calibrated(TINY_FAST).maps() == {}
    assert {name: values.dtype.name for name, values in calibrated(TINY).maps().items()} == {
        "point": "float16",
        "coarse": "float16",
        "scored": "int32",
        "counts": "bool",
    }


def test_an_image_as_far_from_the_normals_as_usual_keeps_its_map() -> None:
    scale = calibrated(TINY, 100).scale
    assert scale is not None
    closed_alone = replace(TINY, map_relative=0.0)
    assert "map_rest" not in calibrated(closed_alone).arrays()
    one, other = (read_images(some_distances(100, seed=4), each, scale).map_NHW for each in (TINY, closed_alone))
    assert float(np.median(one / other)) == pytest.approx(1, abs=0.02)
    assert not np.array_equal(one, other)


def test_held_out_images_do_not_say_what_is_usual() -> None:
    alone, apart = calibrated(TINY), Calibration(TINY)
    apart.take(some_distances(12), range(12), counts=False)
    far = some_distances(5, seed=3)
    apart.take(Distances(*(None if each is None else 3 * each for each in far)), [-1] * 5)
    assert alone.scale is not None
    assert apart.scale is not None
    for one, other in zip(alone.scale, apart.scale, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(apart.scores) == len(apart.levels) == 5
    assert apart.scores.min() > alone.scores.max()
    assert reopened(TINY, apart).scores.tolist() == apart.scores.tolist()


def test_held_out_images_must_do_where_there_are_no_others() -> None:
    calibration = Calibration(TINY)
    calibration.take(some_distances(12), [-1] * 12)
    np.testing.assert_array_equal(calibration.scores, calibrated(TINY).scores)
