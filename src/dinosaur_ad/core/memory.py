"""A task's spatial memory: built once, extended without the old images, and calibrated with images it has not seen.

``vectors_HWMC`` are the remembered patches and ``source_HWM`` says which training image each came from. Members are
kept in the order the greedy selection picked them, so any prefix of them is a coreset too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.arrays import Array, device_of, like, namespace, squared_norms
from dinosaur_ad.core.calibration import folds
from dinosaur_ad.core.coreset import greedy_coreset, greedy_coresets


class Coreset(NamedTuple):
    """Remembered patches ``(H, W, M, C)`` and the index of the image each came from ``(H, W, M)``."""

    vectors_HWMC: Array
    source_HWM: Array

    @property
    def members(self) -> int:
        """How many patches each location remembers."""
        return int(self.vectors_HWMC.shape[2])

    def first(self, members: int) -> Coreset:
        """The coreset of the first ``members`` picks."""
        return Coreset(self.vectors_HWMC[:, :, :members], self.source_HWM[:, :, :members])


def remember(
    patches_NHWC: Array, source_N: Array, size: int, *, known: Coreset | None = None, seed: int = 0
) -> Coreset:
    """The coreset of at most ``size`` patches per location, out of ``N`` images and of what was ``known`` before them.

    A known memory's first pick stays the first, so a memory that grew for years is still a greedy coreset of its
    own past.

    >>> memory = remember(np.random.default_rng(0).normal(size=(9, 4, 4, 8)), np.arange(9), 5)
    >>> memory.vectors_HWMC.shape, memory.source_HWM.shape
    ((4, 4, 5, 8), (4, 4, 5))
    """
    points_LDC, source_LD = _points(patches_NHWC, source_N, known)
    size = min(size, points_LDC.shape[1])
    picks_LM = greedy_coreset(points_LDC, size, seed=seed, first=None if known is None else 0)
    return _picked(points_LDC, source_LD, picks_LM, patches_NHWC.shape[1])


def remember_parts(
    patches_NHWC: Array,
    source_N: Array,
    size: int,
    parts: Sequence[NDArray[np.intp]],
    *,
    known: Coreset | None = None,
    seed: int = 0,
) -> Iterator[Coreset]:
    """The coreset that :func:`remember` makes of each of some parts of the images, given by index; one at a time."""
    points_LDC, source_LD = _points(patches_NHWC, source_N, known)
    before = points_LDC.shape[1] - patches_NHWC.shape[0]
    with_known = [np.concatenate([np.arange(before), before + part]) for part in parts]
    for picks_LM in greedy_coresets(points_LDC, size, with_known, seed=seed, first=None if known is None else 0):
        yield _picked(points_LDC, source_LD, picks_LM, patches_NHWC.shape[1])


def _points(patches_NHWC: Array, source_N: Array, known: Coreset | None) -> tuple[Array, Array]:
    """What each location chooses from ``(L, D, C)``, that which was known first, and the sources ``(L, D)``."""
    xp = namespace(patches_NHWC)
    images, height, width, channels = patches_NHWC.shape
    locations = height * width
    points_LDC = xp.permute_dims(xp.reshape(patches_NHWC, (images, locations, channels)), (1, 0, 2))
    source_LD = xp.broadcast_to(source_N[None, :], (locations, images))
    if known is not None:
        known_LMC = xp.reshape(known.vectors_HWMC, (locations, known.members, channels))
        points_LDC = xp.concat([known_LMC, points_LDC], axis=1)
        source_LD = xp.concat([xp.reshape(known.source_HWM, (locations, known.members)), source_LD], axis=1)
    return points_LDC, source_LD


def _picked(points_LDC: Array, source_LD: Array, picks_LM: Array, height: int) -> Coreset:
    """The vectors that were picked, on a grid of so many rows."""
    xp = namespace(points_LDC)
    locations, members = picks_LM.shape
    lane_L1 = like(np.arange(locations), points_LDC, xp.int64)[:, None]
    return Coreset(
        xp.reshape(points_LDC[lane_L1, picks_LM], (height, locations // height, members, points_LDC.shape[2])),
        xp.reshape(source_LD[lane_L1, picks_LM], (height, locations // height, members)),
    )


def unseen_parts(
    count: int, *, at_least: int, parts: int = 5, seed: int = 0
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Which of ``count`` images are held out at a time, and the rest, of which a memory is to be made.

    One of ``parts`` of the images at a time is held out, until ``at_least`` images were, or all. The more parts, the
    less the memory misses what was held out, and the longer it takes.

    >>> [(len(held_out), len(rest)) for held_out, rest in unseen_parts(10, at_least=7, parts=5)]
    [(2, 8), (2, 8), (2, 8), (2, 8)]
    """
    done = 0
    for held_out in folds(count, parts, seed):
        yield held_out, np.setdiff1d(np.arange(count), held_out)
        done += len(held_out)
        if done >= at_least:
            return


def distances_to_others(patches: Coreset, members: Coreset, radius: int, images: int) -> Array:
    """Distance ``(images, H, W)`` of remembered patches to the nearest member that came from another image.

    It is what a patch would score if its own image had not been seen. Patches that are not among ``patches`` count as
    0: the greedy selection leaves out those that lie close to others. So do patches that have no member of another
    image within ``radius``.

    >>> tokens = np.asarray([0.0, 1.0, 5.0]).reshape(3, 1, 1, 1)
    >>> memory = remember(tokens, np.arange(3), 3)
    >>> distances_to_others(memory, memory, radius=0, images=3)[:, 0, 0].tolist()
    [1.0, 1.0, 4.0]
    """
    xp = namespace(patches.vectors_HWMC, members.vectors_HWMC)
    height, width, count, _ = patches.vectors_HWMC.shape
    own_norm_HWK, norm_HWM = squared_norms(patches.vectors_HWMC), squared_norms(members.vectors_HWMC)
    result = xp.zeros((images, height, width), dtype=own_norm_HWK.dtype, device=device_of(own_norm_HWK))
    shifts = [(down, right) for down in range(-radius, radius + 1) for right in range(-radius, radius + 1)]
    place_W1 = like(np.arange(width), own_norm_HWK, xp.int64)[:, None]
    for row in range(height):  # a row at a time: of a large memory all pairs at once would not fit
        nearest_WK = xp.full_like(own_norm_HWK[row], float("inf"))
        for down, right in shifts:
            first, last = max(0, -right), min(width, width - right)
            if not 0 <= row + down < height or first >= last:
                continue
            here, there = slice(first, last), slice(first + right, last + right)
            product_WKM = patches.vectors_HWMC[row, here] @ xp.matrix_transpose(members.vectors_HWMC[row + down, there])
            squared_WKM = own_norm_HWK[row, here][:, :, None] - 2 * product_WKM + norm_HWM[row + down, there][:, None]
            same = patches.source_HWM[row, here][:, :, None] == members.source_HWM[row + down, there][:, None]
            squared_WKM[same] = float("inf")
            nearest_WK[here] = xp.minimum(nearest_WK[here], xp.min(squared_WKM, axis=2))
        nearest_WK = xp.where(xp.isfinite(nearest_WK), nearest_WK, xp.zeros_like(nearest_WK))
        distance_WK = xp.sqrt(xp.maximum(nearest_WK, xp.zeros_like(nearest_WK)))
        result[xp.astype(patches.source_HWM[row], xp.int64), row, xp.broadcast_to(place_W1, (width, count))] = (
            distance_WK
        )
    return result
