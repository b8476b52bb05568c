"""What all sources share: a thread that comes back after every failure, a state with its reason, counters."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Protocol

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.errors import DinosaurError, InputError
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import SourceConfig
from dinosaur_ad.station.part import Picture
from dinosaur_ad.station.sinks.sink import Backoff
from dinosaur_ad.station.spool import Spool

log = logging.getLogger(__name__)

STARTING, RUNNING, WAITING, FAILED, STOPPED = "starting", "running", "waiting", "failed", "stopped"
FROM_OUTSIDE = ("http", "mqtt", "opcua")
"""The triggers that :meth:`Source.trigger` is for."""

Known = Callable[[Iterable[str]], set[str]]


class Offer(Protocol):
    """:meth:`dinosaur_ad.station.pipeline.Pipeline.offer`."""

    def __call__(
        self,
        picture: Picture,
        timeout: float | None = None,
        when_full: str | None = None,
        ask_history: bool | None = None,
    ) -> str:
        """Give a picture to be judged."""
        ...


class SourceLostError(Exception):
    """The camera or folder is not there now, as a sentence; it is tried again after a while."""


class Source:
    """One camera or folder, in a thread of its own. A subclass implements :meth:`_run`.

    ``known`` says which keys the history has, for sources that ask for many at once.
    """

    def __init__(
        self,
        config: SourceConfig,
        offer: Offer,
        spool: Spool | None = None,
        bus: Bus | None = None,
        known: Known | None = None,
    ) -> None:
        self.config = config
        self.backoff = Backoff(0.5, 15.0)
        self._offer = offer
        self._spool = spool
        self._bus = bus
        self._known = known
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._state, self._reason, self._since = STOPPED, "", _now()
        self._last: str | None = None
        counted = ("frames", "pictures", "accepted", "dropped", "known", "ignored", "damaged", "skipped")
        self._counts = dict.fromkeys(counted, 0)
        self._losses = 0

    @property
    def name(self) -> str:
        """As in the settings."""
        return self.config.name

    # --- life ---

    def start(self) -> None:
        """Begin; problems show in :meth:`state`, not here."""
        if self._thread and self._thread.is_alive():
            return
        self._stopping.clear()
        self._thread = threading.Thread(target=self._keep_running, name=f"source-{self.name}", daemon=True)
        self._thread.start()

    def stop(self, timeout: float | None = 10.0) -> bool:
        """End; whether the thread ended in time."""
        self._stopping.set()
        self._wake()
        if self._thread:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
        self._set_state(STOPPED, "")
        return True

    def trigger(self, part: str = "") -> None:
        """Take a picture now, for triggers from outside; ``part`` names the part, the same for all its views.

        :raises InputError: this source is not triggered from outside, or gives no pictures now.
        """
        raise InputError(f"The source '{printable(self.name)}' of kind {self.config.kind} cannot be triggered.")

    def _run(self) -> None:
        """Give pictures until :attr:`_stopping` is set; returning before means that there are no more.

        :raises SourceLostError: it is not there now; called again after a while.
        :raises InputError: it cannot work as it is set; not called again.
        """
        raise NotImplementedError

    def _wake(self) -> None:
        """Called when the source is to stop; for one that waits on something else than :attr:`_stopping`."""

    def _keep_running(self) -> None:
        self._set_state(STARTING, "")
        self.backoff.reset()
        while not self._stopping.is_set():
            try:
                self._run()
            except SourceLostError as error:
                self._set_state(WAITING, str(error))
            except DinosaurError as error:
                self._set_state(FAILED, str(error))
                return
            except Exception as error:
                log.error("The source %s failed", printable(self.name), exc_info=error)
                self._set_state(FAILED, f"{type(error).__name__}: {first_line(error)}; it is tried again.")
            else:
                if not self._stopping.is_set():
                    self._set_state(STOPPED, self._ended())
                return
            self._losses += 1
            self._stopping.wait(self.backoff.next())

    def _ended(self) -> str:
        """The sentence for a source that has no more pictures."""
        return "There are no more pictures."

    # --- what subclasses call ---

    def _works(self, reason: str = "") -> None:
        """It is there and gives pictures; the next failure is the first again."""
        self.backoff.reset()
        self._set_state(RUNNING, reason)

    def _give(self, picture: Picture, when_full: str | None = None, ask_history: bool | None = None) -> str:
        """Offer a picture and count what became of it.

        :raises SourceLostError: nothing is judged now.
        """
        result = self._offer(picture, when_full=when_full, ask_history=ask_history)
        if result == "stopped":
            raise SourceLostError("Nothing is judged now, because the station is stopping.")
        self._count("pictures")
        self._count(result)
        self._last = _now()
        return result

    def _count(self, name: str, by: int = 1) -> None:
        with self._lock:
            self._counts[name] += by

    def _set_state(self, state: str, reason: str) -> None:
        with self._lock:
            if (state, reason) == (self._state, self._reason):
                return
            if state != self._state:
                self._since = _now()
            self._state, self._reason = state, reason
        if self._bus:
            self._bus.publish("source", self.state())

    def state(self) -> dict[str, Any]:
        """For the page: what it is, how it is and since when, why, and how many pictures came.

        ``accepted``, ``dropped`` and ``known`` are what became of the pictures; ``skipped`` frames were wanted but
        not taken because judging was too slow, ``damaged`` ones could not be decoded, and ``ignored`` files are no
        images.
        """
        with self._lock:
            return {
                "name": self.name,
                "kind": self.config.kind,
                "view": self.config.view,
                "task": self.config.task,
                "trigger": self.config.trigger,
                "state": self._state,
                "reason": self._reason,
                "since": self._since,
                "last_picture": self._last,
                "reconnects": self._losses,
                **self._counts,
            }


_KINDS = {
    "folder": ("watched_folder", "WatchedFolder"),
    "replay": ("replay", "Replay"),
    "upload": ("uploads", "Uploads"),
    "video": ("video", "VideoFile"),
    "rtsp": ("video", "NetworkCamera"),
    "camera": ("video", "UsbCamera"),
    "genicam": ("genicam", "GenicamCamera"),
}


def make_source(
    config: SourceConfig,
    offer: Offer,
    spool: Spool | None = None,
    bus: Bus | None = None,
    known: Known | None = None,
) -> Source:
    """The source for a section of the settings; it is not started yet.

    :raises InputError: there is no such kind.
    """
    if config.kind not in _KINDS:
        raise InputError(f"There is no source of the kind '{printable(config.kind)}'; there are {', '.join(_KINDS)}.")
    module, name = _KINDS[config.kind]  # imported when needed: a folder does not need what a camera does
    kind: type[Source] = getattr(import_module(f"dinosaur_ad.station.sources.{module}"), name)
    return kind(config, offer, spool, bus, known)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
