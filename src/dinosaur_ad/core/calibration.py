"""From scores of normal images to a threshold and a p-value.

Scores of normals the bank has *not* seen are exchangeable with scores of future normals, so the conformal quantile
gives the requested false-alarm rate, whatever the distribution. Scores of the bank's own images (the paper's
in-sample threshold) are biased low, because remembered patches are at distance zero from themselves.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np


def quantile_threshold(scores: np.ndarray, false_alarms: float) -> float:
    """The paper's threshold: the plain ``1 - false_alarms`` quantile of the given scores (linear interpolation).

    >>> quantile_threshold(np.arange(101.0), 0.025)
    97.5
    """
    return float(np.quantile(scores, 1 - false_alarms))


def conformal_threshold(scores: np.ndarray, false_alarms: float) -> float:
    """The smallest threshold that unseen normals exceed with probability at most ``false_alarms``.

    Needs at least ``1 / false_alarms - 1`` scores to be a plain order statistic. With fewer, no observed score is high
    enough, and the tail is extrapolated: the normal prediction limit of the log scores, never below their maximum.
    Scores under a quarter of the highest count as that: images that are twins score zero, and the logarithm would
    take it for an enormous spread.

    >>> conformal_threshold(np.arange(1.0, 100.0), 0.05)
    95.0
    """
    scores = np.sort(np.asarray(scores, dtype=np.float64))
    rank = math.ceil((len(scores) + 1) * (1 - false_alarms))
    if rank <= len(scores):
        return float(scores[rank - 1])
    logs = np.log(np.maximum(scores, max(scores[-1] / 4, np.finfo(np.float32).tiny)))
    spread = float(logs.std(ddof=1)) if len(scores) > 1 else 0.0
    reach = _student_quantile(1 - false_alarms, max(1, len(scores) - 1)) * spread * math.sqrt(1 + 1 / len(scores))
    return float(max(scores[-1], math.exp(float(logs.mean()) + reach)))


def _student_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t by its series around the normal one; at 97.5 %, within 2 % from four degrees on."""
    z = NormalDist().inv_cdf(probability)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def p_values(score_N: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """How often a normal image would score at least this high, ``(N,)``: the conformal ``(1 + #{c >= s}) / (n + 1)``.

    >>> p_values(np.asarray([0.5, 99.5]), np.arange(1.0, 100.0)).tolist()
    [1.0, 0.01]
    """
    ordered = np.sort(np.asarray(calibration))
    at_least = len(ordered) - np.searchsorted(ordered, np.asarray(score_N), side="left")
    result: np.ndarray = (1 + at_least) / (len(ordered) + 1)
    return result


def folds(count: int, k: int, seed: int = 0) -> list[np.ndarray]:
    """``k`` disjoint index sets that cover ``range(count)``, shuffled by ``seed``; fewer when there are fewer images.

    >>> [len(fold) for fold in folds(10, 4)]
    [3, 3, 2, 2]
    """
    order = np.random.default_rng(seed).permutation(count)
    return [np.sort(part) for part in np.array_split(order, min(k, count))]
