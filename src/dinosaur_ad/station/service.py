"""The station as a whole: the pieces of :mod:`dinosaur_ad.station`, started in order and stopped in the other."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dinosaur_ad import __version__
from dinosaur_ad._text import printable
from dinosaur_ad.detector import Dinosaur
from dinosaur_ad.encoders.options import EncoderOptions
from dinosaur_ad.errors import DinosaurError, InputError
from dinosaur_ad.station.accounts import Accounts
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import SourceConfig, StationConfig
from dinosaur_ad.station.drift_watch import DriftWatch
from dinosaur_ad.station.history.history import History, HistoryDownError
from dinosaur_ad.station.history.journal import Journal
from dinosaur_ad.station.history.recorder import Recorder
from dinosaur_ad.station.judge import Judge
from dinosaur_ad.station.memory_pools import share_memory_pools
from dinosaur_ad.station.outbox import Outbox
from dinosaur_ad.station.part import JudgedPart
from dinosaur_ad.station.pipeline import Pipeline
from dinosaur_ad.station.priority import background_thread, take_turns_quickly
from dinosaur_ad.station.proposals import Proposals
from dinosaur_ad.station.sinks.mqtt_trigger import MqttTrigger, triggers_by_topic
from dinosaur_ad.station.sources.source import Source, make_source
from dinosaur_ad.station.spool import Spool
from dinosaur_ad.station.station_teaching import Teaching

log = logging.getLogger(__name__)

RETENTION_SECONDS = 600.0
"""How often old pictures are looked for."""
UPLOADS = "upload"
"""The source of pictures that come by the API without naming another one."""


class Station:
    """One store, its sources and its sinks, running until :meth:`stop`.

    ``encoder``, ``options`` and ``preset`` are those of :class:`Dinosaur`: a new store takes them, an existing one must
    have been made with the same encoder and preset.
    """

    def __init__(
        self,
        config: StationConfig,
        *,
        encoder: Any = None,
        preset: Any = None,
        options: EncoderOptions | None = None,
    ) -> None:
        self.config = config
        self.bus = Bus()
        self.detector = Dinosaur(config.store, encoder=encoder, preset=preset, options=options)
        folder = _made(config.folder)
        self.history = History(config.history.url, folder, config.history)
        self.spool = Spool(folder / "spool")
        self.accounts = Accounts(self.history)
        self.recorder = Recorder(self.history, Journal(folder / "journal"), self.bus, config.sinks)
        self.judge = Judge(self.detector)
        self.drift = DriftWatch(self.history, self.bus, config.drift, self.detector, config.sinks)
        self.pipeline = Pipeline(self.judge, self._keep, config.queue, config.part, self.recorder.known, self.bus)
        self.outbox = Outbox(self.history, config.sinks, self.bus, self.trigger)
        self.teaching = Teaching(self.detector, self.history, self.bus, config.teaching, config.sinks)
        self.proposals = Proposals(self.teaching, self.history, self.bus, config.proposals, config.sinks)
        self.sources: dict[str, Source] = {}
        self.started: str | None = None
        self._mqtt_trigger: MqttTrigger | None = None
        self._running = ExitStack()
        self._ended = threading.Event()

    # --- life ---

    def start(self) -> None:
        """Start everything; what cannot start raises, and what has started is stopped again.

        :raises DinosaurError: the store, the history or the encoder cannot be used. A camera or a broker that is not
            there raises nothing: its state says so, and it is tried again.
        """
        take_turns_quickly()
        share_memory_pools()
        with ExitStack() as begun:
            self._hold_folder(begun)
            self.judge.prepare()
            self._open_history()
            begun.callback(self.history.close)
            for piece in (self.recorder, self.drift, self.teaching, self.proposals, self.outbox):
                piece.start()
                begun.callback(piece.stop)
            self.pipeline.start()
            begun.callback(self.pipeline.stop)
            self._start_sources(begun)
            self._start_retention(begun)
            self.started = datetime.now(UTC).isoformat()
            self._running = begun.pop_all()

    def stop(self) -> None:
        """Take no more pictures, judge and record those that were accepted, and end."""
        self._ended.set()
        self._running.close()

    def _open_history(self) -> None:
        """Open the history; a database server that is away now is asked again by the recorder, and judging begins."""
        try:
            self.history.open()
        except HistoryDownError as error:
            log.warning("The history is not there yet: %s", printable(error))

    def _hold_folder(self, begun: ExitStack) -> None:
        """Refuse a second station on the same folder."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.config.folder / ".running")
        try:
            begun.enter_context(lock.acquire(timeout=0))
        except Timeout:
            raise InputError(
                f"Another station is running in {printable(self.config.folder)}; stop it, or give this one another "
                "folder with --folder."
            ) from None

    def _start_sources(self, begun: ExitStack) -> None:
        named = {each.name for each in self.config.sources}
        uploads = () if UPLOADS in named else (SourceConfig(UPLOADS, "upload"),)
        for config in (*self.config.sources, *uploads):
            source = make_source(config, self.pipeline.offer, self.spool, self.bus, self.recorder.known)
            self.sources[config.name] = source
            source.start()
            begun.callback(source.stop)
        if by_mqtt := triggers_by_topic(self.config.sources, self.config.sinks, self.trigger):
            self._mqtt_trigger = MqttTrigger(*by_mqtt)
            self._mqtt_trigger.start()
            begun.callback(self._mqtt_trigger.stop)

    def trigger(self, source: str, part: str = "") -> None:
        """Have a camera take a picture now.

        :raises InputError: there is no such source, or it is not triggered from outside.
        """
        if source not in self.sources:
            known = ", ".join(map(printable, self.sources))
            raise InputError(f"There is no source '{printable(source)}'; there are {known}.")
        self.sources[source].trigger(part)

    def _start_retention(self, begun: ExitStack) -> None:
        def remove_old() -> None:
            while not self._ended.wait(RETENTION_SECONDS):
                try:
                    self.history.apply_retention()
                except Exception as error:  # a database that is down; the next round tries again
                    log.warning("Old pictures could not be removed: %s", printable(error))

        thread = background_thread(remove_old, "station-retention")
        thread.start()
        begun.callback(thread.join, 10.0)
        begun.callback(self._ended.set)

    def _keep(self, part: JudgedPart) -> None:
        """What follows a verdict; neither waits for a disk or a database."""
        self.recorder.keep(part)
        self.drift.take(part)

    # --- what it is doing ---

    def state(self) -> dict[str, Any]:
        """All there is to say of the station now, as JSON; the system page and the metrics show it."""
        return {
            "version": __version__,
            "started": self.started,
            "pid": os.getpid(),
            "store": str(self.config.store),
            "encoder": _said(self.detector.info),
            "pipeline": self.pipeline.state(),
            "recorder": self.recorder.state(),
            "sources": [source.state() for source in self.sources.values()],
            "sinks": self.outbox.state(),
            "history": _said(self.history.disk),
            "teaching": self.teaching.state(),
            "warnings": _said(lambda: len(self.history.warnings())),
            "proposals": self.proposals.state(),
            "products": [record.name for record in self.detector.tasks()],
            "damaged": self.detector.damaged(),
            "counts": _said(self.history.counts),
            "mqtt_trigger": self._mqtt_trigger.obstacle() if self._mqtt_trigger else "",
        }

    def ready(self) -> str:
        """Why parts cannot be judged or recorded now; empty if they can."""
        if self.started is None:
            return "The station is starting."
        recorder = self.recorder.state()
        if recorder.get("database_error"):
            return f"The history cannot be written: {recorder['database_error']}"
        if not len(self.detector):
            return "No product has been taught yet."
        return ""


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"The station's folder {printable(folder)} cannot be made ({error.strerror}); choose another with --folder."
        ) from None
    return folder


def _said(ask: Callable[[], Any]) -> Any:
    """What a piece says of itself; the sentence of its error while it cannot."""
    try:
        return ask()
    except DinosaurError as error:
        return {"error": str(error)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {printable(error, 200)}"}
