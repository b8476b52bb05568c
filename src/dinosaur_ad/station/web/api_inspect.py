"""The API for giving pictures to the station: judged at once, or accepted and judged when it is their turn."""

from __future__ import annotations

import time
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException
from starlette.requests import Request

from dinosaur_ad._text import did_you_mean, printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.sources.uploads import Uploads
from dinosaur_ad.station.web.access import Inspector
from dinosaur_ad.station.web.api_json import plain
from dinosaur_ad.station.web.api_models import AcceptedPicture, JudgedAnswer, Problem
from dinosaur_ad.station.web.api_uploads import PICTURE_BODY, Upload, one_picture

DEFAULT_SOURCE = "upload"
"""Every station has it."""
VERDICT_SECONDS = 60.0
_KEPT_MESSAGES = 4096

router = APIRouter(tags=["inspect"])
_waiting = CapacityLimiter(16)  # threads that wait for verdicts; more requests wait for one of them
_REFUSALS: dict[int | str, dict[str, Any]] = {status: {"model": Problem} for status in (400, 404, 409, 413, 503, 504)}

SourceName = Query(DEFAULT_SOURCE, max_length=100, description="A source of the kind upload.")
Product = Query(None, max_length=200, description="The product, if it need not be found out.")
PartName = Query("", max_length=200, description="The same for all views of one part.")
Key = Query("", max_length=200, description="The sender's own identity of the picture: sent twice, it is judged once.")
FileName = Query("", max_length=200, description="The name of the file, where the body is the picture.")


@router.post("/inspect", response_model=JudgedAnswer, openapi_extra=PICTURE_BODY, responses=_REFUSALS)
async def inspect(
    request: Request,
    person: Inspector,
    source: str = SourceName,
    task: str | None = Product,
    part: str = PartName,
    key: str = Key,
    name: str = FileName,
) -> Any:
    """Judge a picture now and answer its verdict. The part is recorded like any other."""
    station = request.app.state.station
    uploads = _uploads(station, source)
    _refuse_unknown(station, task)
    upload = await one_picture(request, name)
    return await to_thread.run_sync(_verdict, station, uploads, upload, task, part, key, limiter=_waiting)


@router.post(
    "/pictures", response_model=AcceptedPicture, status_code=202, openapi_extra=PICTURE_BODY, responses=_REFUSALS
)
async def give_picture(
    request: Request,
    person: Inspector,
    source: str = SourceName,
    task: str | None = Product,
    part: str = PartName,
    key: str = Key,
    name: str = FileName,
) -> AcceptedPicture:
    """Give a picture to a source; it is answered when the picture is safe on disk, before it is judged."""
    station = request.app.state.station
    uploads = _uploads(station, source)
    _refuse_unknown(station, task)
    upload = await one_picture(request, name)
    accepted = await to_thread.run_sync(_take, uploads, upload, task, part, key, limiter=_waiting)
    return AcceptedPicture(key=accepted, source=source)


def _verdict(station: Any, uploads: Uploads, upload: Upload, task: str | None, part: str, key: str) -> Any:
    """Put a picture into the spool of a source and wait for the part that it belongs to."""
    if key and station.history.known([f"{uploads.name}:{key}"]):
        sentence = f"A picture with the key '{printable(key, 100)}' was judged before; see /api/v1/parts?text=..."
        raise HTTPException(409, sentence)
    with station.bus.subscribed(_KEPT_MESSAGES) as messages:
        accepted = _take(uploads, upload, task, part, key)
        ends = time.monotonic() + VERDICT_SECONDS + station.config.part.wait_seconds
        while (left := ends - time.monotonic()) > 0:
            message = messages.take(left)
            if message and message.kind == "part" and _shows(message.body, accepted):
                return plain(message.body)
    sentence = f"The picture '{printable(accepted, 100)}' was accepted but not judged in time; see /api/v1/parts."
    raise HTTPException(504, sentence)


def _shows(body: dict[str, Any], key: str) -> bool:
    return any(view["key"] == key for view in body.get("views", ()))


def _take(uploads: Uploads, upload: Upload, task: str | None, part: str, key: str) -> str:
    """Keep a picture to be judged; its key."""
    try:
        return uploads.take(upload.data, upload.name, key=key, part=part, task=task).key
    except InputError as error:  # its content was checked before: there is no room
        raise HTTPException(503, str(error), {"Retry-After": "5"}) from None


def _uploads(station: Any, name: str) -> Uploads:
    """A source that takes uploads."""
    taking = {each: source for each, source in station.sources.items() if isinstance(source, Uploads)}
    if name not in taking:
        advice = did_you_mean(name, taking) or f"; there are {', '.join(map(printable, taking))}."
        raise HTTPException(404, f"There is no source '{printable(name, 60)}' that takes uploads{advice}")
    return taking[name]


def _refuse_unknown(station: Any, task: str | None) -> None:
    if task is not None and task not in (names := [record.name for record in station.detector.tasks()]):
        advice = did_you_mean(task, names) or "; see /api/v1/products."
        raise HTTPException(404, f"There is no product '{printable(task, 60)}'{advice}")
