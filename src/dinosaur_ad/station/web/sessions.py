"""Logging in and out, and the first account. The pages with the forms are in :mod:`dinosaur_ad.station.web.pages`."""

from __future__ import annotations

import math
from typing import Annotated, Any
from urllib.parse import urlencode

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.account_rules import check_account_name, check_new_password
from dinosaur_ad.station.accounts import LONGEST, Account
from dinosaur_ad.station.web.access import Person, address_of, cookie_name, is_secure, needs, visitor

PROBLEMS = ("wrong", "wait", "name", "password", "taken")
"""What can be wrong, as ``?problem=`` of the pages: login: "wrong" name or password, "wait" (with ``seconds=``);
setup: the "name" or the "password" cannot be used, "taken": there is an account already."""

MOST_WAITING = 20
"""Logins that wait for their password to be hashed."""
_hashing = CapacityLimiter(1)  # a hash takes memory and time of a core; those that wait take no thread

router = APIRouter(include_in_schema=False)


@router.post("/login")
async def log_in(request: Request) -> Response:
    """Take the form of the login page. That it comes from there was checked by its origin."""
    form, accounts, address = await request.form(), request.app.state.station.accounts, address_of(request)
    name, password, after = _text(form, "name"), _text(form, "password"), local_path(_text(form, "next"))
    wait = request.app.state.backoff.begin(name, address)
    if wait > 0:
        seconds = math.ceil(wait)
        return _again(request, "/login", "wait", 429, {"next": after, "seconds": str(seconds)})
    if _hashing.statistics().tasks_waiting >= MOST_WAITING:
        raise HTTPException(503, "Too many people log in at once; try again.", {"Retry-After": "5"})
    account: Account | None = await to_thread.run_sync(accounts.check_password, name, password, limiter=_hashing)
    if account is None:
        history = request.app.state.station.history
        await run_in_threadpool(history.audit, printable(name, 60), "login failed", "", address)
        return _again(request, "/login", "wrong", 401, {"next": after})
    request.app.state.backoff.succeeded(name, address)
    before = visitor(request)
    if before and before.secret:
        await run_in_threadpool(accounts.log_out, before.secret, by=before.name, address=address)
    secret = await run_in_threadpool(accounts.log_in, account, address)
    return _with_cookie(request, RedirectResponse(after, 303), secret)


@router.post("/logout")
async def log_out(request: Request, person: Annotated[Person, Depends(needs("viewer"))]) -> Response:
    """End the session of the browser."""
    if person.secret:
        accounts = request.app.state.station.accounts
        await run_in_threadpool(accounts.log_out, person.secret, by=person.name, address=address_of(request))
    response = RedirectResponse("/login", 303)
    response.delete_cookie(_cookie(request), path="/", secure=is_secure(request), httponly=True, samesite="strict")
    response.headers["Clear-Site-Data"] = '"cache"'
    return response


@router.post("/setup")
async def set_up(request: Request, person: Annotated[Person, Depends(needs("admin"))]) -> Response:
    """Make the first account; only on the machine itself, and only while there is none."""
    accounts = request.app.state.station.accounts
    if not person.local:
        raise HTTPException(409, "There are accounts already; make more of them on the page People.")
    form = await request.form()
    name, password = _text(form, "name"), _text(form, "password")
    try:
        name = check_account_name(name)
    except InputError as error:
        return _again(request, "/setup", "name", 400, {}, str(error))
    try:
        check_new_password(password, name)
    except InputError as error:
        return _again(request, "/setup", "password", 400, {}, str(error))
    address = address_of(request)
    try:
        account = await run_in_threadpool(accounts.create_first, name, password, address=address)
    except InputError as error:
        return _again(request, "/setup", "taken", 409, {}, str(error))
    secret = await run_in_threadpool(accounts.log_in, account, address)
    return _with_cookie(request, RedirectResponse("/", 303), secret)


def local_path(path: str) -> str:
    r"""A path of this station to go to, "/" where another site is named.

    >>> local_path("/parts?task=a"), local_path("//evil.com"), local_path("/\\evil.com"), local_path("https://evil.com")
    ('/parts?task=a', '/', '/', '/')
    """
    if not path.startswith("/") or path[1:2] in ("/", "\\") or not path.isprintable() or len(path) > 1000:
        return "/"
    return path


def _again(
    request: Request, page: str, problem: str, status: int, query: dict[str, str], sentence: str = ""
) -> Response:
    """Send a browser back to the form, and tell a program."""
    sentences = {
        "wrong": "The name or the password is wrong.",
        "wait": f"Too many wrong passwords; try again in {query.get('seconds')} seconds.",
    }
    if "text/html" not in request.headers.get("accept", ""):
        headers = {"Retry-After": query["seconds"]} if "seconds" in query else {}
        return JSONResponse({"error": sentence or sentences[problem]}, status, headers)
    kept = {key: value for key, value in query.items() if key != "next" or value != "/"}
    return RedirectResponse(f"{page}?{urlencode({'problem': problem} | kept)}", 303)


def _with_cookie(request: Request, response: Response, secret: str) -> Response:
    response.set_cookie(
        _cookie(request),
        secret,
        max_age=int(LONGEST.total_seconds()),
        path="/",
        secure=is_secure(request),
        httponly=True,
        samesite="strict",
    )
    return response


def _cookie(request: Request) -> str:
    return cookie_name(request.app.state.station.config.server, is_secure(request))


def _text(form: FormData, name: str) -> str:
    value: Any = form.get(name, "")
    return value if isinstance(value, str) else ""
