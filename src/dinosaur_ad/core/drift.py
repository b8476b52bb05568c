"""Notices that the parts inspected no longer look like those learned: a test that may be read after every image.

The calibration scores of a task, ``n`` of them, leave ``n + 1`` gaps. As long as the parts are exchangeable with the
calibration images, the next score falls into gap ``j`` with probability ``(1 + c_j) / (n + 1 + t)``, where ``c_j`` of
the ``t`` parts so far fell into it (Pólya's urn). That is exact for every distribution of scores, also for ``n = 20``;
p-values of one fixed calibration set treated as uniform would raise a false warning sooner or later.

**Bets.** The gap of a part is an interval ``[lo, hi]`` of ranks ``u`` in [0, 1], 0 the highest. A bet pays ``f(u)``
with ``∫ f = 1``, averaged over the interval, so no random number breaks ties. ``f(u) = m (1 - u)^(m - 1)`` is what pays
best if each part scores like the worst of ``m`` normal parts: ``m`` = 3, 8, 32 stand for shifts of 0.8, 1.4, 2.1
deviations; ``m u^(m - 1)`` bets on lower scores. A tenth of the capital is never staked.

**Defects.** Parts in the highest 2.5 % of the gaps (at least one gap) count as flagged. Given that a part is not, its
rank among the gaps that are left is again uniform, so bets on the parts that pass do not see flagged ones, whatever
their share. The other bets also stake on the share of flagged parts, against the probability ``q + (1 - q) defects``
with ``q = (k + flagged) / (n + 1 + t)``: at least that of any stream with up to ``defects`` defects, because counting
every flagged part as a normal one can only raise the expectation of ``q``.

**Tolerance.** No two sets of photos are exactly exchangeable, and some defects pass. A bet is divided by
``1 + tolerance (max f - min f)``, more than it can win on average from a distribution that differs from the uniform
one by up to ``tolerance`` in total variation.

**Evidence.** The change may begin at any image ``s``: the capital is spread over all of them by ``1 / (s (s + 1))``.
The evidence ``E_t`` is the capital at time ``t``; it begins at 1 and is a supermartingale without drift, so that
``P(any E_t >= 1 / alpha) <= alpha`` (Ville), however often and long one looks.

Measured on Gaussian log scores with 20 % defects and alpha 0.01 (tests/core/test_drift.py): a shift by 1, 1.5, 2, 3
deviations is noticed after 26, 13, 10, 6 images (median) with 200 calibration images. With 20 of them a shift by 1 is
mostly not noticed within 60 images, by 1.5, 2, 3 after 28, 14, 6. A shift by 2 after 400 normal parts takes 28 more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.calibration import log_scores
from dinosaur_ad.errors import InputError

Floats = NDArray[np.float64]
Direction = Literal["higher", "lower"]

FLAGGED = 0.025
"""The share of the normal parts that counts as flagged: the false-alarm rate of the presets."""
TOLERANCE = 0.02
"""The distance in total variation from exchangeable that is not yet drift."""
KEPT = 0.1
"""The share of the capital that is never staked, so that one part cannot lose everything."""

GAIN = 1.05
"""Images brighter or darker by that factor are a change of light. Between random halves of the training normals
of five products of MVTec AD the median differs by up to 3 % (200 draws each); the test normals of screw and grid are 7
and 11 % darker than theirs."""


class _Bet(NamedTuple):
    """The alternative ``worst of``, whether flagged parts count, the direction, and its share of the capital."""

    worst_of: int
    counts_flagged: bool
    direction: Direction
    share: float


_BETS = (
    *(_Bet(worst_of, True, "higher", 0.2) for worst_of in (3, 8, 32)),
    _Bet(3, False, "higher", 0.1),
    _Bet(8, False, "higher", 0.1),
    _Bet(3, False, "lower", 0.2),
)
_SHARE_B = np.asarray([bet.share for bet in _BETS])
_PASSING_B = np.asarray([not bet.counts_flagged and bet.direction == "higher" for bet in _BETS])


class Watch(NamedTuple):
    """All that is remembered of a stream: plain numbers, so that ``watch._asdict()`` can be stored as JSON.

    ``gaps`` counts the parts in each gap between the calibration scores, the highest first; ``log_capital`` is that of
    each bet, with what it will stake on the next part.
    """

    gaps: Sequence[int]
    log_capital: Sequence[float]

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence against "nothing changed"; 0 at the beginning."""
        return self._log_evidence(np.ones(len(_BETS), np.bool_))

    @property
    def log_passing_evidence(self) -> float:
        """The same by the bets that look at nothing but parts that pass, and expect higher scores."""
        return self._log_evidence(_PASSING_B)

    def _log_evidence(self, chosen_B: NDArray[np.bool_]) -> float:
        share_B = _SHARE_B[chosen_B] / _SHARE_B[chosen_B].sum()
        not_staked = -math.log(sum(self.gaps) + 2)
        staked = np.logaddexp.reduce(np.log(share_B) + np.asarray(self.log_capital)[chosen_B])
        return float(np.logaddexp(staked, not_staked))

    @property
    def direction(self) -> Direction:
        """Where the bets that earned most expect the scores."""
        return _BETS[int(np.argmax(np.log(_SHARE_B) + np.asarray(self.log_capital)))].direction


class ShiftNotice(NamedTuple):
    """Parts differ from what was learned: ``evidence`` to one, reached 1 / alpha with image ``noticed_at`` (from 1).

    ``passing`` says that the parts that pass show it by themselves, by higher scores; if not and the direction is
    "higher", the sign is that more parts are flagged than expected, and they may as well be defects.
    ``deviations`` is the size of the shift (:func:`shift_size`).
    """

    evidence: float
    noticed_at: int
    direction: Direction
    passing: bool
    deviations: float | None


def begin_watch(calibrated: int) -> Watch:
    """The state before the first part, for a task with so many calibration scores.

    >>> abs(begin_watch(20).log_evidence) < 1e-12
    True
    """
    if calibrated < 1:
        raise InputError(f"A watch needs calibration scores, but there are {calibrated}; learn more normal images.")
    return Watch((0,) * (calibrated + 1), (-math.log(2),) * len(_BETS))


def watch_part(
    state: Watch,
    p_value: float,
    *,
    defects: float = 0.2,
    tolerance: float = TOLERANCE,
    flagged: float = FLAGGED,
) -> Watch:
    """The state after one more part, given its conformal p-value (``core.calibration.conformal_p_values``).

    ``defects`` is the share of defects that is no drift yet; with 1, flagged parts are never a sign. With
    ``flagged = 0`` all parts count as passing.

    >>> state = begin_watch(99)
    >>> for _ in range(10):
    ...     state = watch_part(state, 0.05)
    >>> state.log_evidence > math.log(100), state.direction, sum(state.gaps)
    (True, 'higher', 10)
    """
    gap = _gap(p_value, len(state.gaps))
    counts = np.asarray(state.gaps, np.int64)
    paid_B = _payments(counts, gap, defects, tolerance, flagged)
    counts[gap] += 1
    following = int(counts.sum()) + 1
    stake = -math.log(following * (following + 1))  # what is kept for a change that begins with the next part
    log_capital_B = np.logaddexp(np.asarray(state.log_capital) + np.log(paid_B), stake)
    return Watch(tuple(counts.tolist()), tuple(log_capital_B.tolist()))


def _gap(p_value: float, gaps: int) -> int:
    """The gap ``j`` of the conformal p-value ``(1 + j) / gaps``."""
    place = float(p_value) * gaps - 1
    if not (-0.5 < place < gaps - 0.5 and abs(place - round(place)) < 1e-3):
        raise InputError(
            f"Expected a conformal p-value of {gaps - 1} calibration scores, a multiple of 1/{gaps}, but got "
            f"{p_value}; give one that was computed with these scores."
        )
    return round(place)


def _payments(counts: NDArray[np.int64], gap: int, defects: float, tolerance: float, flagged: float) -> Floats:
    """The factor by which the capital of each bet changes with a part in this gap, ``(B,)``."""
    first = max(1, int(flagged * len(counts))) if flagged > 0 else 0  # of the gaps of parts that pass
    weight_G = counts + 1.0
    normal_share = weight_G[:first].sum() / weight_G.sum()
    flagged_share = normal_share + (1 - normal_share) * defects
    passing = weight_G[first:].sum()
    low, high = weight_G[first:gap].sum() / passing, weight_G[first : gap + 1].sum() / passing
    paid = []
    for bet in _BETS:
        # Share of passing parts, over what it is without drift.
        fewer = (1 - normal_share) ** (bet.worst_of - 1) if bet.counts_flagged else 1.0
        if gap < first:
            paid.append((1 - (1 - flagged_share) * fewer) / flagged_share if bet.counts_flagged else 1.0)
            continue
        near, far = (1 - high, 1 - low) if bet.direction == "higher" else (low, high)
        rank_paid = (far**bet.worst_of - near**bet.worst_of) / (high - low)
        most = 1 + tolerance * (1 - KEPT) * bet.worst_of
        paid.append(fewer * (KEPT + (1 - KEPT) * rank_paid) / most)
    return np.asarray(paid)


def shift_notice(
    p_value_N: np.ndarray,
    calibrated: int,
    *,
    alpha: float = 0.01,
    defects: float = 0.2,
    score_N: np.ndarray | None = None,
    calibration: np.ndarray | None = None,
) -> ShiftNotice | None:
    """Whether the images of one task, in the order of inspection and with defects among them, differ from the learned.

    ``p_value_N`` are their p-values and ``calibrated`` the number of calibration scores these were computed with. Given
    the scores and the calibration scores too, the size of the shift is estimated. Without drift a notice is given with
    probability ``alpha`` at most, however many images follow.

    >>> shift_notice(np.tile([0.7, 0.02, 0.4, 0.9, 0.2], 10), 49) is None  # a fifth are defects
    True
    >>> shift_notice(np.tile([0.04, 0.1, 0.02], 10), 49).direction
    'higher'
    """
    needed = -math.log(alpha)
    state = begin_watch(calibrated)
    noticed_at, direction, most, most_passing = 0, state.direction, 0.0, 0.0
    for n, p_value in enumerate(np.asarray(p_value_N).tolist(), start=1):
        state = watch_part(state, p_value, defects=defects)
        most, most_passing = max(most, state.log_evidence), max(most_passing, state.log_passing_evidence)
        if not noticed_at and most >= needed:
            noticed_at, direction = n, state.direction
    if not noticed_at:
        return None
    size = None if score_N is None or calibration is None else shift_size(score_N, calibration)
    # A float ends at e^709.
    return ShiftNotice(math.exp(min(700.0, most)), noticed_at, direction, most_passing >= needed, size)


def shift_size(score_N: np.ndarray, calibration: np.ndarray) -> float:
    """By how many deviations of the calibration's log scores those of the parts are higher, without the defects.

    The middle of the narrowest interval that holds half of the parts, then the median of the parts within 2 deviations
    of it: defects spread more widely than normals and are few, so neither sees them.

    >>> rng = np.random.default_rng(0)
    >>> scores = np.exp(np.append(rng.normal(0.2, 0.1, 80), np.full(20, 0.9)))
    >>> abs(shift_size(scores, np.exp(rng.normal(0, 0.1, 200))) - 2) < 0.3
    True
    """
    log_N = log_scores(calibration, calibration)
    spread = max(float(log_N.std()), float(np.finfo(np.float32).eps))
    deviation_N = np.sort(log_scores(score_N, calibration) - np.median(log_N)) / spread
    half = len(deviation_N) // 2
    narrowest = int(np.argmin(deviation_N[half:] - deviation_N[: len(deviation_N) - half]))
    middle = (deviation_N[narrowest] + deviation_N[narrowest + half]) / 2
    near_N = deviation_N[np.abs(deviation_N - middle) <= max(2.0, deviation_N[narrowest + half] - middle)]
    return float(np.median(near_N))


class Cause(NamedTuple):
    """What changed, the tasks that show it, and by which factor the images are brighter where that is known.

    ``kind`` is "none", "task" (these products alone), "shared" (most products: camera, focus or position) or "light".
    """

    kind: Literal["none", "task", "shared", "light"]
    tasks: tuple[str, ...] = ()
    gain: float | None = None


def cause_of_change(
    log_evidence: Mapping[str, float], gains: Mapping[str, np.ndarray] | None = None, *, alpha: float = 0.01
) -> Cause:
    """Tell a change of one product from one of all, given the evidence of each task under watch.

    - *none*: no task has evidence of ``tasks / alpha``; without drift, that is so with probability 1 - ``alpha``.
    - *light*: some task has, and most tasks with ``gains`` became brighter, or most darker, by ``GAIN`` or more. A gain
      is the brightness of an image over that of the learned ones of its task; the median image of a task counts.
    - *shared*: at least two tasks and half of all have evidence of ``1 / sqrt(alpha)``. Once one task has been noticed,
      half of the orders of magnitude is enough for the others.
    - *task*: anything else. With a single task, its evidence alone cannot tell more.

    >>> cause_of_change({"bolt": 9.0, "nut": 0.1, "washer": -1.0})
    Cause(kind='task', tasks=('bolt',), gain=None)
    >>> cause_of_change({"bolt": 9.0, "nut": 3.1, "washer": -1.0}).kind
    'shared'
    """
    noticed = tuple(name for name, value in log_evidence.items() if value >= math.log(len(log_evidence) / alpha))
    if not noticed:
        return Cause("none")
    suspected = tuple(name for name, value in log_evidence.items() if value >= -math.log(alpha) / 2)
    medians = [float(np.median(gain_N)) for gain_N in (gains or {}).values() if len(gain_N)]
    for changed in ([gain for gain in medians if gain >= GAIN], [gain for gain in medians if gain <= 1 / GAIN]):
        if 2 * len(changed) > len(medians):
            return Cause("light", suspected, float(np.median(changed)))
    if len(suspected) >= 2 and 2 * len(suspected) >= len(log_evidence):
        return Cause("shared", suspected)
    return Cause("task", noticed)
