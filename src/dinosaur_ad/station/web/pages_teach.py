"""The page Teach: collect normal pictures, learn a product from them, look at what does not belong, see the promise."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Form, UploadFile
from starlette.requests import Request
from starlette.responses import Response

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.history.searching import PartQuery
from dinosaur_ad.station.web.access import Engineer
from dinosaur_ad.station.web.pages_frame import PageRoute, back_to, missing, render, station_of
from dinosaur_ad.station.web.pages_pictures import small_picture
from dinosaur_ad.station.web.teach_draft import Draft
from dinosaur_ad.store import check_task_name

router = APIRouter(route_class=PageRoute, include_in_schema=False)

MOST_CAPTURED = 500
ADVISED = 20
"""Pictures from which a product is usually learned well."""
ENDED = ("done", "failed", "refused")


@router.get("/teach")
def teach_page(request: Request, person: Engineer) -> Response:
    """The beginning: a name."""
    station = station_of(request)
    return render(
        request, person, "teach.html", page="teach", products=[each.name for each in station.detector.tasks()]
    )


@router.post("/teach")
def begin(request: Request, person: Engineer, name: Annotated[str, Form()]) -> Response:
    """Begin to collect pictures for a product."""
    task = check_task_name(name)
    station = station_of(request)
    if task in station.detector:
        raise InputError(
            f"There is a product '{task}' already; choose another name, or add pictures to it in its tray."
        )
    draft = Draft.begin(Path(station.config.folder), person.name)
    draft.note(task=task)
    return back_to(request, f"/teach/{draft.id}")


@router.get("/teach/{draft_id}")
def draft_page(request: Request, draft_id: str, person: Engineer) -> Response:
    """The pictures so far, and what can be done with them."""
    return _draft_page(request, person, _draft(request, draft_id), "teach_draft.html")


@router.post("/teach/{draft_id}/pictures")
def add_pictures(request: Request, draft_id: str, person: Engineer, pictures: list[UploadFile]) -> Response:
    """Add uploaded pictures; those that cannot be read are named."""
    draft, problems = _draft(request, draft_id), []
    for upload in pictures:
        try:
            draft.add(upload.file.read(), upload.filename or "")
        except InputError as error:
            problems.append(str(error))
    if request.headers.get("hx-request") == "true" or not problems:
        return _after(request, person, draft, problems)
    raise InputError(" ".join(problems[:5]))


@router.post("/teach/{draft_id}/capture")
def capture(
    request: Request,
    draft_id: str,
    person: Engineer,
    source: Annotated[str, Form()],
    count: Annotated[int, Form()] = ADVISED,
    which: Annotated[str, Form()] = "next",
) -> Response:
    """Take the last pictures of a source now, or the next ones as they come."""
    station, draft = station_of(request), _draft(request, draft_id)
    if not 1 <= count <= MOST_CAPTURED:
        raise InputError(f"Between 1 and {MOST_CAPTURED} pictures are taken at once.")
    newest = station.history.latest(1)
    after = newest[0].id if newest else 0
    if which == "last":
        rows = station.history.search(PartQuery(source=source, limit=count)).parts
        _take(station.history, draft, source, rows[::-1])
    else:
        draft.note(capture={"source": source, "after": after, "left": count})
    return _after(request, person, draft, [])


@router.post("/teach/{draft_id}/collect")
def collect(request: Request, draft_id: str, person: Engineer) -> Response:
    """Take the pictures of the source that came since; the page asks whenever a part was recorded."""
    station, draft = station_of(request), _draft(request, draft_id)
    wanted = draft.about["capture"]
    if wanted:
        query = PartQuery(source=wanted["source"], limit=min(MOST_CAPTURED, 100))
        rows = [row for row in station.history.search(query).parts if row.id > wanted["after"]][::-1][: wanted["left"]]
        taken = _take(station.history, draft, wanted["source"], rows)
        left = wanted["left"] - taken
        after = rows[-1].id if rows else wanted["after"]
        draft.note(capture={**wanted, "after": after, "left": left} if left > 0 else None)
    return _after(request, person, draft, [])


@router.post("/teach/{draft_id}/capture/stop")
def stop_capture(request: Request, draft_id: str, person: Engineer) -> Response:
    """Take no more pictures of the source."""
    draft = _draft(request, draft_id)
    draft.note(capture=None)
    return _after(request, person, draft, [])


@router.post("/teach/{draft_id}/remove")
def remove_pictures(
    request: Request, draft_id: str, person: Engineer, picture: Annotated[list[int] | None, Form()] = None
) -> Response:
    """Leave pictures out."""
    draft = _draft(request, draft_id)
    draft.remove(set(picture or ()))
    draft.note(job="")
    return back_to(request, f"/teach/{draft.id}")


@router.post("/teach/{draft_id}/learn")
def learn(request: Request, draft_id: str, person: Engineer, force: Annotated[bool, Form()] = False) -> Response:
    """Learn the product; the job says how far it is."""
    station, draft = station_of(request), _draft(request, draft_id)
    paths = [picture.path for picture in draft.pictures()]
    if not paths:
        raise InputError("There is no picture yet to learn from; add normal pictures first.")
    job = station.teaching.learn(draft.about["task"], paths, by=person.name, force=force)
    draft.note(job=str(job.id), capture=None)
    return back_to(request, f"/teach/{draft.id}")


@router.post("/teach/{draft_id}/discard")
def discard(request: Request, draft_id: str, person: Engineer) -> Response:
    """Throw the pictures away."""
    _draft(request, draft_id).throw_away()
    return back_to(request, "/teach")


@router.get("/teach/{draft_id}/job")
def draft_job(request: Request, draft_id: str, person: Engineer) -> Response:
    """How far the learning is."""
    return _draft_page(request, person, _draft(request, draft_id), "_job.html")


@router.get("/teach/{draft_id}/pictures/{number}")
def draft_picture(request: Request, draft_id: str, number: int, person: Engineer) -> Response:
    """A picture of a draft, small."""
    for picture in _draft(request, draft_id).pictures():
        if picture.number == number:
            return small_picture(picture.path)
    raise missing("There is no such picture.")


def _draft(request: Request, draft_id: str) -> Draft:
    return Draft.find(Path(station_of(request).config.folder), draft_id)


def _after(request: Request, person: Any, draft: Draft, problems: list[str]) -> Response:
    if request.headers.get("hx-request") == "true":
        return _draft_page(request, person, draft, "_draft_pictures.html", problems)
    return back_to(request, f"/teach/{draft.id}")


def _draft_page(
    request: Request, person: Any, draft: Draft, template: str, problems: list[str] | None = None
) -> Response:
    station, about, pictures = station_of(request), draft.about, draft.pictures()
    job = station.teaching.job(int(about["job"])) if about["job"] else None
    job = job if job is not None and job.task == about["task"] else None  # numbers begin anew with the station
    result = job_result(job)
    by_path = {str(picture.path): picture for picture in pictures}
    suspects = [(by_path.get(each["path"]), each) for each in suspects_of(result)]
    return render(
        request,
        person,
        template,
        page="teach",
        draft=draft,
        task=about["task"],
        capture=about["capture"],
        pictures=pictures,
        advised=ADVISED,
        sources=[each for each in station.state()["sources"] if each.get("kind") != "upload"],
        problems=problems or [],
        job=job,
        ended=job is not None and job.state in ENDED,
        result=result,
        suspects=[each for each in suspects if each[0] is not None],
        limit=station.config.server.upload_limit,
    )


def _take(history: Any, draft: Draft, source: str, rows: list[Any]) -> int:
    """Copy the pictures of a source out of recorded parts; how many parts there were."""
    for row in rows:
        for view in row.views:
            path = history.picture_path(view.id) if view.source == source else None
            if path is not None:
                draft.add(path.read_bytes(), f"part-{row.id}{path.suffix}")
    return len(rows)


def job_result(job: Any) -> dict[str, Any]:
    """What came of a job, as a dictionary."""
    result = job.result if job is not None else None
    if result is None:
        return {}
    return asdict(result) if is_dataclass(result) and not isinstance(result, type) else dict(result)


def suspects_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The pictures that may not belong there, with the reason where the guard gave one.

    >>> suspects_of({"suspects": ["a.png", {"path": "b.png", "reason": "blank", "score": 0.0}]})[0]
    {'reason': '', 'path': 'a.png'}
    """
    found = result.get("suspects", ())
    return [{"reason": ""} | ({"path": each} if isinstance(each, str) else dict(each)) for each in found]
