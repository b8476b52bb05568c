"""Metrics of image scores, with and without a threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dinosaur_ad.bench.metrics.ranks import Numbers, checked, pairs_tied, places
from dinosaur_ad.core.metrics import auroc


@dataclass(frozen=True)
class Ranked:
    """An AUROC, and what may be wrong with it: how many scores were NaN, and which share of the pairs tied."""

    auroc: float
    nan: int
    ties: float


def ranked_auroc(scores: ArrayLike, labels: ArrayLike) -> Ranked:
    """The chance that a random anomalous image scores above a random normal one; ties count half.

    ``scores`` (N,), infinities allowed, and ``labels`` (N,), 0 normal and 1 anomalous. Never flipped: below 0.5 is
    worse than chance. A NaN stands below every number. ``auroc`` and ``ties`` are NaN when there is one class only.

    >>> ranked_auroc([0.1, 0.4, 0.4, float("nan")], [0, 0, 1, 1])
    Ranked(auroc=0.375, nan=1, ties=0.25)
    """
    score_N, anomalous_N = checked(scores, labels)
    place_N = places(score_N)
    ties = pairs_tied(
        np.bincount(place_N[~anomalous_N], minlength=len(place_N) + 1),
        np.bincount(place_N[anomalous_N], minlength=len(place_N) + 1),
    )
    return Ranked(auroc(place_N, anomalous_N), int(np.isnan(score_N).sum()), float(ties))


def auroc_by_kind(scores: ArrayLike, labels: ArrayLike, kinds: Sequence[str]) -> dict[str, float]:
    """The AUROC of every kind of anomaly against all the normal images.

    ``scores``, ``labels`` and ``kinds`` (N,); what the normal ones are called does not matter.

    >>> auroc_by_kind([0.1, 0.5, 0.4, 0.9], [0, 0, 1, 1], ["good", "good", "logical", "structural"])
    {'logical': 0.5, 'structural': 1.0}
    """
    score_N, anomalous_N = checked(scores, labels)
    kind_N = np.asarray(kinds, dtype=np.str_)
    if kind_N.shape != score_N.shape:
        raise ValueError(f"there must be one kind an image, got {len(kinds)} for {len(score_N)} images")
    found: dict[str, float] = {}
    for kind in sorted({str(kind) for kind in kind_N[anomalous_N]}):
        chosen_N = ~anomalous_N | (kind_N == kind)
        found[kind] = ranked_auroc(score_N[chosen_N], anomalous_N[chosen_N]).auroc
    return found


def roc_curve(scores: ArrayLike, labels: ArrayLike, points: int = 200) -> tuple[Numbers, Numbers]:
    """The (false-alarm rate, recall) of every threshold, from (0, 0) to (1, 1), as two arrays for drawing.

    Points on a straight line are left out; if more than ``points`` remain, those kept lie evenly along the curve, so
    that none of it moves by more than 2 / (``points`` - 1). Both arrays are empty when there is one class only.

    >>> [axis.tolist() for axis in roc_curve([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1])]
    [[0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0]]
    """
    if points < 2:
        raise ValueError(f"a curve needs at least 2 points, got {points}")
    score_N, anomalous_N = checked(scores, labels)
    if anomalous_N.all() or not anomalous_N.any():
        return np.zeros(0), np.zeros(0)
    place_N = places(score_N)
    step_U2 = np.stack(
        [np.bincount(place_N[chosen], minlength=place_N.max() + 1)[::-1] for chosen in (~anomalous_N, anomalous_N)],
        axis=1,
    )
    step_U2 = step_U2[step_U2.any(axis=1)]
    # A corner is where a step does not go on in the direction of the one before.
    (x_U, y_U), (next_x_U, next_y_U) = step_U2[:-1].T, step_U2[1:].T
    corner_K = np.concatenate([[True], x_U * next_y_U != y_U * next_x_U, [True]])
    point_K2 = np.concatenate([np.zeros((1, 2)), step_U2.cumsum(axis=0) / step_U2.sum(axis=0)])[corner_K]
    if len(point_K2) > points:
        along_K = point_K2.sum(axis=1)  # grows from 0 to 2 with every step, right or up
        point_K2 = point_K2[np.unique(np.searchsorted(along_K, np.linspace(0, 2, points)))]
    return point_K2[:, 0], point_K2[:, 1]


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix; rates are NaN where the divisor is 0.

    >>> (Confusion(tp=8, fn=2) + Confusion(fp=1, tn=9)).accuracy
    0.85
    """

    tp: int = 0
    fp: int = 0
    tn: int = 0
    fn: int = 0

    def __add__(self, other: Confusion) -> Confusion:
        return Confusion(self.tp + other.tp, self.fp + other.fp, self.tn + other.tn, self.fn + other.fn)

    @property
    def accuracy(self) -> float:
        """The share of images judged rightly."""
        return _ratio(self.tp + self.tn, self.fp + self.fn)

    @property
    def recall(self) -> float:
        """The share of anomalous images that raised an alarm."""
        return _ratio(self.tp, self.fn)

    @property
    def precision(self) -> float:
        """The share of alarms that were right."""
        return _ratio(self.tp, self.fp)

    @property
    def false_alarm_rate(self) -> float:
        """The share of normal images that raised an alarm."""
        return _ratio(self.fp, self.tn)


def confusion(scores: ArrayLike, labels: ArrayLike, thresholds: ArrayLike) -> Confusion:
    """The confusion matrix: an alarm is a score strictly above its threshold.

    ``scores`` and ``labels`` (N,); ``thresholds`` one number or (N,), one an image. Where score or threshold is NaN
    there is no alarm.

    >>> confusion([0.1, 0.6, 0.6, 0.9], [0, 0, 1, 1], 0.6)
    Confusion(tp=1, fp=0, tn=2, fn=1)
    """
    score_N, anomalous_N = checked(scores, labels)
    threshold_N = np.broadcast_to(np.asarray(thresholds, dtype=np.float64), score_N.shape)
    alarm_N = score_N > threshold_N
    hits = int((alarm_N & anomalous_N).sum())
    false_alarms = int(alarm_N.sum()) - hits
    anomalous = int(anomalous_N.sum())
    return Confusion(hits, false_alarms, len(score_N) - anomalous - false_alarms, anomalous - hits)


def train_threshold(scores: ArrayLike, share: float = 0.975) -> float:
    """The paper's threshold: the score below which ``share`` of the training normals lie, between scores linearly.

    ``scores`` (D,). NaN are left out; if nothing else is there the threshold is NaN, which no score exceeds.

    >>> train_threshold([1, 2, 3, 4, 5], share=0.9)
    4.6
    """
    score_D = np.asarray(scores, dtype=np.float64)
    score_D = score_D[~np.isnan(score_D)]
    if not score_D.size:
        return float("nan")
    with np.errstate(invalid="ignore"):
        threshold = float(np.quantile(score_D, share))
    # Between infinities there is nothing to interpolate: the upper neighbour decides.
    return float(np.quantile(score_D, share, method="higher")) if np.isnan(threshold) else threshold


def routing_accuracy(routes: Sequence[str], task: str) -> float:
    """The share of a task's images that were taken for that task; NaN without images.

    >>> routing_accuracy(["tile", "tile", "wood", "tile"], "tile")
    0.75
    """
    return _ratio(sum(route == task for route in routes), sum(route != task for route in routes))


def _ratio(part: int, rest: int) -> float:
    return part / (part + rest) if part + rest else float("nan")
