"""The OPC UA server, read by a real client: values, counters across restarts, the trigger, who may connect."""

from __future__ import annotations

import asyncio
import builtins
import math
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="the extra station is not installed")

from outbox_helpers import QUICK, Filled, free_port, part, until

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.history.outgoing import queue_rows
from dinosaur_ad.station.outbox import Outbox
from dinosaur_ad.station.sinks.opcua_server import OpcUaServer
from dinosaur_ad.station.sinks.sink import Told
from dinosaur_ad.station.tables import PartRow

pytestmark = pytest.mark.slow  # a server needs more than a second of computing to start

COUNTERS = ("Normal", "Anomalous", "Unknown", "NotReady")
Started = Callable[..., tuple[Filled, Outbox]]


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def port() -> int:
    pytest.importorskip("asyncua", reason="the extra opcua is not installed")
    return free_port()


@pytest.fixture
def started(tmp_path: Path, ends: ExitStack) -> Started:
    def start(port: int, trigger: Callable[[str], object] | None = None, **values: Any) -> tuple[Filled, Outbox]:
        sink = SinkConfig("plc", "opcua", f"opc.tcp://127.0.0.1:{port}", **values)
        filled = Filled(tmp_path / "station", [sink])
        outbox = Outbox(filled, [sink], filled.bus, trigger, QUICK)
        outbox.start()
        ends.callback(outbox.stop)
        return filled, outbox

    return start


def ask(port: int, work: Callable[[Any, int], Awaitable[Any]], user: str = "", password: str = "") -> Any:
    """The result of ``work`` with a client and the index of our namespace."""
    from asyncua import Client

    async def asked() -> Any:
        client = Client(f"opc.tcp://127.0.0.1:{port}/dinosaur", timeout=10)
        if user:
            client.set_user(user)
            client.set_password(password)
        async with client:
            return await work(client, await client.get_namespace_index("urn:dinosaur:station"))

    return asyncio.run(asked())


def values(port: int, *names: str, **login: str) -> tuple[Any, ...]:
    async def read(client: Any, space: int) -> tuple[Any, ...]:
        return tuple([await client.get_node(f"ns={space};s=Dinosaur.{name}").read_value() for name in names])

    result: tuple[Any, ...] = ask(port, read, **login)
    return result


def record(filled: Filled, number: int, verdict: str) -> None:
    """A part in the history and its message, as the recorder makes them in one transaction."""
    taken = part(number)["taken"]
    with filled.history.session() as session:
        session.add(
            PartRow(key=f"cam:{number}", taken=taken, recorded=taken, source="cam", verdict=verdict, missing=[])
        )
        queue_rows(session, "part", f"cam:{number}", part(number, verdict), filled.sinks, verdict)
    filled.bus.publish("recorded", {"id": number, "key": f"cam:{number}"})


def delivered(outbox: Outbox, count: int) -> None:
    until(lambda: outbox.state()[0]["delivered"] == count and outbox.state()[0]["waiting"] == 0)


def test_a_client_sees_every_part_and_triggers_a_source_also_after_a_restart(port: int, started: Started) -> None:
    called: list[str] = []

    def trigger(source: str) -> None:
        called.append(source)
        if source != "camera-1":
            raise InputError(f"There is no source '{source}'.")

    filled, outbox = started(port, trigger)
    until(lambda: outbox.state()[0]["state"] == "running")

    async def watch(client: Any, space: int) -> list[str]:
        from asyncua import ua

        node = client.get_node(f"ns={space};s=Dinosaur.LastKey")
        seen: asyncio.Queue[str] = asyncio.Queue()

        class Handler:
            def datachange_notification(self, _node: Any, value: str, _data: Any) -> None:
                seen.put_nowait(value)

        subscription = await client.create_subscription(20, Handler())
        await subscription.subscribe_data_change(node)
        got = [await asyncio.wait_for(seen.get(), 10)]
        for number, verdict in enumerate(("normal", "anomalous", "anomalous")):
            await asyncio.to_thread(record, filled, number, verdict)
            got.append(await asyncio.wait_for(seen.get(), 10))
        with pytest.raises(ua.UaStatusCodeError):
            await node.write_value("forged")
        return got

    async def call(client: Any, space: int) -> list[Any]:
        node = client.get_node(f"ns={space};s=Dinosaur")
        return [await node.call_method(f"{space}:Trigger", name) for name in ("camera-1", "camera-9")]

    assert ask(port, watch) == ["", "cam:0", "cam:1", "cam:2"]
    assert ask(port, call) == [[True, ""], [False, "There is no source 'camera-9'."]]
    assert called == ["camera-1", "camera-9"]
    filled.history.queue_message("warning", "7", {"sentence": "The light changed."}, filled.sinks)
    filled.history.queue_message("change", "8", {"sentence": "Taught."}, filled.sinks)
    filled.bus.publish("change", {})
    delivered(outbox, 5)
    shown = values(port, "LastVerdict", "LastProduct", "LastScore", "LastKey", "LastWarning", "StationState")
    assert shown == ("anomalous", "screw", 2.25, "cam:2", "The light changed.", "running")
    assert values(port, "LastTaken")[0].isoformat().startswith("2026-11-18T17:00:02")
    assert values(port, *COUNTERS) == (1, 2, 0, 0)

    outbox.stop()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 1)
    record(filled, 3, "unknown")  # recorded, and the station ends before the server is told
    record(filled, 4, "normal")
    _, outbox = started(port)
    delivered(outbox, 2)
    assert values(port, "LastKey", *COUNTERS) == ("cam:4", 2, 2, 1, 0)


def test_with_a_user_name_others_are_refused_and_what_is_not_known_is_no_number(
    port: int, started: Started, tmp_path: Path
) -> None:
    from asyncua import ua

    password = tmp_path / "password"
    password.write_text("s3cret\n")
    password.chmod(0o600)
    login = {"user": "plc", "password": "s3cret"}
    with socket.create_server(("127.0.0.1", port)):  # a port that is taken is said and waited for
        filled, outbox = started(port, username="plc", password_file=password)
        until(lambda: "cannot listen at opc.tcp://127.0.0.1" in outbox.state()[0]["reason"])
        assert outbox.state()[0]["state"] == "waiting"
    until(lambda: outbox.state()[0]["state"] == "running")
    for other in ({}, {"user": "plc", "password": "wrong"}, {"user": "admin", "password": "s3cret"}):
        with pytest.raises((ua.UaError, ConnectionError)):
            values(port, "StationState", **other)
    verdict, score, key = values(port, "LastVerdict", "LastScore", "LastKey", **login)
    assert (verdict, key, math.isnan(score)) == ("", "", True)
    unread = {"key": "x", "verdict": "not ready", "score": None, "taken": "garbage"}
    filled.history.queue_message("part", "x", unread, filled.sinks)
    outbox.wake()
    delivered(outbox, 1)
    verdict, score, count = values(port, "LastVerdict", "LastScore", "NotReady", **login)
    assert (verdict, math.isnan(score), count) == ("not ready", True, 1)


def test_the_last_part_is_shown_again_after_a_restart() -> None:
    server = OpcUaServer(SinkConfig("plc", "opcua", "opc.tcp://127.0.0.1:1", verdicts=("anomalous",)))
    server.resume(Told({"anomalous": 3, "normal": 9}, part(7, "anomalous")))
    assert (server._values["LastKey"], server._values["Anomalous"], server._values["Normal"]) == ("cam:7", 3, 0)


def test_without_the_package_a_sentence_says_how_to_get_it(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == "asyncua":
            raise ImportError(name)
        return original(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    _, outbox = started(free_port())
    until(lambda: outbox.state()[0]["state"] == "failed")
    assert "pip install '.[opcua]'" in outbox.state()[0]["reason"]
