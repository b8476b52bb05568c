"""What every ranking metric here shares: the place of a score in the order, and pairs counted by place.

One rule covers scores that are not a number: a NaN never raises an alarm, so it stands below every number, minus
infinity included, and beside every other NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.intp]
Numbers = NDArray[np.float64]


def checked(scores: ArrayLike, labels: ArrayLike) -> tuple[Numbers, NDArray[np.bool_]]:
    """``scores`` (N,) as float64 and ``labels`` (N,), 0 normal and 1 anomalous, as "is anomalous".

    :raises ValueError: they are not equally long lists, or a label is neither 0 nor 1.
    """
    score_N = np.asarray(scores, dtype=np.float64)
    label_N = np.asarray(labels)
    if score_N.ndim != 1 or score_N.shape != label_N.shape:
        raise ValueError(f"scores and labels must be equally long lists, got {score_N.shape} and {label_N.shape}")
    if not np.isin(label_N, (0, 1)).all():
        raise ValueError("labels must be 0 (normal) or 1 (anomalous)")
    return score_N, label_N == 1


def places(scores: ArrayLike) -> Ints:
    """The place of each score among the distinct ones, from 1 for the lowest number; 0 is kept for NaN.

    >>> places([0.3, 0.1, float("nan"), 0.3]).tolist()
    [2, 1, 0, 2]
    """
    score_N = np.asarray(scores, dtype=np.float64)
    place_N = np.unique(score_N, return_inverse=True)[1].astype(np.intp) + 1
    place_N[np.isnan(score_N)] = 0
    return place_N


def pairs_won(normal_U: NDArray[Any], anomalous_U: NDArray[Any]) -> NDArray[np.float64]:
    """The share of (normal, anomalous) pairs in which the anomalous one stands higher; ties count half.

    Both hold counts by place (..., U), lowest place first; with one class only, the answer is NaN. This is the AUROC.

    >>> float(pairs_won(np.array([1, 1, 0]), np.array([0, 1, 1])))
    0.875
    """
    normal_U, anomalous_U = normal_U.astype(np.float64), anomalous_U.astype(np.float64)
    below_U = normal_U.cumsum(axis=-1) - normal_U / 2
    return _share((anomalous_U * below_U).sum(axis=-1), normal_U, anomalous_U)


def pairs_tied(normal_U: NDArray[Any], anomalous_U: NDArray[Any]) -> NDArray[np.float64]:
    """The share of (normal, anomalous) pairs at the same place, from the same counts.

    >>> float(pairs_tied(np.array([1, 1, 0]), np.array([0, 1, 1])))
    0.25
    """
    normal_U, anomalous_U = normal_U.astype(np.float64), anomalous_U.astype(np.float64)
    return _share((anomalous_U * normal_U).sum(axis=-1), normal_U, anomalous_U)


def rank_correlation(one: ArrayLike, other: ArrayLike) -> float:
    """Spearman's correlation of two lists of N scores: 1 where both rank alike, -1 where the other way round.

    Equal scores share the mean of their ranks. NaN where one list says the same about everything.

    >>> rank_correlation([1, 2, 3], [10, 30, 20]), rank_correlation([1, 2, 3], [9, 4, 1])
    (0.5, -1.0)
    """
    ranks = [_mean_ranks(places(scores)) for scores in (one, other)]
    centred = [rank_N - rank_N.mean() for rank_N in ranks]
    scale = float(np.sqrt(np.prod([(rank_N**2).sum() for rank_N in centred])))
    return float(np.dot(*centred)) / scale if scale else float("nan")


def _mean_ranks(place_N: Ints) -> Numbers:
    """Ranks from places; those at one place share the mean of what they take up."""
    count_U = np.bincount(place_N)
    rank_U: Numbers = count_U.cumsum() - (count_U - 1) / 2
    return rank_U[place_N]


def _share(pairs: Any, normal_U: Numbers, anomalous_U: Numbers) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # 0 / 0 pairs: NaN is the answer
        return np.asarray(pairs / (normal_U.sum(axis=-1) * anomalous_U.sum(axis=-1)))
