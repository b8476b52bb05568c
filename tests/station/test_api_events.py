"""The event stream and long requests, on a real server."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi", reason="needs the extra station")
pytest.importorskip("sqlalchemy", reason="needs the extra station")

from access_helpers import add_people, fake_station, new_app, served

from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.client import StationClient, StationError
from dinosaur_ad.station.web import connections, limits
from dinosaur_ad.station.web.event_stream import APART_SECONDS, EventReader, EventStreams

DEADLINE = 20.0


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Any]:
    station = fake_station(tmp_path)
    yield station
    station.close()


def wait_for(what: str, condition: Any) -> None:
    ends = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < ends, f"{what} did not happen"
        time.sleep(0.01)


class Listener:
    """Reads a stream in a thread until it ends."""

    def __init__(self, client: StationClient) -> None:
        self.found: list[Any] = []
        self.thread = threading.Thread(target=self._read, args=(client,), daemon=True)
        self.thread.start()

    def _read(self, client: StationClient) -> None:
        try:
            for event in client.events():
                self.found.append(event)
        except StationError as error:
            self.found.append(error)


def test_what_happens_arrives_in_order(station: Any) -> None:
    app = new_app(station)
    with served(app) as url:
        listener = Listener(StationClient(url))
        wait_for("the stream", lambda: len(station.bus) == 1)
        for number in range(50):
            station.bus.publish("part", {"id": number, "threshold": float("inf"), "text": "zwei\nZeilen"})
        wait_for("the last event", lambda: len(listener.found) == 50)
        assert [event.body["id"] for event in listener.found] == list(range(50))
        assert listener.found[0].kind == "part"
        assert listener.found[0].body == {"id": 0, "threshold": None, "text": "zwei\nZeilen"}
    # leaving the block stopped the server, although the stream was open
    listener.thread.join(DEADLINE)
    assert not listener.thread.is_alive()
    assert len(station.bus) == 0


def test_streams_are_counted_and_given_back(station: Any) -> None:
    app = new_app(station)
    app.state.streams = EventStreams(station.bus, most=2, heartbeat=0.1)
    with served(app) as url:
        host, port = urlsplit(url).hostname, urlsplit(url).port
        request = f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        with (
            closing(socket.create_connection((host, port))) as one,
            closing(socket.create_connection((host, port))) as two,
        ):
            for each in (one, two):
                each.sendall(request)
                each.settimeout(DEADLINE)
            wait_for("two streams", lambda: len(app.state.streams) == 2)
            with pytest.raises(StationError, match="2 event streams open") as refused:
                next(StationClient(url).events())
            assert refused.value.status == 503
            got = b""
            while b": heartbeat" not in got:
                got += one.recv(4096)
            assert b"content-type: text/event-stream" in got.lower()
        wait_for("both places", lambda: len(app.state.streams) == 0)
        assert len(station.bus) == 0


def test_a_stream_ends_with_its_session(station: Any) -> None:
    add_people(station.accounts)
    app = new_app(station)
    app.state.streams = EventStreams(station.bus, heartbeat=0.1)
    secret = station.accounts.make_token("monitor", ["read"], by="Anna")
    with served(app) as url:
        listener = Listener(StationClient(url, secret))
        wait_for("the stream", lambda: len(app.state.streams) == 1)
        station.accounts.remove_token(station.accounts.tokens()[0].id, by="Anna")
        wait_for("the end", lambda: len(app.state.streams) == 0)
        listener.thread.join(DEADLINE)
        assert listener.found == []


def test_someone_slow_is_told_what_was_dropped_and_others_get_all() -> None:
    asyncio.run(read_slowly_and_quickly())


async def read_slowly_and_quickly() -> None:
    bus = Bus()
    streams, slow, quick = EventStreams(bus), EventReader(2), EventReader(200)
    for reader in (slow, quick):
        assert streams.enter(reader) == ""
    for number in range(150):
        bus.publish("part", {"id": number})
    streams.hand_out()
    assert data(quick.take()) == [{"id": number} for number in range(150)]
    assert data(slow.take()) == [{"count": 148}, {"id": 148}, {"id": 149}]
    assert slow.take() == b""
    for reader in (slow, quick):
        streams.leave(reader)
    assert len(bus) == 0


def test_many_parts_are_told_of_a_few_times_a_second_and_one_alone_at_once() -> None:
    asyncio.run(hear_many_parts())


async def hear_many_parts() -> None:
    bus, reader = Bus(), EventReader()
    streams, loop = EventStreams(bus), asyncio.get_running_loop()
    assert streams.enter(reader) == ""
    bus.publish("part", {"id": 0})
    began = loop.time()
    await asyncio.wait_for(reader.woken.wait(), DEADLINE)
    assert data(reader.take()) == [{"id": 0}]
    told, number = list[list[dict[str, int]]](), 0
    while loop.time() < began + 1.5:
        number += 1
        bus.publish("part", {"id": number})
        await asyncio.sleep(0.01)
        if sent := reader.take():
            told.append(data(sent))
    assert len(told) <= 2 + 1.5 / APART_SECONDS
    await asyncio.sleep(2 * APART_SECONDS + 0.2)
    heard = [each["id"] for some in [*told, data(reader.take())] for each in some]
    assert heard == list(range(1, number + 1))
    streams.leave(reader)


def data(sent: bytes) -> list[dict[str, int]]:
    """The bodies of events."""
    return [json.loads(line[6:]) for line in sent.decode().splitlines() if line.startswith("data: ")]


def test_a_body_that_stalls_is_given_up(station: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STALLED_SECONDS", 0.3)
    with served(new_app(station)) as url:
        host, port = urlsplit(url).hostname, urlsplit(url).port
        with closing(socket.create_connection((host, port))) as sender:
            head = f"POST /api/v1/inspect HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 5000\r\n\r\n"
            sender.sendall(head.encode() + b"\x89PNG")
            sender.settimeout(DEADLINE)
            answer = b""
            while some := sender.recv(4096):
                answer += some
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"did not arrive whole" in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"GET /static/../../accounts.py HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"GET /%00 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999999999999\r\nConnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"BREW /pot HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    ],
)
def test_requests_that_make_no_sense_do_no_harm(server: tuple[str, int], request_bytes: bytes) -> None:
    with closing(socket.create_connection(server)) as sender:
        sender.settimeout(DEADLINE)
        sender.sendall(request_bytes)
        sender.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while some := sender.recv(4096):
                answer += some
        except ConnectionResetError:
            pass
    assert answer == b"" or 400 <= int(answer.split()[1]) < 500
    assert b"root:" not in answer
    assert b"import " not in answer
    assert StationClient(f"http://{server[0]}:{server[1]}")._ask("GET", "/health")["status"] == "ok"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    station = fake_station(tmp_path_factory.mktemp("station"))
    with served(new_app(station)) as url:
        yield "127.0.0.1", urlsplit(url).port
    station.close()


def test_connections_that_say_nothing_are_closed(station: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.4)
    with served(new_app(station)) as url:
        place = urlsplit(url).hostname, urlsplit(url).port
        slow = b"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
        for begun in (b"", b"GET /api", slow):
            with closing(socket.create_connection(place)) as idle:
                idle.settimeout(DEADLINE)
                if begun:
                    idle.sendall(begun)
                with suppress(ConnectionResetError):
                    assert idle.recv(100) == b""
        assert StationClient(url)._ask("GET", "/health")["status"] == "ok"


def test_one_address_has_so_many_connections(station: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_OF_ONE", 5)
    with served(new_app(station)) as url, ExitStack() as held:
        place = urlsplit(url).hostname, urlsplit(url).port
        for _ in range(5):
            held.enter_context(closing(socket.create_connection(place)))
        with closing(socket.create_connection(place)) as refused:
            refused.settimeout(DEADLINE)
            with suppress(ConnectionResetError):
                assert refused.recv(100) == b""
        held.close()
        client = StationClient(url)

        def answers() -> bool:
            try:
                return bool(client._ask("GET", "/health"))
            except StationError:
                return False

        wait_for("an answer to others", answers)
