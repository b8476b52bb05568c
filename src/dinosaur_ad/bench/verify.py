"""Whether stored results say what their own scores say: every number that can be computed again is, and compared.

Stored are matrices (image AUROC, AUROC with the task told, routing, NaN counts) and the scores they come from: of the
final model always, after every task in the full form. All else in a report is computed when it is printed; that is
compared too, with the same numbers counted independently (:mod:`~dinosaur_ad.bench.recount`). What nothing stored leads
to is not checked but counted: see :attr:`CheckedCell.unchecked`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bench import recount
from dinosaur_ad.bench.foreign import LARGEST_DOCUMENT, read_document
from dinosaur_ad.bench.grid_results import ScenarioGrid
from dinosaur_ad.bench.places import LocalPlace, Place, open_place
from dinosaur_ad.bench.report import numbers as printed
from dinosaur_ad.bench.results import ARRAYS, ERROR, PARTIAL, RESULT, CellResult, FailedCell, is_grid, result_files
from dinosaur_ad.errors import DinosaurError, InputError

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


@dataclass(frozen=True)
class Verified:
    """What was found in some folders: ``unreadable`` has a sentence for each file that is no result."""

    cells: tuple[CheckedCell, ...]
    grids: tuple[CheckedCell, ...]
    failed: int
    unreadable: tuple[str, ...]

    @property
    def checked(self) -> tuple[CheckedCell, ...]:
        """Cells and grids."""
        return self.cells + self.grids

    @property
    def numbers(self) -> int:
        """How many numbers were computed again."""
        return sum(each.numbers for each in self.checked)

    @property
    def unchecked(self) -> int:
        """How many stored numbers could not be."""
        return sum(each.unchecked for each in self.checked)

    @property
    def equal(self) -> bool:
        """All could be read, and all numbers are equal."""
        return not self.unreadable and all(each.equal for each in self.checked)


def verify(folders: Sequence[str]) -> Verified:
    """Check all results below the given folders (or fsspec addresses); one that cannot be read does not end it.

    :raises InputError: one of the folders holds no results at all.
    """
    cells: list[CheckedCell] = []
    grids: list[CheckedCell] = []
    failed, unreadable = 0, []
    for folder in folders:
        place = open_place(folder)
        names = result_files(place)
        found = [name for name in names if is_grid(name) or name.rpartition("/")[2] in (RESULT, ERROR, ARRAYS)]
        if not found:
            absent = isinstance(place, LocalPlace) and not place.folder.is_dir()
            where = f"'{folder}', which is no folder" if absent else f"'{folder}'"
            raise InputError(f"There are no results in {where}; name a folder that dinosaur bench run or pack wrote.")
        for name in found:
            parent, _, file = name.rpartition("/")
            below = place.below(parent) if parent else place
            try:
                if is_grid(name):
                    grids.append(check_grid(place, name))
                elif file == RESULT:
                    cells.append(check_cell(CellResult.load(below), str(below)))
                elif file == ERROR:
                    FailedCell.load(below)
                    failed += 1
                else:
                    _refuse_alone(below, parent, names)
            except DinosaurError as error:
                unreadable.append(str(error))
    return Verified(tuple(cells), tuple(grids), failed, tuple(unreadable))


def _refuse_alone(place: Place, parent: str, names: Sequence[str]) -> None:
    """Scores without the result they belong to, unless a run is about to write it."""
    prefix = f"{parent}/" if parent else ""
    if f"{prefix}{RESULT}" not in names and not any(name.startswith(f"{prefix}{PARTIAL}/") for name in names):
        raise InputError(
            f"'{place}' holds no whole result ({RESULT} is missing); remove that folder and run the cell again."
        )


# --- a cell ---


def check_cell(cell: CellResult, where: str) -> CheckedCell:
    """Compare what a result stores, and what a report prints of it, with what its scores give."""
    compared = [*_matrices(cell), *_saturated(cell)]
    matrix = _from_scores(cell)
    compared += _printed(cell, matrix)
    stored = _defined(cell.auroc, cell.oracle_auroc, cell.routing, cell.thresholds) + cell.nan_scores.size
    stored += sum(len(task) for task in cell.pixel or ())
    computed = sum(not entry.what.startswith(_PRINTED) for entry in compared)
    return CheckedCell(
        where=where,
        numbers=len(compared),
        unchecked=max(stored - computed, 0),
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
            routed = recount.mean([float(route == column) for route in task.routes])
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
    for name, matrix in (("oracle_auroc", cell.oracle_auroc), ("routing", cell.routing), ("thresholds", cell.thresholds)):
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
    for about, row, task in zip(cell.tasks, cell.rows, cell.final, strict=True):
        if row["task"] != about["name"]:
            yield f"the row of task {about['name']} is called '{row['task'][:60]}'"
        if task.history is not None and not np.array_equal(task.history[-1], task.scores, equal_nan=True):
            yield f"the last scores of {about['name']} are not those after the last task"
        if row.get("environment", 0) not in range(len(cell.environments)):
            yield f"the row of task {about['name']} names an environment that is not stored"


# --- a grid ---


def check_grid(place: Place, name: str) -> CheckedCell:
    """Compare the stored means of a grid with those of its tasks; the scores of the tasks are not stored."""
    grid = ScenarioGrid.load(place, name)
    means = read_document(place.read(name, LARGEST_DOCUMENT)).get("auroc")
    compared, faults = [], []
    try:
        stored = np.asarray(means, np.float64)  # null becomes NaN
    except (TypeError, ValueError):
        stored = np.zeros(0)
    if stored.shape != (len(grid.ratios), len(grid.radii)):
        faults.append("its means are not one a ratio and radius")
    else:
        compared = [
            Compared(f"mean of ratio {ratio:g} and radius {radius}", float(stored[row, column]), recount.mean(values))
            for row, ratio in enumerate(grid.ratios)
            for column, radius in enumerate(grid.radii)
            for values in [grid.per_task[row][column]]
        ]
    return CheckedCell(
        where=f"{place}/{name}",
        numbers=len(compared),
        unchecked=int(np.asarray(grid.per_task).size),
        differences=tuple(entry for entry in compared if not entry.equal),
        faults=tuple(faults),
    )
