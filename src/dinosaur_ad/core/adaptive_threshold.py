"""A threshold that follows slow change, taught by nothing but parts that a person confirmed to be normal.

Adaptive conformal inference (Gibbs and Candès, 2021): the false-alarm rate that the threshold is computed for moves by
``rate (target - alarm)`` with every confirmed normal. Whatever the scores do, even if an opponent chooses them, the
share of alarms among ``T`` confirmed normals differs from the target by at most ``(1 + rate) / (rate T)``: the working
rate cannot leave ``[-rate, 1 + rate]``, because below 0 nothing is an alarm and above 1 everything is.

It promises nothing about defects: a threshold that follows normals upwards may pass defects. And it needs feedback that
does not depend on the verdict: if only alarms are confirmed, the threshold rises until there are none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dinosaur_ad.core.calibration import alarm_level
from dinosaur_ad.errors import InputError

RATE = 0.01
"""How far one confirmed normal moves the working rate; at the worst it takes 10,000 of them until the share of alarms
is within 0.01 of the target."""
WINDOW = 500
"""As many of the latest normal scores are remembered."""


class AdaptiveThreshold(NamedTuple):
    """The working false-alarm rate, the one that was asked for, and the latest scores; plain numbers, fit for JSON."""

    working: float
    target: float
    scores: Sequence[float]

    @property
    def threshold(self) -> float:
        """Scores above it are alarms; infinite where the working rate is 0 or less, and the task cannot be judged."""
        if self.working <= 0:
            return math.inf
        if self.working >= 1:
            return -math.inf
        return _threshold(np.asarray(self.scores), self.working)


def _threshold(scores: np.ndarray, false_alarms: float) -> float:
    """The conformal order statistic; beyond the highest score, where there is none, that of the tail model."""
    rank = math.ceil((len(scores) + 1) * (1 - false_alarms))
    if rank <= len(scores):
        return float(np.sort(scores)[rank - 1])
    return max(float(scores.max()), alarm_level(scores, false_alarms))


def begin_threshold(calibration: np.ndarray, false_alarms: float) -> AdaptiveThreshold:
    """The threshold of the calibration scores, before any part was confirmed.

    >>> begin_threshold(np.arange(1.0, 100.0), 0.05).threshold
    95.0
    """
    scores = np.asarray(calibration, np.float64)
    if not len(scores) or not np.isfinite(scores).all():
        raise InputError("An adaptive threshold needs finite calibration scores; learn the task's normal images first.")
    return AdaptiveThreshold(false_alarms, false_alarms, tuple(scores[-WINDOW:].tolist()))


def confirm_normal(state: AdaptiveThreshold, score: float, rate: float = RATE) -> AdaptiveThreshold:
    """The threshold after a part with this score was confirmed to be normal.

    >>> state = begin_threshold(np.arange(1.0, 100.0), 0.05)
    >>> confirm_normal(state, 200.0).threshold > state.threshold  # a false alarm: fewer of them
    True
    """
    if not math.isfinite(score):
        raise InputError(f"A part with the score {score} cannot be confirmed as normal; inspect it again.")
    alarm = score > state.threshold
    working = state.working + rate * (state.target - alarm)
    return AdaptiveThreshold(working, state.target, (*state.scores, float(score))[-WINDOW:])
