"""``bench verify``: what the scores give is counted independently, and every number that differs is named."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cell_helpers import Log, around, tiny_cells
from report_factory import cell as made_up
from report_factory import grid
from test_foreign_results import spoil

from dinosaur_ad.bench import recount
from dinosaur_ad.bench.metrics import ranked_auroc
from dinosaur_ad.bench.places import open_place
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.results import CellResult
from dinosaur_ad.bench.runner import run_local
from dinosaur_ad.bench.verify import Verified, verify
from dinosaur_ad.bench.verify_cell import Compared, check_cell
from dinosaur_ad.errors import InputError

ROOT = Path(__file__).parents[2]
CELL = Path("synthetic-tiny", "dinosaur", "seed-0")


@pytest.fixture(scope="module")
def _ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = around(tmp_path_factory.mktemp("verify"))
    (done,), _ = run_local(tiny_cells(), where, Log())
    assert len(done.tasks) > 1
    return Path(where.out)


@pytest.fixture
def results(tmp_path: Path, _ran: Path) -> Path:
    """One cell as a run leaves it, with the scores after every task."""
    return shutil.copytree(_ran, tmp_path / "results")


def edit(results: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = results / CELL / "result.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def edit_arrays(results: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = results / CELL / "arrays.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    change(arrays)
    np.savez_compressed(path, **arrays)


def whats(found: Verified) -> list[str]:
    return [entry.what for each in found.checked for entry in each.differences]


def faults(found: Verified) -> list[str]:
    return [fault for each in found.checked for fault in each.faults]


# --- counting ---


def test_counted_pairs_are_the_auroc_whatever_the_scores() -> None:
    rng = np.random.default_rng(0)
    strange = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])
    for size in (0, 1, 2, 3, 7, 40):
        for _ in range(30):
            labels = rng.integers(0, 2, size).astype(np.int8)
            for scores in (rng.normal(size=size), rng.integers(0, 3, size).astype(float), rng.choice(strange, size)):
                counted, ranked = recount.count_pairs(scores.astype(np.float32), labels), ranked_auroc(scores, labels)
                assert Compared("", ranked.auroc, counted.auroc).equal
                assert Compared("", ranked.ties, counted.ties).equal


def test_pairs_one_by_one() -> None:
    scores, labels = np.array([3.0, 1.0, 2.0, 2.0, np.nan]), np.array([0, 0, 0, 1, 1])
    assert recount.count_pairs(scores, labels) == recount.Pairs(count=6, won=1, tied=1)


@pytest.mark.parametrize(
    ("stored", "found", "equal"),
    [
        (0.5, 0.5 * (1 + 9e-10), True),
        (0.5, 0.5 * (1 + 2e-9), False),
        (0.0, 4e-13, True),
        (0.0, 2e-12, False),
        (float("nan"), float("nan"), True),
        (float("nan"), 0.0, False),
        (0.0, float("nan"), False),
    ],
)
def test_the_tolerance(stored: float, found: float, equal: bool) -> None:
    assert Compared("", stored, found).equal is equal


# --- what is equal ---


def test_a_run_is_equal_whole_and_packed(results: Path, tmp_path: Path) -> None:
    whole = verify([str(results)])
    assert whole.equal
    assert (len(whole.cells), whole.grids, whole.failed) == (1, (), 0)
    CellResult.load(open_place(results / CELL)).save(open_place(tmp_path / "packed" / CELL), compact=True)
    packed = verify([str(tmp_path / "packed")])
    assert packed.equal
    assert packed.numbers < whole.numbers
    assert packed.unchecked - whole.unchecked == whole.numbers - packed.numbers > 0


def test_the_stored_results_of_this_repository_are_equal() -> None:
    found = verify([str(ROOT / "results"), str(ROOT / "results-apart")])
    assert not found.unreadable
    assert not [each for each in found.checked if not each.equal]
    assert len(found.cells) == len([*ROOT.glob("results*/**/result.json")]) > 100


# --- what differs ---


def test_one_changed_score_is_found(results: Path) -> None:
    def change(arrays: dict[str, Any]) -> None:
        scores = arrays["0/scores"]
        clearest = np.where(arrays["0/labels"] == 1, scores, -np.inf).argmax()
        scores[clearest] = scores.min() - 1
        arrays["0/history"][-1] = scores

    edit_arrays(results, change)
    found = verify([str(results)])
    assert not found.equal
    assert any(what.startswith("image AUROC of ") for what in whats(found))
    assert "printed image AUROC" in whats(found)
    assert not faults(found)


def test_a_score_that_is_not_the_one_in_the_history_is_found(results: Path) -> None:
    edit_arrays(results, lambda arrays: arrays["0/scores"].__iadd__(1))
    assert any("are not those after the last task" in fault for fault in faults(verify([str(results)])))


@pytest.mark.parametrize("row", [0, -1])
def test_one_changed_entry_of_the_matrix_is_found_in_every_row(row: int, results: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["auroc"][row][1] = abs(document["auroc"][row][1] - 1e-6)

    edit(results, change)
    (checked,) = verify([str(results)]).cells
    first = checked.differences[0]
    assert first.what.startswith("image AUROC of ")
    assert abs(abs(first.stored - first.found) - 1e-6) < 1e-9


@pytest.mark.parametrize("field", ["oracle_auroc", "routing"])
def test_the_other_matrices_are_compared_too(field: str, results: Path) -> None:
    edit(results, lambda document: document[field][-1].__setitem__(0, 0.123))
    assert len(whats(verify([str(results)]))) == 2  # the entry, and the mean that is printed


def test_a_count_of_nan_that_is_wrong_is_found(results: Path) -> None:
    edit(results, lambda document: document["nan_scores"][0].__setitem__(0, 3))
    assert [what.partition(" of ")[0] for what in whats(verify([str(results)]))] == ["NaN scores"]


@pytest.mark.parametrize("name", ["accuracy", "fm_paper", "fm_std", "bwt"])
def test_a_wrong_metric_would_show(name: str, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed is compared with what is counted elsewhere, not with itself."""
    if name == "accuracy":
        monkeypatch.setattr("dinosaur_ad.bench.metrics.image.Confusion.accuracy", property(lambda judged: 0.123))
    else:
        monkeypatch.setattr(numbers, name, lambda matrix: 0.123)
    printed = {"accuracy": "accuracy", "fm_paper": "FM paper", "fm_std": "FM std", "bwt": "BWT"}[name]
    assert whats(verify([str(results)])) == [f"printed {printed}"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document["thresholds"][0].__setitem__(1, 0.5), "thresholds has a value for a task before"),
        (lambda document: document["auroc"][0].__setitem__(0, None), "auroc must be a number where"),
        (lambda document: document["routing"][1].__setitem__(0, None), "routing lacks a value"),
        (lambda document: document.update(routing=None), "routing is stored without its scores, or the scores"),
        (lambda document: document["rows"][0].update(task="another"), "is called 'another'"),
        (lambda document: document["rows"][0].update(environment=7), "names an environment that is not stored"),
        (
            lambda document: [document.update(published=True), document["environments"][0].update(revision=None)],
            "it says that it is published, but not by which one exact revision",
        ),
    ],
)
def test_what_contradicts_itself_is_found(change: Callable[[Any], object], words: str, results: Path) -> None:
    edit(results, change)
    found = verify([str(results)])
    assert not found.equal
    assert any(words in fault for fault in faults(found))


def test_the_mean_over_kinds_is_compared(results: Path) -> None:
    stored = CellResult.load(open_place(results / CELL))
    good = {"au_spro a": 0.2, "au_spro b": 0.4, "au_spro": 0.3}
    for measured, equal in ((good, True), (good | {"au_spro": 0.31}, False), (good | {"au_spro a": 1e308}, False)):
        pixel: list[dict[str, float]] = [measured] * len(stored.tasks)
        assert check_cell(replace(stored, pixel=pixel), "here").equal is equal


def test_tasks_of_one_class_are_undefined_and_equal() -> None:
    made = made_up(tasks=2, normals=4, anomalies=0)
    checked = check_cell(replace(made, oracle_auroc=None, routing=None, pixel=None), "here")
    assert [fault.partition(" ")[0] for fault in checked.faults] == ["oracle_auroc", "routing"]  # the scores are there
    assert not checked.differences


def test_the_means_of_a_grid_are_compared(tmp_path: Path) -> None:
    for part in grid((0.1,), (0, 3), {"mtd-color": [[0.7, 0.8]]}).parts:
        part.save(open_place(tmp_path))
    assert (verify([str(tmp_path)]).equal, verify([str(tmp_path)]).numbers) == (True, 2)
    path = tmp_path / "grid-paper-mtd-color.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"auroc": [[0.7, 0.81]]}))
    assert whats(verify([str(tmp_path)])) == ["mean of ratio 0.1 and radius 3"]
    for wrong in (None, "x", [[0.7]], [[0.7], [0.8, 0.9]]):
        path.write_text(json.dumps(document | {"auroc": wrong}))
        assert faults(verify([str(tmp_path)])) == ["its means are not one a ratio and radius"]


# --- what cannot be read ---


@pytest.mark.parametrize("name", ["result.json", "arrays.npz"])
def test_a_missing_file_is_one_sentence_and_the_others_are_checked(name: str, results: Path) -> None:
    shutil.copytree(results / CELL, results / "more" / CELL)
    (results / "more" / CELL / name).unlink()
    found = verify([str(results)])
    (sentence,) = found.unreadable
    assert "holds no whole result" in sentence
    assert name in sentence
    assert "\n" not in sentence
    assert len(found.cells) == 1
    assert not found.equal


def test_a_folder_of_another_name_is_one_sentence(results: Path) -> None:
    (results / CELL).rename(results / CELL.parent / "seed-7")
    (sentence,) = verify([str(results)]).unreadable
    assert "says that it belongs to a folder 'synthetic-tiny/dinosaur/seed-0'" in sentence


def test_arrays_of_another_length_are_one_sentence(results: Path) -> None:
    edit_arrays(results, lambda arrays: arrays.update({"0/scores": arrays["0/scores"][1:]}))
    (sentence,) = verify([str(results)]).unreadable
    assert "damaged" in sentence


def test_a_cell_that_is_being_run_is_no_fault(results: Path) -> None:
    running = results / "more" / CELL
    (running / "partial").mkdir(parents=True)
    (running / "partial" / "row-000.npz").write_bytes(b"")
    shutil.copy(results / CELL / "arrays.npz", running)
    assert verify([str(results)]).equal


@pytest.mark.parametrize("name", ["nowhere", "foreign"])
def test_a_folder_without_results_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "photo.png").write_bytes(b"")
    with pytest.raises(InputError, match="There are no results in"):
        verify([str(tmp_path / name)])


@pytest.mark.parametrize("start", range(0, 80, 20))
def test_hostile_results_are_sentences_and_never_tracebacks(start: int, results: Path) -> None:
    path = results / CELL / "result.json"
    good, refused = json.loads(path.read_text()), 0
    for seed in range(start, start + 20):
        path.write_text(json.dumps(spoil(good, random.Random(seed))))
        found = verify([str(results)])
        refused += not found.equal
        assert not [sentence for sentence in (*found.unreadable, *faults(found)) if "\n" in sentence]
    assert refused > 5
