"""What the pages of the products show: how a product is set, what waits for it, what can be undone."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from dinosaur_ad._text import printable
from dinosaur_ad.bank.settings import MOST_SENSITIVITY, USUAL_SENSITIVITY
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.station.feedback_tray import task_of
from dinosaur_ad.station.history.searching import PartQuery
from dinosaur_ad.station.web.pages_frame import missing
from dinosaur_ad.station.web.pages_shown import ShownPart, shown_part


def existing(station: Any, name: str) -> Any:
    """The record of a product; an error for an unknown name."""
    for record in station.detector.tasks():
        if record.name == name:
            return record
    raise missing(f"There is no product '{printable(name, 60)}'.")


def gone_products(station: Any) -> list[tuple[str, bool]]:
    """Products that were forgotten, or whose learning was undone: the name, and whether undo brings them back."""
    there = {record.name for record in station.detector.tasks()} | set(station.detector.damaged())
    found: dict[str, bool] = {}
    for change in station.history.changes(limit=300):
        if change.task not in there and change.task not in found and any(undo_state(station, change.task)):
            found[change.task] = bool(undo_state(station, change.task)[0])
    return list(found.items())[:10]


def product_address(name: str) -> str:
    """The page of a product."""
    return f"/products/{quote(name, safe='')}"


def after_change(station: Any, name: str) -> str:
    """The page to show after a change that may have brought the product back or taken it away."""
    return product_address(name) if name in station.detector else "/products"


def settings_of(station: Any, name: str) -> Any:
    """How a product is set; None where it is damaged."""
    with suppress(DinosaurError):
        return station.detector.settings(name)
    return None


def sensitivity_place(station: Any, settings: Any) -> float | None:
    """The place of the slider that a product is set to; None for a threshold that was given as such."""
    if settings is None or settings.fixed_threshold or settings.false_alarms <= 0:
        return None
    place = USUAL_SENSITIVITY * (1 + math.log10(settings.false_alarms / station.detector.preset.false_alarms))
    return round(min(MOST_SENSITIVITY, max(0.0, place)), 1)


def reference_part(station: Any, name: str) -> ShownPart | None:
    """A normal part of the product whose picture is kept, to draw on; any part if there is none."""
    for verdict in ("normal", None):
        rows = station.history.search(PartQuery(task=name, verdict=verdict, limit=5)).parts
        for row in rows:
            part = shown_part(row)
            if part.view and part.view.has_picture:
                return part
    return None


def tray_of(station: Any, name: str) -> list[Any]:
    """What people called fine of a product, and nobody has decided on."""
    waiting = station.history.feedback(state="waiting")
    return [each for each in waiting if each.answer == "fine" and task_of(each) == name]


def zone_cells(rows: tuple[str, ...] | None) -> list[tuple[int, int, int]]:
    """The patches that are not inspected, in runs: row, first column, how many.

    >>> zone_cells(("110", "000"))
    [(0, 2, 1), (1, 0, 3)]
    """
    return [
        (number, found.start(), found.end() - found.start())
        for number, row in enumerate(rows or ())
        for found in re.finditer("0+", row)
    ]


def drawn_zones(changes: list[Any], grid: tuple[str, ...] | None) -> list[Any]:
    """The polygons that the zones of now were drawn as, to go on with; none where they came in another way."""
    for change in changes:
        detail = change.detail or {}
        if grid and isinstance(detail.get("zones"), list) and detail.get("grid") == list(grid):
            return list(detail["zones"])
    return []


def undo_state(station: Any, name: str) -> tuple[str, str]:
    """Which change undo would take back and redo make again; empty where there is none."""
    undoable, redoable = "", ""
    with suppress(DinosaurError):
        steps = station.detector.store.undoable(name)
        undoable = str(steps[0][0]) if steps else ""
    with suppress(DinosaurError):
        redoable = str(station.detector.store.redoable(name) or "")
    return undoable, redoable
