"""Who gets in: the machine itself before there are accounts, people who log in, programs with tokens."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra station")
pytest.importorskip("sqlalchemy", reason="needs the extra station")

from access_helpers import (
    HERE,
    PASSWORD,
    add_people,
    browser,
    fake_station,
    logged_in,
    new_app,
    picture,
    with_server,
    with_token,
)

from dinosaur_ad.station.web import limits
from dinosaur_ad.station.web.app import HEADERS

FORM = {"Accept": "text/html"}


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Any]:
    station = fake_station(tmp_path)
    yield station
    station.close()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A station without accounts, which it still has after each test: the app."""
    station = fake_station(tmp_path_factory.mktemp("fresh"))
    yield new_app(station)
    assert not station.accounts.any()
    station.close()


@pytest.fixture(scope="module")
def inhabited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One with accounts: the app."""
    station = fake_station(tmp_path_factory.mktemp("inhabited"))
    add_people(station.accounts)
    yield new_app(station)
    station.close()


@pytest.fixture
def people(station: Any) -> dict[str, Any]:
    return add_people(station.accounts)


def actions(station: Any) -> list[str]:
    return [row.action for row in reversed(station.history.audit_rows())]


# --- before there are accounts ---


def test_without_accounts_the_machine_itself_may_do_all(station: Any) -> None:
    here = browser(new_app(station), "127.0.0.1")
    assert here.get("/api/v1/me").json() == {"name": "local", "role": "admin", "scopes": [], "token": False}
    assert here.post("/api/v1/pictures", content=picture()).status_code == 202
    assert browser(new_app(station), "::1", "http://[::1]:8765").get("/api/v1/me").status_code == 200


@pytest.mark.parametrize(
    ("address", "headers"),
    [
        ("10.0.0.9", {}),
        ("127.0.0.1", {"X-Forwarded-For": "10.0.0.9"}),  # a proxy that the settings do not know of
        ("127.0.0.1", {"Via": "1.1 proxy"}),
        ("127.0.0.1", {"Forwarded": "for=10.0.0.9"}),
    ],
)
def test_without_accounts_nobody_else_may_anything(fresh: Any, address: str, headers: dict[str, str]) -> None:
    client = browser(fresh, address, headers=headers)
    for answer in (client.get("/api/v1/parts"), client.get("/"), client.post("/setup", data={"name": "M"})):
        assert answer.status_code == 403
        assert "no accounts yet" in answer.text


def test_behind_a_proxy_loopback_proves_nothing(station: Any) -> None:
    app = new_app(with_server(station, behind_proxy=True))
    assert browser(app, "127.0.0.1").get("/api/v1/parts").status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "localhost.evil.example", "127.0.0.1.nip.io", ""]
)
def test_a_name_that_only_leads_here_is_refused(fresh: Any, host: str) -> None:
    answer = browser(fresh, "127.0.0.1").get("/api/v1/health", headers={"Host": host})
    assert answer.status_code == 421
    assert answer.json()["error"] == "This station answers to the names localhost and 127.0.0.1 only."


def test_such_a_name_does_not_make_one_local_on_other_networks_either(station: Any) -> None:
    app = new_app(with_server(station, host="0.0.0.0"))
    assert browser(app, "127.0.0.1").get("/api/v1/me", headers={"Host": "evil.example"}).status_code == 403
    assert browser(app, "127.0.0.1").get("/api/v1/me").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": HERE},
        {"Origin": HERE},  # the own page, but without its token
        {"Referer": "https://evil.example/"},
        {"Cookie": "a=b"},
    ],
)
def test_without_accounts_another_site_cannot_use_the_browser(fresh: Any, headers: dict[str, str]) -> None:
    here = browser(fresh, "127.0.0.1")
    answer = here.post("/api/v1/accounts", json={"name": "M", "password": PASSWORD, "role": "admin"}, headers=headers)
    assert answer.status_code == 403
    assert not fresh.state.station.accounts.any()


def test_the_first_account_is_made_once_and_logged_in(station: Any) -> None:
    here = browser(new_app(station), "127.0.0.1", headers=FORM)
    for form, problem in (
        ({"name": "", "password": PASSWORD}, "name"),
        ({"name": "Anna", "password": "short"}, "password"),
        ({}, "name"),
    ):
        answer = here.post("/setup", data=form)
        assert answer.status_code == 303
        assert answer.headers["location"] == f"/setup?problem={problem}"
    answer = here.post("/setup", data={"name": "Anna", "password": PASSWORD})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert here.get("/api/v1/me").json()["name"] == "Anna"
    stranger = browser(new_app(station), "127.0.0.1")
    assert stranger.get("/api/v1/me").status_code == 401  # from now on the machine itself is nobody
    assert stranger.post("/setup", data={"name": "M", "password": PASSWORD}).status_code == 401
    assert actions(station) == ["account made", "login"]


# --- logging in ---


def test_login_sets_a_cookie_that_scripts_and_other_sites_do_not_get(station: Any, people: Any) -> None:
    client = browser(new_app(station))
    answer = client.post("/login", data={"name": "Vera", "password": PASSWORD, "next": "/parts?task=a"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/parts?task=a")
    cookie = answer.headers["set-cookie"].lower()
    assert all(each in cookie for each in ("httponly", "samesite=strict", "path=/"))
    assert "secure" not in cookie
    assert client.get("/api/v1/me").json()["name"] == "Vera"
    assert station.history.audit_rows(1)[0].address == "10.0.0.9"


def test_with_tls_the_cookie_is_secure(station: Any, people: Any) -> None:
    client = browser(new_app(station), base="https://127.0.0.1:8765")
    answer = client.post("/login", data={"name": "Vera", "password": PASSWORD})
    assert answer.headers["set-cookie"].startswith("__Host-dinosaur-8765=")
    assert "secure" in answer.headers["set-cookie"].lower()
    assert client.get("/api/v1/me").status_code == 200


def test_a_proxy_says_address_and_scheme_where_it_may(station: Any, people: Any) -> None:
    forwarded = {"X-Forwarded-For": "1.2.3.4, 10.9.9.9", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "line.plant"}
    form = {"name": "Vera", "password": PASSWORD}
    behind = browser(new_app(with_server(station, behind_proxy=True)), "127.0.0.1")
    answer = behind.post("/login", data=form, headers=forwarded | {"Origin": "https://line.plant"})
    assert "__Host-" in answer.headers["set-cookie"]
    assert station.history.audit_rows(1)[0].address == "10.9.9.9"
    elsewhere = browser(new_app(with_server(station, behind_proxy=True)), "10.0.0.9")
    assert "secure" not in elsewhere.post("/login", data=form, headers=forwarded).headers["set-cookie"].lower()
    assert station.history.audit_rows(1)[0].address == "10.0.0.9"


@pytest.mark.parametrize(
    "after", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "\r\nX: y"]
)
def test_after_the_login_nobody_is_sent_to_another_site(inhabited: Any, after: str) -> None:
    answer = browser(inhabited).post("/login", data={"name": "Vera", "password": PASSWORD, "next": after})
    assert answer.headers["location"] == "/"


def test_wrong_passwords_are_told_slowed_down_and_written_down(station: Any, people: Any) -> None:
    client = browser(new_app(station))
    answers = [client.post("/login", data={"name": "Anna", "password": f"wrong {n}"}) for n in range(limits.FREE_TRIES)]
    assert {answer.status_code for answer in answers} == {401}
    assert answers[0].json() == {"error": "The name or the password is wrong."}
    right = client.post("/login", data={"name": "Anna", "password": PASSWORD})
    assert right.status_code == 429
    assert int(right.headers["retry-after"]) >= 1
    page = client.post("/login", data={"name": "Anna", "password": PASSWORD}, headers=FORM)
    assert page.status_code == 303
    assert page.headers["location"].startswith("/login?problem=wait&seconds=")
    assert actions(station).count("login failed") == limits.FREE_TRIES
    assert (
        browser(new_app(station)).post("/login", data={"name": "Nobody", "password": "x"}).json() == answers[0].json()
    )


def test_another_site_cannot_log_a_browser_in(station: Any, people: Any) -> None:
    client = browser(new_app(station))
    answer = client.post(
        "/login", data={"name": "Vera", "password": PASSWORD}, headers={"Origin": "https://evil.example"}
    )
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_logout_ends_the_session_for_good(station: Any, people: Any) -> None:
    app = new_app(station)
    client = logged_in(app, people["viewer"])
    cookie = client.cookies["dinosaur-8765"]
    assert client.post("/logout").headers["location"] == "/login"
    assert browser(app).get("/api/v1/me", headers={"Cookie": f"dinosaur-8765={cookie}"}).status_code == 401


def test_the_token_of_the_page_may_come_in_a_form_field(station: Any, people: Any) -> None:
    client = logged_in(new_app(station), people["viewer"])
    token = client.headers.pop("X-CSRF-Token")
    assert client.post("/logout", data={"csrf": "wrong"}).status_code == 403
    assert client.post("/logout", files={"csrf": ("x.txt", token.encode())}).status_code == 403
    assert client.post("/logout", data={"csrf": token}).status_code == 303


def test_an_own_password_ends_the_other_sessions(station: Any, people: Any) -> None:
    app = new_app(station)
    mine, other = logged_in(app, people["viewer"]), logged_in(app, people["viewer"])
    wrong = mine.put("/api/v1/me/password", json={"old": "guess guess", "new": "eleven loud herons"})
    assert (wrong.status_code, wrong.json()["error"]) == (403, "The old password is wrong.")
    assert mine.put("/api/v1/me/password", json={"old": PASSWORD, "new": "short"}).status_code == 400
    assert mine.put("/api/v1/me/password", json={"old": PASSWORD, "new": "eleven loud herons"}).status_code == 204
    assert mine.get("/api/v1/me").status_code == 200
    assert other.get("/api/v1/me").status_code == 401


def test_strangers_are_sent_to_the_login_and_come_back(station: Any, people: Any) -> None:
    client = browser(new_app(station), headers=FORM)
    answer = client.get("/parts?task=a&verdict=normal")
    assert answer.headers["location"] == "/login?next=%2Fparts%3Ftask%3Da%26verdict%3Dnormal"
    fragment = client.get("/live/counters", headers={"HX-Request": "true"})
    assert (fragment.status_code, fragment.headers["hx-redirect"]) == (401, "/login")


# --- tokens ---


def test_a_token_that_is_wrong_is_refused_even_with_a_session(station: Any, people: Any) -> None:
    app = new_app(station)
    client = logged_in(app, people["admin"])
    for value in ("Bearer dino_forged", "Bearer ", "Basic QW5uYTpw", "dino_forged", "Bearer " + "x" * 5000):
        answer = client.get("/api/v1/me", headers={"Authorization": value})
        assert answer.status_code == 401, value
        assert "not valid" in answer.json()["error"]


def test_a_removed_token_and_one_that_has_ended_are_refused(station: Any, people: Any) -> None:
    app = new_app(station)
    program = with_token(app, ["read"], "line")
    assert program.get("/api/v1/me").json()["name"] == "token:line"
    admin = logged_in(app, people["admin"])
    assert admin.delete(f"/api/v1/tokens/{station.accounts.tokens()[0].id}").status_code == 204
    assert program.get("/api/v1/me").status_code == 401
    ended = with_token(app, ["read"], "short", days=1e-9)
    assert ended.get("/api/v1/me").status_code == 401


# --- every answer ---


def test_every_answer_has_the_security_headers(station: Any, people: Any) -> None:
    app = new_app(station)
    admin = logged_in(app, people["admin"])
    station.history.audit_rows = None  # makes one route fail
    answers = [
        admin.get("/api/v1/me"),
        admin.get("/nowhere"),
        admin.get("/api/v1/audit"),
        browser(app).get("/api/v1/me"),
        browser(app).get("/static/nothing.css"),
        browser(app).get("/api/v1/health", headers={"Host": "evil.example"}),
    ]
    assert [answer.status_code for answer in answers] == [200, 404, 500, 401, 404, 421]
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert answer.headers["cache-control"] in ("no-store", "no-cache")
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "Something went wrong" in answers[2].json()["error"]


def test_too_many_requests_are_refused_while_others_are_served(
    station: Any, people: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REFUSED_SECONDS", 0.0)  # as a flood comes that waits for no answer
    app = new_app(with_server(station, requests_a_second=5.0))
    flood = browser(app, "10.0.0.66")
    answers = [flood.get("/api/v1/health") for _ in range(60)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert 25 <= len(refused) <= 40
    assert "5 requests a second" in refused[0].json()["error"]
    assert int(refused[0].headers["retry-after"]) >= 1
    assert browser(app, "10.0.0.7").get("/api/v1/health").status_code == 200


def test_who_sends_too_many_requests_waits_for_the_refusal(
    station: Any, people: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REFUSED_SECONDS", 0.3)
    flood = browser(new_app(with_server(station, requests_a_second=0.1)), "10.0.0.66")
    assert flood.get("/api/v1/health").status_code == 200
    began = time.monotonic()
    assert flood.get("/api/v1/health").status_code == 429
    assert time.monotonic() - began >= 0.3


def test_files_of_the_page_stay_in_their_folder(fresh: Any) -> None:
    client = browser(fresh, "127.0.0.1")
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2faccounts.py", "/static//etc/passwd"):
        answer = client.get(path)
        assert answer.status_code in (404, 405), path
        assert "import" not in answer.text


def test_the_database_being_away_is_said(station: Any, people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dinosaur_ad.station.history.history import HistoryDownError

    app = new_app(station)
    client = logged_in(app, people["viewer"])

    def away(*_: Any) -> None:
        raise HistoryDownError("The database of the history does not answer.")

    monkeypatch.setattr(station.accounts, "logged_in", away)
    answer = client.get("/api/v1/parts")
    assert answer.status_code == 503
    assert "does not answer" in answer.json()["error"]
    assert browser(app).get("/api/v1/health").status_code == 200


# --- the forms of the pages ---


def csrf_in(page: str) -> str:
    return re.search(r'name="csrf"[^>]*value="([0-9a-f]{64})"', page)[1]


def test_a_browser_sets_up_logs_out_and_logs_in_by_the_forms(station: Any) -> None:
    here = browser(new_app(station), "127.0.0.1", headers=FORM | {"Sec-Fetch-Site": "same-origin"})
    assert here.get("/login").headers["location"] == "/setup"
    form = {"csrf": csrf_in(here.get("/setup").text), "name": "Anna", "password": PASSWORD}
    assert here.post("/setup", data=form, headers={"Origin": HERE}).headers["location"] == "/"
    page = here.get("/parts")
    assert page.status_code == 200
    assert here.post("/logout", data={"csrf": csrf_in(page.text)}, headers={"Origin": HERE}).status_code == 303
    assert here.get("/").headers["location"] == "/login?next=%2F"
    assert "password" in here.get("/login?next=%2Fsystem").text
    form = {"name": "Anna", "password": PASSWORD, "next": "/system"}
    assert here.post("/login", data=form, headers={"Origin": HERE}).headers["location"] == "/system"


def test_a_page_says_why_not_in_a_sentence(station: Any, people: Any) -> None:
    app = new_app(station)
    answer = logged_in(app, people["viewer"]).get("/people", headers=FORM)
    assert answer.status_code == 403
    assert "This needs the role admin" in answer.text
    assert "<nav" in answer.text  # one can go on from there
    fragment = logged_in(app, people["viewer"]).get("/people", headers=FORM | {"HX-Request": "true"})
    assert "<main" in fragment.text  # where the script of the page finds the sentence
    unknown = logged_in(app, people["viewer"]).get("/nowhere", headers=FORM)
    assert (unknown.status_code, "no such page" in unknown.text) == (404, True)
