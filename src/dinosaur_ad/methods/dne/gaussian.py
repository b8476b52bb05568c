"""DNE's statistics of a task, the one Gaussian pooled from all tasks, and the Mahalanobis distance to it.

NumPy in double precision unless noted: 768 x 768 is small, and a collapsed network leaves variances that single
precision rounds to 0. Covariances are divided by N and not by N - 1: then a task of one image has one, and pooling is
exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Singles = NDArray[np.float32]
Estimator = Callable[[Doubles], tuple[Doubles, Doubles]]
Pooling = Literal["closed-form", "sampled", "sampled-diagonal", "sampled-past"]


@dataclass(frozen=True)
class TaskStatistics:
    """The statistics of a task: mean (C,), covariance (C, C), number of images."""

    mean_C: Singles
    covariance_CC: Singles
    count: int

    @property
    def nbytes(self) -> int:
        """As stored, the count as one number of four bytes."""
        return self.mean_C.nbytes + self.covariance_CC.nbytes + 4


@dataclass(frozen=True)
class Gaussian:
    """One normal distribution: mean (C,) and covariance (C, C)."""

    mean_C: Doubles
    covariance_CC: Doubles

    @property
    def rank(self) -> int:
        """The rank of the covariance."""
        return int(self._whitening.shape[1])

    @cached_property
    def _whitening(self) -> Doubles:
        """(C, R), the root of the pseudo-inverse of the covariance: directions without variance are left out."""
        spread_C, axes_CC = np.linalg.eigh(self.covariance_CC)
        eps = np.finfo(np.float64).eps
        # The rounding error of double precision, relative to the largest variance and to the mean.
        smallest = max(spread_C.max() * len(spread_C) * eps, (4 * eps * np.linalg.norm(self.mean_C)) ** 2)
        kept = spread_C > smallest
        whitening_CR: Doubles = axes_CC[:, kept] / np.sqrt(spread_C[kept])
        return whitening_CR

    def distance(self, z_NC: NDArray[np.floating]) -> Singles:
        """Mahalanobis distance of each row (N,); all 0 when the distribution is a point, NaN for rows not finite."""
        centred_NC = np.asarray(z_NC, np.float64) - self.mean_C
        finite_N = np.isfinite(centred_NC).all(axis=1)
        distance_N = np.full(len(centred_NC), np.nan)
        distance_N[finite_N] = np.linalg.norm(centred_NC[finite_N] @ self._whitening, axis=1)
        return distance_N.astype(np.float32)


# --- estimating ---


def empirical(z_NC: Doubles) -> tuple[Doubles, Doubles]:
    """Mean (C,) and covariance (C, C) without shrinkage; zeros for no rows."""
    if len(z_NC) == 0:
        return np.zeros(z_NC.shape[1]), np.zeros((z_NC.shape[1],) * 2)
    mean_C = z_NC.mean(axis=0)
    centred_NC = z_NC - mean_C
    return mean_C, centred_NC.T @ centred_NC / len(z_NC)


def shrink(covariance_CC: Doubles, share: float) -> Doubles:
    """``(1 - share)`` of the covariance and ``share`` of a multiple of the identity with the same trace.

    >>> shrink(np.diag([4.0, 0.0]), 0.5)
    array([[3., 0.],
           [0., 1.]])
    """
    channels = len(covariance_CC)
    mixed_CC: Doubles = (1 - share) * covariance_CC + share * np.trace(covariance_CC) / channels * np.eye(channels)
    return mixed_CC


def shrunk(share: float) -> Estimator:
    """An estimator that shrinks by a fixed share: the paper's."""

    def estimate(z_NC: Doubles) -> tuple[Doubles, Doubles]:
        mean_C, covariance_CC = empirical(z_NC)
        return mean_C, shrink(covariance_CC, share)

    return estimate


def ledoit_wolf(z_NC: Doubles) -> tuple[Doubles, Doubles]:
    """An estimator that shrinks by the share of Ledoit and Wolf (2004), as DNE's original does.

    With ``S`` the covariance, ``m`` its mean variance and ``|.|`` the Frobenius norm, the share is the error of ``S``,
    ``mean over n of |x_n x_n' - S|^2 / N``, divided by ``|S - m I|^2``.
    """
    mean_C, covariance_CC = empirical(z_NC)
    channels = len(covariance_CC)
    ball_CC = np.trace(covariance_CC) / channels * np.eye(channels)
    distance = ((covariance_CC - ball_CC) ** 2).sum()
    if distance <= 0 or len(z_NC) == 0:
        return mean_C, covariance_CC
    fourth = (((z_NC - mean_C) ** 2).sum(axis=1) ** 2).mean()
    error = (fourth - (covariance_CC**2).sum()) / len(z_NC)
    return mean_C, shrink(covariance_CC, float(np.clip(error / distance, 0, 1)))


def unit_length(z_NC: Doubles) -> Doubles:
    """Each row divided by its length; zeros stay zeros."""
    length_N1 = np.linalg.norm(z_NC, axis=1, keepdims=True)
    return z_NC / np.where(length_N1 > 0, length_N1, 1)


def task_statistics(z_NC: Doubles, estimate: Estimator) -> TaskStatistics:
    """The statistics of a task; rows that are not finite are left out and not counted."""
    finite_NC = z_NC[np.isfinite(z_NC).all(axis=1)]
    mean_C, covariance_CC = estimate(finite_NC)
    return TaskStatistics(mean_C.astype(np.float32), covariance_CC.astype(np.float32), len(finite_NC))


# --- one distribution for all tasks ---


def pooled(tasks: Sequence[TaskStatistics]) -> tuple[Doubles, Doubles]:
    """Mean and covariance of the mixture of all tasks, each weighing as many images as it had.

    ``mu = sum n_t mu_t / N`` and ``Sigma = sum n_t (Sigma_t + (mu_t - mu)(mu_t - mu)') / N``.
    """
    count_T = np.array([task.count for task in tasks], np.float64)
    weight_T = count_T / max(count_T.sum(), 1.0)
    mean_TC = np.stack([task.mean_C for task in tasks]).astype(np.float64)
    mean_C = weight_T @ mean_TC
    apart_TC = mean_TC - mean_C
    within_CC = sum(w * task.covariance_CC.astype(np.float64) for w, task in zip(weight_T, tasks, strict=True))
    return mean_C, within_CC + (apart_TC * weight_T[:, None]).T @ apart_TC


def draw(task: TaskStatistics, generator: np.random.Generator) -> Doubles:
    """As many embeddings as the task had images, from its full covariance."""
    return generator.multivariate_normal(
        task.mean_C.astype(np.float64), task.covariance_CC.astype(np.float64), size=task.count, method="eigh"
    )


def draw_diagonal(task: TaskStatistics, generator: np.random.Generator) -> Doubles:
    """As the authors of the paper draw: each channel by itself, its VARIANCE used as its standard deviation.

    In single precision as there. Where the network has collapsed to a variance of, say, 1e-8 about a mean of 1, the
    draws are all the same number, and the distribution made of them is a point.
    """
    noise_NC = generator.standard_normal((task.count, len(task.mean_C)), np.float32)
    drawn_NC: Singles = task.mean_C + noise_NC * np.diagonal(task.covariance_CC)
    return drawn_NC.astype(np.float64)


def global_gaussian(
    tasks: Sequence[TaskStatistics],
    z_NC: Doubles,
    *,
    pooling: Pooling,
    estimate: Estimator,
    share: float,
    normalise: bool,
    seed: Sequence[int],
) -> Gaussian:
    """The Gaussian for scoring after the task ``tasks[-1]``, whose embeddings are ``z_NC``.

    ``closed-form`` pools the statistics and shrinks the result by ``share``. The others draw as many embeddings of
    each task as it had images, and ``estimate`` the distribution of all that was drawn: ``sampled`` from full
    covariances, ``sampled-diagonal`` as the paper's authors do, ``sampled-past`` as DNE's authors do, who draw for
    earlier tasks only and add the real embeddings of the latest one.
    """
    if pooling == "closed-form":
        mean_C, covariance_CC = pooled(tasks)
        return Gaussian(mean_C, shrink(covariance_CC, share))
    generators = [np.random.default_rng([*seed, index]) for index in range(len(tasks))]
    drawing = draw_diagonal if pooling == "sampled-diagonal" else draw
    drawn = [drawing(task, generator) for task, generator in zip(tasks, generators, strict=True)]
    if pooling == "sampled-past":
        drawn[-1] = z_NC[np.isfinite(z_NC).all(axis=1)]
    points_NC = np.concatenate(drawn)
    return Gaussian(*estimate(unit_length(points_NC) if normalise else points_NC))


def tied_share(score_N: Singles) -> float:
    """The share of the finite scores that are equal, to the last bit, to the score of another image.

    >>> tied_share(np.array([1, 1, 2, np.nan], np.float32))
    0.6666666666666666
    """
    finite_N = score_N[np.isfinite(score_N)]
    counts = np.unique(finite_N, return_counts=True)[1]
    return float(counts[counts > 1].sum() / max(len(finite_N), 1))
