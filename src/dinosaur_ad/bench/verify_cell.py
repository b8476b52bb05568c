"""Check one stored result against its own scores: numbers that differ, and fields that contradict each other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bench import recount
from dinosaur_ad.bench.publish import by_one_revision
from dinosaur_ad.bench.report import numbers as printed
from dinosaur_ad.bench.results import CellResult

RELATIVE, ABSOLUTE = 1e-9, 1e-12
"""How far two numbers may be apart and be equal: in relation to the larger, or, because the report rounds measures of
forgetting to 12 digits, in all."""


@dataclass(frozen=True)
class Compared:
    """One number: what is stored (or printed from what is stored), and what the scores give."""

    what: str
    stored: float
    found: float

    @property
    def equal(self) -> bool:
        """Within the tolerance; NaN is equal to NaN alone."""
        if math.isnan(self.stored) or math.isnan(self.found):
            return math.isnan(self.stored) and math.isnan(self.found)
        return math.isclose(self.stored, self.found, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


@dataclass(frozen=True)
class CheckedCell:
    """One cell or grid: how many numbers were computed again, those that differ, and what contradicts itself.

    ``unchecked`` counts stored numbers that no stored score leads to: thresholds (from training scores), pixel metrics
    (from masks), earlier rows of a packed result and of the matrices with the task told or chosen, the AUROCs of grids.
    """

    where: str
    numbers: int
    unchecked: int
    differences: tuple[Compared, ...]
    faults: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Nothing differs, nothing contradicts itself."""
        return not self.differences and not self.faults


def check_cell(cell: CellResult, where: str) -> CheckedCell:
    """Compare what a result stores, and what a report prints of it, with what its scores give."""
    compared = [*_matrices(cell), *_saturated(cell)]
    matrix = _from_scores(cell)
    compared += _printed(cell, matrix)
    stored = _defined(cell.auroc, cell.oracle_auroc, cell.routing, cell.thresholds) + cell.nan_scores.size
    stored += sum(not math.isnan(value) for task in cell.pixel or () for value in task.values())
    computed = sum(not entry.what.startswith(_PRINTED) and not math.isnan(entry.stored) for entry in compared)
    return CheckedCell(
        where=where,
        numbers=len(compared),
        unchecked=stored - computed,
        differences=tuple(entry for entry in compared if not entry.equal),
        faults=tuple(_faults(cell)),
    )


_PRINTED = "printed "


def _rows(cell: CellResult, column: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """After which tasks the scores of a task's test images are stored, and the scores."""
    task, last = cell.final[column], len(cell.tasks) - 1
    if task.history is not None:
        yield from ((row, task.history[row]) for row in range(last))
    yield last, task.scores


def _matrices(cell: CellResult) -> Iterator[Compared]:
    last = len(cell.tasks) - 1
    for column, task in enumerate(cell.final):
        name = cell.tasks[column]["name"]
        for row, scores in _rows(cell, column):
            at = f"of {name} after task {row + 1}"
            pairs = recount.count_pairs(scores, task.labels)
            yield Compared(f"image AUROC {at}", float(cell.auroc[row, column]), pairs.auroc)
            yield Compared(f"NaN scores {at}", float(cell.nan_scores[row, column]), float(np.isnan(scores).sum()))
        at = f"of {name} after task {last + 1}"
        if cell.oracle_auroc is not None and task.oracle is not None:
            told = recount.count_pairs(task.oracle, task.labels).auroc
            yield Compared(f"image AUROC with the task told {at}", float(cell.oracle_auroc[last, column]), told)
        if cell.routing is not None and task.routes is not None:
            routed = recount.mean((task.routes == column).tolist())
            yield Compared(f"routing {at}", float(cell.routing[last, column]), routed)


def _saturated(cell: CellResult) -> Iterator[Compared]:
    """The mean over kinds of anomaly is stored beside the kinds."""
    for task, measured in zip(cell.tasks, cell.pixel or (), strict=False):
        kinds = [value for key, value in measured.items() if key.startswith("au_spro ")]
        if kinds:
            yield Compared(f"AU-sPRO of {task['name']}", measured.get("au_spro", math.nan), recount.mean(kinds))


def _from_scores(cell: CellResult) -> NDArray[np.float64]:
    """The matrix of image AUROCs, from scores where they are stored."""
    matrix = cell.auroc.copy()
    for column, task in enumerate(cell.final):
        for row, scores in _rows(cell, column):
            matrix[row, column] = recount.count_pairs(scores, task.labels).auroc
    return matrix


def _printed(cell: CellResult, matrix: NDArray[np.float64]) -> Iterator[Compared]:
    """What a report prints of this cell, beside the same numbers from the scores."""
    mean = recount.mean
    pairs = [recount.count_pairs(task.scores, task.labels) for task in cell.final]
    paper = [
        recount.rates(task.scores, task.labels, float(cell.thresholds[-1, index]))
        for index, task in enumerate(cell.final)
    ]
    found: list[tuple[str, float, float]] = [
        ("image AUROC", printed.auroc(cell), mean([each.auroc for each in pairs])),
        ("ties", printed.ties(cell), mean([each.ties for each in pairs])),
    ]
    for name, number in _PAPER.items():
        found.append((name, number(cell), mean([each[name] for each in paper])))
    if cell.oracle_auroc is not None:
        told = [recount.count_pairs(task.oracle, task.labels).auroc for task in cell.final if task.oracle is not None]
        found.append(("image AUROC with the task told", printed.oracle_auroc(cell), mean(told)))
    if cell.routing is not None:
        right = [mean((task.routes == n).tolist()) for n, task in enumerate(cell.final) if task.routes is not None]
        found.append(("routing", printed.routing(cell), mean(right)))
    own = [
        recount.rates(task.scores, task.labels, task.own_thresholds)
        for task in cell.final
        if task.own_thresholds is not None
    ]
    for name, number in _OWN.items():
        value = mean([each[name] for each in own]) if len(own) == len(cell.final) else math.nan
        found.append((f"{name} at its own threshold", number(cell), value))
    forgotten = recount.forgetting(matrix)
    found += [(name, number(cell), forgotten[name]) for name, number in printed.FORGETTING.items()]
    kinds = printed.by_kind(cell)
    again = _by_kind(cell)
    found += [
        (f"image AUROC of {kind}", kinds.get(kind, math.nan), again.get(kind, math.nan))
        for kind in sorted({*kinds, *again})
    ]
    return (Compared(f"{_PRINTED}{name}", stored, value) for name, stored, value in found)


_PAPER = {
    "accuracy": printed.accuracy,
    "recall": printed.recall,
    "precision": printed.precision,
    "false alarms": printed.false_alarms,
}
_OWN = {
    "recall": printed.own_recall,
    "precision": printed.own_precision,
    "false alarms": printed.own_false_alarms,
}


def _by_kind(cell: CellResult) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for task in cell.final:
        kinds = np.asarray(task.kinds, np.str_)
        for kind in dict.fromkeys(str(each) for each in kinds[task.labels == 1]):
            chosen = (task.labels == 0) | (kinds == kind)
            found.setdefault(kind, []).append(recount.count_pairs(task.scores[chosen], task.labels[chosen]).auroc)
    return {kind: recount.mean(values) for kind, values in found.items()}


def _defined(*matrices: NDArray[Any] | None) -> int:
    return sum(int(np.count_nonzero(~np.isnan(matrix))) for matrix in matrices if matrix is not None)


def _faults(cell: CellResult) -> Iterator[str]:
    """What cannot be true together, whatever the scores are. Shapes, counts and the folder are checked on reading."""
    count = len(cell.tasks)
    early = np.triu(np.ones((count, count), bool), 1)
    for name, matrix in (
        ("oracle_auroc", cell.oracle_auroc),
        ("routing", cell.routing),
        ("thresholds", cell.thresholds),
    ):
        if matrix is not None and not np.isnan(matrix[early]).all():
            yield f"{name} has a value for a task before it was learned"
    both = np.array([0 < int(task.labels.sum()) < len(task.labels) for task in cell.final])
    if np.isnan(cell.auroc[:, both]).any() or not np.isnan(cell.auroc[:, ~both]).all():
        yield "auroc must be a number where a task has normal and anomalous test images, and null elsewhere"
    learned = ~early & both[None, :]
    if cell.oracle_auroc is not None and np.isnan(cell.oracle_auroc[learned]).any():
        yield "oracle_auroc lacks a value for a task that was learned"
    if cell.routing is not None and np.isnan(cell.routing[learned]).any():
        yield "routing lacks a value for a task that was learned"
    for name, matrix, arrays in (
        ("oracle_auroc", cell.oracle_auroc, [task.oracle for task in cell.final]),
        ("routing", cell.routing, [task.routes for task in cell.final]),
    ):
        if any((matrix is None) != (array is None) for array in arrays):
            yield f"{name} is stored without its scores, or the scores without it"
    if cell.published and not by_one_revision(cell.environments):
        yield "it says that it is published, but not by which one exact revision"
    for about, row, task in zip(cell.tasks, cell.rows, cell.final, strict=True):
        if row["task"] != about["name"]:
            yield f"the row of task {about['name']} is called {row['task'][:60]!r}"
        if task.history is not None and not np.array_equal(task.history[-1], task.scores, equal_nan=True):
            yield f"the last scores of {about['name']} are not those after the last task"
        if row.get("environment", 0) not in range(len(cell.environments)):
            yield f"the row of task {about['name']} names an environment that is not stored"
