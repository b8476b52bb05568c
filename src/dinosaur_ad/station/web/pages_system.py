"""The page System: sources, sinks, queues, times, disk, versions, and who did what."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dinosaur_ad._text import printable
from dinosaur_ad.station.web.access import Operator, Viewer, address_of
from dinosaur_ad.station.web.catalogue import Catalogue
from dinosaur_ad.station.web.pages_frame import PageRoute, back_to, missing, render, station_of, words

router = APIRouter(route_class=PageRoute, include_in_schema=False)

PACKAGES = ("onnxruntime", "fastapi", "sqlalchemy", "uvicorn")
AUDIT_ROWS = 50
_UNITS = ("B", "kB", "MB", "GB", "TB")


@router.get("/system")
def system_page(request: Request, person: Viewer) -> Response:
    """The page System."""
    return _system(request, person, "system.html")


@router.get("/system/state")
def system_state(request: Request, person: Viewer) -> Response:
    """The part of the page that changes."""
    return _system(request, person, "_system.html")


@router.post("/sources/{name}/trigger")
def trigger_source(request: Request, name: str, person: Operator) -> Response:
    """Take one picture now."""
    station = station_of(request)
    source = station.sources.get(name)
    if source is None:
        raise missing(f"There is no source '{printable(name, 60)}'.")
    source.trigger()
    station.history.audit(person.name, "trigger", name, address_of(request))
    return back_to(request, "/system")


def _system(request: Request, person: Any, template: str) -> Response:
    station = station_of(request)
    state = station.state()
    return render(
        request,
        person,
        template,
        page="system",
        state=state,
        size=lambda count: size_text(count, words(request, person)),
        versions=versions(state),
        audit=station.history.audit_rows(AUDIT_ROWS) if person.may("admin") else [],
        failed_disk=state["history"].get("error", "") if isinstance(state["history"], dict) else "",
    )


def versions(state: dict[str, Any]) -> dict[str, str]:
    """The versions of what the verdicts depend on."""
    found = {"DINOSaur": str(state.get("version", "")), "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def size_text(count: float | None, text: Catalogue) -> str:
    """A number of bytes in a unit that fits.

    >>> size_text(1_500_000, Catalogue("de", {})), size_text(None, Catalogue("en", {}))
    ('1,5 MB', '–')
    """
    if count is None:
        return "–"
    value, unit = float(count), 0
    while abs(value) >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{text.number(value, 1 if unit else 0)} {_UNITS[unit]}"
