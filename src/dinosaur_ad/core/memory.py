"""A task's spatial memory: built once, extended without the old images, and scored against honestly.

``vectors_HWMC`` are the remembered patches and ``source_HWM`` says which training image each came from. Members are kept in
the order the greedy selection picked them, so any prefix of them is a coreset too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dinosaur_ad.core.arrays import Array, namespace, squared_norms
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


def remember(patches_DHWC: Array, source_D: Array, size: int, *, seed: int = 0) -> Memory:
    """The coreset of ``size`` patches at every location, out of ``D`` images.

    >>> memory = remember(np.random.default_rng(0).normal(size=(9, 4, 4, 8)), np.arange(9), 5)
    >>> memory.vectors_HWMC.shape, memory.source_HWM.shape
    ((4, 4, 5, 8), (4, 4, 5))
    """
    xp = namespace(patches_DHWC)
    images, height, width, channels = patches_DHWC.shape
    points_LDC = xp.permute_dims(xp.reshape(patches_DHWC, (images, height * width, channels)), (1, 0, 2))
    source_LD = xp.broadcast_to(source_D[None, :], (height * width, images))
    return _select(points_LDC, source_LD, size, (height, width), seed=seed)


def extend(memory: Memory, patches_NHWC: Array, source_N: Array, size: int) -> Memory:
    """``memory`` after seeing ``N`` more images: the coreset of what it remembered and the new patches together.

    The first pick stays the first, so a memory can grow for years and remain the greedy coreset of its own past.
    """
    xp = namespace(memory.vectors_HWMC, patches_NHWC)
    height, width, members, channels = memory.vectors_HWMC.shape
    images, locations = patches_NHWC.shape[0], height * width
    new_LNC = xp.permute_dims(xp.reshape(patches_NHWC, (images, locations, channels)), (1, 0, 2))
    points_LDC = xp.concat([xp.reshape(memory.vectors_HWMC, (locations, members, channels)), new_LNC], axis=1)
    new_LN = xp.broadcast_to(source_N[None, :], (locations, images))
    source_LD = xp.concat([xp.reshape(memory.source_HWM, (locations, members)), new_LN], axis=1)
    return _select(points_LDC, source_LD, min(size, members + images), (height, width), first=0)


def _select(
    points_LDC: Array, source_LD: Array, size: int, grid: tuple[int, int], *, seed: int = 0, first: int | None = None
) -> Memory:
    xp = namespace(points_LDC)
    picks_LM = greedy_coreset(points_LDC, size, seed=seed, first=first)
    lane_L1 = xp.arange(points_LDC.shape[0], device=picks_LM.device)[:, None]
    return Memory(
        xp.reshape(points_LDC[lane_L1, picks_LM], (*grid, size, -1)),
        xp.reshape(source_LD[lane_L1, picks_LM], (*grid, size)),
    )


def unseen_distances(
    patches_NHWC: Array, source_N: np.ndarray, memory: Memory, radius: int, *, parts: int = 16, seed: int = 0
) -> Array:
    """Patch distances ``(N, H, W)`` of images that helped to build ``memory``, as if it had never seen them.

    The images are taken in ``parts`` groups; for each group, every remembered patch that came from one of its images is
    hidden. That leaves a memory of the other images only, so the distances are those of unseen normals (a shade larger,
    since hidden picks are not replaced), without building a memory per group.
    """
    xp = namespace(patches_NHWC, memory.vectors_HWMC)
    half_norm_HWM = squared_norms(memory.vectors_HWMC) / 2
    rows, order = [], []
    for part in folds(len(source_N), parts, seed):
        hidden_HWM = xp.isin(memory.source_HWM, xp.asarray(source_N[part], device=memory.source_HWM.device))
        visible_HWM = xp.where(hidden_HWM, float("inf"), half_norm_HWM)
        rows.append(patch_distances(patches_NHWC[part], memory.vectors_HWMC, radius, half_norm_HWM=visible_HWM))
        order.append(part)
    return xp.concat(rows, axis=0)[np.argsort(np.concatenate(order))]
