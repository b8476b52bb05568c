"""The API for the station itself: is it well, its sources, warnings, changes, events, metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from dinosaur_ad import __version__
from dinosaur_ad._text import did_you_mean, printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.prometheus import prometheus_text
from dinosaur_ad.station.tables import ChangeRow, WarningRow
from dinosaur_ad.station.web.access import Inspector, Operator, Viewer, visitor
from dinosaur_ad.station.web.api_json import plain
from dinosaur_ad.station.web.api_models import Alive, OneChange, OneWarning, Problem, Ready
from dinosaur_ad.station.web.event_stream import EventStreamResponse, stream_for

router = APIRouter(tags=["station"])
metrics_router = APIRouter(include_in_schema=False)


@router.get("/health", response_model=Alive)
async def health() -> Alive:
    """The server answers; open to all."""
    return Alive(version=__version__)


@router.get("/ready", response_model=Ready, responses={503: {"model": Ready}})
def ready(request: Request) -> Response:
    """Whether parts are judged and recorded; open to all, but only those who may look are told why not."""
    reason = request.app.state.station.ready()
    answer = Ready(ready=not reason, reason=reason if visitor(request) else "")
    return JSONResponse(answer.model_dump(), 503 if reason else 200)


@router.get("/state", response_model=dict[str, Any])
def state(request: Request, person: Viewer) -> Any:
    """All there is to say of the station now."""
    return plain(request.app.state.station.state())


@router.get("/sources", response_model=list[dict[str, Any]])
def list_sources(request: Request, person: Viewer) -> Any:
    """All sources, each with its state and the reason of it."""
    return [plain(source.state()) for source in request.app.state.station.sources.values()]


@router.post("/sources/{name}/trigger", status_code=202, responses={404: {"model": Problem}, 409: {"model": Problem}})
def trigger_source(
    name: str, request: Request, person: Inspector, part: str = Query("", max_length=200)
) -> dict[str, str]:
    """Take a picture now; ``part`` names the part, the same for all its views."""
    sources = request.app.state.station.sources
    if name not in sources:
        advice = did_you_mean(name, sources) or f"; there are {', '.join(map(printable, sources))}."
        raise HTTPException(404, f"There is no source '{printable(name, 60)}'{advice}")
    try:
        sources[name].trigger(part)
    except InputError as error:
        raise HTTPException(409, str(error)) from None
    return {"source": name}


@router.get("/warnings", response_model=list[OneWarning])
def list_warnings(request: Request, person: Viewer, all_of_them: bool = Query(False, alias="all")) -> list[OneWarning]:
    """The warnings that are open, or all of them; the newest first."""
    rows: list[WarningRow] = request.app.state.station.history.warnings(open_only=not all_of_them)
    return [_answer(OneWarning, row) for row in rows]


@router.post("/warnings/{warning_id}/close", status_code=204, responses={404: {"model": Problem}})
def close_warning(warning_id: int, request: Request, person: Operator) -> None:
    """Say that a warning was dealt with."""
    try:
        request.app.state.station.history.close_warning(warning_id, person.name)
    except InputError as error:
        raise HTTPException(404, str(error)) from None
    request.app.state.station.bus.publish("warning", {"id": warning_id, "closed": True, "closed_by": person.name})


@router.get("/changes", response_model=list[OneChange])
def list_changes(
    request: Request,
    person: Viewer,
    task: str | None = Query(None, max_length=200),
    limit: int = Query(100, ge=1, le=1000),
) -> list[OneChange]:
    """Who changed what of the products, the newest first."""
    rows: list[ChangeRow] = request.app.state.station.history.changes(task, limit)
    return [_answer(OneChange, row) for row in rows]


@router.get("/events", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def events(request: Request, person: Viewer) -> EventStreamResponse:
    """What happens, as server-sent events: part, recorded, job, warning, source, sink, change, tray."""
    return stream_for(request, person)


@metrics_router.get("/metrics")
def metrics(request: Request, person: Viewer) -> PlainTextResponse:
    """The state as Prometheus reads it."""
    text = prometheus_text(request.app.state.station.state())
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _answer(model: Any, row: Any) -> Any:
    return model(**{name: plain(getattr(row, name)) for name in model.model_fields})
