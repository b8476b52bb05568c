"""One row for others to check: all cells of one method, packed with their hashes, their scores and their origin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dinosaur_ad.bench.cell import CELL
from dinosaur_ad.bench.foreign_results import FOLDER as OWN_FOLDER
from dinosaur_ad.bench.foreign_results import SHA256
from dinosaur_ad.bench.places import open_place
from dinosaur_ad.bench.publish import by_one_revision
from dinosaur_ad.bench.report.row_groups import group_cells
from dinosaur_ad.bench.results import PARTIAL, RESULT, CellResult, FailedCell, find_results
from dinosaur_ad.bench.row_files import FOLDER, write_row
from dinosaur_ad.bench.verify_cell import check_cell
from dinosaur_ad.errors import InputError


@dataclass(frozen=True)
class SubmittedRow:
    """The archive, and what is in it; ``exact`` says that every cell is of one commit without changes."""

    method: str
    cells: tuple[CellResult, ...]
    exact: bool
    content: bytes


def pack_row(folders: Sequence[str], *, method: str | None = None, allow_dirty: bool = False) -> SubmittedRow:
    """All cells of one method below ``folders`` as an archive; the same cells give the same bytes.

    :param method: which one, needed where the folders hold several.
    :param allow_dirty: also take cells that no single commit explains; the row says so.
    :raises InputError: a cell is unfinished, failed, does not follow from its scores or from one commit; or cells were
        not made alike.
    """
    finished, failed = find_results(folders)
    name = _one_method(finished, method)
    cells = [cell for group in group_cells(cell for cell in finished if cell.method == name) for cell in group.cells]
    _refuse_unfinished(folders, name, [cell for cell in failed if cell.method == name])
    for cell in cells:
        if not (checked := check_cell(cell, cell.name)).equal:
            faults = [*checked.faults, *(f"{each.what} differs" for each in checked.differences)]
            raise InputError(f"{cell.name} does not follow from its own scores ({faults[0]}); run it again.")
        if not allow_dirty and not by_one_revision(cell.environments):
            raise InputError(
                f"{cell.name} was not made by one commit without changes ({_words(cell)}), so nobody can repeat it "
                "exactly; run it again with --publish, or add --allow-dirty and the row will say so."
            )
    light = tuple(map(_to_share, cells))
    files = {f"{FOLDER}/{cell.folder}/{file}": content for cell in light for file, content in cell.files().items()}
    about = origin(light)
    return SubmittedRow(name, light, about["exact"], write_row(files, about))


def origin(cells: Sequence[CellResult]) -> dict[str, Any]:
    """What the manifest of a row says about where it comes from: commits, and hashes of the code that ran."""
    machines = [machine for cell in cells for machine in cell.environments]
    return {
        "method": cells[0].method,
        "exact": all(by_one_revision(cell.environments) for cell in cells),
        "revisions": _distinct(machine.get("revision") for machine in machines),
        "package_sha256": _hashes(machine.get("package_sha256") for machine in machines),
        "method_sha256": _hashes(machine.get("method_sha256") for machine in machines),
    }


def _one_method(finished: Sequence[CellResult], method: str | None) -> str:
    found = sorted({cell.method for cell in finished})
    chosen = [name for name in found if method in (None, name)]
    if len(chosen) == 1:
        return chosen[0]
    asked = "A row is of one method" if method is None else f"There is no finished cell of '{method}'"
    raise InputError(f"{asked}, and these folders hold: {', '.join(found) or 'none'}; choose one with --method.")


def _refuse_unfinished(folders: Sequence[str], method: str, failed: Sequence[FailedCell]) -> None:
    """Refuse a row with holes: results that were left out could be those that did not suit."""
    if failed:
        first = failed[0]
        raise InputError(
            f"{first.method} on {first.scenario}, seed {first.seed}, failed; run it again, or remove its folder."
        )
    for folder in folders:
        names = open_place(folder).list()
        begun = {name.removesuffix(CELL) for name in names if name.endswith(f"/{CELL}")}
        begun |= {name.partition(f"{PARTIAL}/")[0] for name in names if f"/{PARTIAL}/" in name}
        for cell in sorted(begun):
            if f"{cell}{RESULT}" not in names and cell.split("/")[-3:-2] == [method.replace(":", "-")]:
                raise InputError(
                    f"'{folder}/{cell.rstrip('/')}' is not finished; run it to its end, or remove that folder."
                )


def _to_share(cell: CellResult) -> CellResult:
    """The cell without maps and image names; of a folder of the user's, without the path that leads to it."""
    final = [replace(task, maps=None, names=None) for task in cell.final]
    scenario = cell.scenario
    if scenario.startswith(OWN_FOLDER):
        scenario = OWN_FOLDER + scenario.replace("\\", "/").rstrip("/").rpartition("/")[2].removeprefix(OWN_FOLDER)
    return replace(cell, final=final, scenario=scenario)


def _words(cell: CellResult) -> str:
    found = _distinct(machine.get("revision") for machine in cell.environments)
    return ", ".join(found) or "no revision is recorded"


def _distinct(values: Iterable[object]) -> list[str]:
    return sorted({value for value in values if isinstance(value, str)})


def _hashes(values: Iterable[object]) -> list[str]:
    return [value for value in _distinct(values) if SHA256.fullmatch(value)]
