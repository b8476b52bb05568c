"""The pages Products and Product: sensitivity with what it would have done, zones, gallery, tray, changes."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from dinosaur_ad._text import printable
from dinosaur_ad.bank.gallery import read_gallery
from dinosaur_ad.bank.settings import MOST_SENSITIVITY, USUAL_SENSITIVITY, Settings
from dinosaur_ad.errors import DinosaurError, InputError
from dinosaur_ad.station.feedback_tray import task_of
from dinosaur_ad.station.history.searching import PartQuery
from dinosaur_ad.station.web.access import Engineer, Viewer
from dinosaur_ad.station.web.pages_frame import PageRoute, back_to, missing, render, station_of
from dinosaur_ad.station.web.pages_shown import ShownPart, shown_part

router = APIRouter(route_class=PageRoute, include_in_schema=False)

MOST_ZONES_BYTES = 200_000


@router.get("/products")
def products_page(request: Request, person: Viewer) -> Response:
    """The page Products."""
    station = station_of(request)
    counts = station.history.counts_by_task()
    waiting = [task_of(each) for each in station.history.feedback(state="waiting") if each.answer == "fine"]
    cards = [
        {
            "name": record.name,
            "images": len(record.manifest.get("images", ())),
            "counts": counts.get(record.name, {}),
            "waiting": waiting.count(record.name),
            "part": reference_part(station, record.name),
            "settings": settings_of(station, record.name),
        }
        for record in station.detector.tasks()
    ]
    return render(
        request,
        person,
        "products.html",
        page="products",
        cards=cards,
        damaged=station.detector.damaged(),
        gone=gone_products(station),
    )


@router.get("/products/{name}")
def product_page(request: Request, name: str, person: Viewer) -> Response:
    """The page of one product."""
    station = station_of(request)
    record = existing(station, name)
    settings = settings_of(station, name)
    changes = station.history.changes(name, limit=50)
    undoable, redoable = undo_state(station, name)
    zones = Settings.of(record).zones
    return render(
        request,
        person,
        "product.html",
        page="products",
        name=name,
        record=record,
        images=len(record.manifest.get("images", ())),
        settings=settings,
        place=sensitivity_place(station, settings),
        most=MOST_SENSITIVITY,
        usual=USUAL_SENSITIVITY,
        part=reference_part(station, name),
        grid=zones,
        ignored=zone_cells(zones),
        drawn=drawn_zones(changes),
        defects=station.detector.defects(name),
        tray=[(each, shown_part(each.part)) for each in tray_of(station, name)],
        changes=changes,
        undoable=undoable,
        redoable=redoable,
        jobs=[job for job in station.teaching.jobs() if job.task == name][:5],
    )


@router.get("/products/{name}/what-if")
def what_if_table(request: Request, name: str, person: Viewer) -> Response:
    """What each place of the sensitivity would have done to the recorded parts; loaded after the page."""
    station = station_of(request)
    existing(station, name)
    settings = settings_of(station, name)
    places = station.teaching.what_if(name)
    place = sensitivity_place(station, settings)
    return render(request, person, "_what_if.html", places=places, place=place, name=name)


@router.get("/products/{name}/tray")
def tray_fragment(request: Request, name: str, person: Viewer) -> Response:
    """The parts that wait to be taught."""
    station = station_of(request)
    tray = [(each, shown_part(each.part)) for each in tray_of(station, name)]
    return render(request, person, "_tray.html", name=name, tray=tray)


@router.get("/products/{name}/jobs")
def jobs_fragment(request: Request, name: str, person: Viewer) -> Response:
    """What is being taught now."""
    jobs = [job for job in station_of(request).teaching.jobs() if job.task == name][:5]
    return render(request, person, "_jobs.html", name=name, jobs=jobs)


@router.get("/products/{name}/defects/{number}")
def defect_picture(request: Request, name: str, number: int, person: Viewer) -> Response:
    """A picture of the gallery."""
    detector = station_of(request).detector
    record = existing(station_of(request), name)
    gallery = read_gallery(detector.store, record, detector.preset.size)
    if not 0 <= number < len(gallery):
        raise missing("There is no such defect in the gallery.")
    return Response(gallery.pngs[number], media_type="image/png", headers={"Cache-Control": "private, no-cache"})


@router.post("/products/{name}/sensitivity")
def set_sensitivity(request: Request, name: str, person: Engineer, sensitivity: Annotated[float, Form()]) -> Response:
    """Set how strictly a product is judged."""
    station = station_of(request)
    existing(station, name)
    if not 0 <= sensitivity <= MOST_SENSITIVITY:
        raise InputError(f"The sensitivity lies between 0 and {MOST_SENSITIVITY:g}.")
    station.teaching.set(name, by=person.name, sensitivity=sensitivity)
    return back_to(request, product_address(name))


@router.post("/products/{name}/zones")
def set_zones(request: Request, name: str, person: Engineer, zones: Annotated[str, Form()]) -> Response:
    """Set which areas are inspected; an empty list inspects all."""
    station = station_of(request)
    existing(station, name)
    if len(zones) > MOST_ZONES_BYTES:
        raise InputError("These zones have too many corners; draw them with fewer.")
    try:
        polygons = json.loads(zones or "[]")
    except ValueError:
        raise InputError("The zones cannot be read; draw them again.") from None
    if not isinstance(polygons, list):
        raise InputError("The zones are a list of polygons; draw them again.")
    wanted: dict[str, Any] = {"zones": polygons} if polygons else {"no_zones": True}
    station.teaching.set(name, by=person.name, **wanted)
    return back_to(request, f"{product_address(name)}#zones")


@router.post("/products/{name}/tray")
def decide_tray(
    request: Request,
    name: str,
    person: Engineer,
    decision: Annotated[str, Form()],
    feedback: Annotated[list[int] | None, Form()] = None,
    force: Annotated[bool, Form()] = False,
) -> Response:
    """Teach the chosen parts, or refuse them."""
    station = station_of(request)
    waiting = {each.id for each in tray_of(station, name)}
    chosen = [each for each in feedback or () if each in waiting]
    if not chosen:
        raise InputError("No part is chosen; mark those that are meant.")
    if decision == "approve":
        station.teaching.update_from_tray(chosen, by=person.name, force=force)
    elif decision == "refuse":
        station.teaching.refuse(chosen, person.name)
    else:
        raise InputError("Parts of the tray are approved or refused.")
    return back_to(request, f"{product_address(name)}#tray")


@router.post("/products/{name}/undo")
def undo(request: Request, name: str, person: Engineer) -> Response:
    """Take back the last change."""
    station = station_of(request)
    station.teaching.undo(name, by=person.name)
    return back_to(request, _after_change(station, name))


@router.post("/products/{name}/redo")
def redo(request: Request, name: str, person: Engineer) -> Response:
    """Make the change again that was taken back last."""
    station = station_of(request)
    station.teaching.redo(name, by=person.name)
    return back_to(request, _after_change(station, name))


@router.get("/products/{name}/recalibrate")
def recalibration(request: Request, name: str, person: Engineer) -> Response:
    """The latest parts, from which a person takes the bad ones out."""
    station = station_of(request)
    existing(station, name)
    rows = [station.history.part(point.id) for point in station.teaching.suggested_parts(name)]
    parts = [shown_part(row) for row in rows if row is not None]
    usable = [part for part in parts if part.view and part.view.has_picture]
    return render(request, person, "_recalibrate.html", name=name, parts=usable)


@router.post("/products/{name}/recalibrate")
def recalibrate(
    request: Request,
    name: str,
    person: Engineer,
    part: Annotated[list[int] | None, Form()] = None,
    force: Annotated[bool, Form()] = False,
) -> Response:
    """Take the threshold from recorded parts that are normal, for instance of today's light."""
    station = station_of(request)
    existing(station, name)
    if not part:
        raise InputError("No part is chosen; mark normal parts to recalibrate with.")
    station.teaching.recalibrate(name, part, by=person.name, force=force)
    return back_to(request, product_address(name))


@router.post("/products/{name}/rename")
def rename(request: Request, name: str, person: Engineer, new: Annotated[str, Form()]) -> Response:
    """Give the product another name."""
    station = station_of(request)
    existing(station, name)
    station.teaching.rename(name, new.strip(), by=person.name)
    return back_to(request, product_address(new.strip()))


@router.post("/products/{name}/forget")
def forget(request: Request, name: str, person: Engineer) -> Response:
    """Forget the product; undo brings it back."""
    station = station_of(request)
    existing(station, name)
    station.teaching.forget(name, by=person.name)
    return back_to(request, product_address(name))


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


def _after_change(station: Any, name: str) -> str:
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


def drawn_zones(changes: list[Any]) -> list[Any]:
    """The polygons of the last change of zones, to go on with."""
    for change in changes:
        zones = (change.detail or {}).get("zones")
        if isinstance(zones, list):
            return zones
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
