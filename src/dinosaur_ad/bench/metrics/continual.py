"""Forgetting and transfer, computed from the T x T matrix.

``a[t, j]`` is the value (an AUROC, say) on task ``j`` after learning task ``t``, both from 0: T rows and T columns, all
filled. Below the diagonal lie tasks already learned, above it tasks still to come. A NaN that is read makes the result
NaN. Results are rounded to 12 digits, so that "nothing changed" is exactly 0 and not the noise of the last bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dinosaur_ad.core.metrics import forgetting


def fm_paper(matrix_TT: ArrayLike) -> float:
    """Forgetting as the paper prints it: the best value before the last task, minus the last, averaged over j < T.

    The best is taken over *all* earlier rows, also those before task ``j`` was learned, so that a value nobody had
    learned yet can count as forgotten. Never below :func:`fm_std`; NaN for a single task.

    >>> fm_paper([[0.90, 0.85, 0.50], [0.95, 0.80, 0.60], [0.85, 0.80, 0.70]])
    0.075
    """
    a_TT = _square(matrix_TT)
    return _mean(a_TT[:-1, :-1].max(axis=0) - a_TT[-1, :-1]) if len(a_TT) > 1 else float("nan")


def fm_std(matrix_TT: ArrayLike) -> float:
    """Forgetting as is usual: the best value since task ``j`` was learned, minus the last, averaged over j < T.

    >>> fm_std([[0.90, 0.85, 0.50], [0.95, 0.80, 0.60], [0.85, 0.80, 0.70]])
    0.05
    """
    return forgetting(matrix_TT)


def fm_diagonal(matrix_TT: ArrayLike) -> float:
    """Forgetting against the moment of learning: ``a[j, j] - a[T-1, j]``, averaged over j < T.

    >>> fm_diagonal([[0.90, 0.85, 0.50], [0.95, 0.80, 0.60], [0.85, 0.80, 0.70]])
    0.025
    """
    a_TT = _square(matrix_TT)
    return _mean(a_TT.diagonal()[:-1] - a_TT[-1, :-1])


def bwt(matrix_TT: ArrayLike) -> float:
    """Backward transfer, :func:`fm_diagonal` with the other sign: above 0 when learning more has helped.

    >>> bwt([[0.90, 0.85, 0.50], [0.95, 0.80, 0.60], [0.85, 0.80, 0.70]])
    -0.025
    """
    a_TT = _square(matrix_TT)
    return _mean(a_TT[-1, :-1] - a_TT.diagonal()[:-1])


def fwt(matrix_TT: ArrayLike, chance: float = 0.5) -> float:
    """Forward transfer: how far above ``chance`` a task is just before it is learned, averaged over all but the first.

    >>> fwt([[0.90, 0.85, 0.50], [0.95, 0.80, 0.60], [0.85, 0.80, 0.70]])
    0.225
    """
    return _mean(_square(matrix_TT).diagonal(offset=1) - chance)


def final_average(matrix_TT: ArrayLike) -> float:
    """The value after the last task, averaged over all tasks, each of the same weight: what the paper's tables show.

    >>> final_average([[0.90, 0.85, 0.50], [0.95, 0.80, 0.60], [0.84, 0.79, 0.71]])
    0.78
    """
    return _mean(_square(matrix_TT)[-1:].ravel())


def _square(matrix_TT: ArrayLike) -> NDArray[np.float64]:
    a_TT = np.asarray(matrix_TT, dtype=np.float64)
    if a_TT.ndim != 2 or a_TT.shape[0] != a_TT.shape[1]:
        raise ValueError(f"the matrix must be square, one row and one column a task, got {a_TT.shape}")
    return a_TT


def _mean(value_J: NDArray[np.float64]) -> float:
    return float(round(value_J.mean(), 12)) if value_J.size else float("nan")
