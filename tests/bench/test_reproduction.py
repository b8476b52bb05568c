"""Does it reproduce? The verdicts, and that no row is called original whose figure was not reproduced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_factory import cell

from dinosaur_ad.bench import effort
from dinosaur_ad.bench.effort import row_label
from dinosaur_ad.bench.published_figures import PublishedFigure, claims_original, published_figures
from dinosaur_ad.bench.report.reproduction import Reproduction, reproduction_tables, reproductions
from dinosaur_ad.bench.report.write import table_makers
from dinosaur_ad.bench.results import CellResult, find_results
from dinosaur_ad.bench.scenarios import ONE_CATEGORY_SCENARIO
from dinosaur_ad.bench.suites import get_suite
from dinosaur_ad.methods import get_method

ROOT = Path(__file__).parents[2]


def alone(method: str, auroc: float = 1.0, *, scenario: str = ONE_CATEGORY_SCENARIO, **settings: Any) -> CellResult:
    """A cell of the one category with a variant's own settings, but for those given."""
    tasks = 1 if scenario == ONE_CATEGORY_SCENARIO else 2
    made = cell(method, scenario, tasks=tasks, settings=get_method(method).config.identity() | settings)
    matrix = np.full((tasks, tasks), 0.5)
    matrix[0, 0] = auroc
    named = [task | {"name": name} for task, name in zip(made.tasks, ("bottle", "cable"), strict=False)]
    epochs = made.settings.get("epochs")
    records = {str(task["name"]): {"epochs": epochs} for task in named} if epochs else {}
    return replace(made, auroc=matrix, tasks=named, info=made.info | {"tasks": records})


def verdict(*cells: CellResult, **published: Any) -> Reproduction:
    figure = PublishedFigure("it", "somewhere", "ViT-B/16", ("vit-base",), False, **({"auroc": 1.0} | published))
    return Reproduction(cells[0].method if cells else "ucad:original", figure, cells)


def test_yes_needs_the_figure_the_network_the_settings_and_the_schedule() -> None:
    assert verdict(alone("ucad:original", 0.995)).verdict == "yes"
    assert verdict(alone("ucad:original", 0.98)).verdict == "nearly"
    assert verdict(alone("ucad:original", 0.9)).verdict == "no"
    other = verdict(alone("ucad:original", 1.0, backbone="dinov2s-focus"))
    assert (other.verdict, other.why) == ("nearly", "dinov2s-focus for ViT-B/16")
    changed = verdict(alone("ucad:original", 1.0, keys=7))
    assert (changed.verdict, changed.why) == ("nearly", "keys=7")


def test_a_figure_met_after_a_part_of_the_schedule_is_no_reproduction() -> None:
    short = verdict(alone("ucad:original", 1.0, epochs=5))
    assert (short.verdict, short.why) == ("no", "20 % of the schedule")
    assert "20 % of its schedule" in short.schedule


def test_what_was_not_run_or_is_not_known_is_said() -> None:
    assert (verdict().verdict, verdict().schedule, verdict().why) == ("not run", "–", "–")
    assert verdict(alone("ucad:original"), auroc=float("nan")).verdict == "not known"


def test_the_first_task_of_the_whole_dataset_will_do_and_a_cell_of_its_own_goes_before_it() -> None:
    whole = alone("ucad:original", 0.9, scenario="mvtec-ad")
    assert next(each for each in reproductions([whole]) if each.method == "ucad:original").auroc[0] == 0.9
    both = reproductions([whole, alone("ucad:original", 0.95)])
    assert next(each for each in both if each.method == "ucad:original").auroc[0] == 0.95


def test_the_category_alone_stands_in_no_other_table() -> None:
    makers = table_makers([alone("ucad:original"), cell("dinosaur")])
    assert list(makers)[:2] == ["findings", "reproduction"]
    assert [column.name for column in makers["overview"]().columns] == ["Method", "Training", "mtd-color"]
    assert list(table_makers([alone("ucad:original")])) == ["reproduction"]
    assert reproduction_tables([cell("dinosaur")]) == []


def test_a_method_that_ran_two_schedules_has_two_rows() -> None:
    whole = alone("ucad:original", scenario="mvtec-ad", backbone="dinov2s-focus")
    short = alone("ucad:original", scenario="mtd-color", epochs=5)
    rows = table_makers([whole, short])["overview"]().blocks[0].rows
    assert [line[0].text for line in rows] == ["ucad:original-other-network", "ucad:original-5ep"]
    assert [[entry.text == "–" for entry in line[2:]] for line in rows] == [[False, True], [True, False]]


# --- who may be called original ---


def test_a_row_is_called_original_only_if_its_reproduction_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = alone("ucad:original", scenario="mvtec-ad")
    assert row_label(trained) == "ucad:original-not-reproduced"
    assert row_label(alone("ucad:original", scenario="mvtec-ad", backbone="dinov2s-focus")) == (
        "ucad:original-other-network"
    )
    assert row_label(alone("ucad:original", scenario="mvtec-ad", epochs=5)) == "ucad:original-5ep"
    standing = {"ucad:original": replace(published_figures()["ucad:original"], stands=True)}
    monkeypatch.setattr("dinosaur_ad.bench.published_figures.published_figures", lambda: standing)
    assert row_label(trained) == "ucad:original"
    assert row_label(alone("ucad:original", scenario="mvtec-ad", epochs=5)) == "ucad:original-5ep"
    assert row_label(alone("ucad:original", scenario="mvtec-ad", backbone="tiny-vit")) == "ucad:original-other-network"
    assert row_label(alone("ucad:original-no-prompt")) == "ucad:original-no-prompt-not-reproduced"


def test_where_steps_end_a_training_they_and_not_its_epochs_are_in_the_name() -> None:
    """The epochs of EfficientAD's authors are only the most that its steps may take."""
    finished, _ = find_results([str(ROOT / "results")])
    labels = {row_label(each) for each in finished if each.method == "efficientad:original"}
    assert labels == {"efficientad:original-30ep", "efficientad:original-20000steps"}


def test_a_method_of_ones_own_cannot_call_itself_original() -> None:
    assert row_label(replace(cell(), method="mine:original")) == "mine:original-not-reproduced"
    assert row_label(replace(cell(), method="mine:originality")) == "mine:originality"


def test_what_the_file_says_stands_is_what_the_stored_results_show() -> None:
    finished, _ = find_results([str(ROOT / "results")])
    shown = {each.method: each.verdict == "yes" for each in reproductions(finished)}
    assert shown == {name: figure.stands for name, figure in published_figures().items()}


def test_no_stored_row_is_called_original_that_is_not() -> None:
    finished, _ = find_results([str(ROOT / "results"), str(ROOT / "results-apart")])
    for each in finished:
        figure = published_figures().get(each.method)
        if figure is None or not figure.stands:
            assert not row_label(each).endswith(":original")


def test_every_original_variant_has_an_entry_or_differs_from_one_in_what_its_name_says() -> None:
    for name in published_figures():
        get_method(name)
    assert claims_original("iuf:original-vit")
    assert effort.config_of("ucad:original") is not None


def test_the_suite_runs_what_the_table_lists() -> None:
    suite = get_suite("reproduce")
    assert suite.scenarios == (ONE_CATEGORY_SCENARIO,)
    assert set(suite.methods) <= set(published_figures())
