"""From judged parts to the history: a queue in memory, the journal on the local disk, then the database.

Two threads: one writes to the journal, the other moves what is there into the database. Neither the disk nor the
database can hold up the judging: parts that cannot be kept are counted, and shown on the page all the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dinosaur_ad._text import first_line
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.history.history import History, HistoryDownError
from dinosaur_ad.station.history.journal import Journal, JournalEntry
from dinosaur_ad.station.history.journal_mover import BATCH, BATCH_BYTES, LAST_RETRY, JournalMover
from dinosaur_ad.station.history.moments import now_stamp
from dinosaur_ad.station.history.picture_files import PackedPart, pack, without_files
from dinosaur_ad.station.part import JudgedPart
from dinosaur_ad.station.priority import background_thread

log = logging.getLogger(__name__)

CAPACITY = 256
CAPACITY_BYTES = 256 * 1024 * 1024
"""Of parts in memory, so that a slow disk cannot fill it."""
PATIENCE = 2.0
"""Seconds that judging waits for room in memory, once: then parts are not kept until the disk goes on."""
REMEMBERED = 100_000


@dataclass(frozen=True)
class _Kept:
    part: JudgedPart
    document: dict[str, Any]
    bytes: int


class Recorder:
    """Keeps parts exactly once, whatever fails: :meth:`keep` takes them, and they come into the history.

    On the bus it says "part" as soon as a part is judged, and "recorded" with its id when it is in the database.
    """

    def __init__(
        self,
        history: History,
        journal: Journal,
        bus: Bus,
        sinks: Sequence[SinkConfig] = (),
        *,
        patience: float = PATIENCE,
        last_retry: float = LAST_RETRY,
    ) -> None:
        self._history, self._journal, self._bus = history, journal, bus
        self._patience = patience
        self._changed = threading.Condition()
        self._mover = JournalMover(history, journal, bus, sinks, self._changed, self._forget, last_retry)
        self._queue: deque[_Kept] = deque()
        self._bytes = self._busy = 0
        self._stalled = False
        self._stopping = False
        self._keys: set[str] = set()
        self._lost = 0
        self._lost_reason: str | None = None
        self._lost_since: str | None = None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin; what the journal has from before comes first. A recorder starts once.

        :raises StoreError: the journal cannot be opened.
        """
        self._journal.open()
        loops: dict[str, Callable[[], None]] = {"station-recorder": self._write, "station-history": self._mover.run}
        self._threads = [background_thread(loop, name) for name, loop in loops.items()]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 15.0) -> bool:
        """Write what was taken to the journal and as much as possible to the database; whether all is there.

        What is left in the journal comes into the history after the next start.
        """
        ends = time.monotonic() + timeout
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for number, thread in enumerate(self._threads):
            if number == 1:  # when everything is in the journal
                self._mover.finish(ends)
            thread.join(max(0.1, ends - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            return False  # the journal stays open: a thread still uses it
        done = not self._queue and self._journal.waiting == 0
        self._journal.close()
        return done

    def settle(self, timeout: float) -> bool:
        """Wait until everything that was taken is in the history; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting() == 0, timeout)

    def keep(self, part: JudgedPart) -> None:
        """Take a judged part; never waits for the disk or the database."""
        document = part.to_json()
        self._bus.publish("part", document | {"id": None})
        kept = _Kept(part, document, _size(part))
        with self._changed:
            if not self._stopping and not self._stalled and not self._has_room():
                self._stalled = not self._changed.wait_for(self._has_room, self._patience)
            if self._stopping or not self._has_room():
                self._count_lost(part, "the station is stopping" if self._stopping else "the disk is too slow")
                return
            self._queue.append(kept)
            self._bytes += kept.bytes
            if len(self._keys) < REMEMBERED:
                self._keys.update(view.picture.key for view in part.views)
            self._changed.notify_all()

    def known(self, keys: Iterable[str]) -> set[str]:
        """The keys of pictures, of these, that were taken before; those of the history only while it answers."""
        keys = list(keys)
        with self._changed:
            found = self._keys.intersection(keys)
            asking = self._mover.error is None
        left = [key for key in keys if key not in found]
        try:
            return found | (self._history.known(left) if asking and left else set())
        except HistoryDownError:
            return found

    def state(self) -> dict[str, Any]:
        """How it stands: parts "waiting", "recorded" and "not_kept" since the start, and what fails since when."""
        with self._changed:
            return {
                "waiting": self._waiting(),
                "recorded": self._mover.recorded,
                "not_kept": self._lost + self._mover.refused,
                "not_kept_reason": self._lost_reason,
                "not_kept_since": self._lost_since,
                "journal_bytes": self._journal.size,
                "set_aside": self._journal.set_aside,
            } | self._mover.state()

    def _waiting(self) -> int:
        return len(self._queue) + self._busy + self._journal.waiting

    def _has_room(self) -> bool:
        return len(self._queue) < CAPACITY and (self._bytes < CAPACITY_BYTES or not self._queue)

    def _write(self) -> None:
        while batch := self._taken():
            self._append(batch)
            with self._changed:
                self._busy = 0
                self._changed.notify_all()

    def _taken(self) -> list[_Kept]:
        """The next parts, as many as there are for one write; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._stopping)
            batch: list[_Kept] = []
            size = 0
            while self._queue and len(batch) < BATCH and size < BATCH_BYTES:
                batch.append(self._queue.popleft())
                size += batch[-1].bytes
            self._bytes -= size
            self._busy = len(batch)
            self._stalled = False
            self._changed.notify_all()
            return batch

    def _append(self, batch: list[_Kept]) -> None:
        hurry = len(self._queue) > CAPACITY // 2
        packed = [(each.part, _packed(each, hurry)) for each in batch]
        try:
            self._journal.append_many([(each.document, each.files) for _, each in packed])
        except Exception:
            for part, each in packed:  # one by one: the smaller ones may still fit
                self._append_one(part, each)
            return
        self._taken_well([part for part, _ in packed])

    def _append_one(self, part: JudgedPart, packed: PackedPart) -> None:
        try:
            self._journal.append(packed.document, packed.files)
        except Exception as error:  # whatever it is, the parts behind this one are to be kept
            with self._changed:
                self._count_lost(part, getattr(error, "strerror", None) or first_line(error))
        else:
            self._taken_well([part])

    def _taken_well(self, parts: Sequence[JudgedPart]) -> None:
        with self._changed:
            self._lost_reason = self._lost_since = None
        for part in parts:
            _release(part)

    def _count_lost(self, part: JudgedPart, reason: str) -> None:
        self._lost += 1
        self._keys.difference_update(view.picture.key for view in part.views)
        if self._lost_reason is None:
            log.warning("Parts are not kept: %s.", reason)
            self._lost_since = now_stamp()
        self._lost_reason = reason
        self._changed.notify_all()

    def _forget(self, entries: list[JournalEntry]) -> None:
        self._keys.difference_update(view.get("key") for each in entries for view in each.document.get("views", ()))


def _packed(kept: _Kept, hurry: bool) -> PackedPart:
    try:
        return pack(kept.part, kept.document, hurry=hurry)
    except Exception:
        log.exception("The pictures of the part %r could not be stored; it is recorded without.", kept.part.key)
        return without_files(kept.document)


def _release(part: JudgedPart) -> None:
    for view in part.views:
        if view.picture.release is not None:
            try:
                view.picture.release()
            except Exception:
                log.exception("The picture %r could not be released.", view.picture.key)


def _size(part: JudgedPart) -> int:
    return sum(
        (0 if view.picture.pixels is None else view.picture.pixels.nbytes)
        + (0 if view.inspection is None else view.inspection.map.nbytes)
        for view in part.views
    )
