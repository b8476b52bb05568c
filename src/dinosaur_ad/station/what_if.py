"""What another sensitivity of a product would have done to the parts that were judged: false alarms and misses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dinosaur_ad.bank.bank_files import read_bank
from dinosaur_ad.bank.checking import Rate
from dinosaur_ad.bank.settings import MOST_SENSITIVITY, sensitivity_rate
from dinosaur_ad.bank.verdict import NOT_READY, UNKNOWN
from dinosaur_ad.core.adaptive_threshold import begin_threshold, confirm_normal

if TYPE_CHECKING:
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.station.history.history import History
    from dinosaur_ad.station.history.searching import ScorePoint
    from dinosaur_ad.station.tables import ChangeRow

PARTS = 2000
"""The latest parts that are looked at."""
SAME_SCALE = ("defect", "withdraw", "sensitivity", "rename")
"""Changes after which scores mean what they meant before."""
FEWEST_CONFIRMED = 20
"""With fewer parts called fine, nothing is said about a threshold that follows them."""


@dataclass(frozen=True)
class SensitivityPlace:
    """A place of the slider, and what it would have done.

    ``flagged`` of all ``parts`` would have been called anomalous; ``false_alarms`` are those among the parts that
    people called fine, ``missed`` the parts they called defects that would have passed. Both have the rates that they
    are compatible with (95 %); None where nobody has answered. ``current`` is the place that is nearest to the setting.
    """

    sensitivity: int
    rate: float
    threshold: float
    parts: int
    flagged: int
    false_alarms: Rate | None
    missed: Rate | None
    current: bool = False

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class FollowingThreshold:
    """The threshold that would give the rate that is asked for on the parts people called fine, and how many they are.

    Adaptive conformal inference on confirmed normals alone (:mod:`dinosaur_ad.core.adaptive_threshold`). It is meant
    for answers that do not depend on the verdict: where only alarms are answered, it rises until there are none.
    """

    threshold: float
    now: float
    confirmed: int
    passed: int
    """Of the confirmed parts, how many had passed: without any, the answers depend on the verdict."""


def what_if(task: str, history: History, detector: Dinosaur) -> list[SensitivityPlace]:
    """What each place from 0 (cautious) to 10 (strict) would have done to the latest parts of a product.

    Parts from before its last change do not count, because scores meant something else then; nor parts that could not
    be judged.
    """
    points = judged_points(task, history, PARTS)
    settings = detector.settings(task)
    rates = [sensitivity_rate(place, detector.preset) for place in range(int(MOST_SENSITIVITY) + 1)]
    current = min(range(len(rates)), key=lambda place: abs(math.log(rates[place] / max(settings.false_alarms, 1e-9))))
    return [
        _place(place, rate, detector.threshold(task, rate), points, current=place == current)
        for place, rate in enumerate(rates)
    ]


def following_threshold(task: str, history: History, detector: Dinosaur) -> FollowingThreshold | None:
    """A threshold that follows the parts people called fine; None with few of them, or with one that is infinite."""
    fine = [point for point in judged_points(task, history, PARTS) if point.answer == "fine"]
    if len(fine) < FEWEST_CONFIRMED:
        return None
    settings = detector.settings(task)
    state = begin_threshold(read_bank(detector.store, detector.store.record(task))[0]["scores"], settings.false_alarms)
    for point in fine:
        state = confirm_normal(state, float(point.score or 0.0))
    if not math.isfinite(state.threshold):
        return None
    passed = sum((point.score or 0.0) <= settings.threshold for point in fine)
    return FollowingThreshold(state.threshold, settings.threshold, len(fine), passed)


def judged_points(task: str, history: History, limit: int) -> list[ScorePoint]:
    """The latest parts of a product that were judged as it is now, the oldest first."""
    points = history.scores(task, last_new_scale(history.changes(task)) or None, limit)
    return [point for point in points if point.score is not None and point.verdict != NOT_READY]


def last_new_scale(changes: Iterable[ChangeRow]) -> str | None:
    """When a product was last changed so that its scores mean something else, of its changes, the newest first."""
    return next((change.made for change in changes if change.action not in SAME_SCALE), None)


def _place(
    place: int, rate: float, threshold: float, points: Sequence[ScorePoint], *, current: bool
) -> SensitivityPlace:
    def flagged(point: ScorePoint) -> bool:
        return point.verdict == UNKNOWN or not (point.score or 0.0) <= threshold  # unknown at any threshold

    fine = [flagged(point) for point in points if point.answer == "fine"]
    defects = [flagged(point) for point in points if point.answer == "defect"]
    return SensitivityPlace(
        place,
        rate,
        threshold,
        len(points),
        sum(map(flagged, points)),
        Rate.of(sum(fine), len(fine)) if fine else None,
        Rate.of(defects.count(False), len(defects)) if defects else None,
        current,
    )
