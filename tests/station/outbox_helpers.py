"""A history with messages, a sink in memory, and waiting for what other threads do."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.history.history import History
from dinosaur_ad.station.sinks.sink import Backoff, Outgoing, Sink
from dinosaur_ad.station.tables import OutboxRow

QUICK = Backoff(first=0.02, most=0.1)
DEADLINE = 240.0  # many times what it takes; the threads of sinks give way to all else that a machine does


def until(condition: Callable[[], Any], what: str = "", seconds: float = DEADLINE) -> Any:
    """The first true value of ``condition``; fails after the deadline."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds:g} s: {what or condition}"
        time.sleep(0.01)
    return value


def part(number: int, verdict: str = "normal", task: str | None = "screw") -> dict[str, Any]:
    """What the recorder queues for a part."""
    return {
        "key": f"cam:{number}",
        "taken": f"2026-11-18T17:00:{number % 60:02d}.000000+00:00",
        "verdict": verdict,
        "reason": "",
        "task": task,
        "score": 0.25 + number,
        "threshold": 1.5,
        "p_value": 0.5,
        "missing": [],
        "views": [],
    }


class Filled:
    """A history on disk whose database can be taken away."""

    def __init__(self, folder: Path, sinks: list[SinkConfig]) -> None:
        self.history, self.sinks, self.down = History("", folder), sinks, False
        self.history.open()
        self.bus = Bus()

    def add(self, number: int, verdict: str = "normal", task: str | None = "screw") -> None:
        self.history.queue_message("part", f"cam:{number}", part(number, verdict, task), self.sinks)
        self.bus.publish("recorded", {"id": number, "key": f"cam:{number}"})

    def rows(self) -> list[OutboxRow]:
        with self.history.session() as session:
            return list(session.scalars(select(OutboxRow).order_by(OutboxRow.id)))

    @contextmanager
    def session(self) -> Iterator[Session]:
        if self.down:
            raise OperationalError("SELECT", {}, Exception("connection refused"))
        with self.history.session() as session:
            yield session


class MemorySink(Sink):
    """Keeps what it gets; ``answers`` are raised one after the other, then everything is taken."""

    def __init__(self, config: SinkConfig, answers: list[Exception] | None = None) -> None:
        super().__init__(config)
        self.got: list[str] = []
        self.tries = 0
        self.answers = list(answers or [])
        self.always: Exception | None = None
        self.blocked = ""
        self.ready: Callable[[], None] = lambda: None
        self.closed = False

    def open(self, ready: Callable[[], None]) -> None:
        self.ready = ready

    def obstacle(self) -> str:
        return self.blocked

    def deliver(self, message: Outgoing) -> None:
        self.tries += 1
        if self.answers:
            raise self.answers.pop(0)
        if self.always:
            raise self.always
        self.got.append(message.payload["key"])

    def close(self) -> None:
        self.closed = True


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
