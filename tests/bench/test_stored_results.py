"""What lies in results/bench: whole, recomputable, on the data it names, and saying what the docs say it says."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dinosaur_ad.bench.lessons import task_checksum
from dinosaur_ad.bench.metrics import final_average, fm_std, ranked_auroc
from dinosaur_ad.bench.results import CellResult, find_results
from dinosaur_ad.bench.scenarios import open_scenario

RESULTS = Path(__file__).parents[2] / "results" / "bench"
SCENARIOS = ("mtd-blur", "mtd-color", "mtd-geo", "mtd-geo-literal", "mvtec-ad", "mvtec-loco")
METHODS = ("dinosaur", "dinosaur:paper", "patchcore:resnet50-v1")


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, str, int], CellResult]:
    finished, failed = find_results([str(RESULTS)])
    assert not failed
    return {(cell.scenario, cell.method, cell.seed): cell for cell in finished}


def mean(cells: dict[tuple[str, str, int], CellResult], scenario: str, method: str) -> float:
    return float(np.mean([final_average(cell.auroc) for key, cell in cells.items() if key[:2] == (scenario, method)]))


def test_every_method_was_measured_on_every_scenario(cells: dict[tuple[str, str, int], CellResult]) -> None:
    assert {key[:2] for key in cells} >= {(scenario, method) for scenario in SCENARIOS for method in METHODS}
    assert {(scenario, "dinosaur:paper", seed) for scenario in SCENARIOS for seed in range(3)} <= set(cells)


def test_the_last_row_follows_from_the_stored_scores(cells: dict[tuple[str, str, int], CellResult]) -> None:
    for cell in cells.values():
        again = [ranked_auroc(task.scores, task.labels).auroc for task in cell.final]
        np.testing.assert_array_equal(again, cell.auroc[-1], err_msg=cell.name)
        if cell.oracle_auroc is not None:
            told = [ranked_auroc(task.oracle, task.labels).auroc for task in cell.final if task.oracle is not None]
            np.testing.assert_array_equal(told, cell.oracle_auroc[-1], err_msg=cell.name)


def test_every_result_names_its_encoder_truthfully_and_its_machine(
    cells: dict[tuple[str, str, int], CellResult],
) -> None:
    for cell in cells.values():
        assert "DINOv3" not in cell.info["description"]
        from_nothing = "trained from scratch" in cell.info["description"]
        assert from_nothing or len(cell.info["weights_sha256"]) == 64
        assert cell.environments[0]["device"]
        assert cell.nan_scores.sum() == 0


@pytest.mark.parametrize("method", METHODS)
def test_geometric_drift_as_printed_is_near_chance_and_as_meant_is_far_above(
    method: str, cells: dict[tuple[str, str, int], CellResult]
) -> None:
    printed, meant = (mean(cells, scenario, method) for scenario in ("mtd-geo-literal", "mtd-geo"))
    assert printed < 0.66
    assert meant > printed + 0.15


def test_the_default_preset_leads_where_the_docs_say_it_does(cells: dict[tuple[str, str, int], CellResult]) -> None:
    for scenario in SCENARIOS:
        ranking = sorted(METHODS, key=lambda method: mean(cells, scenario, method))
        assert ranking[-1] == ("patchcore:resnet50-v1" if scenario == "mvtec-loco" else "dinosaur")


def test_forgetting_decides_nothing_where_features_are_frozen(
    cells: dict[tuple[str, str, int], CellResult],
) -> None:
    lost = [fm_std(cell.auroc) for cell in cells.values() if cell.method in METHODS and len(cell.tasks) > 1]
    assert max(lost) < 0.05


def test_the_embeddings_of_dne_collapse_into_ties(cells: dict[tuple[str, str, int], CellResult]) -> None:
    """The paper's 0.500 is no bad luck: in the end the network gives one embedding, and every score is the same."""
    cell = cells["mvtec-ad", "dne:sampled", 0]
    assert final_average(cell.auroc) == 0.5
    assert all(np.unique(task.scores).size == 1 for task in cell.final)
    last = cell.info["tasks"][cell.tasks[-1]["name"]]
    assert last["spread"][-1] == 0
    assert last["tied_scores"] == 1


def test_the_average_and_neither_network_nor_memory_wins_on_logical_anomalies(
    cells: dict[tuple[str, str, int], CellResult],
) -> None:
    averaged, points = ("patchcore:vit", "patchcore:vit-points")
    assert mean(cells, "mvtec-loco", averaged) > mean(cells, "mvtec-loco", "patchcore:resnet50-v1")
    assert mean(cells, "mvtec-loco", averaged) > mean(cells, "mvtec-loco", points) + 0.05
    assert abs(mean(cells, "mvtec-loco", points) - mean(cells, "mvtec-loco", "dinosaur")) < 0.03
    for seed in range(3):
        pixels = [cells["mvtec-loco", name, seed].pixel for name in (averaged, points, "dinosaur")]
        blurred, sharp, ours = (each[0]["auroc"] for each in pixels if each is not None)
        assert blurred < sharp < ours


def test_efficientad_is_weak_under_colour_drift_but_not_at_chance(
    cells: dict[tuple[str, str, int], CellResult],
) -> None:
    paper, original = (cells["mtd-color", name, 0] for name in ("efficientad", "efficientad:original"))
    assert 0.6 < final_average(paper.auroc) < final_average(original.auroc) < mean(cells, "mtd-color", "dinosaur") - 0.1
    for cell in (paper, original):
        assert abs(fm_std(cell.auroc)) < 0.05
        assert cell.auroc[-1][-1] < cell.auroc[-1][0] - 0.05
        assert cell.settings["epochs"] == 30


def test_seeds_change_something_but_not_much(cells: dict[tuple[str, str, int], CellResult]) -> None:
    for scenario in ("mvtec-ad", "mtd-color"):
        values = [final_average(cells[scenario, "dinosaur", seed].auroc) for seed in range(3)]
        assert 0 < max(values) - min(values) < 0.03


@pytest.mark.parametrize("scenario", ["mtd-color", "mtd-geo", "mvtec-ad", "mvtec-loco"])
def test_results_belong_to_the_data_and_the_drift_of_this_version(
    scenario: str, cells: dict[tuple[str, str, int], CellResult]
) -> None:
    """Equal checksums: the same files, split and drift. A change of drift would need new results."""
    if "DINOSAUR_DATA" not in os.environ:
        pytest.skip("DINOSAUR_DATA is not set: this test needs the real images that it points to")
    stored = cells[scenario, "dinosaur:paper", 1].tasks
    opened = open_scenario(scenario, seed=1)
    assert [task["checksum"] for task in stored] == [task_checksum(task) for task in opened.tasks]
