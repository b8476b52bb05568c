"""Messages inside the station: what happens is told to whoever listens, and nobody who listens can slow it down."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Message:
    """Something that happened. ``kind`` is one of "part" (judged), "recorded" (the part is in the history), "queue" (a
    picture was dropped), "job", "warning", "source", "sink", "change", "tray"."""

    kind: str
    body: dict[str, Any]


class Subscription:
    """The messages for one listener, at most ``capacity`` of them: the oldest are dropped and counted."""

    def __init__(self, capacity: int = 256) -> None:
        self._waiting: deque[Message] = deque(maxlen=capacity)
        self._some = threading.Condition()
        self.dropped = 0
        self._wake: Any = None

    def on_message(self, wake: Any) -> None:
        """Call ``wake`` (no arguments, from any thread) after each message; for an event loop."""
        self._wake = wake

    def put(self, message: Message) -> None:
        """Add a message; never waits."""
        with self._some:
            self.dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append(message)
            self._some.notify()
        if self._wake:
            self._wake()

    def take(self, timeout: float | None = 0.0) -> Message | None:
        """The oldest message; None if there is none within ``timeout`` seconds."""
        with self._some:
            if not self._waiting and timeout != 0.0:
                self._some.wait_for(lambda: bool(self._waiting), timeout)
            return self._waiting.popleft() if self._waiting else None


class Bus:
    """Passes messages to all subscriptions.

    >>> bus = Bus()
    >>> with bus.subscribed() as messages:
    ...     bus.publish("part", {"id": 1})
    ...     messages.take()
    Message(kind='part', body={'id': 1})
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: list[Subscription] = []

    def publish(self, kind: str, body: dict[str, Any]) -> None:
        """Tell all subscriptions; never waits."""
        message = Message(kind, body)
        with self._lock:
            listening = list(self._subscriptions)
        for subscription in listening:
            subscription.put(message)

    @contextmanager
    def subscribed(self, capacity: int = 256) -> Iterator[Subscription]:
        """A subscription, for as long as the block runs."""
        subscription = Subscription(capacity)
        with self._lock:
            self._subscriptions.append(subscription)
        try:
            yield subscription
        finally:
            with self._lock:
                self._subscriptions.remove(subscription)

    def __len__(self) -> int:
        return len(self._subscriptions)
