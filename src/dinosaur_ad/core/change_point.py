"""Notices that a number measured of every image changed, with a bound on how often it is wrong a part.

:mod:`~dinosaur_ad.core.drift` bounds the probability of *ever* being wrong, and so needs more evidence the later a
change begins. A station runs for years: what counts there is how many parts pass between two false warnings. The
``n`` usual values leave ``n + 1`` gaps, and the next value falls into gap ``j`` with probability
``(1 + c_j) / (n + 1 + t)``, exactly, as long as nothing changes (Pólya's urn). A bet on higher values pays
``f(u) = m (1 - u)^(m - 1)`` for the rank ``u``, 0 the highest, averaged over the gap; a tenth is never staked, and the
tolerance is as in :mod:`~dinosaur_ad.core.drift`. One unit is staked anew with every part, so that the sum of what all
bets have is ``R_t = (R_{t-1} + 1) paid``. ``R_t - t`` is a supermartingale: without a change, a limit of ``1 / alpha``
is reached within ``N`` parts with probability ``N alpha`` at most, and on average not before part ``1 / alpha``
(the Shiryaev-Roberts sum as an e-detector: Shin, Ramdas and Rinaldo, 2022). That holds for the mean of several such
sums too, and for all products of a line together if ``N`` counts the parts of all of them.

What was not kept of the learned images, such as the contrast of a picture, which follows the light, is compared with
the first images of the stream (:func:`first_values`): is it higher, is it lower, is it farther from the centre?
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.drift import KEPT, TOLERANCE
from dinosaur_ad.errors import InputError

Floats = NDArray[np.float64]

WORST_OF = (3, 8, 32)
"""Bets: as if each part were the highest of so many usual ones."""
_WORST_B = np.asarray(WORST_OF, np.float64)
FEWEST = 6
"""Fewer values are no reference."""


class ChangeSums(NamedTuple):
    """How many parts fell into each gap, the highest first, and the logarithm of the sum of each bet."""

    gaps: Sequence[int]
    log_sums: Sequence[float]

    @property
    def log_evidence(self) -> float:
        """The logarithm of the mean of all sums; minus infinity at the beginning."""
        return float(np.logaddexp.reduce(self.log_sums) - math.log(len(self.log_sums)))


def begin_sums(usual: int) -> ChangeSums:
    """The state before the first part, for so many usual values.

    >>> begin_sums(3).gaps
    (0, 0, 0, 0)
    """
    if usual < 1:
        raise InputError(f"A change is noticed against usual values, but there are {usual}; learn more normal images.")
    return ChangeSums((0,) * (usual + 1), (-math.inf,) * len(WORST_OF))


def count_part(state: ChangeSums, gap: int, tolerance: float = TOLERANCE) -> ChangeSums:
    """The state after a part that ``gap`` of the usual values are at least as high as.

    >>> state = begin_sums(99)
    >>> for _ in range(8):
    ...     state = count_part(state, 1)
    >>> state.log_evidence > math.log(10_000)
    True
    """
    counts = np.asarray(state.gaps, np.int64)
    weight_G = counts + 1.0
    total = weight_G.sum()
    low, high = weight_G[:gap].sum() / total, weight_G[: gap + 1].sum() / total
    rank_paid_B = ((1 - low) ** _WORST_B - (1 - high) ** _WORST_B) / (high - low)
    paid_B = (KEPT + (1 - KEPT) * rank_paid_B) / (1 + tolerance * (1 - KEPT) * _WORST_B)
    counts[gap] += 1
    log_sum_B = np.logaddexp(np.asarray(state.log_sums), 0.0) + np.log(paid_B)
    return ChangeSums(tuple(counts.tolist()), tuple(log_sum_B.tolist()))


def gap_of(value: float, usual_R: Floats) -> int:
    """How many of the usual values, in ascending order, are at least as high; equal ones count as higher.

    >>> gap_of(2.0, np.asarray([1.0, 2.0, 3.0]))
    2
    """
    return int(len(usual_R) - np.searchsorted(usual_R, value, side="left"))


class FirstValues(NamedTuple):
    """The first values of a stream: their centre, and what is usual for each question, ``(R, 3)``, ascending."""

    centre: float
    usual_RQ: Floats

    def answers(self, value: float) -> list[int]:
        """The gap of a value for each question."""
        asked = _asked(np.asarray([value]) - self.centre)[0]
        return [gap_of(float(each), self.usual_RQ[:, q]) for q, each in enumerate(asked)]


def first_values(value_R: Sequence[float]) -> FirstValues:
    """What is usual, from the first values of a stream: a third of them gives the centre.

    >>> first_values([1.0, 2.0, 3.0, 1.5, 2.5, 2.0]).usual_RQ.shape
    (4, 3)
    """
    values = np.asarray(value_R, np.float64)
    if len(values) < FEWEST or not np.isfinite(values).all():
        raise InputError(f"Expected at least {FEWEST} finite values as a reference, got {len(values)}; inspect more.")
    first = len(values) // 3
    centre = float(np.median(values[:first]))
    return FirstValues(centre, np.sort(_asked(values[first:] - centre), axis=0))


def _asked(deviation_N: Floats) -> Floats:
    """What is compared for each question ``(N, 3)``: higher, lower, farther."""
    return np.stack([deviation_N, -deviation_N, np.abs(deviation_N)], axis=1)


def mean_evidence(logs: Sequence[float]) -> float:
    """The logarithm of the mean of several sums, given their logarithms.

    >>> round(mean_evidence([0.0, math.log(3.0)]), 6) == round(math.log(2.0), 6)
    True
    """
    return float(np.logaddexp.reduce(logs) - math.log(len(logs)))
