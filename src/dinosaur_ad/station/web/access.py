"""Who asks, and whether they may.

:class:`Identify` finds out who sent a request before anything of its body is read; :func:`needs` is what a route says::

    @router.post("/parts/{part_id}/feedback")
    def say(part_id: int, person: Annotated[Person, Depends(needs("operator"))]) -> ...

or shorter ``person: Operator``. ``person.csrf`` belongs into every form (hidden field ``csrf``) or into the header
``X-CSRF-Token`` (htmx: ``hx-headers`` on the body). A route without :func:`needs` is open to everybody; a test lists
all routes and fails for one that it does not know.

The forms of login.html (fields ``name``, ``password``, ``next``, ``csrf``) and setup.html (``name``, ``password``,
``csrf``) are posted to ``/login`` and ``/setup``, a form with ``csrf`` to ``/logout``. When that fails, the browser is
sent to ``/login?problem=...&next=...`` or ``/setup?problem=...``, where the problem is one of
:data:`dinosaur_ad.station.web.sessions.PROBLEMS`.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from dinosaur_ad.errors import StoreError
from dinosaur_ad.station.account_rules import LOCAL, rank
from dinosaur_ad.station.accounts import Accounts, csrf_of
from dinosaur_ad.station.config import ServerConfig
from dinosaur_ad.station.web.addresses import client_address, is_local, is_loopback_address, is_same_site, peer_of
from dinosaur_ad.station.web.api_errors import error_response, is_for_programs
from dinosaur_ad.station.web.recent_persons import RecentPersons

__all__ = [
    "SCOPE_OF", "Administrator", "Engineer", "Identify", "Inspector", "Operator", "Person", "Viewer", "address_of",
    "cookie_name", "is_loopback_address", "is_secure", "needs", "visitor",
]  # fmt: skip

SCOPE_OF = {"viewer": "read", "operator": "feedback", "engineer": "teach", "admin": "admin"}
"""The scope that a token needs for a route of a role, unless the route names another."""
ROLE_OF = {"read": "viewer", "inspect": "operator", "feedback": "operator", "teach": "engineer", "admin": "admin"}
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
NO_ACCOUNTS = (
    "This station has no accounts yet and answers only on its own machine; make the first account there, at /setup or "
    "with: dinosaur station --add-admin NAME."
)
_OPEN_TO_ALL = ("/static/", "/api/v1/health")  # answered without looking anyone up


@dataclass(frozen=True)
class Person:
    """Who sent a request. ``token`` is whether it is a program with an API token, which has ``scopes`` instead of
    a role. ``language`` is empty where the account has none of its own."""

    name: str
    role: str
    language: str = ""
    token: bool = False
    csrf: str = ""
    scopes: frozenset[str] = frozenset()
    secret: str = field(default="", repr=False)
    """Of the session; empty for tokens and without accounts."""

    def may(self, role: str, scope: str | None = None) -> bool:
        """Whether they may use what needs that role; of a token its scopes decide.

        >>> Person("Ann", "engineer").may("operator"), Person("Ann", "engineer").may("admin")
        (True, False)
        """
        if self.token:
            return bool(self.scopes & {"admin", scope or SCOPE_OF[role]})
        return rank(self.role) >= rank(role)

    @property
    def local(self) -> bool:
        """Whether it is the one who sits at a machine without accounts."""
        return self.name == LOCAL


def needs(role: str, scope: str | None = None) -> Callable[[Request], Awaitable[Person]]:
    """A dependency that gives the person, if they have at least that role (of a token: that scope) and, where something
    is changed, the request comes from the station's own page."""
    rank(role)  # an unknown role is a mistake in the program

    async def permitted(request: Request) -> Person:
        person = visitor(request)
        if person is None:
            raise _not_known(request)
        if not person.may(role, scope):
            wanted = f"the scope {scope or SCOPE_OF[role]}" if person.token else f"the role {role}"
            raise HTTPException(403, f"This needs {wanted}, which '{person.name}' does not have; ask an admin.")
        await _refuse_forged(request, person)
        return person

    permitted.needs = (role, scope or SCOPE_OF[role])  # type: ignore[attr-defined]  # for the test of all routes
    return permitted


Viewer = Annotated[Person, Depends(needs("viewer"))]
Operator = Annotated[Person, Depends(needs("operator"))]
Engineer = Annotated[Person, Depends(needs("engineer"))]
Administrator = Annotated[Person, Depends(needs("admin"))]
Inspector = Annotated[Person, Depends(needs("operator", "inspect"))]
"""Who may give pictures to the station: operators, and programs with the scope "inspect"."""


def visitor(request: Request) -> Person | None:
    """Who sent the request; None for strangers. For pages that are open to all, such as the login."""
    person: Person | None = request.state.person
    return person


def address_of(request: Request) -> str:
    """Where the request came from, as text for the audit log."""
    return str(request.state.address)


def is_secure(request: Request) -> bool:
    """Whether the browser used TLS."""
    return bool(request.state.secure)


def cookie_name(server: ServerConfig, secure: bool) -> str:
    """The name of the session's cookie: with the port, since browsers share cookies among the ports of a machine."""
    return f"{'__Host-' if secure else ''}dinosaur-{server.port}"


def _not_known(request: Request) -> HTTPException:
    """How a stranger is refused: a page sends to the login, the API says what is missing."""
    if not request.state.accounts_exist:
        return HTTPException(403, NO_ACCOUNTS)
    if is_for_programs(request.url.path):
        sentence = "Log in, or send an API token that is valid: Authorization: Bearer dino_..."
        return HTTPException(401, sentence, {"WWW-Authenticate": "Bearer"})
    if request.headers.get("hx-request") == "true":
        return HTTPException(401, "Your session has ended; log in again.", {"HX-Redirect": "/login"})
    if request.method not in SAFE_METHODS:
        return HTTPException(401, "Your session has ended; log in again.")
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return HTTPException(303, "Log in first.", {"Location": f"/login?next={quote(path, safe='')}"})


async def _refuse_forged(request: Request, person: Person) -> None:
    """Raise where a browser could have been made to send this request by another site."""
    if request.method in SAFE_METHODS or person.token:  # no browser adds a token by itself
        return
    if person.local and not _from_browser(request.headers):
        return
    given = request.headers.get("x-csrf-token", "")
    if not given and request.headers.get("content-type", "").split(";")[0].strip().lower() in FORMS:
        value = (await request.form()).get("csrf", "")
        given = "" if isinstance(value, UploadFile) else value
    if not person.csrf or not secrets.compare_digest(given.encode(), person.csrf.encode()):
        raise HTTPException(
            403, "This request does not carry the token of its page (csrf); load the page again and repeat it."
        )


def _from_browser(headers: Headers) -> bool:
    """Every browser sends one of these with a request that changes something; programs do not."""
    return any(name in headers for name in ("origin", "sec-fetch-site", "referer", "cookie"))


class Identify:
    """Middleware that finds out who sent a request: ``request.state.person``, ``.address``, ``.secure``."""

    def __init__(self, app: ASGIApp, accounts: Accounts, server: ServerConfig) -> None:
        self._app, self._accounts, self._server = app, accounts, server
        self._local_csrf = secrets.token_hex(32)
        self._recent = RecentPersons[Person](lambda: accounts.changes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        state = scope.setdefault("state", {})
        state["secure"] = self._secure(scope, headers)
        state["address"] = client_address(scope, self._server)
        state["person"], state["accounts_exist"] = None, True
        path = str(scope["path"])
        try:
            if scope["method"] not in SAFE_METHODS and not is_same_site(headers, self._host(headers)):
                raise HTTPException(403, "This request was sent by another site; use the station's own page.")
            if not path.startswith(_OPEN_TO_ALL):
                await self._find(scope, headers, state)
        except HTTPException as error:
            await error_response(path, error.status_code, error.detail, error.headers)(scope, receive, send)
            return
        except (SQLAlchemyError, StoreError):
            sentence = "Who you are cannot be looked up, because the database does not answer; try again."
            await error_response(path, 503, sentence, {"Retry-After": "5"})(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _find(self, scope: Scope, headers: Headers, state: dict[str, Any]) -> None:
        bearer, secret = _bearer(headers), self._cookie(scope, state["secure"])
        if bearer is not None:
            state["person"] = await self._recent.person("token", bearer, lambda: self._by_token(bearer))
            if state["person"] is None:
                sentence = "This API token is not valid, or not any more; ask an admin for another."
                raise HTTPException(401, sentence, {"WWW-Authenticate": 'Bearer error="invalid_token"'})
        elif secret:
            state["person"] = await self._recent.person("session", secret, lambda: self._by_session(secret))
        if state["person"] is None and (nobody := await self._recent.person("none", "", self._without_accounts)):
            state["accounts_exist"] = False
            state["person"] = nobody if is_local(scope, self._server) else None

    def _without_accounts(self) -> Person | None:
        """Whoever sits at the machine, while there are no accounts."""
        return None if self._accounts.any() else Person(LOCAL, "admin", csrf=self._local_csrf)

    def _by_token(self, bearer: str) -> Person | None:
        token = self._accounts.token(bearer)
        if token is None:
            return None
        role = max((ROLE_OF[each] for each in token.scopes), key=rank)
        return Person(f"token:{token.name}", role, token=True, scopes=frozenset(token.scopes))

    def _by_session(self, secret: str) -> Person | None:
        account = self._accounts.logged_in(secret)
        if account is None:
            return None
        return Person(account.name, account.role, account.language, csrf=csrf_of(secret), secret=secret)

    def _cookie(self, scope: Scope, secure: bool) -> str:
        value = Request(scope).cookies.get(cookie_name(self._server, secure), "")
        return value if len(value) <= 200 else ""

    def _secure(self, scope: Scope, headers: Headers) -> bool:
        forwarded = self._server.behind_proxy and is_loopback_address(peer_of(scope))
        return scope["scheme"] == "https" or (forwarded and headers.get("x-forwarded-proto", "") == "https")

    def _host(self, headers: Headers) -> str:
        forwarded = headers.get("x-forwarded-host", "") if self._server.behind_proxy else ""
        return forwarded or headers.get("host", "")


def _bearer(headers: Headers) -> str | None:
    """The token in the header Authorization; other kinds of it are not known here."""
    value = headers.get("authorization")
    if value is None:
        return None
    kind, _, token = value.partition(" ")
    return token.strip()[:200] if kind.lower() == "bearer" else ""
