"""The API for products: what was taught, how it is set, what other settings would have done."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request

from dinosaur_ad._text import did_you_mean, printable
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.station.web.access import Engineer, Viewer
from dinosaur_ad.station.web.api_json import plain
from dinosaur_ad.station.web.api_models import (
    OneProduct,
    Problem,
    RenameAsked,
    SettingsAsked,
    WhatIfAnswer,
    ZonesAsked,
)

router = APIRouter(tags=["products"])
_MISSING: dict[int | str, dict[str, Any]] = {404: {"model": Problem}}
_REFUSED: dict[int | str, dict[str, Any]] = {404: {"model": Problem}, 409: {"model": Problem}}


@router.get("/products", response_model=list[OneProduct])
def list_products(request: Request, person: Viewer) -> list[OneProduct]:
    """All products, with how many parts had each verdict."""
    station = request.app.state.station
    counts = station.history.counts_by_task()
    names = [record.name for record in station.detector.tasks()]
    damaged = {name: reason for name, reason in station.detector.damaged().items() if name not in names}
    found = [_product(station, name, counts.get(name, {})) for name in names]
    return found + [OneProduct(name=name, damaged=reason) for name, reason in damaged.items()]


@router.get("/products/{name}", response_model=OneProduct, responses=_MISSING)
def one_product(name: str, request: Request, person: Viewer) -> OneProduct:
    """How a product is set, and how many of its parts had each verdict."""
    station = request.app.state.station
    existing_product(station, name)
    return _product(station, name, station.history.counts_by_task().get(name, {}))


@router.get("/products/{name}/what-if", response_model=WhatIfAnswer, responses=_MISSING)
def what_if_of(name: str, request: Request, person: Viewer) -> WhatIfAnswer:
    """What each place of the sensitivity would have done to the recorded parts: false alarms and misses."""
    station = request.app.state.station
    existing_product(station, name)
    places = station.teaching.what_if(name)
    return WhatIfAnswer(task=name, places=[plain(place) for place in places])


@router.patch("/products/{name}/settings", response_model=dict[str, Any], responses=_REFUSED)
def change_settings(name: str, asked: SettingsAsked, request: Request, person: Engineer) -> Any:
    """Set how strictly a product is inspected; undo takes it back."""
    station = request.app.state.station
    existing_product(station, name)
    wanted = asked.model_dump(exclude_none=True, exclude_defaults=True)
    if not wanted:
        raise HTTPException(
            400, "Nothing is to be changed; give sensitivity, false_alarms, threshold or smallest_area."
        )
    return plain(station.teaching.set(name, by=person.name, **wanted))


@router.put("/products/{name}/zones", response_model=dict[str, Any], responses=_REFUSED)
def change_zones(name: str, asked: ZonesAsked, request: Request, person: Engineer) -> Any:
    """Say which areas of a product are inspected; undo takes it back."""
    station = request.app.state.station
    existing_product(station, name)
    wanted: dict[str, Any] = {"zones": asked.zones} if asked.zones else {"no_zones": True}
    return plain(station.teaching.set(name, by=person.name, **wanted))


@router.post("/products/{name}/undo", response_model=dict[str, str], responses=_REFUSED)
def undo(name: str, request: Request, person: Engineer) -> dict[str, str]:
    """Take back the last change of a product; one that was forgotten comes back."""
    return {"undone": str(request.app.state.station.teaching.undo(name, by=person.name))}


@router.post("/products/{name}/redo", response_model=dict[str, str], responses=_REFUSED)
def redo(name: str, request: Request, person: Engineer) -> dict[str, str]:
    """Make the change again that was taken back last."""
    return {"redone": str(request.app.state.station.teaching.redo(name, by=person.name))}


@router.post("/products/{name}/rename", status_code=204, responses=_REFUSED)
def rename(name: str, asked: RenameAsked, request: Request, person: Engineer) -> None:
    """Give a product another name."""
    station = request.app.state.station
    existing_product(station, name)
    station.teaching.rename(name, asked.name, by=person.name)


@router.delete("/products/{name}", status_code=204, responses=_REFUSED)
def forget(name: str, request: Request, person: Engineer) -> None:
    """Forget a product; undo brings it back."""
    station = request.app.state.station
    existing_product(station, name)
    station.teaching.forget(name, by=person.name)


def existing_product(station: Any, name: str) -> None:
    """Refuse a name that no product has, a damaged one neither."""
    names = [record.name for record in station.detector.tasks()] + list(station.detector.damaged())
    if name not in names:
        advice = did_you_mean(name, names) or "; see /api/v1/products."
        raise HTTPException(404, f"There is no product '{printable(name, 60)}'{advice}")


def _product(station: Any, name: str, counts: dict[str, int]) -> OneProduct:
    try:
        settings = plain(station.detector.settings(name))
    except DinosaurError as error:
        return OneProduct(name=name, damaged=str(error), counts=counts)
    return OneProduct(name=name, counts=counts, **settings)
