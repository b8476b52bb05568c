"""Refusals and failures as one sentence: JSON ``{"error": "..."}`` for programs, a small page for people."""

from __future__ import annotations

import html
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.errors import DinosaurError, EncoderError, InputError, StoreError, TeachingRefusedError
from dinosaur_ad.station.history.database import HistoryDownError

log = logging.getLogger(__name__)

UNEXPECTED = "Something went wrong inside the station; its log says what. Judging goes on."
_FOR_PROGRAMS = ("/api/", "/metrics", "/events")


def is_for_programs(path: str) -> bool:
    """Whether errors below this path are JSON.

    >>> is_for_programs("/api/v1/parts"), is_for_programs("/parts")
    (True, False)
    """
    return path.startswith(_FOR_PROGRAMS)


def error_response(path: str, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request that is refused or failed."""
    if 300 <= status < 400 and headers and "Location" in headers:
        return RedirectResponse(headers["Location"], status)
    if is_for_programs(path):
        return JSONResponse({"error": sentence}, status, dict(headers or {}))
    return HTMLResponse(_page(status, sentence), status, dict(headers or {}))


def _page(status: int, sentence: str) -> str:
    """Needs no template and no script, so that it can always be shown."""
    title = html.escape(HTTPStatus(status).phrase if status in set(HTTPStatus) else "Error")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="stylesheet" href="/static/station.css"></head>\n'
        f'<body><main class="error-page"><h1>{title}</h1><p>{html.escape(sentence)}</p>'
        '<p><a href="/">DINOSaur</a></p></main></body></html>\n'
    )


def add_error_handlers(app: FastAPI) -> None:
    """Let an app answer all errors in a sentence."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(DinosaurError, _known)
    app.add_exception_handler(SQLAlchemyError, _database)


async def _answer(request: Request, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer as JSON, as a page of the station, or as a plain page where even that fails."""
    if status < 400 or is_for_programs(request.url.path):
        return error_response(request.url.path, status, sentence, headers)
    try:
        answer: Response = await run_in_threadpool(_station_page, request, status, sentence)
    except Exception as error:  # for instance the database, which the page asks for open warnings
        log.warning("The page for an error cannot be shown: %s", first_line(error))
        return error_response(request.url.path, status, sentence, headers)
    answer.headers.update(dict(headers or {}))
    return answer


def _station_page(request: Request, status: int, sentence: str) -> Response:
    from dinosaur_ad.station.web.pages_frame import notice, render  # which needs this module

    person = getattr(request.state, "person", None)
    if request.headers.get("hx-request") == "true":
        shown = status in (404, 422)  # htmx puts these into the page; of others the page's script shows the sentence
        return (
            notice(request, person, sentence, "bad", status) if shown else HTMLResponse(_page(status, sentence), status)
        )
    return render(request, person, "problem.html", status=status, sentence=sentence)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {
        404: "There is no such page.",
        405: "This address does not take that kind of request.",
        400: "The request cannot be read; its body is not what its type says.",
    }
    bare = error.detail in (HTTPStatus(error.status_code).phrase, "There was an error parsing the body")
    sentence = sentences.get(error.status_code, error.detail) if bare else error.detail
    return await _answer(request, error.status_code, str(sentence), error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return await _answer(request, 422, invalid_sentence(error.errors()[0]))


def invalid_sentence(problem: Mapping[str, Any]) -> str:
    """What is wrong with a request, from pydantic's description.

    >>> invalid_sentence({"loc": ("body", "scopes"), "msg": "Field required", "type": "missing"})
    "The field 'scopes' is missing."
    """
    names = [str(each) for each in problem.get("loc", ())[1:]]
    if problem.get("type") == "json_invalid":
        return "The body is not JSON; send a JSON object."
    where = f"The field '{printable('.'.join(names), 100)}'" if names else "The body"
    if problem.get("type") == "missing":
        return f"{where} is missing."
    message = printable(str(problem.get("msg", "cannot be used")), 200).rstrip(".")
    return f"{where} cannot be used: {message[:1].lower()}{message[1:]}."


async def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, DinosaurError)
    return await _answer(request, status_of(error), str(error))


def status_of(error: DinosaurError) -> int:
    """The HTTP status for an error that a user can act on."""
    if isinstance(error, TeachingRefusedError):
        return 409
    if isinstance(error, InputError):
        return 400
    if isinstance(error, EncoderError | HistoryDownError):
        return 503
    return 409 if isinstance(error, StoreError) else 500


async def _database(request: Request, error: Exception) -> Response:
    log.error("The database failed: %s", first_line(error))
    sentence = "The database of the station does not answer; judging goes on, and what is judged is kept. Try again."
    return await _answer(request, 503, sentence, {"Retry-After": "5"})
