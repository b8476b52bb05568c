"""All tables of a report, in the order they are read."""

from __future__ import annotations

from collections.abc import Sequence

from dinosaur_ad.bench.grid_results import GridResult
from dinosaur_ad.bench.report.grid_table import grid_tables
from dinosaur_ad.bench.report.more_tables import more_tables
from dinosaur_ad.bench.report.overview import overview_table
from dinosaur_ad.bench.report.paper_tables import other_tables, paper_tables
from dinosaur_ad.bench.report.row_groups import Group, group_cells
from dinosaur_ad.bench.report.shortcuts import shortcut_tables
from dinosaur_ad.bench.report.storage_tables import storage_tables
from dinosaur_ad.bench.report.table import Table
from dinosaur_ad.bench.results import CellResult


def tables(results: Sequence[CellResult], grids: Sequence[GridResult] = ()) -> list[Table]:
    """An overview, the paper's Tables 1 to 3, scenarios it does not have, hyperparameters, storage, and more.

    :raises InputError: results that would share a table were not made alike.
    """
    return tables_of(group_cells(results), grids)


def tables_of(groups: Sequence[Group], grids: Sequence[GridResult]) -> list[Table]:
    """The same for results that are grouped already."""
    return [
        *([overview_table(groups)] if groups else []),
        *paper_tables(groups),
        *other_tables(groups),
        *grid_tables(grids),
        *storage_tables(groups),
        *more_tables(groups),
        *shortcut_tables(groups),
    ]
