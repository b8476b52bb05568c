"""The live page: the verdict of the newest part, large enough to be read from three metres, and the parts before it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dinosaur_ad.station.history.searching import PartQuery
from dinosaur_ad.station.web.access import Operator, Viewer
from dinosaur_ad.station.web.pages_frame import PageRoute, RowId, back_to, drift_warnings, render, station_of
from dinosaur_ad.station.web.pages_shown import ShownPart, ShownView, shown_part

router = APIRouter(route_class=PageRoute, include_in_schema=False)

STRIP = 24
"""Parts in the strip; a phone shows the newest of them."""


@dataclass(frozen=True)
class Panel:
    """What one source shows: its newest part, and the view of it that the source took."""

    source: str
    kind: str
    state: str
    reason: str
    part: ShownPart | None
    view: ShownView | None


@router.get("/")
def live_page(request: Request, person: Viewer) -> Response:
    """The page Live."""
    station = station_of(request)
    latest = [shown_part(row) for row in station.history.latest(STRIP)]
    return render(
        request,
        person,
        "live.html",
        page="live",
        panels=panels(station, latest),
        strip=latest,
        counts=counts_today(station.history),
        joined=bool(station.config.part.views),
        newest=latest[0] if latest else None,
        warnings=drift_warnings(station.history),
        products=len(station.detector.tasks()),
    )


@router.get("/live/warnings")
def live_warnings(request: Request, person: Viewer) -> Response:
    """The banner with the open warnings."""
    return render(request, person, "_warnings.html", warnings=drift_warnings(station_of(request).history))


@router.get("/live/counters")
def live_counters(request: Request, person: Viewer) -> Response:
    """The counters of today, for a page that was not shown for a while."""
    return render(request, person, "_counters.html", counts=counts_today(station_of(request).history))


@router.post("/warnings/{warning_id}/close")
def close_warning(request: Request, warning_id: RowId, person: Operator) -> Response:
    """Put a warning aside; it stays in the trends."""
    station_of(request).history.close_warning(warning_id, person.name)
    return back_to(request, "/")


def panels(station: Any, latest: list[ShownPart]) -> list[Panel]:
    """One panel a source; a single one without a name where nothing is configured.

    Uploads have one only while some of the latest parts came by them: an idle one would take half of the screen.
    """
    states = {each["name"]: each for each in station.state()["sources"]}
    seen = {view.source for part in latest for view in part.views}
    shown = {name: state for name, state in states.items() if state.get("kind") != "upload" or name in seen}
    found = [_panel(station.history, name, state, latest) for name, state in (shown or states).items()]
    if found:
        return found
    part = latest[0] if latest else None
    return [Panel("", "", "", "", part, part.view if part else None)]


def _panel(history: Any, name: str, state: dict[str, Any], latest: list[ShownPart]) -> Panel:
    part = next((each for each in latest if any(view.source == name for view in each.views)), None)
    if part is None:
        rows = history.search(PartQuery(source=name, limit=1)).parts
        part = shown_part(rows[0]) if rows else None
    views = [view for view in part.views if view.source == name] if part else []
    view = views[0] if views else None
    return Panel(name, state.get("kind", ""), state.get("state", ""), state.get("reason", ""), part, view)


def counts_today(history: Any) -> dict[str, int]:
    """How many parts of each verdict there were since midnight, in the station's time zone."""
    midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    return dict(history.counts(midnight.astimezone(UTC).isoformat(timespec="microseconds")))
