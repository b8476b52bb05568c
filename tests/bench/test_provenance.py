"""A method's page: what it says of settings, sizes, results and causes; and that the committed pages say just that."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cell_helpers import PLUGIN
from provenance_helpers import made, rows, stored

from dinosaur_ad.bench.places import open_place
from dinosaur_ad.bench.provenance import COMMAND, describe
from dinosaur_ad.bench.provenance_causes import causes_section
from dinosaur_ad.bench.provenance_runs import runs_of
from dinosaur_ad.bench.results import CellResult, FailedCell
from dinosaur_ad.cli import main
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Lesson, Photo, Workbench, get_method, list_methods, unregister
from test_published_numbers import block

ROOT = Path(__file__).parents[2]
FOLDERS = ("results", "results-apart")
# Only these two build networks to count them.
COUNTED_WITH = {"iuf": ("torch", "transformers"), "efficientad": ("torch",)}


# --- the committed pages ---


@pytest.mark.parametrize("name", ["dinosaur", "patchcore", "dne", "iuf", "ucad", "efficientad", "photometer"])
def test_the_committed_page_is_what_the_command_prints(name: str) -> None:
    for module in COUNTED_WITH.get(name, ()):
        pytest.importorskip(module, reason=f"parameters of {name} are counted with {module}, of the extra 'bench'")
    page = ROOT / "docs" / "methods" / f"{name}.md"
    printed = describe(name, [str(ROOT / folder) for folder in FOLDERS])
    assert block(page, " ".join([COMMAND, name, *FOLDERS])) == printed.strip()


def test_there_is_a_page_for_every_method() -> None:
    assert {page.stem for page in (ROOT / "docs" / "methods").glob("*.md")} == set(list_methods())


# --- what is known without results ---


def test_the_page_begins_with_the_docstring_and_says_how_to_get_results() -> None:
    page = describe("ucad")
    assert page.startswith("# UCAD: a frozen vision transformer")
    assert "| keys | 196, approximate coreset | 196, farthest points | 196, farthest points, exact |" in page
    assert "There are no results of ucad here; make some with `dinosaur bench run --methods ucad" in page
    assert rows(page, "MVTec-AD") == [["MVTec-AD", "15", "0.798", "0.822", "0.635", "0.552", "0.000"]]


def test_settings_that_differ_stand_side_by_side_and_places_are_left_out() -> None:
    page = describe("dne")
    assert rows(page, "batch") == [["batch", "12", "", "", "32"]]
    assert rows(page, "pooling") == [["pooling", "closed-form", "sampled", "sampled-diagonal", "sampled-past"]]
    assert "- The same in all of them: backbone=vit-base, size=224, shrink=0.5," in page
    assert not rows(page, "weights")
    assert "weights=" not in page.partition("## Variants")[2]


def test_a_setting_that_a_variant_lacks_is_a_dash() -> None:
    page = describe("iuf")
    assert rows(page, "pull") == [["pull", "0.5", "", "–", "–", "–"]]


def test_parameters_stand_beside_the_papers() -> None:
    page = describe("dne")
    assert rows(page, "dne") == [["dne", "86,569,194", "85,978,602"]]
    assert rows(page, "the paper") == [["the paper", "86.6 M", "85.98 M"]]


def test_dinosaur_is_counted_without_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert rows(describe("dinosaur"), "dinosaur:paper") == [["dinosaur:paper", "22,056,192", "0"]]


def test_without_torch_the_page_says_what_it_could_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    page = describe("efficientad")
    assert rows(page, "efficientad") == [["efficientad", "–", "–"]]
    assert "Not counted for efficientad, efficientad:original: This method computes with torch; install it" in page
    assert rows(page, "the paper") == [["the paper", "8.1 M", "5.38 M"]]


# --- figures ---


def test_runs_of_other_settings_are_rows_of_their_own(tmp_path: Path) -> None:
    short = [made(seed=seed, settings={"epochs": 30}, info={"tasks": noted(30)}) for seed in (0, 1)]
    page = describe("dne", [stored(tmp_path, *short, made(info={"tasks": noted(300)}), made("ucad"))])
    usual, changed = rows(page.partition("## Measured here")[2], "mtd-color")
    assert usual[1:6] == ["dne ¹", "nothing", "3 of 10", "300", "0"]
    assert changed[1:6] == ["dne ¹", "epochs=30", "3 of 10", "30", "0, 1"]
    assert "±" in changed[6]
    assert "±" not in usual[6]
    assert changed[7] == "0.520"  # the paper's
    assert "- ¹ a tiny encoder of random numbers, for tests." in page


def noted(epochs: int) -> dict[str, Any]:
    """Records as DNE writes them."""
    falling = [1 / (epoch + 1) for epoch in range(epochs)]
    record = {"loss": falling, "spread_before": 2.0, "spread": falling, "tied_scores": 0.25}
    return {f"mtd-color-{task:02d}": record for task in (1, 2, 3)}


def test_substitutes_are_named(tmp_path: Path) -> None:
    result = made("ucad", info={"regions": "16 superpixels in the place of masks", "penalty": "none"})
    page = describe("ucad", [stored(tmp_path, result)])
    assert "- ¹ a tiny encoder of random numbers, for tests; regions: 16 superpixels in the place of masks." in page


def test_one_cell_with_two_outcomes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found twice with different scores"):
        describe("dne", [stored(tmp_path, made(), replace(made(), auroc=made().auroc / 2))])


def test_a_longer_run_on_fewer_tasks_is_told_from_a_shorter_one_on_all(tmp_path: Path) -> None:
    def trained(tasks: int, epochs: int) -> CellResult:
        info = {"tasks": {f"mvtec-ad-{n + 1:02d}": {"loss": [1.0] * epochs} for n in range(tasks)}}
        return made("dne", scenario="mvtec-ad", tasks=tasks, settings={"epochs": epochs}, info=info)

    page = describe("dne", [stored(tmp_path, trained(2, 300), trained(3, 30))])
    assert "- dne on mvtec-ad (epochs=30; 3 tasks of 30 epochs):" in page
    assert "- dne on mvtec-ad (2 tasks of 300 epochs):" in page
    assert "tested on 80 normal and 60 anomalous images" in page
    assert "tested on 120 normal and 90 anomalous images" in page
    alone = describe("dne", [stored(tmp_path / "alone", trained(3, 30))])
    assert "- dne on mvtec-ad (epochs=30):" in alone


def test_failed_cells_are_listed(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "failed")).below("mtd-color/dne-original/seed-3")
    FailedCell("dne:original", "mtd-color", 3, "out of memory").save(place)
    page = describe("dne", [stored(tmp_path, made())])
    assert "- dne:original on mtd-color, seed 3: out of memory" in page
    assert "out of memory" not in describe("ucad", [str(tmp_path)])


# --- causes ---


def said(result: CellResult) -> str:
    """The sentences about one result."""
    name = result.method.partition(":")[0]
    section = causes_section(name, runs_of(list_methods()[name], [result]), {})
    return next(line for line in section.splitlines() if line.startswith("- "))


def with_auroc(learned: float, end: float) -> CellResult:
    """Three tasks that had one AUROC when learned and have another at the end."""
    auroc_TT = np.full((3, 3), end)
    auroc_TT[0, 0] = auroc_TT[1, 1] = learned
    return replace(made("dinosaur"), auroc=auroc_TT)


def test_failing_to_learn_is_told_from_forgetting() -> None:
    assert "0.500 already when a task has just been learned: it was not forgotten later" in said(with_auroc(0.5, 0.5))
    forgotten = said(with_auroc(0.9, 0.7))
    assert "0.200 lost between learning a task and the end" in forgotten
    assert "already" not in forgotten
    good = said(with_auroc(0.9, 0.9))
    assert "already" not in good
    assert "lost" not in good


def test_what_routing_costs_is_said_where_it_costs() -> None:
    result = with_auroc(0.9, 0.8)
    told = replace(result, oracle_auroc=np.full((3, 3), 0.95), routing=np.full((3, 3), 0.25))
    assert "0.150 lost by choosing the task (25% of the images go to theirs)" in said(told)
    assert "choosing" not in said(replace(told, oracle_auroc=None, routing=None))


def test_ties_and_missing_scores_are_counted() -> None:
    result = made("patchcore")
    tied = [replace(task, scores=np.zeros_like(task.scores)) for task in result.final]
    assert "100% of the pairs of a normal and an anomalous image tie" in said(replace(result, final=tied))
    assert "tie" not in said(result)
    missing = np.zeros_like(result.nan_scores)
    missing[0, 1] = 7
    assert "7 scores were no numbers" in said(replace(result, nan_scores=missing))


def test_alarms_at_the_papers_threshold_are_named_from_a_tenth() -> None:
    result = made("patchcore")
    assert "100% false alarms" in said(replace(result, thresholds=np.full((3, 3), -99.0)))
    assert "false alarms" not in said(replace(result, thresholds=np.full((3, 3), 99.0)))


def test_training_is_shown_over_epochs_beside_the_aurocs(tmp_path: Path) -> None:
    result = made(info={"tasks": noted(30)})
    page = describe("dne", [stored(tmp_path, result)])
    head = "| Task | AUROC just learned | at the end | loss: epoch 1 → 3 → 10 → 30 | spread: before → 1 → 3 → 10 → 30 |"
    assert head in page
    first = rows(page, "01")[0]
    assert first[1:3] == [f"{result.auroc[0, 0]:.3f}", f"{result.auroc[-1, 0]:.3f}"]
    assert first[4:] == ["2 → 1 → 0.333 → 0.1 → 0.0333", "0.25"]
    assert "training leaves the embeddings 0.0167 of the spread they had before it" in page
    assert "a share of 0.25 of the training scores tie" in page


def test_numbers_that_were_not_finite_are_said_to_be(tmp_path: Path) -> None:
    record = {"task": "mtd-color-02", "epochs": 4, "first_loss": 2.5, "last_loss": None, "losses_not_finite": 9}
    page = describe("ucad", [stored(tmp_path, made("ucad", info={"tasks": [record]}))])
    assert rows(page, "02")[0][3:] == ["2.5 → not finite", "9"]
    assert rows(page, "01")[0][3:] == ["–", "–"]
    assert "moves the prompt's loss" not in page


@pytest.mark.parametrize(
    ("name", "column", "sentence"),
    [
        ("dne", "spread: before → 1 → 2", "of the spread they had before it"),
        ("iuf", "variety: first → last epoch", "reconstructions of the last epoch differ by"),
        ("ucad", "loss: first → last epoch", "training moves the prompt's loss by"),
        ("efficientad", "mean map teacher student", "times that of the autoencoder"),
    ],
)
def test_what_the_methods_really_record_is_understood(name: str, column: str, sentence: str) -> None:
    pytest.importorskip("torch", reason="this method trains with torch, of the extra 'bench'")
    drawn_NHWC = np.random.default_rng(0).integers(0, 256, (4, 80, 80, 3)).astype(np.uint8)
    photos = tuple(Photo(str(n), lambda n=n: drawn_NHWC[n]) for n in range(4))  # type: ignore[misc]
    method = get_method(name).tiny().build(Workbench())
    method.learn(Lesson("mtd-color-01", photos))
    info = json.loads(json.dumps(method.info()))
    runs = runs_of(list_methods()[name], [made(name, info=info)])
    section = causes_section(name, runs, {})
    assert f"| {column} |" in section
    assert sentence in section
    assert "→ not finite" not in section


def test_a_method_whose_scores_are_a_light_meters_is_said_to_be_one(tmp_path: Path) -> None:
    control = made("photometer:signed")
    # The other way round and on another scale: the ranking is what counts. The control has one task more.
    tasks = [replace(task, scores=7 - 2 * task.scores) for task in control.final[:2]]
    follows = replace(made("dne", tasks=2), final=tasks)
    page = describe("dne", [stored(tmp_path, control, follows)])
    assert "its scores follow the brightness of the images: rank correlation 1" in page
    page = describe("dne", [stored(tmp_path, control, made("dne", tasks=2))])
    assert "its scores follow" not in page


# --- the command ---


def test_a_wrong_name_is_answered_with_the_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "describe", "dne:original"]) == 2
    answer = capsys.readouterr().err
    assert "There is no method 'dne:original'" in answer
    assert "dinosaur, dne, efficientad, iuf, patchcore, photometer, ucad" in answer


def test_a_folder_without_results_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "describe", "dne", str(tmp_path)]) == 2
    assert "There are no results in" in capsys.readouterr().err


def test_the_page_can_be_written_whole_or_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "new" / "dne.md"
    assert main(["bench", "describe", "dne", "--out", str(page)]) == 0
    assert page.read_text("utf-8") == describe("dne")
    results = stored(tmp_path / "results", made())
    page.write_text(f"A line of mine.\n\n<!-- begin: {COMMAND} dne elsewhere -->\nold\n<!-- end -->\n\nAnother.\n")
    assert main(["bench", "describe", "dne", results, "--out", str(page)]) == 0
    text = page.read_text("utf-8")
    assert (text.startswith("A line of mine.\n\n<!--"), text.endswith("<!-- end -->\n\nAnother.\n")) == (True, True)
    assert block(page, f"{COMMAND} dne {results}") == describe("dne", [results]).strip()


def test_a_page_that_cannot_be_written_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "describe", "dne", "--out", str(tmp_path)]) == 2
    assert "choose another --out" in capsys.readouterr().err


def test_a_method_of_ones_own_has_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    try:
        assert main(["bench", "describe", "fragile", "--load", str(tmp_path / "mine.py")]) == 0
    finally:
        unregister("fragile")
    page = capsys.readouterr().out
    assert page.startswith("# fragile: brightness, until something happens\n")
    assert rows(page, "fragile") == [["fragile", "1", "0"]]
    assert "There is one variant." in page
