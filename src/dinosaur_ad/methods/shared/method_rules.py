"""Input checks and the threshold that all methods share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.calibration import quantile_threshold
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.contract import Photo


def require_normals(task: str, photos: Sequence[Photo]) -> None:
    """Raise an error if a task has no training images.

    >>> require_normals("bolts", [])
    Traceback (most recent call last):
        ...
    dinosaur_ad.errors.InputError: The task 'bolts' has no training images; give at least one normal.
    """
    if not photos:
        raise InputError(f"The task '{task}' has no training images; give at least one normal.")


def require_photos(photos: Sequence[Photo]) -> None:
    """Raise an error if there are no images to score."""
    if not photos:
        raise InputError("Expected at least one image to score, got none.")


def training_threshold(score_N: NDArray[np.floating[Any]]) -> float:
    """The paper's threshold for the methods it compares with: the 97.5th percentile of the training images' scores.

    >>> training_threshold(np.arange(41.0))
    39.0
    """
    return quantile_threshold(score_N, false_alarms=0.025)
