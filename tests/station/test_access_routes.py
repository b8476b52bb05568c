"""Every route tried by everybody: the table says who may, and a route that is not in it fails the test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra station")
pytest.importorskip("sqlalchemy", reason="needs the extra station")

from access_helpers import add_people, all_routes, browser, fake_station, logged_in, needed, new_app, with_token

from dinosaur_ad.station.accounts import ROLES, SCOPES

OPEN = "open"
TABLE = {
    "GET /static": OPEN,
    # logging in
    "GET /login": OPEN,
    "POST /login": OPEN,
    "POST /logout": "viewer",
    "GET /setup": "viewer",
    "POST /setup": "admin",
    "POST /language": "viewer",
    # the pages
    "GET /": "viewer",
    "GET /events": "viewer",
    "GET /live/counters": "viewer",
    "GET /live/warnings": "viewer",
    "GET /parts": "viewer",
    "GET /parts/{part_id}": "viewer",
    "GET /parts/{part_id}/pictures/{number}/{kind}": "viewer",
    "GET /products": "viewer",
    "GET /products/{name}": "viewer",
    "GET /products/{name}/defects/{number}": "viewer",
    "GET /products/{name}/jobs": "viewer",
    "GET /products/{name}/tray": "viewer",
    "GET /products/{name}/what-if": "viewer",
    "GET /system": "viewer",
    "GET /system/state": "viewer",
    "GET /trends": "viewer",
    "POST /parts/{part_id}/answer": "operator",
    "POST /sources/{name}/trigger": "operator",
    "GET /teach": "engineer",
    "GET /teach/{draft_id}": "engineer",
    "GET /teach/{draft_id}/job": "engineer",
    "GET /teach/{draft_id}/pictures/{number}": "engineer",
    "GET /products/{name}/recalibrate": "engineer",
    "POST /products/{name}/forget": "engineer",
    "POST /products/{name}/recalibrate": "engineer",
    "POST /products/{name}/redo": "engineer",
    "POST /products/{name}/rename": "engineer",
    "POST /products/{name}/sensitivity": "engineer",
    "POST /products/{name}/tray": "engineer",
    "POST /products/{name}/undo": "engineer",
    "POST /products/{name}/zones": "engineer",
    "POST /teach": "engineer",
    "POST /teach/{draft_id}/capture": "engineer",
    "POST /teach/{draft_id}/capture/stop": "engineer",
    "POST /teach/{draft_id}/collect": "engineer",
    "POST /teach/{draft_id}/discard": "engineer",
    "POST /teach/{draft_id}/learn": "engineer",
    "POST /teach/{draft_id}/pictures": "engineer",
    "POST /teach/{draft_id}/remove": "engineer",
    "POST /warnings/{warning_id}/close": "operator",
    "GET /proposals": "viewer",
    "GET /proposals/news": "viewer",
    "GET /proposals/{proposal_id}/pictures/{picture_id}": "viewer",
    "POST /proposals/{proposal_id}/accept": "engineer",
    "POST /proposals/{proposal_id}/ask-again": "engineer",
    "POST /proposals/{proposal_id}/dismiss": "engineer",
    "POST /proposals/{proposal_id}/undo": "engineer",
    "GET /people": "admin",
    "POST /people": "admin",
    "POST /people/{name}/change": "admin",
    "POST /people/{name}/password": "admin",
    "POST /people/{name}/remove": "admin",
    "POST /tokens": "admin",
    "POST /tokens/{token_id}/remove": "admin",
    # the API
    "GET /api/v1/health": OPEN,
    "GET /api/v1/ready": OPEN,
    "GET /api/v1/openapi.json": "viewer",
    "GET /metrics": "viewer",
    "GET /api/v1/changes": "viewer",
    "GET /api/v1/events": "viewer",
    "GET /api/v1/feedback": "viewer",
    "GET /api/v1/jobs": "viewer",
    "GET /api/v1/jobs/{job_id}": "viewer",
    "GET /api/v1/me": "viewer",
    "GET /api/v1/parts": "viewer",
    "GET /api/v1/parts.csv": "viewer",
    "GET /api/v1/parts.parquet": "viewer",
    "GET /api/v1/parts/{part_id}": "viewer",
    "GET /api/v1/parts/{part_id}/views/{view_id}/map": "viewer",
    "GET /api/v1/parts/{part_id}/views/{view_id}/overlay": "viewer",
    "GET /api/v1/parts/{part_id}/views/{view_id}/picture": "viewer",
    "GET /api/v1/parts/{part_id}/views/{view_id}/thumbnail": "viewer",
    "GET /api/v1/products": "viewer",
    "GET /api/v1/products/{name}": "viewer",
    "GET /api/v1/products/{name}/what-if": "viewer",
    "GET /api/v1/proposals": "viewer",
    "GET /api/v1/proposals/{proposal_id}": "viewer",
    "GET /api/v1/proposals/{proposal_id}/pictures/{picture_id}": "viewer",
    "GET /api/v1/sources": "viewer",
    "GET /api/v1/state": "viewer",
    "GET /api/v1/tray": "viewer",
    "GET /api/v1/warnings": "viewer",
    "PUT /api/v1/me/password": "viewer",
    "DELETE /api/v1/feedback/{feedback_id}": "operator",
    "POST /api/v1/inspect": "operator",
    "POST /api/v1/parts/{part_id}/feedback": "operator",
    "POST /api/v1/pictures": "operator",
    "POST /api/v1/sources/{name}/trigger": "operator",
    "DELETE /api/v1/products/{name}": "engineer",
    "PATCH /api/v1/products/{name}/settings": "engineer",
    "POST /api/v1/products/{name}/learn": "engineer",
    "POST /api/v1/products/{name}/recalibrate": "engineer",
    "POST /api/v1/products/{name}/redo": "engineer",
    "POST /api/v1/products/{name}/rename": "engineer",
    "POST /api/v1/products/{name}/undo": "engineer",
    "POST /api/v1/proposals/{proposal_id}/accept": "engineer",
    "POST /api/v1/proposals/{proposal_id}/ask-again": "engineer",
    "POST /api/v1/proposals/{proposal_id}/dismiss": "engineer",
    "POST /api/v1/proposals/{proposal_id}/undo": "engineer",
    "POST /api/v1/tray/approve": "engineer",
    "POST /api/v1/tray/refuse": "engineer",
    "POST /api/v1/warnings/{warning_id}/close": "operator",
    "PUT /api/v1/products/{name}/zones": "engineer",
    "DELETE /api/v1/accounts/{name}": "admin",
    "DELETE /api/v1/tokens/{token_id}": "admin",
    "GET /api/v1/accounts": "admin",
    "GET /api/v1/audit": "admin",
    "GET /api/v1/tokens": "admin",
    "PATCH /api/v1/accounts/{name}": "admin",
    "POST /api/v1/accounts": "admin",
    "POST /api/v1/tokens": "admin",
}
SCOPES_OF_THEIR_OWN = {
    "POST /api/v1/inspect": "inspect",
    "POST /api/v1/pictures": "inspect",
    "POST /api/v1/sources/{name}/trigger": "inspect",
}
SCOPE_OF_ROLE = {"viewer": "read", "operator": "feedback", "engineer": "teach", "admin": "admin"}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    station = fake_station(tmp_path_factory.mktemp("station"))
    app = new_app(station)
    app.state.streams.close()  # streams are refused instead of going on for ever
    app.state.people = add_people(station.accounts)
    app.state.programs = {scope: with_token(app, [scope], f"token {scope}") for scope in SCOPES}
    app.state.browsers = {role: logged_in(app, account) for role, account in app.state.people.items()}
    yield app
    station.close()


def split(route: str) -> tuple[str, str]:
    """The method, and the path with something in the place of its parameters."""
    method, path = route.split(" ")
    return method, re.sub(
        r"{(\w+)}", lambda found: "9999" if "id" in found[1] or found[1] == "number" else "none", path
    )


def refused(answer: Any) -> bool:
    """Whether an answer says that the sender may not; a page sends strangers to the login."""
    to_login = answer.status_code == 303 and answer.headers["location"].startswith("/login?next=")
    return answer.status_code in (401, 403) or to_login


def test_the_table_has_every_route_with_its_role(app: Any) -> None:
    found = {f"{method} {path}": needed(route) for method, path, route in all_routes(app)}
    assert {name: wanted[0] if wanted else OPEN for name, wanted in found.items()} == TABLE
    scopes = {name: wanted[1] for name, wanted in found.items() if wanted}
    expected = {name: SCOPE_OF_ROLE[role] for name, role in TABLE.items() if role != OPEN} | SCOPES_OF_THEIR_OWN
    assert scopes == expected


@pytest.mark.parametrize("route", [route for route, role in TABLE.items() if role != OPEN])
def test_a_route_is_for_its_role_and_those_above(app: Any, route: str) -> None:
    method, path = split(route)
    stranger = browser(app)
    assert refused(stranger.request(method, path))
    assert refused(stranger.request(method, path, headers={"Authorization": "Bearer dino_forged"}))
    assert refused(stranger.request(method, path, headers={"Cookie": "dinosaur-8765=forged"}))
    for role in ROLES:
        allowed = ROLES.index(role) >= ROLES.index(TABLE[route])
        client = logged_in(app, app.state.people[role]) if path == "/logout" else app.state.browsers[role]
        assert refused(client.request(method, path)) is not allowed, f"{role} at {route}"
    if path.endswith("/me/password"):
        return  # programs have no password
    wanted = SCOPES_OF_THEIR_OWN.get(route, SCOPE_OF_ROLE[TABLE[route]])
    for scope in SCOPES:
        answer = app.state.programs[scope].request(method, path)
        assert refused(answer) is not (scope in (wanted, "admin")), f"a token to {scope} at {route}"


@pytest.mark.parametrize(
    "route", [route for route, role in TABLE.items() if role != OPEN and not route.startswith("GET")]
)
def test_what_changes_something_needs_the_token_of_the_page(app: Any, route: str) -> None:
    method, path = split(route)
    client = logged_in(app, app.state.people["admin"])
    right = client.headers.pop("X-CSRF-Token")
    for wrong in ({}, {"X-CSRF-Token": "0" * 64}, {"X-CSRF-Token": right[:-1]}, {"X-CSRF-Token": "ü".encode()}):
        answer = client.request(method, path, headers=wrong)
        assert answer.status_code == 403
        assert "csrf" in answer.text
    for site in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = client.request(method, path, headers=site | {"X-CSRF-Token": right})
        assert answer.status_code == 403
        assert "another site" in answer.text


@pytest.mark.parametrize("route", [route for route, role in TABLE.items() if role == OPEN and route != "GET /static"])
def test_what_is_open_says_nothing_of_the_station(app: Any, route: str) -> None:
    method, path = split(route)
    answer = browser(app).request(method, path, headers={"Accept": "application/json"})
    assert answer.status_code in (200, 401)
    assert "products" not in answer.text.lower()
