"""The pages Products and Product: sensitivity with what it would have done, zones, gallery, tray, changes."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from dinosaur_ad.bank.gallery import read_gallery
from dinosaur_ad.bank.settings import MOST_SENSITIVITY, USUAL_SENSITIVITY, Settings
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.station.feedback_tray import task_of
from dinosaur_ad.station.web.access import Engineer, Viewer
from dinosaur_ad.station.web.pages_frame import LARGEST_ID, PageRoute, back_to, missing, render, station_of
from dinosaur_ad.station.web.pages_shown import shown_part
from dinosaur_ad.station.web.product_facts import (
    after_change,
    drawn_zones,
    existing,
    gone_products,
    product_address,
    reference_part,
    sensitivity_place,
    settings_of,
    tray_of,
    undo_state,
    zone_cells,
)

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
        drawn=drawn_zones(changes, zones),
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
    for tries_left in (2, 1, 0):  # the product may be changed while it is read
        try:
            settings = settings_of(station, name)
            places = station.teaching.what_if(name)
            break
        except StoreError:
            if not tries_left:
                raise
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
    return back_to(request, after_change(station, name))


@router.post("/products/{name}/redo")
def redo(request: Request, name: str, person: Engineer) -> Response:
    """Make the change again that was taken back last."""
    station = station_of(request)
    station.teaching.redo(name, by=person.name)
    return back_to(request, after_change(station, name))


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
    parts = [each for each in part or () if 0 < each <= LARGEST_ID]
    if not parts:
        raise InputError("No part is chosen; mark normal parts to recalibrate with.")
    station.teaching.recalibrate(name, parts, by=person.name, force=force)
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
