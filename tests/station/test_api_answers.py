"""What the API answers: sentences for what is wrong, and a description of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra station")
pytest.importorskip("sqlalchemy", reason="needs the extra station")

from access_helpers import PASSWORD, add_people, all_routes, browser, fake_station, logged_in, new_app

from dinosaur_ad.station.web.api_json import plain


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    station = fake_station(tmp_path_factory.mktemp("station"))
    app = new_app(station)
    app.state.people = add_people(station.accounts)
    yield app
    station.close()


@pytest.fixture
def admin(app: Any) -> Any:
    return logged_in(app, app.state.people["admin"])


@pytest.mark.parametrize(
    ("method", "path", "sent", "status", "sentence"),
    [
        ("GET", "/api/v1/nothing", {}, 404, "no such page"),
        ("DELETE", "/api/v1/parts", {}, 405, "does not take"),
        ("GET", "/api/v1/parts/9999999999999999999999", {}, 404, "no part"),
        ("GET", "/api/v1/parts/-1", {}, 404, "no part"),
        ("GET", "/api/v1/parts/..%2f..%2fetc", {}, 404, "no such page"),
        ("GET", "/api/v1/parts/one", {}, 422, "'part_id'"),
        ("GET", "/api/v1/parts/1/views/1/picture", {}, 404, "no part 1"),
        ("GET", "/api/v1/parts?limit=0", {}, 422, "'limit'"),
        ("GET", "/api/v1/parts?verdict=good", {}, 400, "one of"),
        ("GET", "/api/v1/parts?since=yesterday", {}, 400, "no time"),
        ("GET", "/api/v1/parts?before_id=99999999999999", {}, 422, "'before_id'"),
        ("GET", "/api/v1/products/screw", {}, 404, "no product 'screw'"),
        ("GET", "/api/v1/products/%00", {}, 404, "no product"),
        ("POST", "/api/v1/tokens", {"content": b"{"}, 422, "not JSON"),
        ("POST", "/api/v1/tokens", {"content": b"\xff\xfe"}, 422, "not JSON"),
        ("POST", "/api/v1/tokens", {"json": []}, 422, "body"),
        ("POST", "/api/v1/tokens", {"json": {"name": "a"}}, 422, "'scopes' is missing"),
        ("POST", "/api/v1/tokens", {"json": {"name": "a", "scopes": ["root"]}}, 400, "no scope 'root'"),
        ("POST", "/api/v1/tokens", {"json": {"name": "a", "scopes": ["read"], "x": 1}}, 422, "'x'"),
        ("POST", "/api/v1/tokens", {"json": {"name": "a", "scopes": ["read"], "days": "NaN"}}, 422, "'days'"),
        ("POST", "/api/v1/tokens", {"json": {"name": "\x1b[2J", "scopes": ["read"]}}, 400, "is no name"),
        ("POST", "/api/v1/accounts", {"json": {"name": "B", "password": "x", "role": "admin"}}, 400, "A password"),
        ("PATCH", "/api/v1/accounts/Nobody", {"json": {"role": "admin"}}, 404, "no such account"),
        ("DELETE", "/api/v1/accounts/Anna", {}, 400, "last admin"),
        ("DELETE", "/api/v1/tokens/9999", {}, 404, "no token"),
        ("POST", "/api/v1/parts/1/feedback", {"json": {"answer": "good"}}, 422, "'answer'"),
        ("POST", "/api/v1/parts/1/feedback", {"json": {"answer": "fine"}}, 404, "no part 1"),
        ("POST", "/api/v1/sources/camera/trigger", {}, 404, "no source 'camera'"),
        ("POST", "/api/v1/sources/upload/trigger", {}, 409, "cannot be triggered"),
        ("POST", "/api/v1/warnings/9/close", {}, 404, "no warning 9"),
        ("POST", "/api/v1/tray/approve", {"json": {"feedback": []}}, 422, "'feedback'"),
        ("POST", "/api/v1/tray/approve", {"json": {"feedback": [7]}}, 404, "no feedback 7"),
        ("POST", "/api/v1/products/a/learn", {"json": {"parts": ["x"]}}, 422, "'parts.0'"),
        ("POST", "/api/v1/products/a/learn", {"json": {"parts": [1]}}, 404, "no part 1"),
        ("POST", "/api/v1/products/a/learn", {"files": {"pictures": ("a.png", b"x")}}, 400, "not an image"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    admin: Any, method: str, path: str, sent: dict[str, Any], status: int, sentence: str
) -> None:
    headers = {"Content-Type": "application/json"} if "content" in sent else {}
    answer = admin.request(method, path, headers=headers, **sent)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    said = answer.json()["error"]
    assert sentence in said
    assert said.isprintable()
    assert "Traceback" not in said
    assert said.endswith((".", "?"))


def test_people_are_managed(app: Any, admin: Any) -> None:
    made = admin.post("/api/v1/accounts", json={"name": "Bert", "password": PASSWORD, "role": "viewer"})
    assert made.status_code == 201
    assert "password" not in made.text
    changed = admin.patch("/api/v1/accounts/Bert", json={"role": "operator", "language": "de"})
    assert (changed.json()["role"], changed.json()["language"]) == ("operator", "de")
    assert "Bert" in [each["name"] for each in admin.get("/api/v1/accounts").json()]
    bert = browser(app)
    assert bert.post("/login", data={"name": "Bert", "password": PASSWORD}).status_code == 303
    assert admin.patch("/api/v1/accounts/Bert", json={"active": False}).status_code == 200
    assert bert.get("/api/v1/me").status_code == 401
    assert admin.delete("/api/v1/accounts/Bert").status_code == 204
    log = [row["action"] for row in admin.get("/api/v1/audit?limit=5").json()]
    assert log == ["account removed", "account changed", "login", "account changed", "account made"]


def test_a_token_is_shown_once(app: Any, admin: Any) -> None:
    made = admin.post("/api/v1/tokens", json={"name": "line 3", "scopes": ["read", "inspect"], "days": 30})
    secret = made.json()["secret"]
    assert secret.startswith("dino_")
    assert secret not in admin.get("/api/v1/tokens").text
    program = browser(app, headers={"Authorization": f"Bearer {secret}"})
    assert program.get("/api/v1/parts").status_code == 200
    assert program.get("/api/v1/tokens").status_code == 403


def test_openapi_describes_every_route_of_the_api(app: Any, admin: Any) -> None:
    document = admin.get("/api/v1/openapi.json").json()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    there = {(method, path) for method, path, _ in all_routes(app) if path.startswith("/api/v1/")}
    assert described == there - {("GET", "/api/v1/openapi.json")}
    for methods in document["paths"].values():
        for operation in methods.values():
            assert operation["summary"]
            good = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
            assert good
    described_inspect = document["paths"]["/api/v1/inspect"]["post"]
    assert "image/*" in described_inspect["requestBody"]["content"]
    assert "422" in described_inspect["responses"]
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


def test_numbers_that_json_does_not_know_become_null() -> None:
    assert plain({"a": [float("inf"), float("nan"), 1.5]}) == {"a": [None, None, 1.5]}


def test_metrics_are_text_for_prometheus(admin: Any) -> None:
    answer = admin.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "# TYPE dinosaur_" in answer.text
