"""Notices that images as a whole changed (light, camera, focus), by their descriptors and not by their scores.

Half of the learned images give the directions in which they differ most; the other half gives, for each direction, the
values that are usual. These values and those of later images are exchangeable as long as nothing changes, so the
evidence of :mod:`~dinosaur_ad.core.drift` is exact for each direction, and so is its mean over all of them. The length
of what the directions leave over is one more value: it finds changes that no learned image shows.

A share of ``defects`` of the images may lie anywhere: that is the tolerance of the bets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.calibration import conformal_p_values, folds
from dinosaur_ad.core.drift import Watch, begin_watch, watch_part
from dinosaur_ad.errors import InputError

Floats = NDArray[np.float64]

DIRECTIONS = 4
"""So many directions are watched, and the length of the rest."""
FEWEST_IMAGES = 12
"""Fewer learned images are not compared with: half of them would be too few to notice anything."""


class LearnedDescriptors(NamedTuple):
    """What later descriptors are compared with: a mean, ``K`` directions, and the values ``(R, K + 1)`` of images."""

    mean_C: Floats
    axes_KC: Floats
    usual_RV: Floats

    def values(self, descriptor_NC: np.ndarray) -> Floats:
        """Along every direction, and the length of the rest, ``(N, K + 1)``."""
        centred_NC = np.asarray(descriptor_NC, np.float64) - self.mean_C
        along_NK = centred_NC @ self.axes_KC.T
        rest_N = np.linalg.norm(centred_NC - along_NK @ self.axes_KC, axis=1)
        return np.column_stack([along_NK, rest_N])


class DescriptorNotice(NamedTuple):
    """Images changed: ``evidence`` to one, reached 1 / alpha with image ``noticed_at`` (from 1).

    ``deviations_V`` is by how many deviations the median image differs along each direction and in the length of the
    rest; ``direction_C`` the change along the directions as a vector of length one.
    """

    evidence: float
    noticed_at: int
    deviations_V: Floats
    direction_C: Floats


def learned_descriptors(descriptor_NC: np.ndarray, seed: int = 0) -> LearnedDescriptors:
    """The directions and usual values of learned images, given their descriptors.

    >>> learned = learned_descriptors(np.random.default_rng(0).normal(size=(40, 8)))
    >>> learned.axes_KC.shape, learned.usual_RV.shape
    ((4, 8), (20, 5))
    """
    descriptor_NC = np.asarray(descriptor_NC, np.float64)
    if len(descriptor_NC) < FEWEST_IMAGES or not np.isfinite(descriptor_NC).all():
        raise InputError(
            f"Expected finite descriptors of at least {FEWEST_IMAGES} learned images, got {len(descriptor_NC)}; learn "
            "more normal images."
        )
    axes_from, usual_from = folds(len(descriptor_NC), 2, seed)
    mean_C = descriptor_NC[axes_from].mean(axis=0)
    _, _, axes_KC = np.linalg.svd(descriptor_NC[axes_from] - mean_C, full_matrices=False)
    learned = LearnedDescriptors(mean_C, axes_KC[:DIRECTIONS], np.empty((0, 0)))
    return learned._replace(usual_RV=learned.values(descriptor_NC[usual_from]))


def begin_descriptor_watch(learned: LearnedDescriptors) -> tuple[Watch, ...]:
    """The state before the first image: one watch a direction, and one for the rest."""
    return tuple(begin_watch(len(usual_R)) for usual_R in learned.usual_RV.T)


def watch_descriptor(
    watches: Sequence[Watch], learned: LearnedDescriptors, descriptor_C: np.ndarray, defects: float = 0.2
) -> tuple[Watch, ...]:
    """The state after one more image."""
    value_V = learned.values(np.asarray(descriptor_C)[None])[0]
    if not np.isfinite(value_V).all():
        raise InputError("A descriptor has values that are no numbers; leave that image out.")
    p_value_V = [float(conformal_p_values(value_V[[v]], learned.usual_RV[:, v])[0]) for v in range(len(value_V))]
    return tuple(
        watch_part(watch, p_value, tolerance=defects, flagged=0)
        for watch, p_value in zip(watches, p_value_V, strict=True)
    )


def log_descriptor_evidence(watches: Sequence[Watch]) -> float:
    """The logarithm of the evidence of all directions: of their mean, which is evidence too."""
    return float(np.logaddexp.reduce([watch.log_evidence for watch in watches]) - math.log(len(watches)))


def descriptor_notice(
    learned: LearnedDescriptors, descriptor_NC: np.ndarray, *, alpha: float = 0.01, defects: float = 0.2
) -> DescriptorNotice | None:
    """Whether images, in the order of inspection, look different as a whole from those that were learned.

    >>> rng = np.random.default_rng(0)
    >>> learned = learned_descriptors(rng.normal(size=(100, 8)))
    >>> descriptor_notice(learned, rng.normal(size=(50, 8))) is None
    True
    >>> descriptor_notice(learned, rng.normal(size=(50, 8)) + 3).noticed_at < 20
    True
    """
    watches, noticed_at, most = begin_descriptor_watch(learned), 0, 0.0
    for n, descriptor_C in enumerate(descriptor_NC, start=1):
        watches = watch_descriptor(watches, learned, descriptor_C, defects)
        most = max(most, log_descriptor_evidence(watches))
        if not noticed_at and most >= -math.log(alpha):
            noticed_at = n
    if not noticed_at:
        return None
    spread_V = np.maximum(learned.usual_RV.std(axis=0), np.finfo(np.float32).eps)
    moved_V = np.median(learned.values(descriptor_NC), axis=0) - np.median(learned.usual_RV, axis=0)
    direction_C = moved_V[:-1] @ learned.axes_KC
    length = max(float(np.linalg.norm(direction_C)), float(np.finfo(np.float64).tiny))
    return DescriptorNotice(math.exp(min(700.0, most)), noticed_at, moved_V / spread_V, direction_C / length)
