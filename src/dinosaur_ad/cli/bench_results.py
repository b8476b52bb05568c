"""What ``dinosaur bench report`` and ``dinosaur bench pack`` do with results that are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dinosaur_ad.cli._console import say, show, show_page
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.bench.grid_results import GridResult, ScenarioGrid
    from dinosaur_ad.bench.places import Place
    from dinosaur_ad.bench.results import CellResult


def write_tables(folders: Sequence[str], out: Path | None, data: Path | None) -> None:
    """Write the report of all results below ``folders`` and print where it is."""
    from dinosaur_ad.bench.places import LocalPlace
    from dinosaur_ad.bench.report import write_report
    from dinosaur_ad.bench.results import find_results

    finished, failed = find_results(folders)
    first = folders[0]
    out = out or (Path("runs", "report") if "://" in first else LocalPlace(Path(first)).path("report"))
    files = write_report(finished, out, failed=failed, data=data, folders=folders)
    for path in (files.html, files.markdown, files.latex):
        show(str(path))


def print_tables(folders: Sequence[str], names: Sequence[str]) -> None:
    """Print the named tables of the report as Markdown, in the order of the names; the same results, the same text."""
    from dinosaur_ad.bench.grid_results import load_grids
    from dinosaur_ad.bench.report import table_makers, to_markdown
    from dinosaur_ad.bench.results import find_results

    finished, failed = find_results(folders)
    makers = table_makers(finished, load_grids(folders), failed)
    for name in names or [""]:
        if name not in makers:
            raise InputError(f"These results have no table '{name}'; choose from: {', '.join(makers)}.")
    show_page("\n".join(to_markdown(makers[name]()) for name in names))


def pack(folders: Sequence[str], out: str) -> None:
    """Copy all finished cells in their compact form, and all grids; a target that would lose data is refused first."""
    from dinosaur_ad.bench.grid_results import load_grids
    from dinosaur_ad.bench.places import open_place
    from dinosaur_ad.bench.report.row_groups import group_cells
    from dinosaur_ad.bench.results import find_results

    finished, failed = find_results(folders)
    cells = [cell for group in group_cells(finished) for cell in group.cells]
    grids = _one_a_file(load_grids(folders))
    place = open_place(out)
    _refuse_loss(place, cells)
    for cell in cells:
        cell.save(place.below(cell.folder), compact=True)
    for grid in grids:
        grid.save(place)
    show(f"{_count(len(cells), 'result')} and {_count(len(grids), 'grid')} in {out}")
    if failed:
        say(f"{_count(len(failed), 'failed cell')} left out")


def _one_a_file(grids: Sequence[GridResult]) -> list[ScenarioGrid]:
    from dinosaur_ad.bench.grid_results import grid_file

    found: dict[str, ScenarioGrid] = {}
    for part in (part for grid in grids for part in grid.parts):
        name = grid_file(part.preset, part.scenario)
        if name in found:
            raise InputError(
                f"There are two grids of {part.scenario} with the preset {part.preset}, made otherwise; pack their "
                "folders one by one, each with an --out of its own."
            )
        found[name] = part
    return list(found.values())


def _refuse_loss(place: Place, cells: Sequence[CellResult]) -> None:
    from dinosaur_ad.bench.cell import CELL

    for folder in (place.below(cell.folder) for cell in cells):
        if folder.has(CELL):  # only a run leaves that file
            raise InputError(
                f"'{folder}' is where a run wrote its result, and packing into it would lose the maps; choose another "
                "--out."
            )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
