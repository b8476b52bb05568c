"""The API for teaching: the tray of feedback, and the jobs that learn, update and recalibrate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Query
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.tables import FeedbackRow
from dinosaur_ad.station.web.access import Engineer, Person, Viewer
from dinosaur_ad.station.web.api_errors import invalid_sentence
from dinosaur_ad.station.web.api_json import plain
from dinosaur_ad.station.web.api_models import (
    DecisionAsked,
    OneFeedback,
    OneJob,
    PartsAsked,
    Problem,
    RefusalAsked,
)
from dinosaur_ad.station.web.api_products import existing_product
from dinosaur_ad.station.web.api_uploads import Upload, all_pictures
from dinosaur_ad.station.web.teach_draft import Draft
from dinosaur_ad.store import check_task_name

router = APIRouter(tags=["teaching"])
_REFUSALS: dict[int | str, dict[str, Any]] = {status: {"model": Problem} for status in (400, 404, 409)}
_LEARN_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": PartsAsked.model_json_schema()},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"pictures": {"type": "array", "items": {"type": "string", "format": "binary"}}},
                }
            },
        },
    }
}


@router.post(
    "/products/{name}/learn", response_model=OneJob, status_code=202, openapi_extra=_LEARN_BODY, responses=_REFUSALS
)
async def learn(
    name: str,
    request: Request,
    person: Engineer,
    force: bool = Query(False, description="Learn pictures that do not seem to belong there, too."),
) -> Any:
    """Teach a new product from normal pictures: files of a form, or recorded parts as JSON. The answer is a job."""
    station = request.app.state.station
    if request.headers.get("content-type", "").split(";")[0].strip().lower() == "application/json":
        asked = _parts_asked(await request.body())
        paths = await run_in_threadpool(_part_pictures, station, asked.parts)
        force = force or asked.force
    else:
        uploads = await all_pictures(request)
        paths = await run_in_threadpool(_kept, station, name, person, uploads)
    return await run_in_threadpool(_learn, station, name, paths, person, force)


def _learn(station: Any, name: str, paths: list[Path], person: Person, force: bool) -> Any:
    check_task_name(name)
    return plain(station.teaching.learn(name, paths, by=person.name, force=force).to_json())


@router.post("/products/{name}/recalibrate", response_model=OneJob, status_code=202, responses=_REFUSALS)
def recalibrate(name: str, asked: PartsAsked, request: Request, person: Engineer) -> Any:
    """Take the threshold of a product from recorded parts that are fine, for instance of today's light."""
    station = request.app.state.station
    existing_product(station, name)
    _part_pictures(station, asked.parts)
    return plain(station.teaching.recalibrate(name, asked.parts, by=person.name, force=asked.force).to_json())


@router.get("/feedback", response_model=list[OneFeedback])
def list_feedback(
    request: Request,
    person: Viewer,
    state: str | None = Query(None, max_length=20),
    limit: int = Query(100, ge=1, le=1000),
) -> list[FeedbackRow]:
    """What people said, the newest first; with ``state`` only what is waiting, taught, kept, refused and so on."""
    rows: list[FeedbackRow] = request.app.state.station.history.feedback(state, limit)
    return rows


@router.get("/tray", response_model=list[OneFeedback])
def tray(request: Request, person: Viewer) -> list[FeedbackRow]:
    """The feedback that waits to be taught, the newest first."""
    rows: list[FeedbackRow] = request.app.state.station.history.feedback("waiting", 1000)
    return rows


@router.post("/tray/approve", response_model=list[OneJob], status_code=202, responses=_REFUSALS)
def approve(asked: DecisionAsked, request: Request, person: Engineer) -> Any:
    """Teach feedback of the tray: parts that are fine become normal, defects go to the gallery."""
    station = request.app.state.station
    _refuse_unknown_feedback(station, asked.feedback)
    jobs = station.teaching.update_from_tray(asked.feedback, by=person.name, force=asked.force)
    return [plain(job.to_json()) for job in (jobs if isinstance(jobs, list | tuple) else [jobs])]


@router.post("/tray/refuse", status_code=204, responses=_REFUSALS)
def refuse(asked: RefusalAsked, request: Request, person: Engineer) -> None:
    """Take feedback out of the tray without teaching it."""
    station = request.app.state.station
    _refuse_unknown_feedback(station, asked.feedback)
    for number in asked.feedback:
        station.history.decide_feedback(number, "refused", person.name, asked.reason)
    station.bus.publish("tray", {"refused": asked.feedback, "by": person.name})


@router.get("/jobs", response_model=list[OneJob])
def list_jobs(request: Request, person: Viewer) -> Any:
    """Teaching that waits, runs or has ended, the newest first."""
    return [plain(job.to_json()) for job in request.app.state.station.teaching.jobs()]


@router.get("/jobs/{job_id}", response_model=OneJob, responses={404: {"model": Problem}})
def one_job(job_id: int, request: Request, person: Viewer) -> Any:
    """How far a job is, and how it ended."""
    job = request.app.state.station.teaching.job(job_id)
    if job is None:
        raise HTTPException(404, f"There is no job {printable(job_id, 30)}, or it ended long ago.")
    return plain(job.to_json())


def _parts_asked(body: bytes) -> PartsAsked:
    try:
        return PartsAsked.model_validate_json(body)
    except ValidationError as error:
        problem = dict(error.errors()[0])
        raise HTTPException(422, invalid_sentence(problem | {"loc": ("body", *error.errors()[0]["loc"])})) from None


def _part_pictures(station: Any, parts: list[int]) -> list[Path]:
    """The files of the pictures of recorded parts."""
    found: list[Path] = []
    for number in parts:
        row = station.history.part(number) if 0 < number < 2**31 else None
        if row is None:
            raise HTTPException(404, f"The history has no part {printable(number, 30)}.")
        paths = [station.history.picture_path(view.id) for view in row.views]
        if not all(paths):
            raise HTTPException(409, f"The picture of part {number} was not kept, or has been removed since.")
        found += paths
    return found


def _kept(station: Any, name: str, person: Person, uploads: list[Upload]) -> list[Path]:
    """Keep uploaded pictures where the page Teach keeps them, because a product names its normal pictures."""
    check_task_name(name)
    if name in {record.name for record in station.detector.tasks()}:
        raise InputError(f"There is a product '{printable(name)}' already; choose another name, or use its tray.")
    draft = Draft.begin(Path(station.config.folder), person.name)
    draft.note(task=name)
    for number, upload in enumerate(uploads, start=1):
        draft.add(upload.data, upload.name or f"{number}.png")
    return [picture.path for picture in draft.pictures()]


def _refuse_unknown_feedback(station: Any, numbers: list[int]) -> None:
    for number in numbers:
        row = station.history.one_feedback(number) if 0 < number < 2**31 else None
        if row is None:
            raise HTTPException(404, f"The history has no feedback {printable(number, 30)}.")
        if row.state != "waiting":
            raise HTTPException(409, f"The feedback {number} does not wait any more; it is {row.state}.")
