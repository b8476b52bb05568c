"""What all pages share: templates, the language, who looks at them, and how a refusal is said inside the page."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import HTTPException
from fastapi import Path as InPath
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from dinosaur_ad._text import printable, printable_line
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.station.config import LANGUAGES
from dinosaur_ad.station.proposals import KIND
from dinosaur_ad.station.tables import WarningRow
from dinosaur_ad.station.web.access import Person, visitor
from dinosaur_ad.station.web.catalogue import Catalogue, catalogue, key_of

LARGEST_ID = 2**31 - 1
"""Of a row in any database."""
RowId = Annotated[int, InPath(ge=0, le=LARGEST_ID)]
WEB = Path(__file__).parent
STATIC = WEB / "static"
LANGUAGE_COOKIE = "dinosaur-language"
VERDICTS = ("normal", "anomalous", "unknown", "not ready")
ANSWERS = ("fine", "defect", "not sure", "other product")
NAVIGATION = (
    ("live", "/", "viewer"),
    ("parts", "/parts", "viewer"),
    ("teach", "/teach", "engineer"),
    ("proposals", "/proposals", "viewer"),
    ("products", "/products", "viewer"),
    ("trends", "/trends", "viewer"),
    ("system", "/system", "viewer"),
    ("people", "/people", "admin"),
)
"""Name, address, and the role that may see it."""


def station_of(request: Request) -> Any:
    """The station that the app serves."""
    return request.app.state.station


def language_of(request: Request, person: Person | None = None) -> str:
    """The language of the page: what was chosen in this browser, the account's, the station's."""
    asked = request.cookies.get(LANGUAGE_COOKIE, "")
    if asked in LANGUAGES:
        return asked
    own = person.language if person else ""
    return own if own in LANGUAGES else str(station_of(request).config.server.language)


def words(request: Request, person: Person | None = None) -> Catalogue:
    """The catalogue for whoever sent the request."""
    return catalogue(language_of(request, person))


def render(
    request: Request, person: Person | None, template: str, *, status: int = 200, page: str = "", **values: Any
) -> HTMLResponse:
    """A page or a part of one; ``page`` is the entry of the navigation that it belongs to."""
    text = words(request, person)
    context = {
        "t": text,
        "several": text.several,
        "number": text.number,
        "percent": text.percent,
        "when": lambda moment, form="time": when(moment, text, form),
        "person": person,
        "may": person.may if person else lambda role: False,
        "csrf": person.csrf if person else "",
        "language": text.language,
        "page": page,
        "path": request.url.path,
        "navigation": [each for each in NAVIGATION if person and person.may(each[2])],
        "open_warnings": _open_warnings(request) if person and not _is_fragment(request) else 0,
        "proposals_waiting": station_of(request).proposals.waiting if person else 0,
    }
    body = templates().get_template(template).render(**context | values)
    return HTMLResponse(body, status)


def back_to(request: Request, address: str) -> Response:
    """The answer to a change that went well: the page ``address`` is shown next."""
    if _is_fragment(request):
        return Response(status_code=204, headers={"HX-Redirect": address})
    return RedirectResponse(address, 303)


def notice(request: Request, person: Person | None, sentence: str, kind: str = "good", status: int = 200) -> Response:
    """A sentence shown above the page."""
    answer = render(request, person, "_notice.html", status=status, sentence=sentence, kind=kind)
    answer.headers["HX-Retarget"], answer.headers["HX-Reswap"] = "#notices", "innerHTML"
    return answer


class PageRoute(APIRoute):
    """A route whose refusals are said inside the page, in a sentence."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with the errors that people can act on made into answers."""
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except DinosaurError as error:
                return _refusal(request, str(error), 503 if isinstance(error, SQLAlchemyError) else 422)
            except HTTPException as error:
                if error.status_code != 404:
                    raise
                return _refusal(request, str(error.detail), 404)

        return answered


def _refusal(request: Request, sentence: str, status: int) -> Response:
    person = visitor(request)
    if _is_fragment(request):
        return notice(request, person, sentence, "bad", status)
    return render(request, person, "problem.html", status=status, sentence=sentence)


def missing(sentence: str) -> HTTPException:
    """The error for something that is not there."""
    return HTTPException(404, sentence)


def _is_fragment(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"


def _open_warnings(request: Request) -> int:
    try:
        return len(drift_warnings(station_of(request).history))
    except DinosaurError:  # the database is away; the page says so where it matters
        return 0


def drift_warnings(history: Any, *, open_only: bool = True) -> list[WarningRow]:
    """The warnings without the proposals, which have a page of their own; the newest first."""
    return [each for each in history.warnings(open_only=open_only) if each.kind != KIND]


def when(moment: str | datetime | None, text: Catalogue, form: str = "time") -> Markup | str:
    """A moment in the station's own time zone: "time", "day" or "full"; a dash where there is none."""
    if not moment:
        return "–"
    try:
        parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        return printable(moment, 40)
    local = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone()
    day = f"{local.day:02d}.{local.month:02d}.{local.year}" if text.language == "de" else f"{local:%Y-%m-%d}"
    today = local.date() == datetime.now().astimezone().date()
    shown = f"{local:%H:%M:%S}"
    if form == "day":
        shown = day
    elif form == "full" or not today:
        shown = f"{day} {shown}"
    return Markup('<time datetime="{}">{}</time>').format(local.isoformat(), shown)


@lru_cache
def templates() -> Environment:
    """The templates; everything put into them is escaped, and a name that is not there is an error."""
    environment = Environment(
        loader=FileSystemLoader(WEB / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["key"] = key_of
    environment.filters["shown"] = printable
    environment.filters["sentence"] = _sentence
    environment.filters["segment"] = lambda name: quote(str(name), safe="")
    environment.globals["static"] = static_address
    environment.globals["verdicts"] = VERDICTS
    environment.globals["answers"] = ANSWERS
    return environment


@pass_context
def _sentence(context: Context, said: str) -> str:
    """What the station said, in the language of the page, escaped."""
    return printable_line(context["t"].said(said))


@lru_cache
def static_address(name: str) -> str:
    """The address of a file of the page; it changes with the file, so that no browser shows an old one."""
    return f"/static/{name}?{hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:10]}"
