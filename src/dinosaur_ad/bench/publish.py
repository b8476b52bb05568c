"""Runs for publication: every row of a cell comes from one exact revision, or the cell is not run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from dinosaur_ad.bench.checkpoints import MatrixRow
from dinosaur_ad.bench.environment import exact_revision
from dinosaur_ad.bench.places import Place
from dinosaur_ad.bench.results import PARTIAL, RESULT, CellResult
from dinosaur_ad.errors import InputError

_ROW = re.compile(rf"{PARTIAL}/row-\d+\.npz")

_COMMIT = re.compile(r"[0-9a-f]{7,40}")


def refuse_unpublishable(place: Place) -> None:
    """Refuse a cell whose source is not exactly known, here or in what lies at ``place`` from earlier runs.

    :raises InputError: it says what was found and what to do.
    """
    revision = exact_revision()
    if place.has(RESULT):
        if not CellResult.load(place).published:
            raise InputError(
                f"'{place}' holds a result that was not run with --publish; remove that folder, or choose another "
                "--out."
            )
        return
    for name in place.list():
        if _ROW.fullmatch(name) and (found := _recorded(place, name)) not in (None, revision):
            raise InputError(
                f"'{place}' holds rows of an unfinished run by revision {found[:60]}, and this is {revision}; remove "
                "that folder, or choose another --out."
            )


def by_one_revision(environments: Iterable[Mapping[str, Any]]) -> bool:
    """Whether what a result was made with names one commit, without changes.

    >>> by_one_revision([{"revision": "bf0b1bcefcbf"}]), by_one_revision([{"revision": "bf0b1bcefcbf+changes"}])
    (True, False)
    """
    found = {str(each.get("revision")) for each in environments}
    return len(found) == 1 and _COMMIT.fullmatch(found.pop()) is not None


def _recorded(place: Place, name: str) -> str | None:
    """The revision a row was made by, "unknown" if it says none; None for a damaged row, which is made again."""
    try:
        made_with = MatrixRow.decode(place.read(name)).notes.get("environment")
    except (ValueError, OSError):
        return None
    found = made_with.get("revision") if isinstance(made_with, dict) else None
    return found if isinstance(found, str) else "unknown"
