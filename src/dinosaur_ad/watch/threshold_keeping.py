"""Keeps the thresholds of known products true while nobody looks: pictures that are never learned, scores that tell.

From :data:`KEPT_OUT_FROM` images on, some pictures of a product are kept instead of learned, so that they can be scored
anew with each memory that it will have. And of its newest scores it is seen whether its threshold still holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from dinosaur_ad.bank.bank_files import read_bank
from dinosaur_ad.bank.recalibrating import FEWEST
from dinosaur_ad.core.calibration import alarm_level, usual_exceedance
from dinosaur_ad.errors import InputError
from dinosaur_ad.inspection import Inspection, Learned
from dinosaur_ad.store import TaskStore
from dinosaur_ad.watch.tray import Tray
from dinosaur_ad.watch.watch_event import RECALIBRATED, REFUSED, WatchEvent

KEPT_OUT_FROM, KEPT_OUT_EVERY, KEPT_OUT = 100, 3, 100
"""From so many images on, of every third judged picture a copy is kept instead of learning it, the newest hundred of
each product. Before, an image more in the memory is worth more than a better known score."""
JUDGED, LEAST_JUDGED, JUDGED_EVERY = 200, 60, 10
"""Of so many newest scores since the threshold of a product was taken it is seen whether it holds, from so many on,
with every tenth."""
TOO_MANY = 2.0
"""A threshold that usual pictures exceed so many times as often as was asked for is taken anew."""


class Recalibrator(Protocol):
    """What keeping thresholds needs of a detector."""

    @property
    def store(self) -> TaskStore:
        """Where tasks are kept."""

    def recalibrate(self, name: str, images: Sequence[Path], *, doubtful: bool = False) -> Learned:
        """Take the threshold anew from images that nobody has looked at, if ``doubtful``, and were never learned."""


class _Level(NamedTuple):
    """An alarm level, and the version of the task and the false-alarm rate that it holds for."""

    version: str
    false_alarms: float
    level: float


class ThresholdKeeper:
    """Keeps the thresholds of the products in ``detector``; what it needs for that lies in the tray."""

    def __init__(self, detector: Recalibrator, tray: Tray) -> None:
        self._detector, self._tray = detector, tray
        self._levels: dict[str, _Level] = {}  # by task

    # --- with each judged picture, inside a change of the tray ---

    def note(self, result: Inspection) -> None:
        """Note that a picture of a product was judged and what it scored, and whether its threshold still holds."""
        if not self._has_enough(result.task):
            return
        # A score that is no number says nothing of a threshold.
        if math.isfinite(result.score) and result.score > 0:
            self._tray.note_score(result.task, result.score, JUDGED)
            if self._is_exceeded(result):
                self._tray.mark_outdated(result.task)
        self._tray.count_judged(result.task)

    def is_kept_out(self, task: str) -> bool:
        """Whether the picture that was noted last is one of those of its product that are never learned."""
        return self._has_enough(task) and self._tray.judged_count(task) % KEPT_OUT_EVERY == 0

    def keep_out(self, path: Path, task: str) -> None:
        """Keep a copy of a picture that is never learned."""
        self._tray.keep_out(path, task, KEPT_OUT)

    def _has_enough(self, task: str) -> bool:
        """Whether a product has learned so much that pictures of it can be kept out."""
        return len(self._detector.store.record(task).manifest["images"]) >= KEPT_OUT_FROM

    def _is_exceeded(self, result: Inspection) -> bool:
        """Whether usual pictures exceed the threshold of a product too often; now and then, from enough scores on."""
        scores = self._tray.judged_scores(result.task)
        if len(scores) < LEAST_JUDGED or len(scores) % JUDGED_EVERY:
            return False
        return usual_exceedance(np.asarray(scores), self._alarm_level(result)) > TOO_MANY * result.false_alarms

    def _alarm_level(self, result: Inspection) -> float:
        """The threshold that the calibration of a task gives, whatever a person has set."""
        record, rate = self._detector.store.record(result.task), result.false_alarms
        known = self._levels.get(result.task)
        if known is None or (known.version, known.false_alarms) != (record.id, rate):
            scores = np.asarray(read_bank(self._detector.store, record)[0]["scores"])
            known = self._levels[result.task] = _Level(record.id, rate, alarm_level(scores, rate))
        return known.level

    # --- between pictures ---

    def forget_replaced(self, task: str) -> None:
        """Forget the pictures that are kept out of a product if a person took its threshold from others since."""
        calibration = self._detector.store.record(task).manifest.get("calibration", {})
        if calibration.get("kind") == "held-out":
            with self._tray.change():
                self._tray.forget_thresholds(task)

    def renew(self) -> Iterator[WatchEvent]:
        """Take the thresholds anew that do not hold; also one during which a watch was killed."""
        for task in self._tray.outdated_tasks():
            yield from self._recalibrate(task)

    def _recalibrate(self, task: str) -> Iterator[WatchEvent]:
        """Take the threshold of a product anew from the pictures that are kept of it and were never learned."""
        kept_out, event = self._tray.kept_out(task), None
        if task in self._detector.store and len(kept_out) >= FEWEST:
            try:
                learned = self._detector.recalibrate(task, kept_out, doubtful=True)
            except InputError as error:
                event = WatchEvent(REFUSED, str(error), task=task)
            else:
                reason = (
                    f"its usual pictures exceed the threshold more than {TOO_MANY:g} times as often as asked for, so "
                    f"it was taken anew from {len(kept_out)} that were not learned; undo takes it back"
                )
                event = WatchEvent(RECALIBRATED, reason, task=task, promised_rate=learned.promised_rate)
        with self._tray.change():
            self._tray.threshold_taken(task)
            if event:
                self._tray.record(event.to_json())
        if event:
            yield event
