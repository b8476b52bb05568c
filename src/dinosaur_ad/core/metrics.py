"""How good a detector is, from scores and labels alone: ranking, and what is lost while learning more."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def auroc(scores: ArrayLike, labels: ArrayLike) -> float:
    """The chance that a random anomalous image scores above a random normal one; ties count half.

    ``scores`` (N,) and ``labels`` (N,), 0 normal and 1 anomalous. NaN when one of the two is missing.

    >>> auroc([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1])
    0.875
    """
    score_N = np.asarray(scores, dtype=np.float64)
    label_N = np.asarray(labels)
    if score_N.ndim != 1 or score_N.shape != label_N.shape:
        raise ValueError(f"scores and labels must be equally long lists, got {score_N.shape} and {label_N.shape}")
    if np.isnan(score_N).any():
        raise ValueError("scores must not be NaN: a NaN has no rank")
    if not np.isin(label_N, (0, 1)).all():
        raise ValueError("labels must be 0 (normal) or 1 (anomalous)")
    anomalous = int(label_N.sum())
    normal = len(label_N) - anomalous
    if not anomalous or not normal:
        return float("nan")
    _, place_N, count_U = np.unique(score_N, return_inverse=True, return_counts=True)
    mean_rank_U = np.cumsum(count_U) - (count_U - 1) / 2
    rank_sum = float(mean_rank_U[place_N][label_N == 1].sum())
    return (rank_sum - anomalous * (anomalous + 1) / 2) / (anomalous * normal)


def forgetting(matrix_TT: ArrayLike) -> float:
    """What the earlier tasks lost by the end: best value before the last task minus the last, averaged.

    Row ``t`` of ``matrix_TT`` holds the value on every task after learning task ``t``; what lies above the diagonal
    is never read. Negative when learning more has helped; NaN for a single task, which nothing could displace.

    >>> forgetting([[0.90, 0.00, 0.00], [0.95, 0.80, 0.00], [0.85, 0.80, 0.70]])
    0.05
    """
    a_TT = np.asarray(matrix_TT, dtype=np.float64)
    tasks = len(a_TT)
    if a_TT.shape != (tasks, tasks):
        raise ValueError(f"the matrix must be square, one row and one column a task, got {a_TT.shape}")
    if tasks < 2:
        return float("nan")
    lost = [a_TT[j:-1, j].max() - a_TT[-1, j] for j in range(tasks - 1)]
    return float(round(np.mean(lost), 12))  # without the last bits' noise, nothing lost is exactly 0
