"""The paper's numbers agree with each other wherever the paper says the same thing twice, and where it does not."""

from __future__ import annotations

import math
from statistics import correlation, fmean

import pytest

from dinosaur_ad.bench.method_table import printed_in_paper as printed_figures
from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.storage import storage_rows

SCENARIOS = ["mvtec-ad", "mvtec-loco", "mtd-color", "mtd-geo", "mtd-blur"]
METHODS = ["dne", "iuf", "ucad", "patchcore", "efficientad", "dinosaur"]


def test_every_table_has_every_method_and_scenario() -> None:
    numbers = paper()
    assert list(numbers.methods) == METHODS
    assert list(numbers.scenarios) == list(numbers.images) == list(numbers.pixels) == SCENARIOS
    for rows in (*numbers.images.values(), *numbers.pixels.values(), numbers.sizes, numbers.training):
        assert list(rows) == METHODS
    for device in numbers.devices.values():
        assert list(device.latency) == METHODS


def test_rates_are_rates() -> None:
    for rows in paper().images.values():
        for row in rows.values():
            assert all(0 <= value <= 1 for value in (row.auroc, row.accuracy, row.recall))
            assert -0.1 < row.fm < 0.1


def test_image_columns_of_table_3_repeat_tables_1_and_2() -> None:
    for scenario, rows in paper().pixels.items():
        assert {method: row.image for method, row in rows.items()} == {
            method: row.auroc for method, row in paper().images[scenario].items()
        }


def test_pixels_are_missing_where_the_paper_says_so() -> None:
    missing = {
        (scenario, method)
        for scenario, rows in paper().pixels.items()
        for method, row in rows.items()
        if math.isnan(row.pixel)
    }
    assert missing == {(scenario, "dne") for scenario in SCENARIOS} | {("mtd-geo", method) for method in METHODS}


def test_image_and_pixel_numbers_correlate_as_the_text_says() -> None:
    pairs = [row for rows in paper().pixels.values() for row in rows.values() if not math.isnan(row.pixel)]
    found = correlation([row.image for row in pairs], [row.pixel for row in pairs])
    assert found == pytest.approx(0.945, abs=0.001)  # of numbers that were rounded before


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_bold_entries_are_the_best_of_their_column(scenario: str) -> None:
    rows, best = paper().images[scenario], paper().best_images[scenario]
    for column in ("auroc", "accuracy", "recall"):
        assert getattr(best, column) == max(rows, key=lambda method: getattr(rows[method], column))
    assert best.fm == min(rows, key=lambda method: rows[method].fm)
    known = {method: row.pixel for method, row in paper().pixels[scenario].items() if not math.isnan(row.pixel)}
    assert paper().best_pixels[scenario] == (max(known, key=lambda method: known[method]) if known else "")


def test_frames_a_second_are_the_inverse_of_milliseconds() -> None:
    for device in paper().devices.values():
        for latency in device.latency.values():
            assert math.isnan(latency.ms) or abs(1000 / latency.ms - latency.fps) <= 0.0501
        known = {method: latency.ms for method, latency in device.latency.items() if not math.isnan(latency.ms)}
        assert device.best == min(known, key=lambda method: known[method])
    out_of_memory = [m for m, latency in paper().devices["jetson"].latency.items() if math.isnan(latency.ms)]
    assert out_of_memory == ["iuf"]


def test_the_training_table_agrees_with_the_efficiency_table() -> None:
    for method, row in paper().training.items():
        assert math.isnan(row.trainable) or row.trainable <= paper().sizes[method].parameters + 0.05
        assert (row.replay > 0) == paper().methods[method].endswith("*")


def test_the_grid_has_a_value_for_every_pair() -> None:
    grid = paper().grid
    assert [len(row) for row in grid.auroc] == [len(grid.radii)] * len(grid.ratios)
    ratio, radius = grid.selected
    assert grid.auroc[grid.ratios.index(ratio)][grid.radii.index(radius)] == 0.801


def test_the_grid_contradicts_the_main_tables_as_the_report_says() -> None:
    assert round(fmean(rows["dinosaur"].auroc for rows in paper().images.values()), 3) == 0.815
    one, two_and_a_half = paper().grid.auroc[:2]
    falling = [radius for radius in paper().grid.radii if two_and_a_half[radius] < one[radius]]
    assert falling == [0, 1, 3]


def test_storage_follows_the_formula_for_mvtec_and_is_scaled_from_it_for_the_others() -> None:
    storage = paper().storage
    in_all = {row.key: row.total_mib for row in storage_rows()}
    corrected = {name: round(total, 1) for name, total in in_all.items()}
    assert corrected == {"mvtec-ad": 106.8, "mvtec-loco": 50.8, "mtd": 126.3}
    assert storage["mvtec-ad"].total_mb == corrected["mvtec-ad"]
    each = in_all["mvtec-ad"] / storage["mvtec-ad"].tasks
    for name in ("mvtec-loco", "mtd"):
        assert storage[name].total_mb == pytest.approx(each * storage[name].tasks, abs=0.06)
    assert paper().sizes["dinosaur"].storage == round(each, 1)
    for row in storage.values():
        assert len(row.train_images) == row.tasks


@pytest.mark.parametrize(
    ("measured", "printed"),
    [("dinosaur", "dinosaur"), ("dinosaur:paper", "dinosaur"), ("patchcore:resnet18", "patchcore"), ("own", None)],
)
def test_measured_methods_find_their_counterpart(measured: str, printed: str | None) -> None:
    assert paper().method_of(measured) == printed


@pytest.mark.parametrize("measured", ["dne2", "dne2:original", "patchcore-mine", "dinosaurs", "iuf_new", "", ":paper"])
def test_a_method_whose_name_only_begins_alike_gets_no_printed_numbers(measured: str) -> None:
    assert paper().method_of(measured) is None
    assert all(math.isnan(number) for number in printed_figures(measured, "mvtec-ad"))
