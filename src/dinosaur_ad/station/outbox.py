"""The outbox: messages for the plant wait in the database until each sink has them, also across restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.bus import Bus, Subscription
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.sinks import outbox_rows
from dinosaur_ad.station.sinks.delivery import SinkWorker
from dinosaur_ad.station.sinks.outbox_rows import HasSessions
from dinosaur_ad.station.sinks.sink import Backoff, Sink

ANNOUNCEMENTS = ("recorded", "warning", "change")
"""Messages of the bus after which there can be something new in the outbox."""
COUNTED_EVERY = 1.0

Trigger = Callable[[str], object]
"""Triggers the source of this name."""


class Outbox:
    """Delivers the messages of the outbox, each sink in a thread of its own: a sink that is down holds up no other.

    ``trigger`` is called with the name of a source by the sinks that take triggers (OPC UA).

    >>> outbox = Outbox(history, config.sinks, bus)  # doctest: +SKIP
    >>> outbox.start()  # doctest: +SKIP
    >>> outbox.state()[0]["waiting"]  # doctest: +SKIP
    0
    """

    def __init__(
        self,
        history: HasSessions,
        sinks: Sequence[SinkConfig],
        bus: Bus,
        trigger: Trigger | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._history, self._bus = history, bus
        pauses = backoff or Backoff()
        self._workers = {
            each.name: SinkWorker(make_sink(each, trigger, pauses.copy()), history, bus, pauses.copy())
            for each in sinks
        }
        self._subscribed = ExitStack()
        self._counting = threading.Lock()
        self._counted: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._counted_at: float | None = None

    def start(self) -> None:
        """Start all sinks; returns at once, whether they can be reached or not."""
        subscription = self._subscribed.enter_context(self._bus.subscribed())
        subscription.on_message(lambda: self._heard(subscription))
        for worker in self._workers.values():
            worker.start()

    def stop(self) -> None:
        """Stop all sinks; what is not delivered is delivered after the next start."""
        self._subscribed.close()
        # At the same time: a receiver that hangs takes seconds to be given up.
        stopping = [threading.Thread(target=worker.stop, daemon=True) for worker in self._workers.values()]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()

    def wake(self) -> None:
        """Look for new messages now."""
        for worker in self._workers.values():
            worker.news()

    def retry(self, name: str) -> int:
        """Try the messages again that a sink has refused; how many there are.

        :raises InputError: there is no such sink.
        """
        if name not in self._workers:
            raise InputError(f"There is no sink '{printable(name)}'; there are {', '.join(self._workers) or 'none'}.")
        with self._history.session() as session:
            count = outbox_rows.take_back(session, name)
        self._counted_at = None
        self._workers[name].news()
        return count

    def state(self) -> list[dict[str, Any]]:
        """For each sink its name, kind, state, reason, how many messages wait, were delivered since the start and are
        set aside ("failed"), and the time of the last delivery.

        Messages of a sink that is no longer in the settings are shown too: they wait for it.
        """
        waiting, refused = self._counts()
        result = [
            {**worker.state(), "waiting": waiting.get(name, 0), "failed": refused.get(name, 0)}
            for name, worker in self._workers.items()
        ]
        for name in sorted((waiting.keys() | refused.keys()) - self._workers.keys()):
            gone: dict[str, Any] = {"name": name, "kind": "", "state": "stopped"}
            gone |= {"reason": "No sink of this name is in the settings; its messages wait for it."}
            gone |= {"delivered": 0, "last_delivery": None}
            result.append({**gone, "waiting": waiting.get(name, 0), "failed": refused.get(name, 0)})
        return result

    def _heard(self, subscription: Subscription) -> None:
        """Called in the thread that publishes, so it only sets flags."""
        new = False
        while (message := subscription.take()) is not None:
            new |= message.kind in ANNOUNCEMENTS
        if new:
            self.wake()

    def _counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Counted at most once a second, and the last known numbers while the database does not answer."""
        with self._counting:
            now = time.monotonic()
            fresh = self._counted_at is not None and now - self._counted_at < COUNTED_EVERY
            if fresh or any(worker.database_down for worker in self._workers.values()):
                return self._counted
            try:
                with self._history.session() as session:
                    self._counted = outbox_rows.counted(session)
                self._counted_at = now
            except Exception:  # the worker of each sink says why; a state is always given
                return self._counted
            return self._counted


def make_sink(config: SinkConfig, trigger: Trigger | None = None, backoff: Backoff | None = None) -> Sink:
    """The sink for a section of the settings; its library is imported here, so that others need not be installed."""
    if config.kind == "mqtt":
        from dinosaur_ad.station.sinks.mqtt_sink import MqttSink

        return MqttSink(config, backoff)
    if config.kind == "webhook":
        from dinosaur_ad.station.sinks.webhook_sink import WebhookSink

        return WebhookSink(config)
    if config.kind == "opcua":
        from dinosaur_ad.station.sinks.opcua_server import OpcUaServer

        return OpcUaServer(config, trigger, backoff)
    raise InputError(f"[[sink]] '{printable(config.name)}': there is no kind '{printable(config.kind)}'.")
