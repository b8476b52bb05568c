"""Thresholds from many folds: as many whatever the order of the images, none helped by what it shows, and stores that
know no folds go on as they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_copies import copied, unlike_images

import dinosaur_ad.bank.building as building
from detector_helpers import TINY, product, spoil, tiny
from dinosaur_ad import Dinosaur
from dinosaur_ad.bank.building import CALIBRATION_IMAGES, FIRST_CALIBRATION_IMAGES, BankBuilder
from dinosaur_ad.bank.image_features import ImageFeatures
from dinosaur_ad.core.calibration import alarm_level
from dinosaur_ad.core.memory import unseen_parts
from dinosaur_ad.presets import DEFAULT, GAINED, Preset
from dinosaur_ad.store import Store, copy_tasks

SETTINGS = ("folds", "map_softness", "map_closing", "map_relative")
EARLIER = replace(TINY, **{name: GAINED[name] for name in SETTINGS})
ALONE = replace(TINY, exposure=False)


def alike_images(images: int) -> ImageFeatures:
    """Images that differ a little, on a grid of 3 x 3 places."""
    rng = np.random.default_rng(images)
    patches = (rng.normal(size=(1, 3, 3, 6)) + 0.3 * rng.normal(size=(images, 3, 3, 6))).astype(np.float32)
    some = unlike_images(images)
    return some._replace(patches_NHWC=patches, descriptor_NC=patches.mean(axis=(1, 2)))


def learned(features: ImageFeatures, preset: Preset = ALONE) -> BankBuilder:
    builder = BankBuilder(preset, 0, "unseen")
    builder.add(features)
    return builder


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The sizes of the folds of every block that is calibrated, as it happens."""
    seen: list[list[int]] = []

    def watched(count: int, **options: int) -> Any:
        parts = list(unseen_parts(count, **options))
        seen.append([len(held_out) for held_out, _ in parts])
        return parts

    monkeypatch.setattr(building, "unseen_parts", watched)
    return seen


@pytest.mark.parametrize("images", [2, 7, 39, 41, 90])
def test_the_order_of_images_changes_no_fold(images: int, splits: list[list[int]]) -> None:
    features = alike_images(images)
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(images)
        builder = learned(features.some(order))
        assert sorted(builder.calibration.scored) == list(range(images))
    assert len(splits) == 4
    assert all(each == splits[0] for each in splits)
    assert len(splits[0]) == min(images, DEFAULT.folds)
    assert max(splits[0]) - min(splits[0]) <= 1


@pytest.mark.parametrize(("images", "scored", "earlier"), [(100, 100, 100), (430, 400, 258), (600, 405, 240)])
def test_up_to_400_images_are_scored_without_folds_200(images: int, scored: int, earlier: int) -> None:
    features = alike_images(images)
    assert FIRST_CALIBRATION_IMAGES == 400
    assert CALIBRATION_IMAGES == 200
    assert len(learned(features).calibration) == scored
    assert len(learned(features, replace(ALONE, folds=0)).calibration) == earlier


def test_later_blocks_are_scored_as_far_as_the_first_ones_left_room() -> None:
    features = alike_images(430)
    builder = learned(features.some(np.arange(150)))
    builder.add(features.some(np.arange(150, 430)))
    assert len(builder.calibration) - 150 >= FIRST_CALIBRATION_IMAGES - 150
    assert len(set(builder.calibration.scored)) == len(builder.calibration)


@pytest.mark.parametrize("images", [2, 9, 20])
def test_up_to_20_images_are_left_out_one_by_one_as_ever(images: int) -> None:
    features = alike_images(images)
    with_folds, without = learned(features), learned(features, replace(ALONE, folds=0))
    for name, values in with_folds.calibration.arrays().items():
        if name != "map_level":  # of the map, which the preset fuses otherwise
            np.testing.assert_array_equal(values, without.calibration.arrays()[name], err_msg=name)


@pytest.mark.parametrize("folds", [0, 5, 40, 1000])
@pytest.mark.parametrize("images", [2, 20, 45])
def test_no_image_is_calibrated_with_itself_however_many_folds(images: int, folds: int) -> None:
    features = unlike_images(images)
    builder = BankBuilder(replace(ALONE, folds=folds), 0, "unseen")
    builder.add(features, copied(features, 2))
    assert sorted(builder.calibration.scored) == list(range(images))
    assert np.all(builder.calibration.maps()["point"].max(axis=(1, 2)) > 9)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(2, 400),
    rates=st.lists(st.floats(1e-6, 0.999), min_size=2, max_size=6).map(sorted),
)
def test_a_higher_rate_never_raises_the_threshold(seed: int, count: int, rates: list[float]) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.lognormal(0, rng.uniform(0.01, 0.3), count).astype(np.float32)
    thresholds = [alarm_level(scores, rate) for rate in rates]
    assert thresholds == sorted(thresholds, reverse=True)
    within = [float((scores > threshold).mean()) for threshold in thresholds]
    assert within == sorted(within)


def test_a_higher_rate_never_raises_the_threshold_of_a_task() -> None:
    detector = tiny()
    detector.learn("x", product(0, 60))
    thresholds = [detector.threshold("x", rate) for rate in (0.001, 0.01, 0.025, 0.1, 0.5)]
    assert thresholds == sorted(thresholds, reverse=True)
    assert detector.threshold("x") == detector.threshold("x", DEFAULT.false_alarms)


# --- stores that know neither folds nor the softness of maps ---


def shown() -> list[NDArray[np.uint8]]:
    good = product(0, 4, seed=9)
    return [*good, *(spoil(image) for image in good), *product(1, 1)]


def answers(detector: Dinosaur) -> list[tuple[Any, ...]]:
    return [
        (each.verdict, each.score, each.threshold, each.readings, each.map.tolist())
        for each in detector.inspect(shown(), task="x")
    ]


@pytest.fixture
def stored_before(tmp_path: Path) -> tuple[Path, list[tuple[Any, ...]]]:
    """A store without the settings, and what was said by what made it."""
    detector = tiny(preset=EARLIER)
    detector.learn("x", product(0, 60))
    header = dict(detector.store.header)
    header["preset"] = {key: value for key, value in header["preset"].items() if key not in SETTINGS}
    copy_tasks(detector.store, Store.create(tmp_path / "store", header))
    return tmp_path / "store", answers(detector)


def test_a_store_made_before_gives_the_same_answers(stored_before: tuple[Path, list[tuple[Any, ...]]]) -> None:
    path, before = stored_before
    detector = Dinosaur(path)
    assert (detector.preset.folds, detector.preset.map_softness) == (0, 1.0)
    assert detector.preset == EARLIER
    assert answers(detector) == before


def test_a_store_made_before_is_taught_further_as_it_was(
    stored_before: tuple[Path, list[tuple[Any, ...]]], splits: list[list[int]]
) -> None:
    path, _ = stored_before
    detector, same = Dinosaur(path), tiny(preset=EARLIER)
    same.learn("x", product(0, 60))
    splits.clear()
    for each in (detector, same):
        each.update("x", product(0, 45, seed=4))
    assert splits[0] == splits[1]
    assert len(splits[0]) == 2000 // 105
    assert answers(detector) == answers(same)


def test_the_softness_of_maps_changes_where_and_not_whether() -> None:
    soft_alone = replace(TINY, map_closing=0.0, map_relative=0.0)
    hard, soft = tiny(preset=replace(soft_alone, map_softness=1.0)), tiny(preset=soft_alone)
    for detector in (hard, soft):
        detector.learn("x", product(0, 60))
    for one, other in zip(hard.inspect(shown(), task="x"), soft.inspect(shown(), task="x"), strict=True):
        assert (one.score, one.threshold, one.verdict) == (other.score, other.threshold, other.verdict)
        assert np.all(other.map <= one.map * (1 + 1e-3))


@pytest.mark.parametrize("smallest_area", [0, 100])
def test_the_shape_of_maps_changes_where_and_not_whether(smallest_area: int) -> None:
    """Nor the maps of a task with a smallest area, on which its verdicts depend."""
    as_fused, as_shipped = tiny(preset=replace(TINY, map_closing=0.0, map_relative=0.0)), tiny()
    for detector in (as_fused, as_shipped):
        detector.learn("x", product(0, 60))
        if smallest_area:
            detector.set("x", smallest_area=smallest_area)
    pairs = list(zip(as_fused.inspect(shown(), task="x"), as_shipped.inspect(shown(), task="x"), strict=True))
    for one, other in pairs:
        assert (one.score, one.threshold, one.verdict) == (other.score, other.threshold, other.verdict)
        assert (one.worst.row, one.worst.column) == (other.worst.row, other.worst.column)
    assert all(np.array_equal(one.map, other.map) for one, other in pairs) == bool(smallest_area)
