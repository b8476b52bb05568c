"""From scores of normal images to a p-value and a threshold, for any number of images from two on.

Scores of normals the bank has *not* seen are exchangeable with scores of future normals, so the share of them that is
at least as high is an honest p-value, whatever the distribution (conformal prediction). Beyond the highest of them it
says no more than 1 / (n + 1). There the logarithms of the scores, which are close to normally distributed, give the
tail; their deviation is drawn towards the one that is usual, because few scores estimate it badly. The more calibration
scores lie above a score, the more they count and the less the model does.

Scores of the bank's own images (the paper's in-sample threshold) are biased low, because remembered patches are at
distance zero from themselves.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LOG_SPREAD = 0.08
"""The usual deviation of the logarithm of the scores of unseen normal images: .03 to .18 on twenty real sets."""
LOG_SPREAD_WEIGHT = 10
"""With how many images that prior counts; measured over thousands of resamplings (docs/start/verdicts.md)."""
TWIN_SHARE = 0.25
"""Scores below that share of the highest count as that."""
TINY = float(np.finfo(np.float32).tiny)
FARTHEST = 1e35
"""No alarm level is looked for beyond it."""
TRUSTED = 0.75
"""The share of the scores of pictures that nobody has looked at, the lowest, that is taken for those of normals."""
UPPER, UPPER_FROM = 0.5, 100
"""Of these, the share that says nothing of how far up scores reach, the lowest, from so many scores on; of fewer, a
quarter scatters too much. Chosen on products of MVTec AD."""
BLOCK = 20
"""Pictures in a row of which a normal model is made, to see whether a threshold still holds."""
CONFIDENCE = 0.95
"""Of what is promised about false alarms."""

Floats = NDArray[np.float64]


def quantile_threshold(scores: np.ndarray, false_alarms: float) -> float:
    """The paper's threshold: the plain ``1 - false_alarms`` quantile of the given scores (linear interpolation).

    >>> quantile_threshold(np.arange(101.0), 0.025)
    97.5
    """
    return float(np.quantile(scores, 1 - false_alarms))


def log_scores(score_N: np.ndarray, calibration: np.ndarray) -> Floats:
    """The logarithms ``(N,)`` of scores, which are close to normally distributed for normal images.

    Scores below a quarter of the highest of the calibration count as that: images that are twins score zero, and the
    logarithm would take it for an enormous spread.

    >>> np.exp(log_scores(np.asarray([0.0, 0.5, 8.0]), np.asarray([1.0, 2.0]))).round(6).tolist()
    [0.5, 0.5, 8.0]
    """
    lowest = max(float(np.max(calibration)) * TWIN_SHARE, TINY)
    return np.log(np.maximum(np.asarray(score_N, np.float64), lowest))


def conformal_p_values(score_N: np.ndarray, calibration: np.ndarray) -> Floats:
    """The conformal ``(1 + #{c >= s}) / (n + 1)`` of scores ``(N,)``: honest for any distribution, and never below
    ``1 / (n + 1)``.

    >>> conformal_p_values(np.asarray([0.5, 99.5]), np.arange(1.0, 100.0)).tolist()
    [1.0, 0.01]
    """
    ordered = np.sort(np.asarray(calibration, np.float64))
    at_least_N = len(ordered) - np.searchsorted(ordered, np.asarray(score_N, np.float64), side="left")
    return np.asarray((1 + at_least_N) / (len(ordered) + 1))


class UsualScores(NamedTuple):
    """The normal model of log scores of which some may be those of defects: its mean and its deviation."""

    mean: float
    spread: float

    @classmethod
    def of(cls, score_N: np.ndarray, above: float = 0.0) -> UsualScores:
        """The line through the lowest three quarters of the log scores against the quantiles of a normal distribution.

        Up to a quarter of defects hardly move it, because they score high. The lowest share ``above`` does not count:
        where odd normals reach far up, only the upper half says how far.

        >>> model = UsualScores.of(np.append(np.exp(np.random.default_rng(0).normal(0, 0.1, 90)), np.full(10, 5.0)))
        >>> round(model.mean, 2), round(model.spread, 2)
        (0.02, 0.1)
        """
        logs = np.sort(log_scores(score_N, np.asarray([np.median(score_N)])))
        trusted = max(2, round(TRUSTED * len(logs)))
        first = min(int(above * len(logs)), trusted - 2)
        logs = logs[first:trusted]
        place_K = normal_quantiles(len(score_N))[first:trusted]
        from_middle_K = place_K - place_K.mean()
        slope = float(from_middle_K @ logs / (from_middle_K @ from_middle_K))
        weight = len(logs) + LOG_SPREAD_WEIGHT
        spread = math.sqrt((len(logs) * slope**2 + LOG_SPREAD_WEIGHT * LOG_SPREAD**2) / weight)
        return cls(float(logs.mean() - spread * place_K.mean()), spread)


def normal_quantiles(count: int) -> Floats:
    """Where the values of so many draws of the standard normal distribution lie, in order."""
    return np.asarray([NormalDist().inv_cdf((n + 0.5) / count) for n in range(count)])


def without_defects(score_N: np.ndarray) -> Floats:
    """Scores of pictures that nobody has looked at, as normals alone would score: the highest quarter is lowered to
    where the quarter below it says that it lies; of fewer than a hundred, where all the others say.

    Log scores of normals reach farther up than down, and the lower half would hide it.

    >>> scores = np.append(np.exp(np.random.default_rng(0).normal(0, 0.1, 90)), np.full(10, 5.0))
    >>> round(float(without_defects(scores).max()), 2)
    1.4
    """
    score_N = np.asarray(score_N, np.float64)
    if len(score_N) < 4:
        return score_N
    order_N = np.argsort(score_N, kind="stable")
    trusted, model = max(2, round(TRUSTED * len(score_N))), UsualScores.of(score_N, above=_upper(len(score_N)))
    highest_N = np.exp(model.mean + model.spread * normal_quantiles(len(score_N)))
    ordered = score_N[order_N]
    ordered[trusted:] = np.minimum(ordered[trusted:], np.maximum(highest_N[trusted:], ordered[trusted - 1]))
    result_N = np.empty_like(ordered)
    result_N[order_N] = ordered
    return result_N


def _upper(count: int) -> float:
    return UPPER if count >= UPPER_FROM else 0.0


def usual_exceedance(score_N: np.ndarray, level: float) -> float:
    """How often usual pictures score above ``level``, by what those that came lately scored, in their order.

    The normal model of each ``BLOCK`` in a row, of which the median counts: defects that are scattered are not seen by
    the models, and a run of them not by the median, unless it is as long as half of the pictures.

    >>> scores = np.exp(np.random.default_rng(0).normal(0, 0.1, 100))
    >>> run = np.append(scores, np.full(40, 5.0))
    >>> [round(usual_exceedance(each, np.exp(0.196)), 2) for each in (scores, run, 1.1 * scores)]
    [0.02, 0.03, 0.15]
    """
    models = [UsualScores.of(block, above=UPPER) for block in np.array_split(score_N, max(1, len(score_N) // BLOCK))]
    mean = float(np.median([each.mean for each in models]))
    spread = float(np.median([each.spread for each in models]))
    return 1 - NormalDist(mean, spread).cdf(math.log(max(level, TINY)))


def p_values(score_N: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """How often a normal image would score at least this high, ``(N,)``; never rising with the score. NaN gives 0.

    With k of n calibration scores at least as high, the logarithm of the conformal ``(1 + k) / (n + 1)`` counts with
    the weight ``k / (k + 1)`` and that of the tail model with the rest; where that is more, the conformal one holds.

    >>> p_values(np.asarray([50.0, 90.0]), np.arange(1.0, 100.0)).round(2).tolist()
    [0.51, 0.11]
    """
    ordered = np.sort(np.asarray(calibration, np.float64))
    model = _tail_model(ordered)
    # What a score a little above each calibration score has: no lower score may have less.
    above_C = _blended(ordered, ordered, model, side="right")
    highest_from_C = np.maximum.accumulate(above_C[::-1])[::-1]
    score_N = np.asarray(score_N, np.float64)
    first_N = np.searchsorted(ordered, score_N, side="left")
    later_N = np.append(highest_from_C, 0.0)[first_N]
    return np.where(np.isnan(score_N), 0.0, np.maximum(_blended(score_N, ordered, model, side="left"), later_N))


def alarm_level(scores: np.ndarray, false_alarms: float) -> float:
    """The highest score whose p-value is above ``false_alarms``: what exceeds it is anomalous.

    >>> round(alarm_level(np.exp(0.08 * np.random.default_rng(0).normal(size=20)), 0.025), 2)
    1.15
    """
    calibration = np.asarray(scores, np.float64)

    def is_usual(score: float) -> bool:
        return float(p_values(np.asarray([score]), calibration)[0]) > false_alarms

    low, high = 0.0, math.e * max(float(calibration.max()), TINY)
    while is_usual(high) and high < FARTHEST:
        high *= math.e
    # To the last bit: a score that equals the level, as that of a calibration image may, is not above it.
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if is_usual(middle) else (low, middle)
    return low


class _TailModel:
    """The normal model of log scores: its mean, its deviation for one more image, and its degrees of freedom."""

    def __init__(self, mean: float, spread: float, freedom: int) -> None:
        self.mean, self.spread, self.freedom = mean, spread, freedom


def _tail_model(ordered: Floats) -> _TailModel:
    count = len(ordered)
    logs = log_scores(ordered, ordered)
    squares = float(((logs - logs.mean()) ** 2).sum())
    freedom = count - 1 + LOG_SPREAD_WEIGHT
    variance = (squares + LOG_SPREAD_WEIGHT * LOG_SPREAD**2) / freedom
    return _TailModel(float(logs.mean()), math.sqrt(variance * (1 + 1 / count)), freedom)


def _blended(score_N: Floats, ordered: Floats, model: _TailModel, side: str) -> Floats:
    """p-values before they are made monotone; ``side="right"`` does not count calibration scores that are equal."""
    count = len(ordered)
    at_least = count - np.searchsorted(ordered, score_N, side="left" if side == "left" else "right")
    weight = at_least / (at_least + 1)
    deviation = (np.log(np.maximum(score_N, TINY)) - model.mean) / model.spread
    modelled = np.maximum(student_tail(deviation, model.freedom), 1e-300)
    conformal = (1 + at_least) / (count + 1)
    # The conformal p-value holds for any distribution; a model that fits badly must not raise it.
    return np.minimum(np.exp(weight * np.log(conformal) + (1 - weight) * np.log(modelled)), conformal)


def student_tail(deviation_N: np.ndarray, freedom: int) -> Floats:
    """The chance of a larger value of Student's t, by Wallace's normal approximation.

    From 10 degrees of freedom on, within 1 % up to 3.5 deviations and within 5 % up to 6.

    >>> student_tail(np.asarray([0.0, 2.086]), 20).round(4).tolist()
    [0.5, 0.025]
    """
    deviation_N = np.asarray(deviation_N, np.float64)
    normal_N = (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(deviation_N**2 / freedom))
    tail_N = np.asarray([0.5 * math.erfc(each / math.sqrt(2)) for each in np.ravel(normal_N)]).reshape(normal_N.shape)
    return np.where(deviation_N < 0, 1 - tail_N, tail_N)


def promised_rate(images: int, above: int = 0, confidence: float = CONFIDENCE) -> float:
    """The false-alarm rate that is not exceeded, with that confidence, by a threshold that ``above`` of so many unseen
    normal images exceed; whatever the distribution.

    >>> round(promised_rate(20), 3), round(promised_rate(200, 5), 3)
    (0.139, 0.052)
    """
    if above >= images:
        return 1.0
    # As logarithms: the number of ways to choose 250 of 10,000 images is no float.
    log_ways = [math.lgamma(images + 1) - math.lgamma(k + 1) - math.lgamma(images - k + 1) for k in range(above + 1)]
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        log_hit, log_miss = math.log(middle), math.log1p(-middle)
        chance = sum(math.exp(ways + k * log_hit + (images - k) * log_miss) for k, ways in enumerate(log_ways))
        low, high = (middle, high) if chance > 1 - confidence else (low, middle)
    return high


def rate_interval(count: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The interval of rates that ``count`` of ``total`` images are compatible with (Clopper and Pearson).

    >>> [round(bound, 3) for bound in rate_interval(3, 40)], [round(bound, 3) for bound in rate_interval(0, 10)]
    ([0.016, 0.204], [0.0, 0.308])
    """
    one_sided = (1 + confidence) / 2
    return 1 - promised_rate(total, total - count, one_sided), promised_rate(total, count, one_sided)


def images_needed(false_alarms: float, confidence: float = CONFIDENCE) -> int:
    """How many unseen normal images promise that rate, if none of them exceeds the threshold.

    >>> images_needed(0.025), images_needed(0.1)
    (119, 29)
    """
    return math.ceil(math.log(1 - confidence) / math.log1p(-false_alarms))


def folds(count: int, k: int, seed: int = 0) -> list[np.ndarray]:
    """``k`` disjoint index sets that cover ``range(count)``, shuffled by ``seed``; fewer when there are fewer images.

    >>> [len(fold) for fold in folds(10, 4)]
    [3, 3, 2, 2]
    """
    order = np.random.default_rng(seed).permutation(count)
    return [np.sort(part) for part in np.array_split(order, min(k, count))]
