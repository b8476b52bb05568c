"""The API for proposals: products that nobody taught, and products that became one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.web.access import Engineer, Viewer
from dinosaur_ad.station.web.api_json import plain
from dinosaur_ad.station.web.api_models import Answered, Asked, Name, OneJob, Problem
from dinosaur_ad.station.web.api_parts import picture_file

router = APIRouter(tags=["proposals"])
_MISSING: dict[int | str, dict[str, Any]] = {404: {"model": Problem}}
_REFUSED: dict[int | str, dict[str, Any]] = {404: {"model": Problem}, 409: {"model": Problem}}


class OnePictureOfProposal(Answered):
    """A picture of a proposal; a suspect would not be learned, and ``reason`` says why. ``there``: its copy is kept."""

    id: int
    origin: str
    part: int | None
    suspect: bool
    reason: str
    there: bool


class OneProposal(Answered):
    """A proposed product: ``kind`` is product, merge or split, ``status`` open, learning, adopted or dismissed.

    ``products`` are those that a merge or a split is about; ``task`` is the name that was chosen."""

    id: int
    kind: str
    status: str
    task: str
    since: str | None
    reason: str
    promised_rate: float | None
    calibrated: int
    images_needed: int | None
    not_ready: str
    pictures: list[OnePictureOfProposal]
    products: list[str]
    groups: list[list[int]]
    decided: str | None
    decided_by: str | None
    can_undo: bool
    job: OneJob | None


class AcceptAsked(Asked):
    """The name of the product that a proposal becomes."""

    name: Name


@router.get("/proposals", response_model=list[OneProposal])
def list_proposals(request: Request, person: Viewer) -> Any:
    """The proposals that wait, the oldest first, then those that were decided last."""
    return [plain(each.to_json()) for each in request.app.state.station.proposals.all()]


@router.get("/proposals/{proposal_id}", response_model=OneProposal, responses=_MISSING)
def one_proposal(proposal_id: int, request: Request, person: Viewer) -> Any:
    """A proposal, its pictures and what learning it promises."""
    return plain(_existing(request, proposal_id).to_json())


@router.get("/proposals/{proposal_id}/pictures/{picture_id}", response_class=FileResponse, responses=_MISSING)
def picture_of_proposal(proposal_id: int, picture_id: int, request: Request, person: Viewer) -> FileResponse:
    """A picture of a proposal as it was judged."""
    _existing(request, proposal_id)
    return picture_file(request.app.state.station.proposals.picture(proposal_id, picture_id))


@router.post("/proposals/{proposal_id}/accept", response_model=OneJob, status_code=202, responses=_REFUSED)
def accept(proposal_id: int, asked: AcceptAsked, request: Request, person: Engineer) -> Any:
    """Learn a proposed product under a name, or make one product of two; the answer is a job."""
    _existing(request, proposal_id)
    with _too_late():
        job = request.app.state.station.proposals.accept(proposal_id, asked.name, person.name)
    return plain(job.to_json())


@router.post("/proposals/{proposal_id}/dismiss", status_code=204, responses=_REFUSED)
def dismiss(proposal_id: int, request: Request, person: Engineer) -> None:
    """Put a proposal aside: such parts are not proposed again until somebody asks."""
    _existing(request, proposal_id)
    with _too_late():
        request.app.state.station.proposals.dismiss(proposal_id, person.name)


@router.post("/proposals/{proposal_id}/ask-again", status_code=204, responses=_REFUSED)
def ask_again(proposal_id: int, request: Request, person: Engineer) -> None:
    """Take back that a proposal was put aside."""
    _existing(request, proposal_id)
    with _too_late():
        request.app.state.station.proposals.ask_again(proposal_id, person.name)


@router.post("/proposals/{proposal_id}/undo", status_code=204, responses=_REFUSED)
def undo_merge(proposal_id: int, request: Request, person: Engineer) -> None:
    """Take back a merge: the two products are as they were."""
    _existing(request, proposal_id)
    with _too_late():
        request.app.state.station.proposals.undo(proposal_id, person.name)


def _existing(request: Request, proposal_id: int) -> Any:
    try:
        return request.app.state.station.proposals.one(proposal_id)
    except InputError as error:
        raise HTTPException(404, str(error)) from None


@contextmanager
def _too_late() -> Iterator[None]:
    """What cannot be decided any more, or not like this, is a conflict with what there is."""
    try:
        yield
    except InputError as error:
        raise HTTPException(409, str(error)) from None
