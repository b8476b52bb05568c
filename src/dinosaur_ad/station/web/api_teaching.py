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
from dinosaur_ad.station.web.access import Engineer, Operator, Person, Viewer
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
        return await run_in_threadpool(_learn_parts, station, name, asked, person, force)
    uploads = await all_pictures(request)
    return await run_in_threadpool(_learn_uploads, station, name, uploads, person, force)


def _learn_parts(station: Any, name: str, asked: PartsAsked, person: Person, force: bool) -> Any:
    _refuse_unknown_parts(station, asked.parts)
    job = station.teaching.learn(check_task_name(name), parts=asked.parts, by=person.name, force=force or asked.force)
    return plain(job.to_json())


def _learn_uploads(station: Any, name: str, uploads: list[Upload], person: Person, force: bool) -> Any:
    """Learn from uploaded pictures; they are kept where the page Teach keeps them, because a product names them."""
    name = check_task_name(name)
    if name in {record.name for record in station.detector.tasks()}:
        raise InputError(f"There is a product '{printable(name)}' already; choose another name, or use its tray.")
    draft = Draft.begin(Path(station.config.folder), person.name)
    draft.note(task=name)
    for number, upload in enumerate(uploads, start=1):
        draft.add(upload.data, upload.name or f"{number}.png")
    paths = [picture.path for picture in draft.pictures()]
    return plain(station.teaching.learn(name, paths, by=person.name, force=force).to_json())


@router.post("/products/{name}/recalibrate", response_model=OneJob, status_code=202, responses=_REFUSALS)
def recalibrate(name: str, asked: PartsAsked, request: Request, person: Engineer) -> Any:
    """Take the threshold of a product from recorded parts that are fine, for instance of today's light."""
    station = request.app.state.station
    existing_product(station, name)
    _refuse_unknown_parts(station, asked.parts)
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


@router.delete("/feedback/{feedback_id}", status_code=204, responses=_REFUSALS)
def withdraw(feedback_id: int, request: Request, person: Operator) -> None:
    """Take back what was said of a part, as long as it was not taught."""
    station = request.app.state.station
    _refuse_unknown_feedback(station, [feedback_id])
    station.teaching.withdraw(feedback_id, person.name)


@router.post("/tray/approve", response_model=OneJob, status_code=202, responses=_REFUSALS)
def approve(asked: DecisionAsked, request: Request, person: Engineer) -> Any:
    """Teach parts of the tray that were called fine; with ``force`` also those that the guard refused."""
    station = request.app.state.station
    _refuse_unknown_feedback(station, asked.feedback)
    return plain(station.teaching.update_from_tray(asked.feedback, by=person.name, force=asked.force).to_json())


@router.post("/tray/refuse", status_code=204, responses=_REFUSALS)
def refuse(asked: RefusalAsked, request: Request, person: Engineer) -> None:
    """Take feedback out of the tray without teaching it."""
    station = request.app.state.station
    _refuse_unknown_feedback(station, asked.feedback)
    station.teaching.refuse(asked.feedback, person.name, asked.reason)


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


def _refuse_unknown_parts(station: Any, parts: list[int]) -> None:
    for number in parts:
        if not 0 < number < 2**31 or station.history.part(number) is None:
            raise HTTPException(404, f"The history has no part {printable(number, 30)}.")


def _refuse_unknown_feedback(station: Any, numbers: list[int]) -> None:
    for number in numbers:
        if not 0 < number < 2**31 or station.history.one_feedback(number) is None:
            raise HTTPException(404, f"The history has no feedback {printable(number, 30)}.")
