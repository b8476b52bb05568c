"""Gathers the pictures of no known product that a station judged, so that a product that nobody taught is noticed.

The history is the queue: judging hands nothing on, memory does not grow with the line, and what a kill interrupts is
found there again. What is gathered lies in the tray of the store, as that of ``dinosaur watch``, which takes a picture
once.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import func, select

from dinosaur_ad._text import printable
from dinosaur_ad.bank.verdict import NORMAL, NOT_READY, UNKNOWN
from dinosaur_ad.detector import Dinosaur
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.inspection import Inspection
from dinosaur_ad.station.bus import Bus, Subscription
from dinosaur_ad.station.config import ProposalsConfig
from dinosaur_ad.station.history.moments import stamp_of
from dinosaur_ad.station.priority import background_thread
from dinosaur_ad.station.tables import PartRow, ViewRow
from dinosaur_ad.watch.regrouping import EVERY
from dinosaur_ad.watch.watch_event import MERGE_PROPOSED, PROPOSED, SPLIT_PROPOSED, WatchEvent
from dinosaur_ad.watch.watch_event import UNKNOWN as UNKNOWN_KEPT
from dinosaur_ad.watch.watcher import GatherLimits, Watcher

if TYPE_CHECKING:
    from dinosaur_ad.station.history.history import History

log = logging.getLogger(__name__)

LOOKED_BACK = 20_000
"""The newest views of the history that are looked through at the start."""
PAUSE_SECONDS = 1.0
"""The history is asked at the most so often."""
RECORDED_SECONDS = 10.0
"""A part that is judged is in the history by then."""
RETRY_SECONDS = 10.0
"""How long it is waited until what failed as a whole is tried again."""
NEWS = (PROPOSED, MERGE_PROPOSED, SPLIT_PROPOSED)
PAPER = (
    "The preset '{preset}' has no verdict for parts of no known product, so that none can be proposed; a store with "
    "another preset, such as fast or default, can."
)
OFF = "Gathering is switched off: [proposals] enabled = false in the settings."


class GatheredView(NamedTuple):
    """A recorded picture, as far as gathering needs it."""

    id: int
    part_id: int
    key: str
    source: str
    verdict: str
    picture: str
    task: str | None
    reason: str
    recorded: str

    @property
    def origin(self) -> str:
        """Where it came from, as the proposals name it."""
        return f"part-{self.part_id}/{self.source}"


def part_of(origin: str) -> int | None:
    """The number of the part in an origin; None if the picture came from elsewhere.

    >>> part_of("part-12/camera-1"), part_of("photos/part-12.png")
    (12, None)
    """
    head = origin.partition("/")[0]
    number = head.removeprefix("part-")
    return int(number) if head != number and number.isdecimal() else None


class UnknownGathering:
    """A thread that goes through the recorded parts. ``another`` makes a detector of its own; ``told`` is called at the
    start and whenever something was proposed.

    After each picture it rests for as long as that took, so that it works half of the time at the most. Where parts
    come faster, the newest are gathered.
    """

    def __init__(
        self,
        history: History,
        bus: Bus,
        config: ProposalsConfig,
        another: Callable[[], Dinosaur],
        told: Callable[[], None],
    ) -> None:
        self._history, self._bus, self._config, self._another, self._told = history, bus, config, another, told
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._news = self._busy = self._stopping = self._untold = self._working = False
        self._last = 0
        self._looked = 0.0
        self._reason = "" if config.enabled else OFF
        self._gathered = self._failed = 0

    # --- life ---

    def start(self) -> None:
        """Begin, unless the settings say no."""
        if not self._config.enabled:
            return
        self._stopping, self._news, self._untold, self._working = False, True, True, True
        self._thread = background_thread(self._run, "station-unknown")
        self._thread.start()

    def stop(self) -> None:
        """End after the picture that is being looked at."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(30.0)

    def settle(self, timeout: float = 10.0) -> bool:
        """Wait until everything that is recorded has been looked at; whether it has. At once where it is off."""
        with self._changed:
            self._news = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not (self._working and (self._news or self._busy)), timeout)

    def state(self) -> dict[str, Any]:
        """Whether it works and why not, and how many pictures were gathered and failed since the start."""
        working = self._config.enabled and not self._reason
        return {"on": working, "reason": self._reason, "gathered": self._gathered, "failed": self._failed}

    def _run(self) -> None:
        detector = self._another()
        if detector.preset.calibration == "in-sample":
            self._working = False
            self._stand_still(PAPER.format(preset=detector.preset.name))
            return
        limits = GatherLimits(self._config.pictures, self._config.keep, self._config.most_open)
        with self._bus.subscribed(capacity=8) as messages:
            messages.on_message(lambda: self._heard(messages))
            while not self._stopping:
                try:
                    watcher = detector._watcher("ask", limits)
                    with watcher.alone():
                        self._stand_still("")
                        self._follow(detector, watcher)
                except Exception as error:  # another watch of the store, a disk that is full: later
                    known = isinstance(error, DinosaurError)
                    log.warning("Unknown parts are not gathered: %s", printable(error), exc_info=not known)
                    self._stand_still(str(error) if known else f"{type(error).__name__}: {printable(error, 200)}")
                    self._wait(RETRY_SECONDS)

    def _stand_still(self, reason: str) -> None:
        with self._changed:
            self._reason, self._busy = reason, False
            self._changed.notify_all()

    def _heard(self, messages: Subscription) -> None:
        """Called in the thread that publishes, so it only sets a flag."""
        while (message := messages.take()) is not None:
            if message.kind == "recorded":
                with self._changed:
                    self._news = True
                    self._changed.notify_all()

    def _wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, seconds)

    # --- parts ---

    def _follow(self, detector: Dinosaur, watcher: Watcher) -> None:
        """Look at what was recorded, whenever something was."""
        self._take_in(watcher.catch_up())
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._news or self._stopping)
                self._news, self._busy = False, True
            newest = self._newest_view()
            for view in self._unknown(detector, newest):
                started = time.monotonic()
                self._gather(detector, watcher, view)
                self._last = view.id
                self._tell()
                self._wait(time.monotonic() - started)
                if self._stopping:
                    return
            self._look_at_passed(detector, watcher, newest)
            self._last = max(self._last, newest)
            self._tell()
            with self._changed:
                self._busy = False
                self._changed.notify_all()
            self._wait(PAUSE_SECONDS)
            if self._stopping:
                return

    def _tell(self) -> None:
        if self._untold:
            self._told()
            self._untold = False

    def _newest_view(self) -> int:
        with self._history.session() as session:
            return int(session.scalar(select(func.max(ViewRow.id))) or 0)

    def _unknown(self, detector: Dinosaur, newest: int) -> list[GatheredView]:
        """The newest pictures of no known product since the last one, the oldest of them first; while nothing has been
        taught, all that could not be judged may show one."""
        verdicts = (UNKNOWN,) if len(detector) else (UNKNOWN, NOT_READY)
        self._last = max(self._last, newest - LOOKED_BACK)
        return list(self._views(newest, verdicts, self._config.keep))[::-1]

    def _views(self, newest: int, verdicts: tuple[str, ...], limit: int) -> Iterator[GatheredView]:
        found = (
            select(
                ViewRow.id,
                ViewRow.part_id,
                ViewRow.key,
                ViewRow.source,
                ViewRow.verdict,
                ViewRow.picture,
                ViewRow.inspection["task"].as_string(),
                PartRow.reason,
                PartRow.recorded,
            )
            .join(PartRow, PartRow.id == ViewRow.part_id)
            .where(ViewRow.id > self._last, ViewRow.id <= newest, ViewRow.verdict.in_(verdicts), ViewRow.picture != "")
            .order_by(ViewRow.id.desc())
            .limit(limit)
        )
        with self._history.session() as session:
            rows = session.execute(found).all()
        return (GatheredView(*row) for row in rows)

    def _gather(self, detector: Dinosaur, watcher: Watcher, view: GatheredView) -> None:
        """Gather one picture; one that fails is counted and passed over."""
        try:
            path = self._history.pictures.path(view.picture)
            if not path.is_file() or self._known_by_now(detector, view, path):
                return
            self._take_in(watcher.gather(path, picture_key(view.key), view.reason, view.origin))
        except Exception as error:
            self._failed += 1
            log.warning("Part %d was not gathered: %s", view.part_id, printable(error), exc_info=error)

    def _take_in(self, events: Iterable[WatchEvent]) -> None:
        """Do what a watcher has to do, and note what came of it."""
        for event in events:
            self._gathered += event.kind == UNKNOWN_KEPT
            self._untold |= event.kind in NEWS

    def _known_by_now(self, detector: Dinosaur, view: GatheredView, path: Path) -> bool:
        """Whether a product was taught after the picture was judged, and it shows that."""
        taught = [stamp_of(str(record.history[-1]["date"])) for record in detector.tasks() if record.history]
        judged = datetime.fromisoformat(view.recorded) - timedelta(seconds=RECORDED_SECONDS)
        if not taught or judged > datetime.fromisoformat(max(taught)):
            return False
        result = next(iter(detector.stream([path])))
        return isinstance(result, Inspection) and result.verdict != UNKNOWN

    # --- products that have become one ---

    def _look_at_passed(self, detector: Dinosaur, watcher: Watcher, newest: int) -> None:
        """Look at the newest picture that passed, if it is time: one in ``EVERY`` of these is described."""
        if time.monotonic() < self._looked + self._config.look_seconds / EVERY or len(detector) < 2:
            return
        for view in self._views(newest, (NORMAL,), 1):
            self._looked = time.monotonic()
            try:
                path = self._history.pictures.path(view.picture)
                if view.task is None or view.task not in detector or not path.is_file():
                    continue
                self._take_in(watcher.passed(path, view.task, view.origin))
            except Exception as error:
                self._failed += 1
                log.warning("Part %d was not looked at: %s", view.part_id, printable(error), exc_info=error)


def picture_key(key: str) -> bytes:
    """What tells one picture of a station from another, in the tray of the store."""
    return hashlib.sha256(f"station\0{key}".encode(errors="surrogateescape")).digest()[:16]
