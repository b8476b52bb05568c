"""The pages to log in, to make the first account, and the choice of the language. The forms go to ``sessions.py``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dinosaur_ad.station.config import LANGUAGES
from dinosaur_ad.station.web.access import Viewer, address_of, is_secure, visitor
from dinosaur_ad.station.web.pages_frame import LANGUAGE_COOKIE, PageRoute, render, station_of
from dinosaur_ad.station.web.sessions import PROBLEMS, local_path

router = APIRouter(route_class=PageRoute, include_in_schema=False)

A_YEAR = 365 * 24 * 3600


@router.get("/login")
def login_page(request: Request, problem: str = "", next: str = "/", seconds: int = 0) -> Response:
    """The form to log in; open to all."""
    if not request.state.accounts_exist:
        return RedirectResponse("/setup" if visitor(request) else "/", 303)
    return render(
        request,
        None,
        "login.html",
        problem=problem if problem in PROBLEMS else "",
        after=local_path(next),
        seconds=max(0, min(seconds, 3600)),
    )


@router.get("/setup")
def setup_page(request: Request, person: Viewer, problem: str = "") -> Response:
    """The form for the first account; only on the machine itself."""
    if not person.local:
        return RedirectResponse("/", 303)
    return render(request, person, "setup.html", problem=problem if problem in PROBLEMS else "")


@router.post("/language")
def choose_language(
    request: Request, person: Viewer, language: Annotated[str, Form()], after: Annotated[str, Form()] = "/"
) -> Response:
    """Show the page in another language, in this browser and wherever the account logs in."""
    chosen = language if language in LANGUAGES else LANGUAGES[0]
    accounts = station_of(request).accounts
    if not person.local and not person.token and person.language != chosen:
        accounts.change(person.name, by=person.name, language=chosen, address=address_of(request))
    response = RedirectResponse(local_path(after), 303)
    response.set_cookie(
        LANGUAGE_COOKIE, chosen, max_age=A_YEAR, secure=is_secure(request), httponly=True, samesite="strict"
    )
    return response
