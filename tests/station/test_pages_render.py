"""Every page for every role, in both languages: what is shown, what is not, and that nothing foreign gets in."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the pages need the extra 'station'")
pytest.importorskip("sqlalchemy", reason="the pages need the extra 'station'")

from fake_station import PASSWORD, FakeStation
from PIL import Image
from starlette.testclient import TestClient

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.accounts import ROLES
from dinosaur_ad.station.config import SourceConfig
from dinosaur_ad.station.web import pages_pictures
from dinosaur_ad.station.web.app import create_app
from dinosaur_ad.station.web.teach_draft import MOST_DRAFTS, Draft

HOSTILE = "<script>alert(1)</script>"
PLACE = "http://127.0.0.1:8765"
PAGES = {
    "/": "viewer",
    "/parts": "viewer",
    "/parts/{part}": "viewer",
    "/products": "viewer",
    "/products/gear": "viewer",
    "/products/gear/what-if": "viewer",
    "/products/gear/tray": "viewer",
    "/products/gear/jobs": "viewer",
    "/trends": "viewer",
    "/proposals": "viewer",
    "/proposals/news": "viewer",
    "/system": "viewer",
    "/system/state": "viewer",
    "/live/warnings": "viewer",
    "/live/counters": "viewer",
    "/teach": "engineer",
    "/products/gear/recalibrate": "engineer",
    "/people": "admin",
}


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeStation]:
    made = FakeStation(tmp_path_factory.mktemp("pages"), ("camera-1", f"belt {HOSTILE[:8]}"))
    for role in reversed(ROLES):
        made.accounts.create(f"a {role}", PASSWORD, role, by="test")
    made.record(ago=60)
    made.record("unknown", reason=f"It is none of the products {HOSTILE}.", key=f"folder:{HOSTILE}.png", ago=50)
    made.flagged = made.record("anomalous", ago=40)  # type: ignore[attr-defined]
    made.history.save_feedback(made.record("anomalous", ago=30), "a operator", "fine", note=HOSTILE)
    made.history.add_warning("task", "gear", f"The light changed {HOSTILE}.", {}, [1])
    made.history.add_change("a engineer", "gear", "learn", f"Learned {HOSTILE}", {})
    made.history.audit("a admin", "test", HOSTILE)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def clients(station: FakeStation) -> dict[str, TestClient]:
    app = create_app(station)
    found = {}
    for role in reversed(ROLES):
        found[role] = TestClient(app, base_url=PLACE, client=("127.0.0.1", 50000), follow_redirects=False)
        answer = found[role].post("/login", data={"name": f"a {role}", "password": PASSWORD, "next": "/"})
        assert answer.status_code == 303
        assert answer.headers["location"] == "/", answer.headers["location"]
    return found


class Seen(HTMLParser):
    """What a browser would load and run of a page, and what it offers."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.inline: list[str] = []
        self.addresses: list[str] = []
        self.forms: list[str] = []
        self.posting: list[str] = []
        self.csrf = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.inline += [f"{tag} {name}" for name in values if name == "style" or name.startswith("on")]
        self.inline += [tag] if tag == "style" or (tag == "script" and not values.get("src")) else []
        self.addresses += [values[name] for name in ("src", "href", "action", "hx-get", "hx-post") if values.get(name)]
        if tag == "form":
            self.forms.append(values.get("action", ""))
            self.posting += [values["action"]] if values.get("method") == "post" else []
        if values.get("name") == "csrf":
            self.csrf = values["value"]


def address(page: str, station: Any) -> str:
    return page.replace("{part}", str(station.flagged))


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("role", ROLES)
def test_a_page_is_shown_to_those_who_may_see_it(
    page: str, role: str, station: FakeStation, clients: dict[str, TestClient]
) -> None:
    answer = clients[role].get(address(page, station))
    if ROLES.index(role) < ROLES.index(PAGES[page]):
        assert answer.status_code == 403
        return
    assert answer.status_code == 200, answer.text[:500]
    seen = Seen(answer.text)
    assert not seen.inline
    assert all(each.startswith(("/", "#")) and not each.startswith("//") for each in seen.addresses), seen.addresses
    assert HOSTILE not in answer.text
    assert "script-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "page", ["/", "/parts", "/parts/{part}", "/products/gear", "/proposals", "/trends", "/system", "/people"]
)
def test_the_pages_speak_german(page: str, station: FakeStation, clients: dict[str, TestClient]) -> None:
    client = clients["admin"]
    client.cookies.set("dinosaur-language", "de")
    try:
        text = client.get(address(page, station)).text
    finally:
        client.cookies.delete("dinosaur-language")
    assert '<html lang="de">' in text
    assert "Anlernen" in text
    assert "Products" not in text


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_may_not_do_is_not_offered(role: str, station: FakeStation, clients: dict[str, TestClient]) -> None:
    part = Seen(clients[role].get(address("/parts/{part}", station)).text)
    product = Seen(clients[role].get("/products/gear").text)
    live = clients[role].get("/").text
    rank = ROLES.index(role)
    assert any(each.endswith("/answer") for each in part.forms) == (rank >= 1)
    assert any(each.endswith("/undo") for each in product.forms) == (rank >= 2)
    assert any(each.endswith("/zones") for each in product.posting) == (rank >= 2)
    assert ('href="/teach"' in live) == (rank >= 2)
    assert ('href="/people"' in live) == (rank >= 3)
    assert ("/close" in live) == (rank >= 1)


def test_foreign_text_is_shown_as_text(station: FakeStation, clients: dict[str, TestClient]) -> None:
    text = clients["admin"].get("/parts").text
    assert "&lt;script&gt;alert(1)" in text
    assert "&lt;script&gt;" in clients["admin"].get("/system").text


def test_a_part_shows_its_regions_and_all_that_is_known(station: Any, clients: dict[str, TestClient]) -> None:
    client = clients["operator"]
    text = client.get(f"/parts/{station.flagged}").text
    assert '<polygon class="line" points="' in text
    for word in ("located", "pooled", "1 in 500 good parts", "camera-1"):
        assert word in text
    for kind, expected in (
        ("full", "image/png"),
        ("shown", "image/png"),
        ("small", "image/jpeg"),
        ("heat", "image/png"),
        ("worst", "image/png"),
    ):
        answer = client.get(f"/parts/{station.flagged}/pictures/0/{kind}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, expected)
    assert client.get(f"/parts/{station.flagged}/pictures/7/full").status_code == 404
    assert client.get("/parts/999999").status_code == 404


def test_a_large_picture_is_shown_live_no_larger_than_a_screen(
    station: Any, clients: dict[str, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_pictures, "SHOWN_BYTES", 100)
    monkeypatch.setattr(pages_pictures, "SHOWN", 32)
    part = station.record("anomalous")
    client = clients["operator"]
    assert f"/parts/{part}/pictures/0/shown" in client.get("/").text
    answer = client.get(f"/parts/{part}/pictures/0/shown")
    assert answer.headers["content-type"] == "image/jpeg"
    with Image.open(io.BytesIO(answer.content)) as image:
        assert max(image.size) == 32
    full = client.get(f"/parts/{part}/pictures/0/full")
    assert full.headers["content-type"] == "image/png"


def test_an_answer_is_recorded_with_who_gave_it(station: Any, clients: dict[str, TestClient]) -> None:
    client = clients["operator"]
    part = station.record("anomalous")
    csrf = Seen(client.get(f"/parts/{part}").text).csrf
    refused = client.post(f"/parts/{part}/answer", data={"answer": "fine"})
    assert refused.status_code == 403  # without the token of the page
    answer = client.post(f"/parts/{part}/answer", data={"answer": "fine", "csrf": csrf}, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    row = station.history.part(part)
    assert row.answer == "fine"
    assert row.feedback[0].by == "a operator"
    wrong = client.post(f"/parts/{part}/answer", data={"answer": "maybe", "csrf": csrf}, headers={"HX-Request": "true"})
    assert wrong.status_code == 422
    assert wrong.headers["HX-Retarget"] == "#notices"


def test_search_finds_by_verdict_and_text(station: Any, clients: dict[str, TestClient]) -> None:
    client = clients["viewer"]
    flagged = client.get("/parts?verdict=unknown").text
    assert flagged.count('class="tile unknown"') == 1
    assert "tile normal" not in flagged
    assert "tile" not in client.get("/parts?text=nothing-like-this").text.split('id="found"')[1]
    assert client.get("/parts?since=yesterday").status_code == 422
    fragment = client.get("/parts?verdict=normal", headers={"HX-Request": "true", "HX-Target": "found"}).text
    assert "<html" not in fragment


def test_the_sensitivity_is_set_and_undone(station: Any, clients: dict[str, TestClient]) -> None:
    client = clients["engineer"]
    csrf = Seen(client.get("/products/gear").text).csrf
    before = station.detector.settings("gear").false_alarms
    assert client.post("/products/gear/sensitivity", data={"sensitivity": "8", "csrf": csrf}).status_code == 303
    assert station.detector.settings("gear").false_alarms > before
    page = client.get("/products/gear").text
    assert 'value="8"' in page
    assert client.post("/products/gear/undo", data={"csrf": csrf}).status_code == 303
    assert station.detector.settings("gear").false_alarms == before
    assert client.post("/products/gear/redo", data={"csrf": csrf}).status_code == 303
    assert client.post("/products/gear/undo", data={"csrf": csrf}).status_code == 303
    actions = [change.action for change in station.history.changes("gear", limit=4)]
    assert actions == ["undo", "redo", "undo", "sensitivity"]


def test_zones_are_saved_and_wrong_ones_refused(station: Any, clients: dict[str, TestClient]) -> None:
    client = clients["engineer"]
    csrf = Seen(client.get("/products/gear").text).csrf
    drawn = '[{"ignore": [[0, 0], [40, 0], [40, 40], [0, 40]]}]'
    assert client.post("/products/gear/zones", data={"zones": drawn, "csrf": csrf}).status_code == 303
    assert station.detector.settings("gear").inspected < 1
    assert 'class="now-ignored"' in client.get("/products/gear").text
    for wrong in ("nonsense", '{"a": 1}', '[{"ignore": [[0, 0], [9999, 0], [5, 5]]}]'):
        answer = client.post("/products/gear/zones", data={"zones": wrong, "csrf": csrf})
        assert answer.status_code == 422
        assert "<main" in answer.text
    assert client.post("/products/gear/zones", data={"zones": "[]", "csrf": csrf}).status_code == 303
    assert station.detector.settings("gear").inspected == 1


def test_products_that_are_not_there(clients: dict[str, TestClient]) -> None:
    client = clients["engineer"]
    csrf = Seen(client.get("/products/gear").text).csrf
    assert client.get("/products/nothing").status_code == 404
    assert client.post("/products/nothing/sensitivity", data={"sensitivity": "5", "csrf": csrf}).status_code == 404
    assert client.get(f"/products/{HOSTILE.replace('/', '')}").status_code == 404


def test_a_forgotten_product_can_be_brought_back(station: Any, clients: dict[str, TestClient]) -> None:
    client = clients["engineer"]
    csrf = Seen(client.get("/products/gear").text).csrf
    assert client.post("/products/gear/forget", data={"csrf": csrf}).status_code == 303
    assert "gear" not in station.detector
    page = client.get("/products")
    assert "/products/gear/undo" in Seen(page.text).posting
    assert client.post("/products/gear/undo", data={"csrf": csrf}).status_code == 303
    assert "gear" in station.detector


def test_the_tray_refuses_what_an_engineer_refuses(station: Any, clients: dict[str, TestClient]) -> None:
    client = clients["engineer"]
    part = station.record("anomalous")
    number = station.history.save_feedback(part, "a operator", "fine")
    page = Seen(client.get("/products/gear").text)
    answer = client.post("/products/gear/tray", data={"decision": "refuse", "feedback": str(number), "csrf": page.csrf})
    assert answer.status_code == 303
    assert station.history.one_feedback(number).state == "refused"
    none = client.post("/products/gear/tray", data={"decision": "approve", "csrf": page.csrf})
    assert none.status_code == 422


def test_people_make_accounts_and_tokens(station: Any, clients: dict[str, TestClient]) -> None:
    client = clients["admin"]
    csrf = Seen(client.get("/people").text).csrf
    new = {"name": f"Ann {HOSTILE[:8]}", "password": PASSWORD, "role": "viewer", "csrf": csrf}
    assert client.post("/people", data=new).status_code == 303
    weak = client.post("/people", data={**new, "name": "Bob", "password": "short"})
    assert weak.status_code == 422
    shown = client.post("/tokens", data={"name": "plc", "scope": ["read", "inspect"], "csrf": csrf}).text
    secret = re.search(r"dino_[\w-]+", shown)
    assert secret
    assert station.accounts.token(secret[0]) is not None
    assert secret[0] not in client.get("/people").text
    number = station.accounts.tokens()[0].id
    assert client.post(f"/tokens/{number}/remove", data={"csrf": csrf}).status_code == 303
    assert station.accounts.token(secret[0]) is None


def test_a_warning_can_be_put_aside(station: Any, clients: dict[str, TestClient]) -> None:
    number = station.history.add_warning("task", "gear", "Parts differ.", {}, [])
    csrf = Seen(clients["operator"].get(f"/parts/{station.flagged}").text).csrf
    assert clients["operator"].post(f"/warnings/{number}/close", data={"csrf": csrf}).status_code == 303
    assert number not in [each.id for each in station.history.warnings()]


def test_a_source_is_triggered(station: Any, clients: dict[str, TestClient]) -> None:
    csrf = Seen(clients["operator"].get("/system").text).csrf
    assert clients["operator"].post("/sources/camera-1/trigger", data={"csrf": csrf}).status_code == 303
    assert station.sources["camera-1"].triggered == 1
    assert clients["operator"].post("/sources/nothing/trigger", data={"csrf": csrf}).status_code == 404


def test_strangers_are_sent_to_the_login(station: FakeStation) -> None:
    stranger = TestClient(create_app(station), base_url=PLACE, client=("127.0.0.1", 5), follow_redirects=False)
    assert stranger.get("/parts").headers["location"].startswith("/login")
    page = stranger.get("/login?problem=wrong&next=//evil.example").text
    assert "The name or the password is wrong." in page
    assert "evil.example" not in page
    assert not Seen(page).inline
    assert "problem_" not in stranger.get("/login?problem=nonsense").text


def test_without_accounts_the_first_one_is_made_on_the_page(tmp_path: Path) -> None:
    station = FakeStation(tmp_path, learn=())
    try:
        client = TestClient(create_app(station), base_url=PLACE, client=("127.0.0.1", 5), follow_redirects=False)
        assert "No product has been taught yet" in client.get("/").text
        page = Seen(client.get("/setup").text)
        assert page.posting == ["/language", "/setup"]
        assert client.get("/login").headers["location"] == "/setup"
        for empty in ("/", "/parts", "/products", "/trends", "/system", "/teach", "/people"):
            assert client.get(empty).status_code == 200
    finally:
        station.stop()


def test_drafts_that_were_learned_from_stay_and_names_lead_nowhere(tmp_path: Path) -> None:
    learned = Draft.begin(tmp_path, "Ann")
    learned.note(job="1")
    others = [Draft.begin(tmp_path, "Ann") for _ in range(MOST_DRAFTS + 3)]
    assert learned.folder.is_dir()
    assert not others[0].folder.exists()
    assert others[-1].folder.is_dir()
    for wrong in ("../own", "0" * 16, "a/b", ""):
        with pytest.raises(InputError):
            Draft.find(tmp_path, wrong)
    for name in ("../../evil.png", "page.html", "empty.png"):
        with pytest.raises(InputError):
            others[-1].add(b"no picture", name)
    assert others[-1].pictures() == []


def test_an_idle_upload_takes_no_room_on_the_live_page(tmp_path: Path) -> None:
    station = FakeStation(tmp_path, ("camera-1", "hand"), learn=())
    try:
        station.sources["hand"].config = SourceConfig("hand", "upload")
        client = TestClient(create_app(station), base_url=PLACE, client=("127.0.0.1", 5), follow_redirects=False)
        assert client.get("/").text.count("data-panel=") == 1
        station.record(source="hand")
        assert client.get("/").text.count("data-panel=") == 2
    finally:
        station.stop()
