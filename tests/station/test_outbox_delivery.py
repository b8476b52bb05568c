"""Messages of the outbox arrive at least once and in order, whatever the receiver and the database do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="the extra station is not installed")

from outbox_helpers import QUICK, Filled, MemorySink, until

from dinosaur_ad.errors import InputError
from dinosaur_ad.station import outbox as outbox_module
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.outbox import Outbox
from dinosaur_ad.station.sinks import delivery
from dinosaur_ad.station.sinks.sink import Backoff, RefusedMessageError, UndeliveredError
from dinosaur_ad.station.tables import OutboxRow

SINK = SinkConfig("plc", "webhook", "http://127.0.0.1:1/")
OTHER = SinkConfig("mes", "webhook", "http://127.0.0.1:1/")
Start = Callable[..., Outbox]


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    return Filled(tmp_path, [SINK])


@pytest.fixture
def start(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start an outbox with sinks of memory; stopped at the end."""
    started: list[Outbox] = []

    def begin(*sinks: MemorySink, backoff: Backoff = QUICK) -> Outbox:
        by_name = {sink.config.name: sink for sink in sinks}
        monkeypatch.setattr(outbox_module, "make_sink", lambda config, *_: by_name[config.name])
        outbox = Outbox(filled, [sink.config for sink in sinks], filled.bus, backoff=backoff)
        outbox.start()
        started.append(outbox)
        return outbox

    yield begin
    for outbox in started:
        outbox.stop()


def keys(*numbers: int) -> list[str]:
    return [f"cam:{number}" for number in numbers]


def test_what_waited_before_the_start_and_what_comes_later_arrives_in_order(filled: Filled, start: Start) -> None:
    for number in range(40):  # more than one batch
        filled.add(number)
    sink = MemorySink(SINK)
    outbox = start(sink)
    until(lambda: len(sink.got) == 40)
    filled.add(40)
    until(lambda: len(sink.got) == 41, seconds=delivery.NEW_WITHIN - 1)  # announced, so it does not take a look's time
    assert sink.got == keys(*range(41))
    until(lambda: all(row.delivered for row in filled.rows()))
    state = until(lambda: next((each for each in outbox.state() if each["waiting"] == 0), None))
    assert (state["name"], state["kind"], state["state"], state["delivered"]) == ("plc", "webhook", "running", 41)
    assert state["failed"] == 0
    assert state["last_delivery"]


def test_nothing_is_sent_again_after_a_restart(filled: Filled, start: Start) -> None:
    filled.add(1)
    first = MemorySink(SINK)
    outbox = start(first)
    until(lambda: first.got)
    outbox.stop()
    filled.add(2)
    second = MemorySink(SINK)
    start(second)
    until(lambda: second.got)
    assert (first.got, second.got) == (keys(1), keys(2))


def test_the_head_of_the_line_is_tried_until_it_is_through(filled: Filled, start: Start) -> None:
    sink = MemorySink(SINK, [UndeliveredError("The receiver sleeps.")] * 4)
    for number in range(3):
        filled.add(number)
    with filled.bus.subscribed() as messages:
        outbox = start(sink)
        until(lambda: len(sink.got) == 3)
        heard = []
        while message := messages.take():
            heard.append((message.kind, message.body.get("state"), message.body.get("reason")))
    assert sink.got == keys(0, 1, 2)
    assert ("sink", "waiting", "The receiver sleeps.") in heard
    assert heard[-1] == ("sink", "running", "")
    until(lambda: all(row.delivered for row in filled.rows()))
    assert [row.attempts for row in filled.rows()] == [5, 1, 1]
    assert outbox.state()[0]["state"] == "running"


def test_a_sink_that_is_down_holds_up_no_other(filled: Filled, start: Start) -> None:
    filled.sinks.append(OTHER)
    down, up = MemorySink(SINK), MemorySink(OTHER)
    down.always = UndeliveredError("It is away.")
    filled.add(1)
    filled.add(2)
    outbox = start(down, up)
    until(lambda: up.got == keys(1, 2))
    until(lambda: [each["waiting"] for each in outbox.state()] == [2, 0])
    assert [each["state"] for each in outbox.state()] == ["waiting", "running"]
    assert outbox.state()[0]["reason"] == "It is away."


def test_a_receiver_that_is_back_is_tried_at_once(filled: Filled, start: Start) -> None:
    sink = MemorySink(SINK, [UndeliveredError("Gone.")])
    filled.add(1)
    start(sink, backoff=Backoff(first=600, most=600))
    until(lambda: sink.tries == 1)
    filled.add(2)  # news alone is no reason to try a receiver that is away
    sink.ready()
    until(lambda: sink.got == keys(1, 2))
    assert sink.tries == 3


def test_an_obstacle_is_shown_and_not_tried_against(filled: Filled, start: Start) -> None:
    sink = MemorySink(SINK)
    sink.blocked = "The broker is not connected."
    filled.add(1)
    outbox = start(sink, backoff=Backoff(600, 600))
    until(lambda: outbox.state()[0]["reason"] == sink.blocked)
    assert outbox.state()[0]["state"] == "waiting"
    assert sink.tries == 0
    sink.blocked = ""
    sink.ready()
    until(lambda: sink.got == keys(1))


def test_a_refused_message_is_set_aside_counted_and_can_be_tried_again(filled: Filled, start: Start) -> None:
    refusal = RefusedMessageError("http://mes refuses the message with 422.")
    sink = MemorySink(SINK, [refusal] * delivery.REFUSALS)
    filled.add(1)
    filled.add(2)
    outbox = start(sink)
    until(lambda: sink.got == keys(2))
    until(lambda: outbox.state()[0]["failed"] == 1)
    row = filled.rows()[0]
    assert row.refused
    assert row.delivered is None
    assert row.attempts == delivery.REFUSALS
    assert "422" in row.error
    assert outbox.retry("plc") == 1
    until(lambda: sink.got == keys(2, 1))
    until(lambda: outbox.state()[0]["failed"] == 0)
    with pytest.raises(InputError, match="no sink 'plx'; there are plc"):
        outbox.retry("plx")


def test_a_database_that_is_down_is_survived_and_nothing_is_sent_twice(filled: Filled, start: Start) -> None:
    sink = MemorySink(SINK)
    outbox = start(sink)
    filled.add(1)
    until(lambda: sink.got == keys(1))
    until(lambda: filled.rows()[0].delivered)
    original, deliver_once = sink.deliver, threading.Event()

    def deliver_and_lose_the_database(message: object) -> None:
        original(message)  # type: ignore[arg-type]
        filled.down = True
        deliver_once.set()

    sink.deliver = deliver_and_lose_the_database  # type: ignore[method-assign,assignment]
    filled.add(2)
    assert deliver_once.wait(10)
    sink.deliver = original  # type: ignore[method-assign]
    until(lambda: "connection refused" in outbox.state()[0]["reason"])
    assert outbox.state()[0]["state"] == "waiting"
    filled.add(3)
    filled.down = False
    until(lambda: len(sink.got) == 3)
    assert sink.got == keys(1, 2, 3)
    until(lambda: all(row.delivered for row in filled.rows()))


def test_a_database_that_is_down_at_the_start_is_waited_for(filled: Filled, start: Start) -> None:
    filled.add(1)
    filled.down = True
    sink = MemorySink(SINK)
    outbox = start(sink)
    until(lambda: outbox.state()[0]["state"] == "waiting")
    assert sink.got == []
    filled.down = False
    until(lambda: sink.got == keys(1))


def test_a_bug_of_a_sink_does_not_end_its_thread(filled: Filled, start: Start) -> None:
    sink = MemorySink(SINK, [ZeroDivisionError("division by zero")])
    filled.add(1)
    start(sink)
    until(lambda: sink.got == keys(1))


def test_settings_that_cannot_work_are_said_and_tried_again(filled: Filled, start: Start) -> None:
    sink = MemorySink(SINK)
    usable, sink.open = sink.open, _failing  # type: ignore[method-assign]
    filled.add(1)
    outbox = start(sink)
    until(lambda: outbox.state()[0]["state"] == "failed")
    assert "password" in outbox.state()[0]["reason"]
    sink.open = usable  # type: ignore[method-assign]
    until(lambda: sink.got == keys(1))


def _failing(ready: object) -> None:
    raise InputError("The password in /etc/none cannot be read.")


def test_old_messages_are_removed_and_waiting_ones_never(filled: Filled, start: Start) -> None:
    for number in range(5):
        filled.add(number)
    now = datetime.now(UTC)

    def days_ago(days: float) -> str:
        return (now - timedelta(days=days)).isoformat(timespec="microseconds")

    changes = [{"delivered": days_ago(1.1)}, {"delivered": days_ago(0.9)}, {"refused": days_ago(31)}]
    changes += [{"refused": days_ago(29)}, {"queued": days_ago(400)}]
    with filled.session() as session:
        for row, values in zip(session.query(OutboxRow).order_by(OutboxRow.id), changes, strict=True):
            for name, value in values.items():
                setattr(row, name, value)
    sink = MemorySink(SINK)
    sink.always = UndeliveredError("Away.")
    start(sink)
    until(lambda: len(filled.rows()) == 3)
    assert [row.payload["key"] for row in filled.rows()] == keys(1, 3, 4)


def test_messages_of_a_sink_that_left_the_settings_are_shown(filled: Filled, start: Start) -> None:
    filled.add(1)
    outbox = start(MemorySink(OTHER))
    state = until(lambda: next((each for each in outbox.state() if each["name"] == "plc"), None))
    assert (state["state"], state["waiting"]) == ("stopped", 1)
    assert "settings" in state["reason"]


def test_the_outbox_stops_soon_and_says_so(filled: Filled, start: Start) -> None:
    sink = MemorySink(SINK, [UndeliveredError("Away.", after=600)])
    filled.add(1)
    outbox = start(sink)
    until(lambda: sink.tries == 1)
    outbox.stop()
    assert sink.closed
    assert outbox.state()[0]["state"] == "stopped"
    assert outbox.state()[0]["waiting"] == 1


def test_pauses_grow_to_a_minute_and_differ() -> None:
    backoff = Backoff()
    pauses = [backoff.next() for _ in range(10)]
    wanted = [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert all(0.75 * most <= pause <= most for pause, most in zip(pauses, wanted, strict=True))
    assert len({round(pause, 6) for pause in pauses[6:]}) > 1
    backoff.reset()
    assert backoff.next() <= 1
