"""The benchmark's numbers a second time, by counting: what ``bench verify`` compares stored and printed numbers with.

Nothing here calls :mod:`~dinosaur_ad.bench.metrics`: a bug there would otherwise agree with itself. The definitions
are the same. An AUROC counts pairs; a NaN score stands below every number and beside every other NaN; an alarm is a
score strictly above its threshold; a mean with something undefined in it is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAN = math.nan
Scores = NDArray[np.floating[Any]]
Labels = NDArray[np.integer[Any]]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Pairs:
    """The (normal, anomalous) pairs of a task: how many there are, in how many the anomalous one wins, and ties."""

    count: int
    won: int
    tied: int

    @property
    def auroc(self) -> float:
        """The share won, where a tie is half a win; NaN without pairs."""
        return (2 * self.won + self.tied) / (2 * self.count) if self.count else NAN

    @property
    def ties(self) -> float:
        """The share tied; NaN without pairs."""
        return self.tied / self.count if self.count else NAN


def count_pairs(scores: Scores, labels: Labels) -> Pairs:
    """Compare every anomalous score with every normal one; in whole numbers, so nothing is rounded.

    >>> count_pairs(np.array([0.1, 0.4, 0.4, np.nan]), np.array([0, 0, 1, 1])).auroc
    0.375
    """
    normal, anomalous = scores[labels == 0], scores[labels == 1]
    normal_nan, anomalous_nan = int(np.isnan(normal).sum()), int(np.isnan(anomalous).sum())
    ordered, asked = np.sort(normal[~np.isnan(normal)]), anomalous[~np.isnan(anomalous)]
    below = int(np.searchsorted(ordered, asked, "left").sum())
    up_to = int(np.searchsorted(ordered, asked, "right").sum())
    return Pairs(
        count=len(normal) * len(anomalous),
        won=below + normal_nan * len(asked),
        tied=up_to - below + normal_nan * anomalous_nan,
    )


def mean(values: Sequence[float]) -> float:
    """The mean, of a sum without rounding; NaN without values, or where their sum is too large for a number.

    >>> mean([0.5, 0.75]), mean([1e308, 1e308])
    (0.625, nan)
    """
    try:
        return math.fsum(values) / len(values) if values else NAN
    except OverflowError:
        return NAN


def rates(scores: Scores, labels: Labels, thresholds: Scores | float) -> dict[str, float]:
    """Accuracy, recall, precision and false-alarm rate of a task; NaN where nothing can be divided.

    >>> rates(np.array([0.1, 0.6, 0.6, 0.9]), np.array([0, 0, 1, 1]), 0.6)
    {'accuracy': 0.75, 'recall': 0.5, 'precision': 1.0, 'false alarms': 0.0}
    """
    limit = np.asarray(thresholds, np.float64)
    alarm = scores.astype(np.float64) > limit
    hits, false = int(np.count_nonzero(alarm & (labels == 1))), int(np.count_nonzero(alarm & (labels == 0)))
    anomalous, normal = int(np.count_nonzero(labels == 1)), int(np.count_nonzero(labels == 0))
    return {
        "accuracy": _share(hits + normal - false, normal + anomalous),
        "recall": _share(hits, anomalous),
        "precision": _share(hits, hits + false),
        "false alarms": _share(false, normal),
    }


def forgetting(matrix: Matrix) -> dict[str, float]:
    """The five measures of the report by their names there, from ``matrix[t, j]``, the AUROC on j after task t.

    >>> found = forgetting(np.array([[0.90, 0.85, 0.50], [0.95, 0.80, 0.60], [0.85, 0.80, 0.70]]))
    >>> {name: round(value, 9) for name, value in found.items()}
    {'FM paper': 0.075, 'FM std': 0.05, 'FM diagonal': 0.025, 'BWT': -0.025, 'FWT': 0.225}
    """
    rows: list[list[float]] = matrix.tolist()
    last, earlier = len(rows) - 1, range(len(rows) - 1)
    ever = [_highest([rows[t][j] for t in earlier]) - rows[last][j] for j in earlier]
    since = [_highest([rows[t][j] for t in earlier if t >= j]) - rows[last][j] for j in earlier]
    lost = [rows[j][j] - rows[last][j] for j in earlier]
    return {
        "FM paper": mean(ever),
        "FM std": mean(since),
        "FM diagonal": mean(lost),
        "BWT": mean([-each for each in lost]),
        "FWT": mean([rows[j][j + 1] - 0.5 for j in earlier]),
    }


def _highest(values: Sequence[float]) -> float:
    return NAN if any(math.isnan(value) for value in values) else max(values)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else NAN
