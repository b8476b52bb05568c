"""Watches the parts of all products for changes of light, camera or product, and warns once for each change.

Parts are taken from the judging without holding it up; a thread of its own does the rest. What was seen of a product
since it was last taught is read from the history at the start, so that a restart forgets nothing.
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dinosaur_ad._text import printable
from dinosaur_ad.bank.bank_files import read_bank
from dinosaur_ad.core.drift import Cause, cause_of_change
from dinosaur_ad.detector import Dinosaur
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import DriftConfig, SinkConfig
from dinosaur_ad.station.part import JudgedPart
from dinosaur_ad.station.priority import background_thread
from dinosaur_ad.station.product_watch import ProductWatch
from dinosaur_ad.station.sightings import PartSightings, SeenBefore, part_ids, reduced, sightings_of
from dinosaur_ad.station.warning_words import warning_of
from dinosaur_ad.store import Store, TaskStore

if TYPE_CHECKING:
    from dinosaur_ad.station.history.history import History

log = logging.getLogger(__name__)

WAITING = 256
"""Parts that may wait to be looked at; the oldest are left out then, and counted."""
ASK_SECONDS = 2.0
"""How often the history is asked whether somebody closed a warning, while one is open."""
OF_LATE = 200
"""A product with none of so many parts before says nothing about a change now."""
SAME_LIGHT = 1.01
"""Contrast that differs by less is not said to have changed in one direction."""
RECORDED_SECONDS = 3.0
"""How long a warning waits for the parts that show it to be in the history."""


@dataclass
class WatchedProduct:
    """The watch of a product, the version and the calibration it belongs to, and whether a warning of it is open."""

    version: str
    scores: str
    watch: ProductWatch
    warned: bool = False
    last: int = 0
    """The number of its last part, of all parts that were looked at."""


class DriftWatch:
    """Notices changes. :meth:`take` is called with every part and never waits.

    Of the parts of all products together, at most a share of ``false_warnings`` leads to a warning without a change.
    """

    def __init__(
        self,
        history: History,
        bus: Bus,
        config: DriftConfig,
        detector: Dinosaur,
        sinks: Sequence[SinkConfig] = (),
    ) -> None:
        self._history, self._bus, self._config, self._detector = history, bus, config, detector
        self._sinks = tuple(sinks)
        self._store: TaskStore | None = None
        self._products: dict[str, WatchedProduct] = {}
        self._seen_before: set[str] = set()
        self._waiting: deque[PartSightings] = deque()
        self._some = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = self._busy = False
        self._asked, self._count = 0.0, 0
        self.dropped = 0

    # --- life ---

    def start(self) -> None:
        """Begin to watch; what was seen before is read first, in the background."""
        store = self._detector.store
        self._store = Store.open(store.path) if isinstance(store, Store) else store
        self._stopping, self._busy = False, True
        self._thread = background_thread(self._run, "station-drift")
        self._thread.start()

    def stop(self) -> None:
        """End; parts that wait are read from the history by the next start."""
        with self._some:
            self._stopping = True
            self._some.notify_all()
        if self._thread is not None:
            self._thread.join(10.0)

    def take(self, part: JudgedPart) -> None:
        """Look at a part later."""
        seen = reduced(part)
        if not seen.views:
            return
        with self._some:
            if len(self._waiting) >= WAITING:
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append(seen)
            self._some.notify_all()

    def settle(self, timeout: float = 10.0) -> bool:
        """Wait until all parts that were taken have been looked at; whether they have."""
        with self._some:
            return self._some.wait_for(lambda: not self._waiting and not self._busy, timeout)

    def state(self) -> dict[str, Any]:
        """What is known of each product: parts, evidence (1 / ``false_warnings`` warns), what shows it most."""
        products = {
            name: {
                "parts": each.watch.parts,
                "evidence": math.exp(min(700.0, each.watch.log_evidence)),
                "channel": each.watch.channel,
                "warned": each.warned,
            }
            for name, each in list(self._products.items())
        }
        return {"products": products, "limit": 1 / self._config.false_warnings, "dropped": self.dropped}

    def _run(self) -> None:
        read = self._tried("What was seen before could not be read", self._read_history)
        while True:
            with self._some:
                self._busy = False
                self._some.notify_all()
                self._some.wait_for(lambda: bool(self._waiting) or self._stopping)
                if self._stopping:
                    return
                part, self._busy = self._waiting.popleft(), True
            read = read or self._tried("What was seen before could not be read", self._read_history)
            if read:
                self._tried("A part could not be looked at", partial(self._look_at, part))

    def _tried(self, what: str, work: Callable[[], None]) -> bool:
        """Whether a piece of work did not fail; what fails is logged, and the next part goes on."""
        try:
            work()
            return True
        except Exception as error:  # a database that is down, a product that was forgotten
            log.warning("%s for drift: %s", what, printable(error), exc_info=not isinstance(error, DinosaurError))
            return False

    # --- parts ---

    def _read_history(self) -> None:
        assert self._store is not None
        for name in self._store.names():
            self._product(name, rebuild=True)
        for warning in self._history.warnings():
            for name in warning.detail.get("tasks", [warning.task]):
                if name in self._products:
                    self._products[name].warned = True

    def _look_at(self, part: PartSightings) -> None:
        if part.key in self._seen_before:  # recorded before the history was read
            self._seen_before.discard(part.key)
            return
        self._forget_closed()
        for task, seen in sightings_of(part, self._history):
            product = self._product(task)
            if product is None:
                continue
            product.watch.take(seen)
            self._count += 1
            product.last = self._count
            if not product.warned and product.watch.parts >= self._config.minimum_parts:
                self._warn_if_changed()

    def _product(self, task: str, rebuild: bool = False) -> WatchedProduct | None:
        """The watch of a product as it is now; None where it cannot be watched.

        A version with the same calibration, for instance with one more defect in the gallery, is watched on.
        """
        assert self._store is not None
        if self._detector.preset.calibration == "in-sample":
            return None
        record = self._store.record(task)
        known = self._products.get(task)
        if known is not None and known.version == record.id:
            return known
        arrays = read_bank(self._store, record)[0]
        scores = hashlib.sha256(arrays["scores"].tobytes() + arrays["levels"].tobytes()).hexdigest()
        if known is not None and known.scores == scores:
            known.version = record.id
            return known
        if not rebuild:
            product = WatchedProduct(record.id, scores, ProductWatch(arrays["scores"], arrays["levels"]))
        else:
            before = SeenBefore.of(task, record, self._history)
            watch = ProductWatch(arrays["scores"], arrays["levels"], accepted=before.accepted)
            for each in before.sightings:
                watch.take(each)
            self._seen_before |= {each.part for each in before.sightings}
            product = WatchedProduct(record.id, scores, watch)
        self._products[task] = product
        return product

    def _forget_closed(self) -> None:
        """Begin anew with products whose warning was closed: how they are now is what is usual from then on."""
        if not any(each.warned for each in self._products.values()) or time.monotonic() < self._asked + ASK_SECONDS:
            return
        self._asked = time.monotonic()
        assert self._store is not None
        still = {name for row in self._history.warnings() for name in row.detail.get("tasks", [row.task])}
        for name, product in self._products.items():
            if product.warned and name not in still and name in self._store:
                arrays = read_bank(self._store, self._store.record(name))[0]
                product.watch = ProductWatch(arrays["scores"], arrays["levels"], accepted=True)
                product.warned = False

    # --- warnings ---

    def _warn_if_changed(self) -> None:
        alpha = self._config.false_warnings
        watched = {name: each for name, each in self._products.items() if 0 < each.last > self._count - OF_LATE}
        evidence = {name: each.watch.log_evidence for name, each in watched.items()}
        limit = -math.log(alpha)
        new = [name for name, value in evidence.items() if value >= limit and not watched[name].warned]
        if not new:
            return
        cause = self._cause(evidence, {name: each.watch for name, each in watched.items()})
        if cause.kind in ("light", "shared"):
            self._warn(cause, [*dict.fromkeys([*new, *cause.tasks])])
        else:
            for name in new:
                self._warn(Cause("task", (name,)), [name])

    def _cause(self, evidence: dict[str, float], watches: dict[str, ProductWatch]) -> Cause:
        """The light, if most products that show it became brighter, or most darker; else as the evidence says."""
        alpha = self._config.false_warnings
        ratios = {name: each.light_ratio(alpha) for name, each in watches.items() if each.knows_light}
        for changed in (
            [name for name, ratio in ratios.items() if ratio > SAME_LIGHT],
            [name for name, ratio in ratios.items() if ratio < 1 / SAME_LIGHT],
        ):
            if 2 * len(changed) > len(ratios):
                return Cause("light", tuple(changed), float(np.median([ratios[name] for name in changed])))
        # With this alpha a product is noticed at the limit, however many products there are: the bound is one a part.
        return cause_of_change(evidence, alpha=min(0.5, alpha * len(evidence)))

    def _warn(self, cause: Cause, tasks: list[str]) -> None:
        leader = max(tasks, key=lambda name: self._products[name].watch.log_evidence)
        about_one = cause.kind == "task"
        if not about_one and self._joined(tasks):
            return
        keys = [key for name in tasks for key in self._products[name].watch.shown(6 if about_one else 3)]
        said = warning_of(cause, tasks, self._products[leader].watch, self._config.false_warnings)
        parts = part_ids(self._history, keys, RECORDED_SECONDS)
        task = tasks[0] if about_one else None
        number = self._history.add_warning(said.kind, task, said.sentence, said.detail, parts)
        for name in tasks:
            self._products[name].warned = True
        body = {"id": number, "kind": said.kind, "task": task, "sentence": said.sentence, "parts": parts}
        self._history.queue_message("warning", str(number), body | {"detail": said.detail}, self._sinks)
        self._bus.publish("warning", body | {"detail": said.detail})

    def _joined(self, tasks: list[str]) -> bool:
        """Add products to an open warning about several; whether there is one."""
        from dinosaur_ad.station.tables import WarningRow

        for row in self._history.warnings():
            if row.task is None and row.kind in ("light", "shared"):
                with self._history.session() as session:
                    stored = session.get(WarningRow, row.id)
                    if stored is not None:
                        known = stored.detail.get("tasks", [])
                        stored.detail = stored.detail | {"tasks": [*dict.fromkeys([*known, *tasks])]}
                for name in tasks:
                    self._products[name].warned = True
                return True
        return False
