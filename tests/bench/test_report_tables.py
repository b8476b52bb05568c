"""What stands in the tables: the results' own numbers, the paper's beside them, and what keeps both from misreading."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from report_factory import cell, grid

from dinosaur_ad.bench.grid_results import GridResult
from dinosaur_ad.bench.metrics import bootstrap_mean_auroc, confusion
from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.report import Table, tables
from dinosaur_ad.bench.report.shortcuts import CONTROL
from dinosaur_ad.bench.results import CellResult, FailedCell
from dinosaur_ad.bench.suites import get_suite
from dinosaur_ad.methods import get_method


def table(results: list[CellResult], key: str, grids: tuple[GridResult, ...] = ()) -> Table:
    return next(each for each in tables(results, grids) if each.key == key)


def row(made: Table, method: str, block: int = 0) -> dict[str, str]:
    """The row of a method by its headers in one line."""
    line = next(line for line in made.blocks[block].rows if line[0].text == method)
    return {column.flat: entry.text for column, entry in zip(made.columns, line, strict=True)}


def test_measured_paper_and_difference_stand_side_by_side() -> None:
    result = cell("dinosaur:paper", "mtd-color", tasks=10)
    line = row(table([result], "continuous"), "dinosaur:paper")
    measured = result.auroc[-1].mean()
    assert line["AUROC"] == f"{measured:.3f}"
    assert line["AUROC paper"] == "0.928"
    assert float(line["AUROC Δ"].replace("−", "-")) == pytest.approx(measured - 0.928, abs=0.0006)


def test_accuracy_and_recall_are_taken_at_the_papers_threshold_and_averaged_over_tasks() -> None:
    result = cell(tasks=3)
    judged = [confusion(task.scores, task.labels, 12.0) for task in result.final]
    line = row(table([result], "continuous"), "dinosaur:paper")
    assert line["Accuracy"] == f"{np.mean([each.accuracy for each in judged]):.3f}"
    assert line["Recall"] == f"{np.mean([each.recall for each in judged]):.3f}"


def test_the_interval_is_the_bootstrap_of_the_same_images_in_all_tasks_of_mtd() -> None:
    result = cell(tasks=3)
    interval = bootstrap_mean_auroc([(task.scores, task.labels) for task in result.final], paired=True)
    assert (
        row(table([result], "continuous"), "dinosaur:paper")["AUROC 95 %"] == f"{interval.low:.3f}–{interval.high:.3f}"
    )


def test_seeds_become_a_mean_and_a_spread() -> None:
    results = [cell(seed=seed) for seed in range(3)]
    values = [result.auroc[-1].mean() for result in results]
    line = row(table(results, "continuous"), "dinosaur:paper")
    assert line["AUROC"] == f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
    assert line["Seeds"] == "3"


def test_the_order_of_results_does_not_matter() -> None:
    results = [cell(method, seed=seed) for method in ("dinosaur", "patchcore") for seed in (0, 1)]
    assert tables(results) == tables(results[::-1])


def test_the_best_of_a_column_is_bold_and_forgetting_is_best_when_low() -> None:
    results = [cell("dinosaur", gap=4.0, tasks=10), cell("patchcore", gap=0.5, tasks=10)]
    made = table(results, "continuous")
    bold = {
        (made.columns[at].flat, line[0].text)
        for line in made.blocks[0].rows
        for at, entry in enumerate(line)
        if entry.bold
    }
    assert ("AUROC", "dinosaur") in bold
    assert ("AUROC", "patchcore") not in bold
    fm = {line[0].text: float(row(made, line[0].text)["FM"].replace("−", "-")) for line in made.blocks[0].rows[3:6:2]}
    assert ("FM", min(fm, key=lambda method: fm[method])) in bold
    assert ("FM paper", "patchcore") in bold  # -0.043, the paper's own bold entry
    assert ("AUROC paper", "dinosaur") in bold


def test_methods_that_were_not_measured_keep_their_printed_row() -> None:
    made = table([cell("dinosaur")], "continuous")
    names = [line[0].text for line in made.blocks[0].rows]
    assert names == [
        "DNE (paper only)", "IUF (paper only)", "UCAD (paper only)", "PatchCore* (paper only)",
        "EfficientAD* (paper only)", "dinosaur",
    ]  # fmt: skip
    line = row(made, "UCAD (paper only)")
    assert (line["AUROC"], line["AUROC paper"], line["AUROC Δ"]) == ("–", "0.566", "–")


def test_a_method_the_paper_does_not_have_has_no_printed_numbers() -> None:
    line = row(table([cell("mine")], "continuous"), "mine")
    assert (line["AUROC paper"], line["AUROC Δ"]) == ("–", "–")
    assert line["AUROC"] != "–"


def test_fewer_tasks_than_the_papers_are_said_in_the_header() -> None:
    made = table([cell(scenario="mvtec-ad", tasks=5)], "discrete")
    assert made.blocks[0].title == ("MVTec-AD (mvtec-ad), 5 of the paper's 15 tasks: differences are not like for like")


def test_the_encoder_is_named_in_a_footnote_of_its_method() -> None:
    made = table([cell("dinosaur", description="one encoder"), cell("patchcore", description="another")], "overview")
    marks = {line[0].text: line[0].mark for line in made.blocks[0].rows}
    notes = {note.mark: note.text for note in made.notes if note.mark}
    assert notes[marks["dinosaur"]] == "dinosaur: one encoder."
    assert notes[marks["patchcore"]] == "patchcore: another."


def test_both_readings_of_geometric_drift_stand_beside_the_papers_numbers() -> None:
    made = table([cell(scenario="mtd-geo", tasks=10), cell(scenario="mtd-geo-literal", tasks=10)], "continuous")
    assert [block.title for block in made.blocks] == [
        "MTD-Geo (mtd-geo), 10 tasks", "MTD-Geo as printed (mtd-geo-literal), 10 tasks",
    ]  # fmt: skip
    assert {row(made, "dinosaur:paper", block)["AUROC paper"] for block in (0, 1)} == {"0.519"}
    assert any("1 + scale" in note.text for note in made.notes)


def test_other_scenarios_get_tables_without_the_papers_columns() -> None:
    made = tables([cell(scenario="synthetic")])
    assert not {"discrete", "continuous"} & {each.key for each in made}
    images = next(each for each in made if each.key == "other")
    assert [column.flat for column in images.columns] == [
        "Method", "Training", "Seeds", "AUROC", "AUROC 95 %", "Accuracy", "Recall", "FM", "Pixel AUROC", "AUPRO",
    ]  # fmt: skip


def test_pixel_numbers_are_averaged_and_missing_ones_are_a_dash() -> None:
    blind = replace(cell("patchcore"), pixel=None)
    made = table([cell("dinosaur"), blind], "continuous")
    assert row(made, "dinosaur")["Pixel AUROC"] == "0.900"
    assert "AU-sPRO" not in row(made, "dinosaur")  # no method has it here
    assert row(made, "patchcore")["Pixel AUROC"] == "–"
    assert row(made, "patchcore")["Pixel AUROC paper"] == "0.770"


def test_forgetting_of_a_single_task_is_a_dash() -> None:
    assert row(table([cell(scenario="mvtec-loco", tasks=1)], "discrete"), "dinosaur:paper")["FM"] == "–"


def test_every_definition_of_forgetting_comes_from_the_matrix() -> None:
    matrix = np.array([[0.90, 0.85, 0.50], [0.95, 0.80, 0.60], [0.85, 0.80, 0.70]])
    line = row(table([replace(cell(), auroc=matrix)], "forgetting"), "dinosaur:paper")
    assert [line[name] for name in ("FM paper", "FM std", "BWT", "FWT")] == [
        "0.075", "0.050", "−0.025", "0.225",
    ]  # fmt: skip


def test_thresholds_and_routing_are_shown_or_a_dash() -> None:
    plain = cell("patchcore")
    unrouted = replace(
        plain, routing=None, oracle_auroc=None, final=[replace(task, own_thresholds=None) for task in plain.final]
    )
    made = table([cell("dinosaur"), unrouted], "thresholds")
    routed, other = row(made, "dinosaur"), row(made, "patchcore")
    assert (routed["chosen right"], other["chosen right"]) == ("0.900", "–")
    assert (other["AUROC task given"], other["own threshold recall"]) == ("–", "–")
    assert routed["own threshold recall"] == routed["paper's threshold recall"] != "–"


def test_what_is_missing_stands_in_one_table() -> None:
    results = [cell(seed=0), cell(seed=1), cell("dne"), cell("dne", "mtd-blur")]
    results[2] = replace(results[2], nan_scores=np.full((3, 3), 2))
    failed = [FailedCell("ucad", "mtd-geo", 2, "It needs memory.")]
    made = next(each for each in tables(results, failed=failed) if each.key == "missing")
    assert row(made, "mtd-color") == {
        "Scenario": "mtd-color", "tasks": "3 of the paper's 10", "not run": "–", "fewer than 2 seeds": "1: dne",
        "failed": "–", "NaN scores": "dne 18",
    }  # fmt: skip
    assert row(made, "mtd-blur")["not run"] == "dinosaur:paper"
    assert row(made, "mtd-geo")["failed"] == "ucad seed 2"
    assert made.notes[0].text.endswith("not run at all: IUF, UCAD, PatchCore*, EfficientAD*.")


def test_the_short_table_has_a_row_for_each_method_of_the_paper_and_no_notes() -> None:
    methods = ("dne:original", "dne", "patchcore:vit", "patchcore:resnet50-v1", "dinosaur", "photometer", "mine")
    made = table([cell(method) for method in methods] + [cell("dne", "mtd-blur")], "short")
    assert [line[0].text for line in made.blocks[0].rows] == ["dne", "patchcore:resnet50-v1", "dinosaur"]
    assert [column.name for column in made.columns] == ["Method", "Training", "mtd-color", "mtd-blur"]
    assert row(made, "dinosaur")["mtd-blur"] == "–"
    assert made.notes == ()


def test_storage_is_shown_beside_what_the_paper_prints() -> None:
    line = row(table([cell(scenario="mtd-color", tasks=10)], "cost"), "dinosaur:paper")
    assert (line["storage MiB a task"], line["storage MiB in all"], line["paper MB in all"]) == ("2.00", "20.0", "71.2")


def test_cost_is_averaged_over_the_evaluation() -> None:
    line = row(table([cell()], "cost"), "dinosaur:paper")
    assert (line["learn, s"], line["score, ms"], line["peak memory, MiB"]) == ("2.00", "10.00", "1024")
    assert (line["peak device, MiB"], line["run on"]) == ("–", "Test CPU, 2 cores")


def test_the_grid_is_averaged_and_compared_where_the_paper_has_a_value() -> None:
    halves = grid((0.10,), (3, 9), {"mtd-color": [[0.8, 0.9]], "mtd-blur": [[0.6, 0.7]]})
    made = table([], "grid", (halves,))
    line = row(made, "10 %")
    assert (line["r = 3"], line["r = 3 paper"], line["r = 3 Δ"]) == ("0.700", "0.801", "−0.101")
    assert (line["r = 9"], line["r = 9 paper"]) == ("0.800", "–")
    assert "mtd-color (2 tasks), mtd-blur (2 tasks)" in made.notes[0].text
    assert "not like for like" in made.notes[0].text
    apart = table([], "grid-scenarios", (halves,))
    assert [(block.title, block.rows[0][2].bold) for block in apart.blocks] == [("mtd-color", True), ("mtd-blur", True)]


def test_the_papers_own_grid_differs_from_itself_by_nothing() -> None:
    numbers = paper().grid
    whole = grid(numbers.ratios, numbers.radii, dict.fromkeys(paper().scenarios, numbers.auroc))
    made = table([], "grid", (whole,))
    differences = {line[at].text for line in made.blocks[0].rows for at in range(3, 16, 3)}
    assert differences == {"0.000"}


def test_grid_cells_that_the_minimum_makes_equal_are_counted() -> None:
    (part,) = grid((0.01, 0.10), (0, 3), {"mtd-color": [[0.8, 0.9], [0.8, 0.9]]}).parts
    same = GridResult((replace(part, members=[[20, 20], [20, 20]]),))
    assert any(note.text.startswith("2 of the 4 cells repeat") for note in table([], "grid", (same,)).notes)


# --- shortcuts ---


def lit(like: CellResult) -> CellResult:
    """The control, with the brightness of ``like``'s images in the order of its scores."""
    control = cell(CONTROL, like.scenario, like.seed, tasks=len(like.tasks))
    return replace(control, final=like.final, auroc=like.auroc)


def test_scores_are_held_against_the_brightness_of_the_images() -> None:
    follows, other = cell("dne"), cell("dinosaur")
    made = table([lit(follows), follows, other], "shortcuts")
    line = row(made, "dne")
    assert line["mean correlation"] == "1.000"
    assert line["strongest in"] == "mtd-color-01 +1.00"
    assert float(row(made, "dinosaur")["mean correlation"]) < 0.9
    assert [each[0].text for each in made.blocks[0].rows] == ["dne", "dinosaur", "photometer:signed"]


def test_the_other_way_round_is_as_strong_and_ties_are_no_correlation() -> None:
    control = cell(CONTROL)
    turned = replace(cell("dne"), final=[replace(task, scores=-task.scores) for task in control.final])
    tied = replace(cell("iuf"), final=[replace(task, scores=0 * task.scores) for task in control.final])
    made = table([control, turned, tied], "shortcuts")
    assert row(made, "dne")["strongest in"] == "mtd-color-01 −1.00"
    line = row(made, "iuf")
    assert line["mean correlation"] == "–"
    assert line["strongest in"] == "all scores tie"


def test_tasks_that_light_alone_tells_apart_are_named() -> None:
    control = cell(CONTROL, tasks=3)
    told = replace(control, auroc=np.vstack([control.auroc[:-1], [0.95, 0.5, 0.02]]))
    made = table([told, cell()], "shortcuts")
    notes = " ".join(note.text for note in made.notes if "alone separates" in note.text)
    assert "mtd-color: brightness alone separates normal from anomalous test images in mtd-color-01 0.950, " in notes
    assert "mtd-color-03 0.020 (" in notes
    assert "mtd-color-02" not in notes
    assert row(made, CONTROL)["image AUROC without those"] == "0.500"  # the second task alone


def test_at_equal_brightness_a_light_meter_has_a_half_and_a_real_detector_stays() -> None:
    control = cell(CONTROL, tasks=2)
    meter = replace(cell("dne", tasks=2), final=[replace(task, scores=task.scores**3) for task in control.final])
    perfect = replace(
        cell("dinosaur", tasks=2),
        final=[replace(task, scores=task.labels.astype(np.float32)) for task in control.final],
    )
    made = table([control, meter, perfect], "shortcuts")
    assert row(made, "dne")["image AUROC equal brightness"] == "0.500"
    assert row(made, CONTROL)["image AUROC equal brightness"] == "0.500"
    assert row(made, "dinosaur")["image AUROC equal brightness"] == "1.000"
    assert any("of 60 anomalous images are comparable at equal brightness" in note.text for note in made.notes)


def test_a_method_without_the_controls_seed_is_left_out_and_the_others_stay() -> None:
    made = table([cell("dne", seed=1), cell("dinosaur"), cell(CONTROL)], "shortcuts")
    assert [each[0].text for each in made.blocks[0].rows] == ["dinosaur", "photometer:signed"]
    assert "mtd-color: photometer:signed did not run with the seed of dne." in [note.text for note in made.notes]


def test_there_is_no_such_table_without_the_control_or_with_the_control_alone() -> None:
    assert "shortcuts" not in [each.key for each in tables([cell(seed=1), cell(CONTROL, seed=0)])]
    assert "shortcuts" not in [each.key for each in tables([cell()])]
    assert "shortcuts" not in [each.key for each in tables([cell(CONTROL)])]


@pytest.mark.parametrize("name", ["quick", "paper"])
def test_suites_for_users_bring_the_control_along(name: str) -> None:
    assert CONTROL in get_suite(name).methods
    assert get_method(CONTROL).spec.control


def test_a_figure_with_other_weights_than_its_row_has_a_note_of_its_own() -> None:
    one, other = cell("efficientad", "mtd-color"), cell("efficientad", "mtd-blur")
    one = replace(one, info=one.info | {"description": "a teacher"})
    other = replace(other, info=other.info | {"description": "another teacher"})
    made = table([one, other], "overview")
    line = made.blocks[0].rows[0]
    assert [entry.mark for entry in (line[0], *line[2:])] == ["1", "", "2"]
    notes = {note.mark: note.text for note in made.notes}
    assert "efficientad: a teacher" in notes["1"]
    assert "efficientad: another teacher" in notes["2"]
