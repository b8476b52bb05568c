"""The thread of one sink: takes its messages out of the outbox in order and tries each until it is delivered."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.history.moments import now_stamp
from dinosaur_ad.station.priority import background_thread
from dinosaur_ad.station.sinks import outbox_rows
from dinosaur_ad.station.sinks.outbox_rows import HasSessions
from dinosaur_ad.station.sinks.sink import Backoff, Outgoing, RefusedMessageError, Sink, UndeliveredError
from dinosaur_ad.station.tables import OutboxRow

TOGETHER = 32
"""Messages that are noted as delivered in one transaction; after a kill so many can be sent a second time."""
NEW_WITHIN = 5.0
"""Seconds after which the table is read again although nothing was announced."""
REFUSALS = 5
"""So often a message is refused before it is set aside."""
CLEANED_EVERY = 3600.0
STOPS_WITHIN = 15.0

log = logging.getLogger(__name__)


class SinkWorker:
    """Delivers the messages of one sink; at least once, in order: the head of the line is tried until it is through.

    >>> worker = SinkWorker(sink, history, bus)  # doctest: +SKIP
    >>> worker.start(); worker.news(); worker.stop()  # doctest: +SKIP
    """

    def __init__(self, sink: Sink, history: HasSessions, bus: Bus, backoff: Backoff | None = None) -> None:
        self.name = sink.config.name
        self._sink, self._history, self._bus = sink, history, bus
        self._backoff = backoff or Backoff()
        self._change = threading.Condition()
        self._news = self._ready = self._stopping = False
        self._opened = self._resumed = False
        self._unmarked: dict[int, str] = {}
        self._refusals = 0
        self._cleaned: float | None = None
        self._state, self._reason = "starting", ""
        self._delivered, self._last_delivery = 0, ""
        self.database_down = False
        self._thread = background_thread(self._run, f"sink {self.name}")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what is not delivered stays in the outbox."""
        with self._change:
            self._stopping = True
            self._change.notify_all()
        self._sink.close()
        if self._thread.is_alive():
            self._thread.join(STOPS_WITHIN)

    def news(self) -> None:
        """There may be a new message."""
        with self._change:
            self._news = True
            self._change.notify_all()

    def ready(self) -> None:
        """The receiver can be reached again: a pause between two tries ends."""
        with self._change:
            self._ready = True
            self._change.notify_all()

    def state(self) -> dict[str, Any]:
        """Name, kind, state (starting, running, waiting, failed, stopped), reason and what was delivered since the
        start."""
        with self._change:
            return {
                "name": self.name,
                "kind": self._sink.config.kind,
                "state": self._state,
                "reason": self._reason,
                "delivered": self._delivered,
                "last_delivery": self._last_delivery or None,
            }

    def _run(self) -> None:
        while not self._stopping:
            try:
                pause, ends_with_news = self._step()
            except Exception as error:  # whatever it is, the messages that come after it must still go out
                log.exception("The sink '%s' failed.", printable(self.name))
                self._say("waiting", f"An unexpected error: {type(error).__name__}: {first_line(error)}.")
                pause, ends_with_news = self._backoff.next(), False
            self._wait(pause, ends_with_news)
        self._try_database(self._mark)
        self._sink.close()
        self._say("stopped", "")

    def _wait(self, seconds: float, ends_with_news: bool) -> None:
        with self._change:
            if seconds > 0:
                self._change.wait_for(lambda: self._stopping or self._ready or (ends_with_news and self._news), seconds)
            self._ready = False

    def _step(self) -> tuple[float, bool]:
        """Deliver what there is; how long to wait then, and whether a new message ends the wait."""
        if not self._opened and not self._open():
            return self._backoff.next(), False
        with self._change:
            self._news = False
        rows: list[OutboxRow] = []
        if not self._try_database(lambda: rows.extend(self._take())):
            return self._backoff.next(), False
        obstacle = self._sink.obstacle()
        if obstacle:
            self._say("waiting", obstacle)
            return self._backoff.most, not rows
        if not rows:
            self._say("running", self._sink.note())
            return NEW_WITHIN, True
        return self._deliver_all(rows)

    def _open(self) -> bool:
        try:
            self._sink.open(self.ready)
        except DinosaurError as error:
            self._say("failed", str(error))
            return False
        self._opened = True
        return True

    def _take(self) -> list[OutboxRow]:
        self._mark()
        self._clean()
        with self._history.session() as session:
            if not self._resumed:
                self._sink.resume(outbox_rows.told_before(session, self.name))
                self._resumed = True
            return outbox_rows.waiting_rows(session, self.name, list(self._unmarked), TOGETHER)

    def _deliver_all(self, rows: list[OutboxRow]) -> tuple[float, bool]:
        for row in rows:
            if self._stopping:
                break
            try:
                self._sink.deliver(Outgoing(row.key, row.kind, row.payload))
            except RefusedMessageError as error:
                return self._refused(row, error)
            except DinosaurError as error:
                after = error.after if isinstance(error, UndeliveredError) else 0.0
                return self._failed(row, str(error), max(self._backoff.next(), after))
            self._succeeded(row)
        self._try_database(self._mark)
        return 0.0, True

    def _succeeded(self, row: OutboxRow) -> None:
        moment = now_stamp()
        self._unmarked[row.id] = moment
        self._refusals = 0
        self._backoff.reset()
        with self._change:
            self._delivered += 1
            self._last_delivery = moment
        self._say("running", self._sink.note())

    def _refused(self, row: OutboxRow, error: RefusedMessageError) -> tuple[float, bool]:
        self._refusals += 1
        if self._refusals < REFUSALS:
            return self._failed(row, str(error), self._backoff.next())
        log.warning("The message %s was set aside: %s", printable(row.key), error)
        result = self._failed(row, str(error), 0.0, aside=True)
        # Only once it is noted: otherwise the same message would be the head of the line again, with a new count.
        if not self.database_down:
            self._refusals = 0
            self._backoff.reset()
            return 0.0, True
        return result

    def _failed(self, row: OutboxRow, reason: str, pause: float, *, aside: bool = False) -> tuple[float, bool]:
        if self._stopping:  # broken off by us
            return 0.0, False
        self._say("waiting", reason)

        def note() -> None:
            self._mark()
            with self._history.session() as session:
                outbox_rows.mark_failed(session, row.id, reason, pause, aside=aside)

        if not self._try_database(note):
            pause = max(pause, self._backoff.next())
        return pause, False

    def _mark(self) -> None:
        """Note what was delivered. What could not be noted is kept in mind and not sent again by this process."""
        if self._unmarked:
            with self._history.session() as session:
                outbox_rows.mark_delivered(session, self._unmarked)
            self._unmarked = {}

    def _clean(self) -> None:
        now = time.monotonic()
        if self._cleaned is not None and now - self._cleaned < CLEANED_EVERY:
            return
        with self._history.session() as session:
            lost = outbox_rows.remove_old(session, self.name, datetime.now(UTC))
        if lost:
            log.warning(
                "%d messages that the sink '%s' refused were removed after %d days.",
                lost,
                printable(self.name),
                outbox_rows.REFUSED_KEPT.days,
            )
        self._cleaned = now

    def _try_database(self, work: Callable[[], object]) -> bool:
        """Do something with the database; False, with the reason shown, if it does not answer."""
        try:
            work()
        except Exception as error:  # drivers have errors of their own, and all of them mean: try later
            if not isinstance(error, SQLAlchemyError | DinosaurError | OSError):
                log.exception("The outbox of the sink '%s' failed.", printable(self.name))
            self.database_down = True
            self._say("waiting", f"The outbox cannot be read or written: {first_line(error)}.")
            return False
        self.database_down = False
        return True

    def _say(self, state: str, reason: str) -> None:
        """Set the state; a change of it is told on the bus and logged."""
        with self._change:
            changed = (state, reason) != (self._state, self._reason)
            self._state, self._reason = state, reason
        if not changed:
            return
        if state in ("waiting", "failed"):
            log.warning("The sink '%s' is %s: %s", printable(self.name), state, reason)
        self._bus.publish("sink", self.state())
