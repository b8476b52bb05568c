"""The page Proposals: products that nobody taught, products that became one, and what people decide about them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from dinosaur_ad.station.history.searching import PartQuery
from dinosaur_ad.station.proposal_card import ProposalCard
from dinosaur_ad.station.web.access import Engineer, Viewer
from dinosaur_ad.station.web.pages_frame import PageRoute, RowId, back_to, missing, render, station_of
from dinosaur_ad.station.web.pages_pictures import GONE, small_picture
from dinosaur_ad.station.web.pages_shown import ShownPart, shown_part

router = APIRouter(route_class=PageRoute, include_in_schema=False)

PICTURES_SHOWN = 24
SHOWN_OF_EACH = 6
"""Parts of each product, or of each group, that a merge or a split is shown with."""
WAITING = ("open", "learning")


@router.get("/proposals")
def proposals_page(request: Request, person: Viewer) -> Response:
    """What waits for a person, and what was decided last."""
    station = station_of(request)
    cards = station.proposals.all()
    waiting = [each for each in cards if each.status in WAITING]
    return render(
        request,
        person,
        "proposals.html",
        page="proposals",
        waiting=waiting,
        decided=[each for each in cards if each.status not in WAITING],
        sides={each.id: sides(station, each) for each in waiting if each.products},
        seen=",".join(str(each.id) for each in waiting),
        shown=PICTURES_SHOWN,
        gathering=station.proposals.state(),
        enough=station.proposals.config.pictures,
    )


@router.get("/proposals/news")
def proposals_news(request: Request, person: Viewer, seen: str = "") -> Response:
    """Whether there are others than those that the page shows."""
    cards = station_of(request).proposals.all()
    now = ",".join(str(each.id) for each in cards if each.status in WAITING)
    return render(request, person, "_proposals_news.html", changed=now != seen)


@router.get("/proposals/{proposal_id}/pictures/{picture_id}")
def proposal_picture(request: Request, proposal_id: RowId, picture_id: RowId, person: Viewer) -> Response:
    """A picture of a proposal, small."""
    path = station_of(request).proposals.picture(proposal_id, picture_id)
    if path is None:
        raise missing(GONE)
    return small_picture(path)


@router.post("/proposals/{proposal_id}/accept")
def accept_proposal(request: Request, proposal_id: RowId, person: Engineer, name: Annotated[str, Form()]) -> Response:
    """Learn a proposed product, or make one product of two; the page shows how far it is."""
    station_of(request).proposals.accept(proposal_id, name.strip(), person.name)
    return back_to(request, "/proposals")


@router.post("/proposals/{proposal_id}/dismiss")
def put_aside(request: Request, proposal_id: RowId, person: Engineer) -> Response:
    """Not now: such parts are not proposed again until somebody asks."""
    station_of(request).proposals.dismiss(proposal_id, person.name)
    return back_to(request, "/proposals")


@router.post("/proposals/{proposal_id}/ask-again")
def ask_again(request: Request, proposal_id: RowId, person: Engineer) -> Response:
    """Take back that a proposal was put aside."""
    station_of(request).proposals.ask_again(proposal_id, person.name)
    return back_to(request, "/proposals")


@router.post("/proposals/{proposal_id}/undo")
def undo_merge(request: Request, proposal_id: RowId, person: Engineer) -> Response:
    """Take back a merge."""
    station_of(request).proposals.undo(proposal_id, person.name)
    return back_to(request, "/proposals")


def sides(station: Any, card: ProposalCard) -> list[tuple[str, list[ShownPart]]]:
    """The latest parts of each product that a merge is about, or those of each group of a split."""
    if card.groups:
        rows = [[station.history.part(part) for part in group[-SHOWN_OF_EACH:]] for group in card.groups]
        return [(card.products[0], [shown_part(row) for row in group if row is not None]) for group in rows]
    found = []
    for name in card.products:
        parts = station.history.search(PartQuery(task=name, verdict="normal", limit=SHOWN_OF_EACH)).parts
        found.append((name, [shown_part(row) for row in parts]))
    return found
