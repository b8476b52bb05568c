"""The settings of a task: what is stored, what is refused, and what follows from them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dinosaur_ad._schema import SETTINGS
from dinosaur_ad.bank.bank import read_images, task_sensitivity
from dinosaur_ad.bank.calibrating import Calibration
from dinosaur_ad.bank.changing import Wanted
from dinosaur_ad.bank.settings import Settings, sensitivity_rate, zone_rows
from dinosaur_ad.core.readings import Distances, reading_scale, windows
from dinosaur_ad.core.zones import Zone
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.given_zones import read_zones
from dinosaur_ad.presets import DEFAULT, FAST

SIZE, GRID = (60, 80), (6, 8)
SQUARE = [[0, 0], [40, 0], [40, 60], [0, 60]]


@settings(max_examples=50, deadline=None)
@given(
    st.builds(
        Settings,
        st.none() | st.floats(1e-6, 0.9),
        st.none() | st.floats(0.1, 10),
        st.none() | st.just(("101", "010")),
        st.floats(0, 0.2),
    )
)
def test_settings_survive_json_and_are_what_the_store_takes(given_ones: Settings) -> None:
    document = json.loads(json.dumps(given_ones.to_json()))
    SETTINGS(document, "settings")
    record: Any = SimpleNamespace(manifest={"settings": document})
    assert Settings.of(record) == given_ones


@pytest.mark.parametrize(
    "hostile",
    [
        {"false_alarms": 0}, {"false_alarms": "1%"}, {"false_alarms": float("nan")}, {"threshold": -1.0},
        {"threshold": float("inf")}, {"threshold": True}, {"zones": []}, {"zones": ["01", 1]}, {"zones": ["01x"]},
        {"zones": ["1"] * 2000}, {"zones": {"inspect": []}}, {"smallest_area": 2.0}, {"smallest_area": float("nan")},
        {"gone": 1}, [],
    ],
)  # fmt: skip
def test_hostile_settings_are_refused_by_the_store(hostile: Any) -> None:
    with pytest.raises(ValueError, match=r"^its 'settings"):
        SETTINGS(hostile, "settings")


@pytest.mark.parametrize("zones", [("11", "11"), ("111", "11"), ("000", "000")])
def test_zones_of_another_grid_or_of_nothing_are_refused(zones: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="its zones"):
        Settings(zones=zones).zone(2, 3)


@settings(max_examples=15, deadline=None)
@given(st.floats(0, 10), st.floats(0, 10))
def test_a_higher_sensitivity_never_means_fewer_alarms(one: float, other: float) -> None:
    low, high = (sensitivity_rate(each, DEFAULT) for each in sorted((one, other)))
    assert 0 < low <= high <= 0.5
    scores = np.exp(0.1 * np.random.default_rng(0).normal(size=30)).astype(np.float32)
    thresholds = [task_sensitivity(DEFAULT, Settings(false_alarms=each), scores).threshold for each in (low, high)]
    assert thresholds[0] >= thresholds[1]


def test_the_middle_of_the_slider_is_the_preset() -> None:
    assert sensitivity_rate(5, DEFAULT) == DEFAULT.false_alarms
    assert sensitivity_rate(10, replace(DEFAULT, false_alarms=0.3)) == 0.5
    for wrong in (-1, 10.5, float("nan")):
        with pytest.raises(InputError, match=r"from 0 \(cautious\) to 10 \(strict\)"):
            sensitivity_rate(wrong, DEFAULT)


def test_a_rate_on_the_command_line_goes_before_a_threshold_before_a_rate_of_the_task() -> None:
    scores = np.linspace(0.9, 1.1, 40, dtype=np.float32)
    preset = task_sensitivity(DEFAULT, Settings(), scores)
    assert preset.false_alarms == DEFAULT.false_alarms
    fixed = task_sensitivity(DEFAULT, Settings(threshold=1.05, false_alarms=0.2), scores)
    assert fixed.threshold == 1.05
    assert 0.15 < fixed.false_alarms < 0.35  # what the scores say about it: a quarter of them lie above
    asked = task_sensitivity(DEFAULT, Settings(threshold=1.05), scores, 0.025)
    assert asked == preset


@pytest.mark.parametrize(
    "wrong",
    [
        ({"threshold": 1.0, "sensitivity": 3.0}, "one sensitivity"),
        ({"threshold": float("nan")}, "positive number"),
        ({"false_alarms": 0.0}, "between 0 and 1"),
        ({"smallest_area": -1.0}, "0 or more"),
        ({"smallest_area": 3000.0}, "at most 25%"),
        ({"zones": [{"inspect": SQUARE}], "no_zones": True}, "contradict"),
        ({"zones": [{"inspect": SQUARE}], "smallest_area": 800.0}, "33% of what is inspected"),
        ({}, "Nothing to change"),
    ],
)
def test_changes_that_make_no_sense_are_one_sentence(wrong: tuple[dict[str, Any], str]) -> None:
    with pytest.raises(InputError, match=wrong[1]):
        Wanted(**wrong[0]).settings(Settings(), DEFAULT, SIZE, GRID)


def test_a_change_leaves_the_rest_as_it_was() -> None:
    old = Settings(threshold=1.3, zones=("1" * 8,) * 6, smallest_area=0.1)
    assert Wanted(sensitivity=5.0).settings(old, DEFAULT, SIZE, GRID) == replace(
        old, threshold=None, false_alarms=0.025
    )
    assert Wanted(no_zones=True).settings(old, DEFAULT, SIZE, GRID) == replace(old, zones=None)
    assert Wanted(smallest_area=48).settings(old, DEFAULT, SIZE, GRID) == replace(old, smallest_area=0.01)
    assert Wanted(preset_sensitivity=True).settings(old, DEFAULT, None, GRID) == replace(old, threshold=None)


# --- zones as they are given ---


def test_masks_and_polygons_of_the_same_area_are_the_same(tmp_path: Path) -> None:
    left = np.zeros(GRID, bool)
    left[:, :4] = True
    pixels = np.zeros(SIZE, np.uint8)
    pixels[:, :40] = 255
    Image.fromarray(pixels).save(tmp_path / "mask.png")
    Image.fromarray(pixels[::2, ::2]).save(tmp_path / "half-as-large.png")
    (tmp_path / "zones.json").write_text(json.dumps([{"inspect": SQUARE}]))
    for given_ones in (
        tmp_path / "mask.png", str(tmp_path / "half-as-large.png"), tmp_path / "zones.json", [{"inspect": SQUARE}],
        pixels, pixels > 0,
    ):  # fmt: skip
        np.testing.assert_array_equal(read_zones(given_ones, SIZE, *GRID), left)
    np.testing.assert_array_equal(read_zones([{"ignore": SQUARE}], SIZE, *GRID), ~left)
    assert zone_rows(left) == ("11110000",) * 6


def test_a_patch_counts_from_a_half_on() -> None:
    wide = [[0, 0], [45, 0], [45, 60], [0, 60]]  # half of the fifth column
    assert read_zones([{"inspect": wide}], SIZE, *GRID).sum() == 30
    narrow = [[0, 0], [44, 0], [44, 60], [0, 60]]
    assert read_zones([{"inspect": narrow}], SIZE, *GRID).sum() == 24


def test_a_mask_may_have_soft_edges() -> None:
    mask = np.zeros(SIZE, np.uint8)
    mask[:, : SIZE[1] // 2] = 255
    sharp = read_zones(mask, SIZE, *GRID)
    mask[:, SIZE[1] // 2 - 2 : SIZE[1] // 2 + 2] = (220, 160, 90, 40)
    assert (read_zones(mask, SIZE, *GRID) == sharp).all()


@pytest.mark.parametrize(
    ("zones", "sentence"),
    [
        ([{"inspect": [[0, 0], [9, 9]]}], "Zone 1 of .* has 2 corners"),
        ([{"inspect": SQUARE}, {"ignore": [[0, 0], [81, 0], [81, 9]]}], r"Zone 2 of .* corner \(81, 0\) .* 80 x 60"),
        ([{"inspect": [[0, 0], [-1, 0], [5, 5]]}], "outside the image"),
        ([{"inspect": [[0, 0], [5, 5], [9, 9]]}], "empty: its corners lie on a line"),
        ([{"inspect": [[0, 0], [2, 0], [2, 2]]}], "leaves nothing to inspect"),
        ([{"inspect": SQUARE}, {"ignore": SQUARE}], "leaves nothing to inspect"),
        ([{"inspect": [[0, 0], [5, "x"], [9, 9]]}], "expected two numbers"),
        ([{"inspect": [[0, 0], [5, float("nan")], [9, 9]]}], "expected two numbers"),
        ([{"inspect": [[0, 0], [True, 4], [9, 9]]}], "expected two numbers"),
        ([{"inspect": [[0, 0], [10**400, 4], [9, 9]]}], "expected two numbers"),
        ([{"inspect": "abc"}], "has no corners"),
        ([{"look": SQUARE}], "neither one to inspect nor one to ignore"),
        ([{"inspect": SQUARE, "ignore": SQUARE}], "neither"),
        ([], "has no zones"),
        ({"inspect": SQUARE}, "has no zones"),
        ([SQUARE], "neither"),
        (np.zeros(SIZE, np.uint8), "no white pixel"),
        (np.full(SIZE, 200, np.uint8), "no mask: 100% of its pixels are neither black nor white"),
        (np.tile(np.linspace(0, 255, SIZE[1]).astype(np.uint8), (SIZE[0], 1)), "no mask: .* neither black nor white"),
        (np.ones((80, 60), np.uint8), "60 x 80 pixels, and the photos of the product are 80 x 60"),
        (np.ones((60, 81), np.uint8), "81 x 60 pixels, and the photos of the product are 80 x 60"),
        (np.ones((60, 80, 3), np.uint8), "expected bool or uint8"),
        (np.ones(SIZE), "expected bool or uint8"),
    ],
)
def test_zones_that_make_no_sense_are_one_sentence(zones: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        read_zones(zones, SIZE, *GRID)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_zones_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("[{")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "text.png").write_text("no image")
    for name, sentence in {
        "broken.json": "cannot be read", "deep.json": "cannot be read", "text.png": "text.png",
        "none.json": "not exist", "none.png": "not exist",
    }.items():  # fmt: skip
        with pytest.raises(InputError, match=sentence):
            read_zones(tmp_path / name, SIZE, *GRID)


def test_without_a_known_size_only_masks_can_be_placed() -> None:
    assert read_zones(np.ones((7, 9), bool), None, *GRID).all()
    with pytest.raises(InputError, match="not known, because an older version taught it"):
        read_zones([{"inspect": SQUARE}], None, *GRID)
    with pytest.raises(InputError, match="learn the product anew"):
        Wanted(smallest_area=10).settings(Settings(), DEFAULT, None, GRID)


# --- what is calibrated ---


def _calibration(zone: Zone | None, preset: Any = DEFAULT) -> Calibration:
    point = np.random.default_rng(3).uniform(0.5, 1.5, (20, 9, 9)).astype(np.float16).astype(np.float32)
    coarse = windows(point[..., None])[..., 0].astype(np.float16).astype(np.float32)
    calibration = Calibration(preset, zone)
    calibration.take(Distances(point[:12], coarse[:12]), list(range(12)))
    calibration.take(Distances(point[12:], coarse[12:]), list(range(12, 20)), counts=False)
    return calibration


def test_the_calibration_of_a_zone_is_recomputed_literally_from_the_stored_distances() -> None:
    patches_HW = np.zeros((9, 9), bool)
    patches_HW[1:6, 2:8] = True
    zone = Zone.of(patches_HW)
    whole = _calibration(None)
    stored = Calibration.stored(DEFAULT, whole.arrays(), whole.maps(), zone)
    maps = whole.maps()
    everything = Distances(maps["point"].astype(np.float32), maps["coarse"].astype(np.float32))
    scale = reading_scale(everything, DEFAULT.readings, zone)
    counting = Distances(*(each[:12] for each in everything if each is not None))
    np.testing.assert_array_equal(stored.scores, read_images(counting, DEFAULT, scale, zone).score_N)
    np.testing.assert_allclose(stored.levels, np.median(maps["point"][:12, patches_HW].astype(np.float32), axis=1))
    assert not np.array_equal(stored.scores, whole.scores)
    again = Calibration.stored(DEFAULT, stored.arrays(), stored.maps())
    np.testing.assert_array_equal(again.scores, whole.scores)
    np.testing.assert_array_equal(again.arrays()["map_level"], whole.arrays()["map_level"])


def test_with_one_reading_the_calibration_stays_that_of_the_whole_image() -> None:
    zone = Zone.of(np.tri(9, dtype=bool))
    np.testing.assert_array_equal(_calibration(zone, FAST).scores, _calibration(None, FAST).scores)
