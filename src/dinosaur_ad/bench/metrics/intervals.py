"""Uncertainty of a metric: bootstrap intervals over test images, and spread over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dinosaur_ad.bench.metrics.ranks import Ints, Numbers, checked, pairs_won, places

_BLOCK = 2**21
"""Counts held at a time; a few dozen megabytes, however many images and resamples there are."""


@dataclass(frozen=True)
class Interval:
    """Lower and upper bound; both NaN where the metric is undefined."""

    low: float
    high: float


def bootstrap_mean_auroc(
    tasks: Sequence[tuple[ArrayLike, ArrayLike]],
    *,
    paired: bool,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """A bootstrap interval over test images of the mean AUROC over tasks.

    ``tasks`` holds (scores (N,), labels (N,)) a task. Normal and anomalous images are drawn with replacement, as many
    of each as there are; the AUROC of every task is computed on its draw and averaged, each task of the same weight;
    the middle ``level`` of ``resamples`` such means is the interval (percentile bootstrap).

    ``paired``: all tasks show the same images in the same order, so one draw serves them all. Drawing apart what is
    really the same images would make the interval too narrow.

    Both ends are NaN when a task has one class only, or there is no task.

    >>> bootstrap_mean_auroc([([0.1, 0.2, 0.3, 0.9], [0, 0, 1, 1])], paired=False)
    Interval(low=1.0, high=1.0)
    """
    if not 0 < level < 1 or resamples < 1:
        raise ValueError(f"level must be between 0 and 1 and resamples at least 1, got {level} and {resamples}")
    parts = [_split(scores, labels) for scores, labels in tasks]
    if not parts or any(not normal_N.size or not anomalous_M.size for normal_N, anomalous_M in parts):
        return Interval(float("nan"), float("nan"))
    if paired:
        _refuse_unlike([labels for _, labels in tasks])
    generator = np.random.default_rng(seed)
    block = max(1, _BLOCK // max(normal_N.size + anomalous_M.size for normal_N, anomalous_M in parts))
    mean_R = np.concatenate(
        [
            _resampled_means(parts, min(block, resamples - done), paired, generator)
            for done in range(0, resamples, block)
        ]
    )
    low, high = np.quantile(mean_R, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def seed_spread(values: ArrayLike) -> tuple[float, float]:
    """The mean over seeds and the sample standard deviation (n - 1 below); the latter is NaN for a single seed.

    >>> seed_spread([0.90, 0.92, 0.94])
    (0.92, 0.02)
    """
    value_S = np.asarray(values, dtype=np.float64)
    mean = float(round(value_S.mean(), 12)) if value_S.size else float("nan")
    spread = float(round(value_S.std(ddof=1), 12)) if value_S.size > 1 else float("nan")
    return mean, spread


def _split(scores: ArrayLike, labels: ArrayLike) -> tuple[Ints, Ints]:
    """The places of the normal and of the anomalous images in one common order."""
    score_N, anomalous_N = checked(scores, labels)
    place_N = places(score_N)
    return place_N[~anomalous_N], place_N[anomalous_N]


def _refuse_unlike(labels: Sequence[ArrayLike]) -> None:
    first_N = np.asarray(labels[0])
    if any(not np.array_equal(first_N, np.asarray(others_N)) for others_N in labels[1:]):
        raise ValueError("paired tasks must have the same labels in the same order; resample others with paired=False")


def _resampled_means(
    parts: Sequence[tuple[Ints, Ints]], resamples: int, paired: bool, generator: np.random.Generator
) -> Numbers:
    """The mean AUROC of each of ``resamples`` draws (R,)."""
    total_R = np.zeros(resamples)
    for task, (normal_N, anomalous_M) in enumerate(parts):
        if task == 0 or not paired:
            normal_RN = generator.integers(normal_N.size, size=(resamples, normal_N.size))
            anomalous_RM = generator.integers(anomalous_M.size, size=(resamples, anomalous_M.size))
        total_R += pairs_won(*_counts(normal_N[normal_RN], anomalous_M[anomalous_RM]))
    return total_R / len(parts)


def _counts(normal_RN: Ints, anomalous_RM: Ints) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """How many fell on each place in each draw, twice (R, U): all resamples in one pass, without sorting any."""
    places_in_use = 1 + int(max(normal_RN.max(), anomalous_RM.max()))
    resamples = len(normal_RN)
    row_R1 = places_in_use * np.arange(resamples)[:, None]
    normal, anomalous = (
        np.bincount((drawn + row_R1).ravel(), minlength=resamples * places_in_use).reshape(resamples, places_in_use)
        for drawn in (normal_RN, anomalous_RM)
    )
    return normal, anomalous
