"""Check what the cells of a submitted row have in common: one method, its origin, its data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dinosaur_ad.bench.places import ArchivePlace
from dinosaur_ad.bench.published_data import data_faults, unknown_tasks
from dinosaur_ad.bench.report.row_groups import group_cells
from dinosaur_ad.bench.results import ARRAYS, RESULT, CellResult
from dinosaur_ad.bench.row_files import FOLDER, MANIFEST, read_manifest
from dinosaur_ad.bench.submitted_row import origin
from dinosaur_ad.bench.verify_cell import CheckedCell
from dinosaur_ad.errors import InputError


@dataclass(frozen=True)
class CheckedRow:
    """A row: ``checked`` has what contradicts itself or the published data.

    Of its ``tasks``, each counted once a cell, ``unknown`` ones have no published checksum to compare with.
    """

    method: str
    scenarios: tuple[str, ...]
    exact: bool
    tasks: int
    unknown: int
    checked: CheckedCell


def check_row(place: ArchivePlace, cells: Sequence[CellResult]) -> CheckedRow:
    """Compare the manifest of an archive with its cells, and their data with the published."""
    manifest = read_manifest(place.files)
    faults = tuple(_faults(place, cells, manifest))
    return CheckedRow(
        method=manifest["method"],
        scenarios=tuple(dict.fromkeys(cell.scenario for cell in cells)),
        exact=manifest["exact"],
        tasks=sum(len(cell.tasks) for cell in cells),
        unknown=sum(map(unknown_tasks, cells)),
        checked=CheckedCell(str(place), numbers=0, unchecked=0, differences=(), faults=faults),
    )


def _faults(place: ArchivePlace, cells: Sequence[CellResult], manifest: dict[str, object]) -> Iterator[str]:
    # A result that cannot be read is reported as that; its files do not also belong to none.
    present = {name.removesuffix(f"/{RESULT}") for name in place.files if name.endswith(f"/{RESULT}")}
    folders = {f"{FOLDER}/{cell.folder}" for cell in cells} | present
    expected = {f"{folder}/{file}" for folder in folders for file in (RESULT, ARRAYS)}
    for name in sorted(set(place.files) - {MANIFEST} - expected):
        yield f"'{name[:60]}' belongs to none of its results"
    if not cells:
        yield "it holds no results"
        return
    if len({cell.method for cell in cells}) > 1:
        yield "it holds results of several methods"
    for key, value in origin(cells).items():
        if manifest[key] != value:
            yield f"its manifest says another '{key}' than its results"
    try:
        group_cells(cells)
    except InputError as error:
        yield str(error).rstrip(".")
    for cell in cells:
        yield from (f"{cell.scenario}, seed {cell.seed}: {fault}" for fault in data_faults(cell))
