"""The threshold that the paper gives every method it compares with: a percentile of the scores of training images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

QUANTILE = 0.975


def training_threshold(score_N: NDArray[np.floating[Any]]) -> float:
    """The 97.5th percentile of the scores ``(N,)`` of the images that were just learned from.

    >>> training_threshold(np.arange(41.0))
    39.0
    """
    return float(np.quantile(score_N, QUANTILE))
