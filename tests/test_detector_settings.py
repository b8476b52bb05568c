"""Zones, sensitivity and smallest area of a task, from teaching to the verdict, on a tiny encoder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from detector_helpers import product, spoil, tiny
from dinosaur_ad import Dinosaur, InputError, StoreError, TaskSettings
from dinosaur_ad.bank.bank import read_images, task_sensitivity
from dinosaur_ad.bank.bank_files import open_bank, read_bank, read_calibration_maps
from dinosaur_ad.bank.calibrating import Calibration
from dinosaur_ad.bank.settings import Settings
from dinosaur_ad.core.zones import Zone
from dinosaur_ad.presets import DEFAULT, FAST

# A grid of 14 x 14 patches; small enough that teaching takes a second or two.
WIDE = replace(DEFAULT, name="wide", layers=(0, 1), size=196, copies=0)
LEFT = [[0, 0], [100, 0], [100, 200], [0, 200]]
PATCH = 200 * 200 / 14**2


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taught") / "store"
    tiny(folder, WIDE).learn("plate", product(0, 20, size=200))
    return folder


@pytest.fixture
def detector(taught: Path, tmp_path: Path) -> Dinosaur:
    Dinosaur.load(taught).save(tmp_path / "store")
    return Dinosaur.load(tmp_path / "store")


@pytest.fixture(scope="module")
def good() -> NDArray[np.uint8]:
    return product(0, 1, seed=12, size=200)[0]


@pytest.fixture(scope="module")
def bad(good: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """With a defect on its left half."""
    return spoil(good, 40, 40)


@pytest.fixture(scope="module")
def speck(good: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """With a small defect on its right half: its map lies above the threshold at five patches."""
    spoiled = good.copy()
    spoiled[102:108, 102:108] = (250, 10, 240)
    return spoiled


def _verdicts(detector: Dinosaur, *images: NDArray[np.uint8]) -> list[str]:
    return [detector.inspect(image).verdict for image in images]


def test_a_defect_alarms_inside_a_zone_and_not_outside(
    detector: Dinosaur, good: NDArray[np.uint8], bad: NDArray[np.uint8]
) -> None:
    assert _verdicts(detector, good, bad) == ["normal", "anomalous"]
    changed = detector.set("plate", zones=[{"inspect": LEFT}])
    assert (changed.before.inspected, changed.after.inspected) == (1.0, 0.5)
    assert changed.after == detector.settings("plate")
    assert _verdicts(detector, good, bad) == ["normal", "anomalous"]
    detector.set("plate", zones=[{"ignore": LEFT}])
    result = detector.inspect(bad)
    assert result.verdict == "normal"
    assert not result.map[:, :7].any()
    assert result.inspected is not None
    np.testing.assert_array_equal(result.inspected[0], [False] * 7 + [True] * 7)
    assert result.to_json()["inspected"] == 0.5
    assert result.worst.column >= 7


def test_the_threshold_of_a_zone_is_recomputed_from_the_stored_calibration(detector: Dinosaur) -> None:
    store, whole = detector.store, detector.threshold("plate")
    record = store.record("plate")
    detector.set("plate", zones=[{"inspect": LEFT}])
    patches_HW = np.zeros((14, 14), bool)
    patches_HW[:, :7] = True
    bank = read_bank(store, record)[0]
    literal = Calibration.stored(WIDE, bank, read_calibration_maps(store, record, WIDE), Zone.of(patches_HW))
    expected = task_sensitivity(WIDE, Settings(), literal.scores).threshold
    assert detector.threshold("plate") == expected != whole
    detector.verify("plate")
    # What the control images get is that of the zone too.
    zoned = open_bank(store, store.record("plate"), WIDE)
    distances = zoned.distances(detector._features.controls(zoned.exposure), WIDE.radius)
    scores = read_images(distances, WIDE, literal.scale, Zone.of(patches_HW)).score_N
    np.testing.assert_array_equal(zoned.control_scores, scores)


def test_the_threshold_of_a_zone_is_near_that_of_a_task_that_never_sees_the_rest(detector: Dinosaur) -> None:
    masked = product(0, 20, size=200)
    for image in masked:
        image[:, 100:] = 0
    other = tiny(None, WIDE)
    other.learn("masked", masked)
    other.set("masked", zones=[{"inspect": LEFT}])
    detector.set("plate", zones=[{"inspect": LEFT}])
    assert detector.threshold("plate") == pytest.approx(other.threshold("masked"), rel=0.1)


def test_settings_are_undone_kept_by_updates_and_there_when_reopened(
    detector: Dinosaur, bad: NDArray[np.uint8], good: NDArray[np.uint8]
) -> None:
    before = detector.inspect(bad).to_json()
    detector.set("plate", zones=[{"ignore": LEFT}], sensitivity=2, smallest_area=200)
    there = detector.settings("plate")
    again = Dinosaur.load(detector.store.path)  # type: ignore[attr-defined]
    assert again.settings("plate") == there
    assert again.inspect(bad).to_json() | {"ms": {}} == detector.inspect(bad).to_json() | {"ms": {}}
    learned = again.update("plate", product(0, 3, seed=99, size=200))
    after = again.settings("plate")
    assert (after.false_alarms, after.inspected, after.smallest_area) == (there.false_alarms, 0.5, 200)
    assert (learned.threshold_before, learned.threshold) == (there.threshold, after.threshold)
    assert again.inspect(bad).verdict == "normal"
    assert (again.undo("plate"), again.undo("plate")) == ("update", "set")
    assert again.inspect(bad).to_json() | {"ms": {}} == before | {"ms": {}}
    assert again.redo("plate") == "set"
    assert again.settings("plate") == there
    again.learn("plate", product(0, 12, size=200), replace=True)
    assert again.settings("plate").inspected == 1.0


def test_taking_zones_away_gives_back_every_number(detector: Dinosaur) -> None:
    before = {name: array.copy() for name, array in detector.store.arrays(detector.tasks()[0], "bank").items()}
    detector.set("plate", zones=np.tri(50, dtype=bool))
    detector.set("plate", no_zones=True)
    after = detector.store.arrays(detector.tasks()[0], "bank")
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)
    assert "settings" not in detector.tasks()[0].manifest


def test_the_sensitivity_of_a_task_decides_unless_a_rate_is_given(detector: Dinosaur, good: NDArray[np.uint8]) -> None:
    usual = detector.inspect(good)
    assert usual.false_alarms == WIDE.false_alarms
    detector.set("plate", false_alarms=0.3)
    strict = detector.inspect(good)
    assert (strict.false_alarms, strict.threshold) == (0.3, detector.threshold("plate"))
    assert strict.threshold < usual.threshold
    assert detector.inspect(good, false_alarms=0.025).threshold == usual.threshold
    detector.set("plate", threshold=usual.score * 0.9)
    fixed = detector.inspect(good)
    assert fixed.verdict == "anomalous"
    assert fixed.threshold == usual.score * 0.9
    assert fixed.false_alarms > 0.1
    assert detector.settings("plate").fixed_threshold
    detector.set("plate", sensitivity=5)
    assert detector.inspect(good).threshold == usual.threshold
    detector.set("plate", threshold=1000.0)
    assert detector.inspect(good).verdict == "not ready"
    changed = detector.set("plate", preset_sensitivity=True)
    assert not changed.not_ready
    assert changed.after == TaskSettings(usual.threshold, WIDE.false_alarms, False, 1.0, 0, "aligned")


def test_a_threshold_that_nothing_reaches_is_said_at_once(detector: Dinosaur) -> None:
    assert "even pictures of something else" in detector.set("plate", threshold=1000.0).not_ready


def test_regions_below_the_smallest_area_do_not_count(
    detector: Dinosaur, bad: NDArray[np.uint8], speck: NDArray[np.uint8]
) -> None:
    found = detector.inspect(speck)
    assert [round(region.area / PATCH) for region in found.regions] == [5]
    detector.set("plate", smallest_area=12 * PATCH)
    rest = detector.inspect(speck)
    assert (rest.verdict, rest.regions) == ("normal", ())
    assert rest.score <= rest.threshold < found.score
    assert rest.p_value > found.p_value
    large = detector.inspect(bad)
    assert large.verdict == "anomalous"
    assert all(region.area > 11 * PATCH for region in large.regions)
    both = np.where((speck != product(0, 1, seed=12, size=200)[0]).any(axis=2, keepdims=True), speck, bad)
    assert all(region.area > 11 * PATCH for region in detector.inspect(both).regions)


def test_what_remains_above_the_threshold_is_anomalous_without_small_regions_too(
    detector: Dinosaur, good: NDArray[np.uint8]
) -> None:
    noisy = np.clip(good + np.random.default_rng(0).normal(0, 25, good.shape), 0, 255).astype(np.uint8)
    detector.set("plate", threshold=detector.inspect(good).score * 0.7, smallest_area=1.5 * PATCH)
    result = detector.inspect(noisy)
    assert result.verdict != "normal"
    assert result.score > result.threshold


def test_one_reading_says_that_its_threshold_stays(good: NDArray[np.uint8], bad: NDArray[np.uint8]) -> None:
    fast = tiny(None, replace(FAST, name="fast-tiny", layers=(0, 1), size=196))
    fast.learn("plate", product(0, 12, size=200))
    changed = fast.set("plate", zones=[{"ignore": LEFT}])
    assert "stays that of the whole image" in changed.note
    assert changed.after.threshold == changed.before.threshold
    assert _verdicts(fast, good, bad) == ["normal", "normal"]
    assert not fast.set("plate", false_alarms=0.01).note


def test_the_overlay_dims_what_is_left_out(detector: Dinosaur, good: NDArray[np.uint8]) -> None:
    whole = detector.inspect(good).overlay(good)
    detector.set("plate", zones=[{"ignore": LEFT}])
    zoned = detector.inspect(good).overlay(good)
    left, right = np.s_[:480, :200], np.s_[:480, 280:480]
    assert zoned[left].mean() < 0.5 * whole[left].mean()
    assert zoned[right].mean() > 0.9 * whole[right].mean()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"zones": [{"inspect": [[0, 0], [300, 0], [300, 9]]}]}, "200 x 200"),
        ({"zones": np.ones((100, 150), bool)}, "150 x 100 pixels, and the photos of the product are 200 x 200"),
        ({"sensitivity": 11}, "from 0"),
        ({}, "Nothing to change"),
    ],
)
def test_what_makes_no_sense_changes_nothing(detector: Dinosaur, wrong: dict[str, Any], sentence: str) -> None:
    version = detector.tasks()[0].id
    with pytest.raises(InputError, match=sentence):
        detector.set("plate", **wrong)
    assert detector.tasks()[0].id == version
    with pytest.raises(InputError, match="There is no task 'plates'"):
        detector.set("plates", sensitivity=4)


def _put(detector: Dinosaur, settings: dict[str, Any]) -> None:
    store = detector.store
    record = store.record("plate")
    files = {file: store.arrays(record, file) for file in record.files}
    store.put("plate", files, record.manifest | {"settings": settings}, action="set")


@pytest.mark.parametrize("damaged", [{"zones": ["1" * 14] * 13}, {"zones": ["0" * 14] * 14}])
def test_zones_that_do_not_fit_the_bank_are_one_sentence_and_never_a_verdict(
    detector: Dinosaur, damaged: dict[str, Any], good: NDArray[np.uint8]
) -> None:
    _put(detector, damaged)
    again = Dinosaur.load(detector.store.path)  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="its zones"):
        again.inspect(good)
    with pytest.raises(StoreError, match="its zones"):
        again.verify("plate")
    assert again.undo("plate") == "set"
    assert again.inspect(good).verdict == "normal"


@pytest.mark.parametrize("hostile", [{"threshold": -1}, {"false_alarms": "1%"}, {"later": 1}])
def test_a_store_takes_no_hostile_settings(detector: Dinosaur, hostile: dict[str, Any]) -> None:
    version = detector.tasks()[0].id
    with pytest.raises(ValueError, match=r"manifest\.settings"):
        _put(detector, hostile)
    assert detector.tasks()[0].id == version
