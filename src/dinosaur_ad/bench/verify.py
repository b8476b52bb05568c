"""Check stored results against their own scores: every number that can be computed again is compared.

Stored are matrices (image AUROC, AUROC with the task told, routing, NaN counts) and the scores they come from: of the
final model always, after every task in the full form. All else in a report is computed when it is printed; that is
compared too, with the same numbers counted independently (:mod:`~dinosaur_ad.bench.recount`). What nothing stored leads
to is not checked but counted: see :class:`~dinosaur_ad.bench.verify_cell.CheckedCell`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dinosaur_ad.bench import recount
from dinosaur_ad.bench.foreign_results import LARGEST_DOCUMENT, read_document
from dinosaur_ad.bench.grid_results import ScenarioGrid
from dinosaur_ad.bench.places import ArchivePlace, Place
from dinosaur_ad.bench.results import ARRAYS, ERROR, PARTIAL, RESULT, CellResult, FailedCell, is_grid, open_results
from dinosaur_ad.bench.row_files import RefusedRowError
from dinosaur_ad.bench.verify_cell import CheckedCell, Compared, check_cell
from dinosaur_ad.bench.verify_row import CheckedRow, check_row
from dinosaur_ad.errors import DinosaurError, InputError


@dataclass(frozen=True)
class Verified:
    """What was found in some folders: ``unreadable`` has a sentence for each file that is no result."""

    cells: tuple[CheckedCell, ...]
    grids: tuple[CheckedCell, ...]
    rows: tuple[CheckedRow, ...]
    failed: int
    unreadable: tuple[str, ...]

    @property
    def checked(self) -> tuple[CheckedCell, ...]:
        """Cells, grids and submitted rows."""
        return (*self.cells, *self.grids, *(row.checked for row in self.rows))

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
    """Check all results below the given folders (or fsspec addresses) and in submitted rows.

    What cannot be read does not end it.

    :raises InputError: one of the folders holds no results at all.
    """
    cells: list[CheckedCell] = []
    grids: list[CheckedCell] = []
    rows: list[CheckedRow] = []
    failed, unreadable = 0, []
    for folder in folders:
        try:
            place, names = open_results(
                folder, (RESULT, ERROR, ARRAYS), "name a folder that dinosaur bench run or pack wrote"
            )
        except RefusedRowError as error:
            unreadable.append(str(error))
            continue
        loaded = []
        for name in names:
            parent, _, file = name.rpartition("/")
            below = place.below(parent) if parent else place
            try:
                if is_grid(name):
                    grids.append(check_grid(place, name))
                elif file == RESULT:
                    loaded.append(CellResult.load(below))
                    cells.append(check_cell(loaded[-1], str(below)))
                elif file == ERROR:
                    FailedCell.load(below)
                    failed += 1
                elif file == ARRAYS:
                    _refuse_alone(below, parent, names)
            except DinosaurError as error:
                unreadable.append(str(error))
        if isinstance(place, ArchivePlace):
            rows.append(check_row(place, loaded))
    return Verified(tuple(cells), tuple(grids), tuple(rows), failed, tuple(unreadable))


def _refuse_alone(place: Place, parent: str, names: Sequence[str]) -> None:
    """Refuse scores without their result, unless a run is still writing it."""
    prefix = f"{parent}/" if parent else ""
    if f"{prefix}{RESULT}" not in names and not any(name.startswith(f"{prefix}{PARTIAL}/") for name in names):
        raise InputError(
            f"'{place}' holds no whole result ({RESULT} is missing); remove that folder and run the cell again."
        )


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
