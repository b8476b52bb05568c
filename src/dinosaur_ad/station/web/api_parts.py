"""The API for what was recorded: parts, their pictures and maps, feedback, exports."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from PIL import Image
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from dinosaur_ad._text import printable
from dinosaur_ad.station.history.history import PartQuery
from dinosaur_ad.station.tables import FeedbackRow, PartRow, ViewRow
from dinosaur_ad.station.web.access import Operator, Viewer
from dinosaur_ad.station.web.api_json import plain
from dinosaur_ad.station.web.api_models import (
    FeedbackAsked,
    MapAnswer,
    OneFeedback,
    OnePart,
    OneView,
    PartsAnswer,
    Problem,
)

PICTURE_TYPES = {
    ".png": "image/png", ".apng": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".jpe": "image/jpeg",
    ".jfif": "image/jpeg", ".mpo": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif", ".bmp": "image/bmp",
    ".avif": "image/avif", ".tif": "image/tiff", ".tiff": "image/tiff",
}  # fmt: skip
"""What browsers can show; anything else is sent as bytes."""
KEPT_BY_BROWSERS = {"Cache-Control": "private, max-age=86400, immutable"}
"""A recorded picture does not change."""

router = APIRouter(tags=["parts"])


def _query(
    task: str | None = Query(None, max_length=200),
    verdict: str | None = Query(None, max_length=20),
    source: str | None = Query(None, max_length=200),
    answer: str | None = Query(None, max_length=20, description='An answer, "any" or "none".'),
    since: str | None = Query(None, max_length=40),
    until: str | None = Query(None, max_length=40),
    text: str | None = Query(None, max_length=200, description="Looked for in key, product and reason."),
    before_id: int | None = Query(None, ge=0, le=2**31 - 1),
    limit: int = Query(50, ge=1, le=1000),
) -> PartQuery:
    return PartQuery(task, verdict, source, answer, since, until, text, before_id, limit)


Query_ = Annotated[PartQuery, Depends(_query)]


@router.get("/parts", response_model=PartsAnswer, responses={400: {"model": Problem}})
def search_parts(request: Request, person: Viewer, query: Query_) -> PartsAnswer:
    """Recorded parts, the newest first."""
    page = request.app.state.station.history.search(query)
    return PartsAnswer(parts=[part_answer(row) for row in page.parts], next_before=page.next_before)


@router.get("/parts.csv", response_class=StreamingResponse)
def export_csv(request: Request, person: Viewer, query: Query_) -> StreamingResponse:
    """All parts that fit, as CSV."""
    history = request.app.state.station.history
    file = tempfile.TemporaryFile("w+", encoding="utf-8", newline="")  # noqa: SIM115 - closed after it was sent
    try:
        history.export_csv(query, file)
        file.seek(0)
    except BaseException:
        file.close()
        raise

    def lines() -> Iterator[str]:
        with file:
            while some := file.read(65536):
                yield some

    return StreamingResponse(lines(), media_type="text/csv; charset=utf-8", headers=_download("parts.csv"))


@router.get("/parts.parquet", response_class=FileResponse)
def export_parquet(request: Request, person: Viewer, query: Query_) -> FileResponse:
    """All parts that fit, as Parquet; needs pyarrow on the station."""
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "parts.parquet"
    try:
        request.app.state.station.history.export_parquet(query, path)
    except BaseException:
        folder.cleanup()
        raise
    gone = BackgroundTask(folder.cleanup)
    return FileResponse(path, media_type="application/vnd.apache.parquet", filename="parts.parquet", background=gone)


@router.get("/parts/{part_id}", response_model=OnePart, responses={404: {"model": Problem}})
def one_part(part_id: int, request: Request, person: Viewer) -> OnePart:
    """A part with its views and feedback."""
    return part_answer(_part(request, part_id))


@router.get("/parts/{part_id}/views/{view_id}/picture", response_class=FileResponse)
def view_picture(part_id: int, view_id: int, request: Request, person: Viewer) -> FileResponse:
    """The picture as it was judged."""
    _view(request, part_id, view_id)
    return picture_file(request.app.state.station.history.picture_path(view_id))


@router.get("/parts/{part_id}/views/{view_id}/thumbnail", response_class=FileResponse)
def view_thumbnail(part_id: int, view_id: int, request: Request, person: Viewer) -> FileResponse:
    """The picture, small."""
    _view(request, part_id, view_id)
    return picture_file(request.app.state.station.history.thumbnail_path(view_id))


@router.get("/parts/{part_id}/views/{view_id}/overlay", response_class=Response)
def view_overlay(part_id: int, view_id: int, request: Request, person: Viewer) -> Response:
    """The picture with what was found drawn on it, as PNG."""
    _view(request, part_id, view_id)
    history = request.app.state.station.history
    inspection, path = history.inspection(view_id), history.picture_path(view_id)
    if inspection is None or path is None:
        raise _not_kept()
    drawn = io.BytesIO()
    Image.fromarray(inspection.overlay(path)).save(drawn, "PNG", compress_level=1)
    return Response(drawn.getvalue(), media_type="image/png", headers=KEPT_BY_BROWSERS)


@router.get("/parts/{part_id}/views/{view_id}/map", response_model=MapAnswer)
def view_map(part_id: int, view_id: int, request: Request, person: Viewer) -> MapAnswer:
    """The distances of the patches."""
    row = _view(request, part_id, view_id)
    found = request.app.state.station.history.map_array(view_id)
    if found is None:
        raise _not_kept()
    threshold = plain((row.inspection or {}).get("threshold"))
    return MapAnswer(rows=found.shape[0], columns=found.shape[1], threshold=threshold, values=plain(found))


@router.post(
    "/parts/{part_id}/feedback", response_model=OneFeedback, status_code=201, responses={404: {"model": Problem}}
)
def say(part_id: int, asked: FeedbackAsked, request: Request, person: Operator) -> FeedbackRow:
    """Say what a part really is: fine (then it waits in the tray to be taught), defect, not sure, other product."""
    station = request.app.state.station
    _part(request, part_id)
    number = station.teaching.say(part_id, person.name, asked.answer, product=asked.product, note=asked.note)
    found: FeedbackRow = station.history.one_feedback(number)
    return found


def part_answer(row: PartRow) -> OnePart:
    """A recorded part as the API gives it."""
    values = {name: plain(getattr(row, name)) for name in OnePart.model_fields if name not in ("views", "feedback")}
    feedback = [OneFeedback.model_validate(each) for each in row.feedback]
    return OnePart(**values, views=[_view_answer(each) for each in row.views], feedback=feedback)


def _view_answer(row: ViewRow) -> OneView:
    return OneView(
        id=row.id,
        key=row.key,
        source=row.source,
        view=row.view,
        verdict=row.verdict,
        error=row.error,
        ms=plain(row.ms or {}),
        has_picture=bool(row.picture),
        has_map=bool(row.map),
        inspection=plain(row.inspection),
    )


def picture_file(path: Path | None) -> FileResponse:
    """A picture of the history as an answer; a browser shows it and runs nothing of it."""
    if path is None:
        raise _not_kept()
    kind = PICTURE_TYPES.get(path.suffix.lower(), "application/octet-stream")
    return FileResponse(path, media_type=kind, headers=KEPT_BY_BROWSERS)


def _part(request: Request, part_id: int) -> PartRow:
    row: PartRow | None = request.app.state.station.history.part(part_id) if 0 < part_id < 2**31 else None
    if row is None:
        raise HTTPException(404, f"The history has no part {printable(part_id, 30)}.")
    return row


def _view(request: Request, part_id: int, view_id: int) -> ViewRow:
    for view in _part(request, part_id).views:
        if view.id == view_id:
            return view
    raise HTTPException(404, f"The part {part_id} has no view {printable(view_id, 30)}.")


def _not_kept() -> HTTPException:
    return HTTPException(404, "The picture or its map was not kept, or has been removed since (see [history]).")


def _download(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
