"""The page Proposals and its API: who sees what, what is decided, and what is refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the pages need the extra 'station'")
pytest.importorskip("sqlalchemy", reason="the pages need the extra 'station'")

from access_helpers import served
from argon2 import PasswordHasher
from fake_station import PASSWORD, FakeStation
from starlette.testclient import TestClient
from test_pages_render import PLACE, Seen

from detector_helpers import product
from dinosaur_ad.station.accounts import ROLES
from dinosaur_ad.station.client import StationClient, StationError
from dinosaur_ad.station.config import ProposalsConfig
from dinosaur_ad.station.history.picture_files import PICTURES
from dinosaur_ad.station.web.app import create_app
from dinosaur_ad.watch.deciding import opened_tray

NEW = 4
"""The kind of product that nobody taught."""


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeStation]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("dinosaur_ad.station.gathering.PAUSE_SECONDS", 0.01)
        made = FakeStation(tmp_path_factory.mktemp("proposals"), learn=("gear", "plate"))
        made.accounts._passwords._hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
        for role in reversed(ROLES):
            made.accounts.create(f"a {role}", PASSWORD, role, by="test")
        yield made
        made.stop()


@pytest.fixture(scope="module")
def clients(station: FakeStation) -> dict[str, TestClient]:
    app, found = create_app(station), {}
    for role in ROLES:
        found[role] = TestClient(app, base_url=PLACE, client=("127.0.0.1", 50000), follow_redirects=False)
        found[role].post("/login", data={"name": f"a {role}", "password": PASSWORD, "next": "/"})
        found[role].headers["X-CSRF-Token"] = Seen(found[role].get("/").text).csrf
    return found


def propose(station: FakeStation, seed: int = 0, kind: int = NEW) -> int:
    """Let unknown parts come until they are proposed; the number of the proposal."""
    before = {card.id for card in station.proposals.all()}
    for pixels in product(kind, 20, seed=seed):
        number = station.record("unknown", pixels=pixels, reason="It is none of the products.")
    station.bus.publish("recorded", {"id": number})
    assert station.proposals.gathering.settle(60)
    (found,) = {card.id for card in station.proposals.all()} - before
    return found


def merge_proposed(station: FakeStation) -> int:
    """A proposal that two products became one."""
    with opened_tray(station.config.store) as tray:
        number = tray.propose([], [], {"kind": "merge", "tasks": ["gear", "plate"], "reason": "they look like one"})
    station.proposals.refresh()
    return number


@pytest.mark.parametrize("role", ROLES)
def test_a_proposal_is_shown_to_all_and_decided_by_engineers(
    role: str, station: FakeStation, clients: dict[str, TestClient]
) -> None:
    waiting = [card.id for card in station.proposals.all() if card.status == "open"]
    number = waiting[0] if waiting else propose(station)
    answer = clients[role].get("/proposals")
    assert answer.status_code == 200
    seen = Seen(answer.text)
    assert not seen.inline
    assert f"Proposal {number}: may be a new product" in answer.text
    assert "of normal parts will be called anomalous, with 95\u00a0% confidence" in answer.text
    pictures = [each for each in seen.addresses if each.startswith(f"/proposals/{number}/pictures/")]
    assert len(pictures) == 20
    picture = clients[role].get(pictures[0])
    assert (picture.status_code, picture.headers["content-type"]) == (200, "image/jpeg")
    may = ROLES.index(role) >= ROLES.index("engineer")
    assert (f"/proposals/{number}/accept" in seen.posting) == may
    assert (f"/proposals/{number}/dismiss" in seen.posting) == may
    live = clients[role].get("/").text
    assert "1 proposed product waits for a decision." in live
    assert '<b class="waits"' in live
    assert "unknown parts show the same" not in live, "it is no warning of drift"
    assert clients[role].get("/live/warnings").text.count("/proposals") == 1


def test_it_speaks_german(clients: dict[str, TestClient]) -> None:
    client = clients["viewer"]
    client.cookies.set("dinosaur-language", "de")
    try:
        text = client.get("/proposals").text
    finally:
        client.cookies.delete("dinosaur-language")
    assert "vielleicht ein neues Produkt" in text
    assert "mit 95\u00a0% Sicherheit" in text


def test_what_is_decided_and_what_comes_too_late(station: FakeStation, clients: dict[str, TestClient]) -> None:
    client = clients["engineer"]
    (number,) = [card.id for card in station.proposals.all() if card.status == "open"] or [propose(station)]
    assert client.get(f"/proposals/news?seen={number}").text.strip() == ""
    taken = client.post(f"/proposals/{number}/accept", data={"name": "gear"}, headers={"HX-Request": "true"})
    assert taken.status_code == 422
    assert "There is a task &#39;gear&#39; already; choose another name." in taken.text
    assert client.post(f"/proposals/{number}/accept", data={"name": "wheel"}).status_code == 303
    assert station.teaching.queue.wait(station.teaching.jobs()[0], 60)
    twice = client.post(f"/proposals/{number}/accept", data={"name": "wheel"})
    assert twice.status_code == 422
    assert f"Proposal {number} was accepted meanwhile, as &#39;wheel&#39;." in twice.text
    assert "wheel" in [record.name for record in station.detector.tasks()]
    page = client.get("/proposals").text
    assert f'data-decided="{number}"' in page
    assert 'href="/products/wheel"' in page
    assert "proposed product waits" not in client.get("/").text
    assert "proposals have changed" in client.get(f"/proposals/news?seen={number}").text
    assert client.post("/proposals/999/dismiss").status_code == 422
    assert client.get("/proposals/999/pictures/1").status_code == 404


def test_not_now_and_ask_again(station: FakeStation, clients: dict[str, TestClient]) -> None:
    client, number = clients["engineer"], propose(station, kind=NEW + 1)
    assert client.post(f"/proposals/{number}/dismiss").status_code == 303
    assert f"/proposals/{number}/ask-again" in Seen(client.get("/proposals").text).posting
    late = client.post(f"/proposals/{number}/accept", data={"name": "nut"})
    assert f"Proposal {number} was put aside meanwhile; ask again to have it back." in late.text
    assert client.post(f"/proposals/{number}/ask-again").status_code == 303
    assert f'data-decided="{number}"' not in client.get("/proposals").text


def test_a_merge_is_shown_with_both_and_can_be_put_aside(station: FakeStation, clients: dict[str, TestClient]) -> None:
    client, number = clients["engineer"], merge_proposed(station)
    station.record(task="gear")
    text = client.get("/proposals").text
    assert f"Proposal {number}: gear and plate look like one product now" in text
    assert 'href="/products/plate"' in text
    assert 'value="gear"' in text
    gone = client.post(f"/proposals/{number}/accept", data={"name": "gear"})
    assert gone.status_code == 422
    assert "are still where they were and unchanged" in gone.text  # they were learned from arrays
    assert client.post(f"/proposals/{number}/dismiss").status_code == 303
    assert client.post(f"/proposals/{number}/ask-again").status_code == 303
    assert client.post(f"/proposals/{number}/dismiss").status_code == 303


def test_pictures_that_are_gone_are_said(station: FakeStation, clients: dict[str, TestClient]) -> None:
    client, number = clients["engineer"], propose(station, kind=NEW + 2)
    for file in (station.config.store / "watch" / PICTURES).iterdir():
        file.unlink()
    answer = client.post(f"/proposals/{number}/accept", data={"name": "bolt"})
    assert answer.status_code == 422
    assert f"only 0 of the 20 pictures of proposal {number} are still there" in answer.text
    assert "The picture is not kept any more." in client.get("/proposals").text
    client.post(f"/proposals/{number}/dismiss")


def test_a_station_that_gathers_nothing_says_why(tmp_path: Path) -> None:
    station = FakeStation(tmp_path, learn=())
    try:
        station.proposals.stop()
        station.proposals = type(station.proposals)(
            station.teaching, station.history, station.bus, ProposalsConfig(enabled=False)
        )
        client = TestClient(create_app(station), base_url=PLACE, client=("127.0.0.1", 5))
        assert "Gathering is switched off" in client.get("/proposals").text
    finally:
        station.stop()


def test_the_first_product_is_proposed_where_nothing_was_taught(tmp_path: Path) -> None:
    station = FakeStation(tmp_path, learn=())
    try:
        assert len(station.detector) == 0
        for pixels in product(NEW, 20):
            number = station.record("not ready", pixels=pixels, reason="No product has been taught yet.")
        station.bus.publish("recorded", {"id": number})
        assert station.proposals.gathering.settle(60)
        job = station.proposals.accept(1, "wheel", "Ann")
        assert station.teaching.queue.wait(job, 60)
        assert [record.name for record in station.detector.tasks()] == ["wheel"], job.sentence
    finally:
        station.stop()


def test_programs_decide_too(station: FakeStation) -> None:
    number = propose(station, kind=NEW + 3)
    app: Any = create_app(station)
    read = station.accounts.make_token("reader", ["read"], by="test")
    teach = station.accounts.make_token("teacher", ["read", "teach"], by="test")
    with served(app) as url:
        reader, teacher = StationClient(url, token=read), StationClient(url, token=teach)
        (found,) = [each for each in reader.proposals() if each.status == "open"]
        assert (found.id, found.kind, len(found.parts)) == (number, "product", 20)
        assert 0 < (found.promised_rate or 0) < 1
        picture = found.raw["pictures"][0]
        assert reader.proposal_picture(number, picture["id"]).startswith(b"\x89PNG")
        with pytest.raises(StationError, match="the scope teach"):
            reader.accept(number, "washer")
        teacher.dismiss(number)
        with pytest.raises(StationError, match="was put aside meanwhile") as late:
            teacher.accept(number, "washer")
        assert late.value.status == 409
        with pytest.raises(StationError, match="There is no proposal 999") as none:
            teacher.dismiss(999)
        assert none.value.status == 404
        teacher.ask_again(number)
        again = propose(station, seed=1, kind=NEW + 3)
        job = teacher.wait(teacher.accept(again, "washer"), every=0.1)
        assert (job.state, job.task) == ("done", "washer"), job.sentence
        assert reader.proposal(again).status == "adopted"
        with pytest.raises(StationError, match="no merge"):
            teacher.undo_merge(again)
        assert "dinosaur_proposals_waiting 0" in _metrics(url, read)


def _metrics(url: str, secret: str) -> str:
    from urllib.request import Request, urlopen

    with urlopen(Request(f"{url}/metrics", headers={"Authorization": f"Bearer {secret}"})) as answer:
        text: str = answer.read().decode()
    return text
