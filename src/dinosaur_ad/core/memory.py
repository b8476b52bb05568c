"""A task's spatial memory: built once, extended without the old images, and scored against honestly.

``vectors_HWMC`` are the remembered patches and ``source_HWM`` says which training image each came from. Members are
kept in the order the greedy selection picked them, so any prefix of them is a coreset too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dinosaur_ad.core.arrays import Array, like, namespace
from dinosaur_ad.core.calibration import folds
from dinosaur_ad.core.coreset import greedy_coreset
from dinosaur_ad.core.scoring import patch_distances


class Memory(NamedTuple):
    """Remembered patches ``(H, W, M, C)`` and the index of the image each came from ``(H, W, M)``."""

    vectors_HWMC: Array
    source_HWM: Array

    @property
    def members(self) -> int:
        """How many patches each location remembers."""
        return int(self.vectors_HWMC.shape[2])

    def first(self, members: int) -> Memory:
        """The coreset of the first ``members`` picks."""
        return Memory(self.vectors_HWMC[:, :, :members], self.source_HWM[:, :, :members])


def remember(patches_NHWC: Array, source_N: Array, size: int, *, known: Memory | None = None, seed: int = 0) -> Memory:
    """The coreset of at most ``size`` patches per location, out of ``N`` images and of what was ``known`` before them.

    A known memory's first pick stays the first, so a memory that grew for years is still a greedy coreset of its
    own past.

    >>> memory = remember(np.random.default_rng(0).normal(size=(9, 4, 4, 8)), np.arange(9), 5)
    >>> memory.vectors_HWMC.shape, memory.source_HWM.shape
    ((4, 4, 5, 8), (4, 4, 5))
    """
    xp = namespace(patches_NHWC)
    images, height, width, channels = patches_NHWC.shape
    locations = height * width
    points_LDC = xp.permute_dims(xp.reshape(patches_NHWC, (images, locations, channels)), (1, 0, 2))
    source_LD = xp.broadcast_to(source_N[None, :], (locations, images))
    if known is not None:
        known_LMC = xp.reshape(known.vectors_HWMC, (locations, known.members, channels))
        points_LDC = xp.concat([known_LMC, points_LDC], axis=1)
        source_LD = xp.concat([xp.reshape(known.source_HWM, (locations, known.members)), source_LD], axis=1)
    size = min(size, points_LDC.shape[1])
    picks_LM = greedy_coreset(points_LDC, size, seed=seed, first=None if known is None else 0)
    lane_L1 = like(np.arange(locations), points_LDC, xp.int64)[:, None]
    return Memory(
        xp.reshape(points_LDC[lane_L1, picks_LM], (height, width, size, channels)),
        xp.reshape(source_LD[lane_L1, picks_LM], (height, width, size)),
    )


def unseen_distances(
    patches_NHWC: Array,
    size: int,
    radius: int,
    *,
    at_least: int,
    parts: int = 5,
    known: Memory | None = None,
    seed: int = 0,
) -> Array:
    """Patch distances ``(n, H, W)`` of ``n`` of the ``N`` images, each to a memory that has never seen it."""
    unseen = unseen_memories(patches_NHWC, size, at_least=at_least, parts=parts, known=known, seed=seed)
    distances = [patch_distances(held_out_NHWC, memory.vectors_HWMC, radius) for held_out_NHWC, memory in unseen]
    return namespace(patches_NHWC).concat(distances, axis=0)


def unseen_memories(
    patches_NHWC: Array,
    size: int,
    *,
    at_least: int,
    parts: int = 5,
    known: Memory | None = None,
    seed: int = 0,
) -> Iterator[tuple[Array, Memory]]:
    """Some of the ``N`` images at a time, and a memory that has never seen them.

    One of ``parts`` of the images at a time is held out, and a memory of ``size`` is made of the rest and of what was
    ``known`` before. That goes on until ``at_least`` images were held out, or all were. The more parts, the less the
    memory misses what was held out, and the longer it takes.
    """
    xp = namespace(patches_NHWC)
    images, done = patches_NHWC.shape[0], 0
    for held_out in folds(images, parts, seed):
        rest = like(np.setdiff1d(np.arange(images), held_out), patches_NHWC, xp.int64)
        yield patches_NHWC[held_out], remember(patches_NHWC[rest], rest, size, known=known, seed=seed)
        done += len(held_out)
        if done >= at_least:
            return
