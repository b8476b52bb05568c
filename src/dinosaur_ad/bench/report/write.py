"""All tables of a report, and the report on disk: one page, one Markdown file, one LaTeX file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bench.grid_results import GridResult, load_grids
from dinosaur_ad.bench.report.benchmark_page import TITLE, benchmark_page, headline
from dinosaur_ad.bench.report.findings import findings_table
from dinosaur_ad.bench.report.grid_table import grid_tables
from dinosaur_ad.bench.report.method_tables import cost_table, forgetting_table, missing_table, thresholds_table
from dinosaur_ad.bench.report.paper_tables import TableMaker, overview_table, paper_table_makers, short_table
from dinosaur_ad.bench.report.render import plain, to_latex, to_markdown
from dinosaur_ad.bench.report.reproduction import is_one_category, reproduction_tables
from dinosaur_ad.bench.report.row_groups import CellGroup, group_cells
from dinosaur_ad.bench.report.shortcuts import shortcut_tables
from dinosaur_ad.bench.report.table import Table
from dinosaur_ad.bench.results import CellResult, FailedCell
from dinosaur_ad.errors import InputError

_LATEX_HEAD = "% Made by dinosaur bench report; \\input this file. Needs \\usepackage{booktabs,graphicx}.\n"


@dataclass(frozen=True)
class ReportFiles:
    """Where the three files are."""

    html: Path
    markdown: Path
    latex: Path


def tables(
    results: Sequence[CellResult], grids: Sequence[GridResult] = (), failed: Sequence[FailedCell] = ()
) -> list[Table]:
    """All tables of a report in the order they are read, and the short one, which only ``--print`` shows, last.

    :raises InputError: results that would share a table were not made alike.
    """
    return [make() for make in table_makers(results, grids, failed).values()]


def table_makers(
    results: Sequence[CellResult], grids: Sequence[GridResult] = (), failed: Sequence[FailedCell] = ()
) -> dict[str, TableMaker]:
    """The same tables by name, each computed when it is called for: the intervals of some take most of the time."""
    groups = compared_groups(results)
    short: dict[str, TableMaker] = {"short": partial(short_table, groups)} if groups else {}
    return _makers_of(results, groups, grids, failed) | short


def compared_groups(results: Sequence[CellResult]) -> list[CellGroup]:
    """The groups that are compared with each other: all but those of one category alone."""
    return [group for group in group_cells(results) if not is_one_category(group.first)]


def _makers_of(
    results: Sequence[CellResult],
    groups: Sequence[CellGroup],
    grids: Sequence[GridResult],
    failed: Sequence[FailedCell],
) -> dict[str, TableMaker]:
    of_grids: dict[str, TableMaker] = {table.key: partial(_as_it_is, table) for table in grid_tables(grids)}
    reproduced: dict[str, TableMaker] = {table.key: partial(_as_it_is, table) for table in reproduction_tables(results)}
    if not groups:
        return reproduced | of_grids
    several = [group for group in groups if len(group.first.tasks) > 1]  # a single task cannot be forgotten
    return {
        "findings": partial(findings_table, results, groups),
        **reproduced,
        "overview": partial(overview_table, groups),
        **paper_table_makers(groups),
        **({"forgetting": partial(forgetting_table, several)} if several else {}),
        "thresholds": partial(thresholds_table, groups),
        **{table.key: partial(_as_it_is, table) for table in shortcut_tables(groups)},
        "cost": partial(cost_table, groups),
        **of_grids,
        "missing": partial(missing_table, groups, failed),
    }


def _as_it_is(table: Table) -> Table:
    return table


def write_report(
    results: Sequence[CellResult],
    out: Path,
    *,
    data: Path | None = None,
    failed: Sequence[FailedCell] = (),
    folders: Sequence[str] = (),
) -> ReportFiles:
    """Write ``report.html``, ``report.md`` and ``report.tex`` into ``out``; the same results give the same bytes.

    ``data`` is the folder of the datasets, for the pictures; None looks where the environment says. ``folders`` are
    searched for grids of hyperparameters.

    :raises InputError: there is nothing to report, results were not made alike, or ``out`` cannot be written.
    """
    grids = load_grids(folders)
    if not (results or failed or grids):
        raise InputError("There is nothing to report; make results with: dinosaur bench run.")
    groups = compared_groups(results)
    made = [make() for make in _makers_of(results, groups, grids, failed).values()]
    intro = [f"# {TITLE}", headline(groups, failed), *_failures(failed)]
    contents = {
        out / "report.html": benchmark_page(groups, made, failed, data),
        out / "report.md": "\n\n".join([*intro, *(to_markdown(table) for table in made)]),
        out / "report.tex": "\n".join([_LATEX_HEAD, *(to_latex(table) for table in made)]),
    }
    for path, text in contents.items():
        try:
            write_atomic(path, text.encode())
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InputError(f"The report '{path}' could not be written ({reason}); choose another --out.") from error
    return ReportFiles(*contents)


def _failures(failed: Sequence[FailedCell]) -> list[str]:
    lines = [f"- {plain(f'{cell.method} on {cell.scenario}, seed {cell.seed}: {cell.error}')}" for cell in failed]
    return ["Cells that failed:", "\n".join(lines)] if failed else []
