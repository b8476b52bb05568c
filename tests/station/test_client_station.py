"""The client against a whole station on a real server: teach, inspect, look, correct, undo."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra station")
pytest.importorskip("sqlalchemy", reason="needs the extra station")

from access_helpers import PASSWORD, new_app, served
from PIL import Image

from detector_helpers import TINY, product, spoil
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.client import StationClient, StationError
from dinosaur_ad.station.config import ServerConfig, StationConfig
from dinosaur_ad.station.service import Station

DEADLINE = 60.0


def as_png(pixels: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@dataclass
class Line:
    """A running station, and tokens by scope."""

    station: Any
    url: str
    pictures: Path

    def client(self, *scopes: str) -> StationClient:
        name = f"test {time.monotonic_ns()}"
        return StationClient(self.url, self.station.accounts.make_token(name, scopes, by="test"))


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    folder = tmp_path_factory.mktemp("line")
    pictures = folder / "normal"
    pictures.mkdir()
    for number, pixels in enumerate(product(0, 20)):
        (pictures / f"{number:02d}.png").write_bytes(as_png(pixels))
    config = StationConfig(folder / "store", folder / "own", ServerConfig(requests_a_second=10_000.0))
    station = Station(config, encoder="tiny-dinov2", preset=TINY)
    station.start()
    try:
        station.accounts.create_first("Anna", PASSWORD)
        with served(new_app(station)) as url:
            line = Line(station, url, pictures)
            teacher = line.client("teach", "read")
            assert not teacher.ready()
            job = teacher.wait(teacher.learn("screw", sorted(pictures.iterdir())), DEADLINE, every=0.05)
            assert job.state == "done", job.sentence
            yield line
    finally:
        station.stop()


def recorded(client: StationClient, key: str) -> Any:
    """The part of a key, once it is in the history."""
    ends = time.monotonic() + DEADLINE
    while time.monotonic() < ends:
        for part in client.parts(text=key):
            return part
        time.sleep(0.02)
    raise AssertionError(f"{key} was not recorded")


def test_verdicts_come_back_with_where_and_why(line: Line) -> None:
    client = line.client("inspect", "read")
    good = client.inspect(as_png(product(0, 1, seed=9)[0]), key="good")
    assert (good.verdict, good.task, good.regions) == ("normal", "screw", [])
    bad = client.inspect(as_png(spoil(product(0, 1, seed=9)[0])), key="bad", task="screw")
    assert bad.verdict == "anomalous"
    assert bad.score > bad.threshold
    left, top, right, bottom = bad.regions[0]["box"]
    assert left <= 46 <= right
    assert top <= 36 <= bottom
    part = recorded(client, "bad")
    assert (part.verdict, part.score) == (bad.verdict, pytest.approx(bad.score))
    assert client.part(part.id).key == bad.key
    assert client.picture(part) == as_png(spoil(product(0, 1, seed=9)[0]))
    for kind in ("overlay", "thumbnail"):
        with Image.open(io.BytesIO(client.picture(part, kind=kind))) as drawn:
            assert min(drawn.size) > 0


def test_given_pictures_are_judged_once_and_told(line: Line, tmp_path: Path) -> None:
    client = line.client("inspect", "read")
    file = tmp_path / "Teil ü 7.png"
    file.write_bytes(as_png(product(0, 1, seed=11)[0]))
    assert client.give(file, key="seven") == "upload:seven"
    part = recorded(client, "seven")
    assert client.give(file, key="seven") == "upload:seven"
    assert client.inspect(file, key="eight").verdict == "normal"  # after the second one in the same queue
    assert [each.id for each in client.parts(text="seven")] == [part.id]
    with pytest.raises(StationError, match="judged before") as error:
        client.inspect(file, key="seven")
    assert error.value.status == 409


def test_pages_of_parts_are_followed(line: Line) -> None:
    client = line.client("inspect", "read")
    for number in range(5):
        client.inspect(as_png(product(0, 1, seed=20 + number)[0]), key=f"page-{number}")
    for number in range(5):
        recorded(client, f"page-{number}")
    assert [part.key for part in client.parts(text="page-", limit=2)] == [f"upload:page-{n}" for n in range(4, -1, -1)]


def test_feedback_is_taught_and_taken_back(line: Line) -> None:
    operator, engineer = line.client("inspect", "feedback", "read"), line.client("teach", "read")
    operator.inspect(as_png(product(0, 1, seed=31)[0]), key="fine one")
    part = recorded(operator, "fine one")
    feedback = operator.say(part.id, "fine", note="only dust")
    assert feedback in [each["id"] for each in engineer.tray()]
    with pytest.raises(StationError, match="needs the scope teach") as error:
        operator.approve([feedback])
    assert error.value.status == 403
    job = engineer.wait(engineer.approve([feedback]), DEADLINE, every=0.05)
    assert job.state == "done", job.sentence
    assert feedback not in [each["id"] for each in engineer.tray()]
    assert engineer.part(part.id).answer == "fine"
    assert engineer.undo("screw") == "update"
    assert [change["action"] for change in engineer.changes("screw")[:2]] == ["undo", "update"]
    assert engineer.changes("screw")[0]["by"].startswith("token:test")


def test_settings_are_changed_and_undone(line: Line) -> None:
    client = line.client("teach", "read")
    (before,) = client.products()
    changed = client.configure("screw", sensitivity=8)
    assert changed["after"]["threshold"] < before["threshold"]
    assert client.undo("screw") == "set"
    assert client.products()[0]["threshold"] == before["threshold"]
    assert client.redo("screw") == "set"
    client.undo("screw")
    for wrong, sentence in (({"sensitivity": 11}, "'sensitivity'"), ({}, "Nothing is to be changed")):
        with pytest.raises(StationError, match=sentence):
            client.configure("screw", **wrong)
    with pytest.raises(StationError, match="no product 'scrwe', did you mean screw"):
        client.configure("scrwe", sensitivity=5)


def test_events_tell_of_a_part_and_its_recording(line: Line) -> None:
    client = line.client("inspect", "read")
    stream = client.events()
    before = len(line.station.bus)
    import threading

    kinds: dict[str, Any] = {}
    done = threading.Event()

    def listen() -> None:
        for event in stream:
            if "told" in str(event.body.get("key")):
                kinds[event.kind] = event.body
            if {"part", "recorded"} <= set(kinds):
                done.set()
                return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    ends = time.monotonic() + DEADLINE
    while len(line.station.bus) == before and time.monotonic() < ends:
        time.sleep(0.01)
    part = client.inspect(as_png(product(0, 1, seed=41)[0]), key="told")
    assert done.wait(DEADLINE)
    assert kinds["part"]["verdict"] == part.verdict
    assert kinds["recorded"]["id"] == recorded(client, "told").id


def test_the_state_is_told(line: Line) -> None:
    client = line.client("read")
    assert client.ready()
    state = client.state()
    assert state["products"] == ["screw"]
    assert state["pipeline"]["judged"] >= 0
    assert client.warnings() == []


def test_what_cannot_be_reached_is_said(line: Line, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(StationError, match="does not answer") as error:
            StationClient(f"http://127.0.0.1:{taken.getsockname()[1]}").state()
    assert error.value.status == 0
    with pytest.raises(StationError, match="not valid") as refused:
        StationClient(line.url, "dino_wrong").state()
    assert refused.value.status == 401
    with pytest.raises(StationError, match="Log in"):
        StationClient(line.url).state()
    with pytest.raises(InputError, match="no address of a station"):
        StationClient("file:///etc/passwd")
    with pytest.raises(InputError, match="cannot be read"):
        line.client("inspect").inspect(tmp_path / "nothing.png")


def test_an_answer_that_breaks_off_is_said() -> None:
    """A station that is killed while it answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer_half() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 48\r\n\r\n{")

        thread = threading.Thread(target=answer_half)
        thread.start()
        with pytest.raises(StationError, match=r"broke off .*; ask again"):
            StationClient(f"http://127.0.0.1:{listening.getsockname()[1]}").state()
        thread.join()


def test_the_token_does_not_follow_a_redirect(line: Line) -> None:
    client = StationClient(line.url)
    client._base = line.url  # pages send strangers to the login
    with pytest.raises(StationError) as error:
        client._ask("GET", "/parts")
    assert error.value.status == 303


def test_the_client_needs_nothing_but_the_standard_library() -> None:
    import subprocess
    import sys

    code = (
        "import sys, dinosaur_ad.station.client; "
        "print([m for m in ('fastapi', 'sqlalchemy', 'httpx', 'argon2', 'torch') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
