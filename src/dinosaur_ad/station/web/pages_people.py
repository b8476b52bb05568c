"""The page People: accounts, roles and API tokens; for admins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from dinosaur_ad.station.accounts import ROLES, SCOPES, SHORTEST_PASSWORD
from dinosaur_ad.station.web.access import Administrator, Person, address_of
from dinosaur_ad.station.web.pages_frame import PageRoute, RowId, back_to, render, station_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/people")
def people_page(request: Request, person: Administrator) -> Response:
    """The page People."""
    return _people(request, person, "")


def _people(request: Request, person: Person, secret: str) -> Response:
    accounts = station_of(request).accounts
    return render(
        request,
        person,
        "people.html",
        page="people",
        accounts=accounts.accounts(),
        tokens=accounts.tokens(),
        roles=ROLES,
        scopes=SCOPES,
        shortest=SHORTEST_PASSWORD,
        secret=secret,
    )


@router.post("/people")
def add_account(
    request: Request,
    person: Administrator,
    name: Annotated[str, Form()],
    password: Annotated[str, Form()],
    role: Annotated[str, Form()],
) -> Response:
    """Make an account."""
    _accounts(request).create(name, password, role, by=person.name, address=address_of(request))
    return back_to(request, "/people")


@router.post("/people/{name}/change")
def change_account(
    request: Request,
    name: str,
    person: Administrator,
    role: Annotated[str | None, Form()] = None,
    active: Annotated[bool | None, Form()] = None,
) -> Response:
    """Change the role of an account, or whether it may log in."""
    _accounts(request).change(name, by=person.name, role=role, active=active, address=address_of(request))
    return back_to(request, "/people")


@router.post("/people/{name}/password")
def change_password(request: Request, name: str, person: Administrator, password: Annotated[str, Form()]) -> Response:
    """Give an account another password."""
    keep = person.secret if name == person.name else ""
    _accounts(request).set_password(name, password, by=person.name, keep=keep, address=address_of(request))
    return back_to(request, "/people")


@router.post("/people/{name}/remove")
def remove_account(request: Request, name: str, person: Administrator) -> Response:
    """Remove an account."""
    _accounts(request).remove(name, by=person.name, address=address_of(request))
    return back_to(request, "/people")


@router.post("/tokens")
def make_token(
    request: Request,
    person: Administrator,
    name: Annotated[str, Form()],
    scope: Annotated[list[str] | None, Form()] = None,
    days: Annotated[str, Form()] = "",
) -> Response:
    """Make an API token; its secret is shown this once."""
    valid = float(days) if days.strip().isdigit() else None
    secret = _accounts(request).make_token(name, scope or (), by=person.name, days=valid, address=address_of(request))
    return _people(request, person, secret)


@router.post("/tokens/{token_id}/remove")
def remove_token(request: Request, token_id: RowId, person: Administrator) -> Response:
    """Make a token invalid."""
    _accounts(request).remove_token(token_id, by=person.name, address=address_of(request))
    return back_to(request, "/people")


def _accounts(request: Request) -> Any:
    return station_of(request).accounts
