"""The pages Parts (search) and Part (one part, all that is known of it, and what people say of it)."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query
from starlette.requests import Request
from starlette.responses import Response

from dinosaur_ad._text import RAREST, odds
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.history.searching import PartQuery
from dinosaur_ad.station.web.access import Operator, Viewer
from dinosaur_ad.station.web.pages_frame import (
    ANSWERS,
    LARGEST_ID,
    PageRoute,
    RowId,
    back_to,
    missing,
    render,
    station_of,
)
from dinosaur_ad.station.web.pages_shown import shown_part

router = APIRouter(route_class=PageRoute, include_in_schema=False)

PER_PAGE = 48
Before = Annotated[int | None, Query(ge=0, le=LARGEST_ID)]
LONGEST_NOTE = 500
_FIELDS = ("task", "verdict", "source", "answer", "since", "until", "text")


@router.get("/parts")
def parts_page(
    request: Request, person: Viewer, before: Annotated[int | None, Query(ge=0, le=LARGEST_ID)] = None
) -> Response:
    """The page Parts: a form, and what it finds."""
    station, asked = station_of(request), _asked(request)
    found = station.history.search(PartQuery(**asked, before_id=before, limit=PER_PAGE))
    template = "_parts.html" if request.headers.get("hx-target") in ("found", "more") else "parts.html"
    return render(
        request,
        person,
        template,
        page="parts",
        parts=[shown_part(row) for row in found.parts],
        next_before=found.next_before,
        asked=asked,
        query=urlencode(asked),
        products=[record.name for record in station.detector.tasks()],
        sources=[each["name"] for each in station.state()["sources"]],
        first=before is None,
    )


def _asked(request: Request) -> dict[str, Any]:
    """The fields of the search form that are filled in."""
    values = {name: request.query_params.get(name, "").replace("\x00", "").strip()[:200] for name in _FIELDS}
    return {name: value for name, value in values.items() if value}


@router.get("/parts/{part_id}")
def part_page(request: Request, part_id: RowId, person: Viewer, view: int | None = None) -> Response:
    """The page of one part."""
    return _part_page(request, part_id, person, view)


def _part_page(request: Request, part_id: int, person: Any, view: int | None, status: int = 200) -> Response:
    station = station_of(request)
    row = station.history.part(part_id)
    if row is None:
        raise missing(f"There is no part {part_id} in the history.")
    part = shown_part(row)
    chosen = part.views[view] if view is not None and 0 <= view < len(part.views) else part.view
    p_value = (chosen.inspection or {}).get("p_value") if chosen else None
    return render(
        request,
        person,
        "part.html",
        status=status,
        page="parts",
        part=part,
        view=chosen,
        seen=chosen.inspection if chosen else None,
        odds=odds(p_value) if p_value is not None else "",
        one_in=round(1 / max(p_value, RAREST)) if p_value and p_value > 0 else None,
        older=neighbour(station.history, part_id, older=True),
        newer=neighbour(station.history, part_id, older=False),
        products=[record.name for record in station.detector.tasks()],
        feedback=list(row.feedback),
    )


@router.post("/parts/{part_id}/answer")
def answer_part(
    request: Request,
    part_id: RowId,
    person: Operator,
    answer: Annotated[str, Form()],
    product: Annotated[str, Form()] = "",
    note: Annotated[str, Form()] = "",
) -> Response:
    """Say of a part whether it is fine, a defect, neither for sure, or another product."""
    station = station_of(request)
    if answer not in ANSWERS:
        raise InputError(f"An answer is one of {', '.join(ANSWERS)}.")
    if station.history.part(part_id) is None:
        raise missing(f"There is no part {part_id} in the history.")
    product_name, remark = product.strip()[:200] or None, note.strip()[:LONGEST_NOTE]
    station.teaching.say(part_id, person.name, answer, product=product_name, note=remark)
    row = station.history.part(part_id)
    if request.headers.get("hx-request") == "true":
        return render(request, person, "_answers.html", part=shown_part(row), feedback=list(row.feedback), said=answer)
    return back_to(request, f"/parts/{part_id}")


def neighbour(history: Any, part_id: int, *, older: bool) -> int | None:
    """The id of the part before or after one; None at the ends."""
    if older:
        rows = history.search(PartQuery(before_id=part_id, limit=1)).parts
        return int(rows[0].id) if rows else None
    for reach in (2, 20, 200):  # ids may have gaps where retention removed parts
        rows = history.search(PartQuery(before_id=part_id + reach, limit=reach)).parts
        newer = [int(row.id) for row in rows if row.id > part_id]
        if newer:
            return min(newer)
    return None
