"""From the journal into the database: a thread that tries again for as long as the database does not answer."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, StatementError

from dinosaur_ad._text import first_line
from dinosaur_ad.errors import DinosaurError, InputError
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.history.history import History
from dinosaur_ad.station.history.journal import Journal, JournalEntry
from dinosaur_ad.station.history.moments import now_stamp
from dinosaur_ad.station.history.picture_files import PackedPart

log = logging.getLogger(__name__)

BATCH = 64
BATCH_BYTES = 16 * 1024 * 1024
FIRST_RETRY, LAST_RETRY = 0.25, 15.0
IDLE = 5.0
"""Seconds without parts after which the journal is emptied."""


class JournalMover:
    """Moves entries of the journal into the history, in batches, each once.

    ``changed`` is notified when entries are in the journal and when they are in the history; ``forget`` is told the
    entries that are no longer in the journal. ``error`` is why the database does not take them, ``since`` when that
    began; an entry that it will never take is set aside and counted in ``refused``.
    """

    def __init__(
        self,
        history: History,
        journal: Journal,
        bus: Bus,
        sinks: Sequence[SinkConfig],
        changed: threading.Condition,
        forget: Callable[[list[JournalEntry]], None],
        last_retry: float = LAST_RETRY,
    ) -> None:
        self._history, self._journal, self._bus, self._sinks = history, journal, bus, sinks
        self._changed, self._forget, self._last_retry = changed, forget, last_retry
        self._files: list[str] = []
        """Files written since segments were last removed: they are flushed before the next are."""
        self._ends: float | None = None
        self.recorded = self.refused = 0
        self.error: str | None = None
        self.since: str | None = None

    def finish(self, ends: float) -> None:
        """Return from :meth:`run` when the journal is empty, the database does not answer or it is ``ends``."""
        with self._changed:
            self._ends = ends
            self._changed.notify_all()

    def run(self) -> None:
        """Move entries until :meth:`finish` is called."""
        retry = FIRST_RETRY
        while not self._over():
            try:
                batch = self._pending()
                if batch:
                    self._record(batch)
                else:
                    self._rest()
                retry = FIRST_RETRY
            except Exception as error:
                self._say(error)
                self._pause(retry * random.uniform(0.5, 1.0))
                retry = min(2 * retry, self._last_retry)
        self.remove_finished(rest=True)

    def state(self) -> dict[str, Any]:
        """What fails, since when."""
        return {"database_error": self.error, "since": self.since}

    def remove_finished(self, rest: bool = False) -> None:
        """Remove segments that are no longer needed, once the disk has the pictures that were in them.

        With ``rest`` also the one that is being written to, if all that is in it is recorded.
        """
        if rest and self._journal.waiting == 0:
            self._journal.rest()
        if not self._journal.finished():
            return
        try:
            self._history.pictures.flush(self._files)
            self._journal.remove_finished()
            self._files.clear()
        except OSError as error:
            log.warning("The journal could not be emptied: %s", first_line(error))

    def _over(self) -> bool:
        with self._changed:
            if self._ends is None:
                return False
            return self._journal.waiting == 0 or self.error is not None or time.monotonic() > self._ends

    def _pending(self) -> list[JournalEntry]:
        batch: list[JournalEntry] = []
        size = 0
        for entry in self._journal.pending():
            batch.append(entry)
            size += entry.size
            if len(batch) >= BATCH or size >= BATCH_BYTES:
                break
        return batch

    def _record(self, batch: list[JournalEntry]) -> None:
        """Record entries together; if the database refuses them, one by one, and the bad ones are set aside."""
        try:
            self._record_all(batch)
        except Exception as error:
            if not _is_refusal(error):
                raise
            for entry in batch:
                self._record_one(entry)

    def _record_all(self, batch: list[JournalEntry]) -> None:
        packed = [PackedPart(entry.document, entry.files) for entry in batch]
        recorded = self._history.record(packed, self._sinks)
        with self._changed:
            for entry in batch:
                self._journal.done(entry)
            self.error = self.since = None
            self.recorded += sum(each.new for each in recorded)
            self._forget(batch)
            self._changed.notify_all()
        self._files.extend(name for each in packed for name in each.written())
        for each in recorded:
            if each.new:
                self._bus.publish("recorded", {"id": each.id, "key": each.key})
        self.remove_finished()

    def _record_one(self, entry: JournalEntry) -> None:
        try:
            self._record_all([entry])
        except Exception as error:
            if not _is_refusal(error):
                raise
            log.error("The history does not take the part %r: %s", entry.document.get("key"), first_line(error))
            with self._changed:
                self._journal.refuse(entry)
                self.refused += 1
                self._forget([entry])
                self._changed.notify_all()

    def _rest(self) -> None:
        with self._changed:
            some = self._changed.wait_for(lambda: self._journal.waiting or self._ends is not None, IDLE)
        if not some:
            self.remove_finished(rest=True)

    def _say(self, error: Exception) -> None:
        sentence = _sentence(error)
        with self._changed:
            if self.error is None:
                log.warning("Parts wait in the journal: %s", sentence)
                self.since = now_stamp()
            self.error = sentence
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ends is not None, seconds)


def _sentence(error: Exception) -> str:
    if isinstance(error, DinosaurError):
        return str(error)
    if isinstance(error, OSError):
        return f"The pictures cannot be stored: {error.strerror or first_line(error)}."
    return f"The history failed: {type(error).__name__}, {first_line(error)}."


def _is_refusal(error: Exception) -> bool:
    """Whether trying again cannot help: it is this entry that the database does not take."""
    if isinstance(error, DataError | IntegrityError):
        return True
    if isinstance(error, DBAPIError):
        return False
    return isinstance(error, StatementError | InputError | KeyError | TypeError | ValueError | AttributeError)
