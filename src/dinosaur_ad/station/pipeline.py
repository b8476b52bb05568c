"""From a source's picture to a judged part: a bounded queue, a thread that reads ahead, a thread that judges."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import PartConfig, QueueConfig
from dinosaur_ad.station.judge import Judge, ReadPicture
from dinosaur_ad.station.part import JudgedPart, Picture, View
from dinosaur_ad.station.part_assembly import PartAssembly

log = logging.getLogger(__name__)

ACCEPTED, DROPPED, KNOWN, STOPPED = "accepted", "dropped", "known", "stopped"

READ_AHEAD = 2
"""Decoded pictures that wait for the judging."""
REMEMBERED = 20_000
"""Keys of accepted pictures that are remembered, until the history knows them for certain."""
LATENCIES = 1000


@dataclass(frozen=True)
class _Offered:
    picture: Picture
    at: float
    read: ReadPicture | None = None


class Pipeline:
    """Takes pictures from any number of threads and hands judged parts to ``keep``, in the order of their verdicts.

    ``known`` says which keys of files were recorded before; where it fails they count as new, because the history keeps
    a key once anyway. ``keep`` must not wait for anything.
    """

    def __init__(
        self,
        judge: Judge,
        keep: Callable[[JudgedPart], None],
        queue: QueueConfig | None = None,
        part: PartConfig | None = None,
        known: Callable[[Iterable[str]], set[str]] | None = None,
        bus: Bus | None = None,
    ) -> None:
        self._judge = judge
        self._keep = keep
        self._queue = queue or QueueConfig()
        self._known = known
        self._bus = bus
        self._assembly = PartAssembly(part or PartConfig())
        self._changed = threading.Condition()
        self._waiting: deque[_Offered] = deque()
        self._read: deque[_Offered] = deque()
        self._reading = self._judging = 0
        self._recent: OrderedDict[str, None] = OrderedDict()
        self._answers: dict[str, Future[JudgedPart]] = {}
        self._running = self._draining = False
        self._threads: list[threading.Thread] = []
        self._counts = dict.fromkeys(("accepted", "judged", "parts", "dropped", "known", "incomplete", "not_kept"), 0)
        self._total_ms: deque[float] = deque(maxlen=LATENCIES)
        self._encode_ms: deque[float] = deque(maxlen=LATENCIES)

    # --- life ---

    def start(self) -> None:
        """Begin to read and judge."""
        with self._changed:
            if self._running:
                return
            self._running, self._draining = True, False
        loops = {"station-reader": self._read_all, "station-judge": self._judge_all}
        self._threads = [threading.Thread(target=loop, name=name, daemon=True) for name, loop in loops.items()]
        for thread in self._threads:
            thread.start()

    def stop(self, drain: bool = True, timeout: float | None = 60.0) -> bool:
        """Accept nothing more; with ``drain`` judge what was accepted, else leave it. Whether all threads ended.

        What is left is not released: files and uploads come again after the next start.
        """
        with self._changed:
            self._running, self._draining = False, drain
            if not drain:
                for item in (*self._waiting, *self._read):
                    self._recent.pop(item.picture.key, None)  # they may come again
                self._waiting.clear()
                self._read.clear()
            self._changed.notify_all()
        ends = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            thread.join(None if ends is None else max(0.0, ends - time.monotonic()))
        with self._changed:
            answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer.cancel()
        return not any(thread.is_alive() for thread in self._threads)

    # --- in ---

    def offer(
        self,
        picture: Picture,
        timeout: float | None = None,
        when_full: str | None = None,
        ask_history: bool | None = None,
    ) -> str:
        """Give a picture to be judged: "accepted", "dropped" (no room), "known" (had before) or "stopped".

        If the queue is full, it waits for room (at most ``timeout`` seconds) or drops at once, as the settings say;
        ``when_full`` overrides them. The history is asked whether it has the picture if that is a file, because files
        come again after a restart and frames of a camera do not; ``ask_history`` overrides that.
        """
        started = time.perf_counter()
        if (picture.path is not None if ask_history is None else ask_history) and self._is_recorded(picture):
            return KNOWN
        with self._changed:
            if picture.key in self._recent:
                self._counts["known"] += 1
                return KNOWN
            self._remember(picture.key)  # before waiting, so that two threads cannot both offer it
            if not self._room(timeout, when_full or self._queue.when_full):
                del self._recent[picture.key]
                if not self._running:
                    return STOPPED
                self._counts["dropped"] += 1
                dropped = self._counts["dropped"]
            else:
                self._counts["accepted"] += 1
                self._assembly.expect(picture, time.monotonic())
                self._waiting.append(_Offered(picture, started))
                self._changed.notify_all()
                return ACCEPTED
        if self._bus:
            self._bus.publish("queue", {"source": picture.source, "dropped": dropped})
        return DROPPED

    def inspect(self, picture: Picture, timeout: float = 60.0) -> JudgedPart:
        """Give a picture to be judged and wait for its part, which is recorded like any other.

        :raises InputError: it was judged before, there is no room, the station stops, or it takes too long.
        """
        ends = time.monotonic() + timeout
        with self._answered(picture) as answer:
            result = self.offer(picture, timeout)
            if result != ACCEPTED:
                raise InputError(_REFUSED[result])
            try:
                return answer.result(max(0.0, ends - time.monotonic()))
            except TimeoutError:
                raise InputError(f"The picture was accepted but not judged within {timeout:g} seconds.") from None
            except CancelledError:
                raise InputError(_REFUSED[STOPPED]) from None

    @contextmanager
    def _answered(self, picture: Picture) -> Iterator[Future[JudgedPart]]:
        answer: Future[JudgedPart] = Future()
        with self._changed:
            if picture.key in self._answers:
                raise InputError(_REFUSED[KNOWN])
            self._answers[picture.key] = answer
        try:
            yield answer
        finally:
            with self._changed:
                self._answers.pop(picture.key, None)

    def _is_recorded(self, picture: Picture) -> bool:
        """Whether the history has a file; it is released then, because a crash may have come before that."""
        if self._known is None or picture.key in self._recent:
            return False
        try:
            recorded = picture.key in self._known([picture.key])
        except Exception as error:
            log.warning("The history could not be asked for %s (%s)", printable(picture.key), printable(error))
            return False
        if recorded:
            with self._changed:
                self._counts["known"] += 1
            if picture.release:
                picture.release()
        return recorded

    def _remember(self, key: str) -> None:
        self._recent[key] = None
        if len(self._recent) > REMEMBERED + self._queue.capacity:
            self._recent.popitem(last=False)

    def _room(self, timeout: float | None, when_full: str) -> bool:
        """Wait until the queue has room or the pipeline stops; whether a picture may be put in."""
        if when_full == "wait":
            self._changed.wait_for(lambda: not self._running or self._has_room(), timeout)
        return self._running and self._has_room()

    def _has_room(self) -> bool:
        return len(self._waiting) < self._queue.capacity

    # --- through ---

    def _read_all(self) -> None:
        while (item := self._next_to_read()) is not None:
            try:
                read = self._judge.read(item.picture)
            except Exception as error:
                log.error("Reading %s failed", printable(item.picture.key), exc_info=error)
                read = ReadPicture(None, f"The picture could not be read ({type(error).__name__}).")
            with self._changed:
                self._reading -= 1
                if self._running or self._draining:
                    self._read.append(replace(item, read=read))
                else:
                    self._recent.pop(item.picture.key, None)
                self._changed.notify_all()

    def _next_to_read(self) -> _Offered | None:
        with self._changed:
            self._changed.wait_for(lambda: self._may_read() or (not self._running and not self._waiting))
            if not self._waiting:
                return None
            item = self._waiting.popleft()
            self._reading += 1
            self._changed.notify_all()
            return item

    def _may_read(self) -> bool:
        return bool(self._waiting) and len(self._read) < READ_AHEAD

    def _judge_all(self) -> None:
        while (items := self._next_to_judge()) is not None:
            for item in items:
                self._take(item, self._judged(item))
            with self._changed:
                due = self._assembly.due(time.monotonic())
            for part in due:
                self._hand_on(part)
        with self._changed:
            rest = self._assembly.rest()
            if not self._draining:  # the other views of these were left
                rest = []
        for part in rest:
            self._hand_on(part)

    def _judged(self, item: _Offered) -> View:
        """The view of a picture; the thread must not end, whatever a judge raises."""
        try:
            return self._judge.judge(item.picture, item.read)
        except Exception as error:
            log.error("Judging %s failed", printable(item.picture.key), exc_info=error)
            return View(item.picture, None, f"The picture could not be judged ({type(error).__name__}).")

    def _next_to_judge(self) -> list[_Offered] | None:
        """The next picture, nothing if a part's time is over first, None at the end."""
        with self._changed:
            deadline = self._assembly.next_deadline()
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic()) + 0.001
            self._changed.wait_for(lambda: bool(self._read) or self._ended(), timeout)
            if self._read:
                self._judging = 1
                self._changed.notify_all()
                return [self._read.popleft()]
            return None if self._ended() else []

    def _ended(self) -> bool:
        return not (self._running or self._waiting or self._reading or self._read)

    def _take(self, item: _Offered, view: View) -> None:
        """Note the times of a judged picture, and hand its part on if it is complete."""
        assert item.read is not None
        total = (time.perf_counter() - item.at) * 1e3
        ms = view.ms | {"wait": max(0.0, total - view.ms.get("total", 0.0)), "total": total}
        view = replace(view, ms={step: round(value, 3) for step, value in ms.items()})
        with self._changed:
            self._judging = 0
            self._counts["judged"] += 1
            self._total_ms.append(total)
            if view.inspection:
                self._encode_ms.append(view.ms.get("encode", 0.0))
            part = self._assembly.add(view)
        if part:
            self._hand_on(part)

    def _hand_on(self, part: JudgedPart) -> None:
        with self._changed:
            self._counts["parts"] += 1
            self._counts["incomplete"] += bool(part.missing)
            answers = [self._answers.get(view.picture.key) for view in part.views]
        try:
            self._keep(part)
        except Exception as error:
            with self._changed:
                self._counts["not_kept"] += 1
            log.error("The part %s was not kept", printable(part.key), exc_info=error)
        for answer in answers:
            if answer and not answer.done():
                answer.set_result(part)

    # --- seen from outside ---

    def state(self) -> dict[str, Any]:
        """The queue, the counts since the start, and the times of the last 1000 pictures in milliseconds.

        ``total_ms`` is from the frame to the verdict, ``encode_ms`` the encoder alone; each with p50 and p99, None
        before the first picture.
        """
        with self._changed:
            return {
                "running": self._running,
                "queue": len(self._waiting) + len(self._read) + self._reading + self._judging,
                "capacity": self._queue.capacity,
                "when_full": self._queue.when_full,
                "open_parts": len(self._assembly),
                **self._counts,
                "failures": self._judge.failures,
                "total_ms": _percentiles(self._total_ms),
                "encode_ms": _percentiles(self._encode_ms),
            }


_REFUSED = {
    DROPPED: "The picture was not accepted: too many others wait to be judged; send it again later.",
    KNOWN: "A picture of this key was judged before; its part is in the history.",
    STOPPED: "The picture was not accepted: the station is not judging now; send it again later.",
}


def _percentiles(values: deque[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p99": None}
    p50, p99 = np.percentile(np.asarray(values), (50, 99))
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2)}
