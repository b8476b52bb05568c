"""What a location remembers of a stream that does not end: k-centre in bounded memory, by doubling.

The offline selection (:mod:`dinosaur_ad.core.coreset`) needs all patches at once. Here they come one image at a time,
and a location never holds more than ``members`` of them and one. It is the doubling algorithm of Charikar, Chekuri,
Feder and Motwani (Incremental clustering and dynamic information retrieval, STOC 1997): a patch within twice the
``spacing`` of a member is covered by it, any other becomes a member; when there is one too many, the spacing doubles
(or becomes the smallest distance of two members, if that is more) and members within it of each other become one.
Without decay every patch of the past lies within 8 times the smallest radius that any ``members`` centres reach, and so
within 8 times the radius of the offline greedy selection.

Each member has its support (how many images had such a patch) and an age, which serve two ends: a patch that one image
alone had is not yet normal, and what was not seen for long can leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dinosaur_ad.core.arrays import Array, like, namespace, squared_norms, to_numpy
from dinosaur_ad.core.coreset import ROW_BYTES

SUPPORTED = 2
"""Images that must have had a patch before it counts as normal."""


class StreamMemory(NamedTuple):
    """The state for ``L`` locations with ``K`` = members + 1 slots each; a slot without support is free.

    ``vectors_LKC`` are patches of the stream, ``support_LK`` the images that had such a patch, ``first_LK`` and
    ``last_LK`` the first and last of these images (counted from 1), ``spacing_L`` the squared spacing.
    """

    vectors_LKC: Array
    support_LK: Array
    first_LK: Array
    last_LK: Array
    spacing_L: Array
    images: int = 0

    @property
    def members(self) -> int:
        """How many patches a location remembers at the most."""
        return int(self.support_LK.shape[1]) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of the state, the same after any number of images."""
        return sum(int(each.nbytes) for each in self[:-1])

    def normal(self, least: int = SUPPORTED) -> Array:
        """Which slots hold a patch that at least so many images had, bool ``(L, K)``."""
        return self.support_LK >= least

    def arrays(self) -> dict[str, np.ndarray]:
        """The state as NumPy arrays, for a file."""
        found = {name: to_numpy(getattr(self, name)) for name in self._fields if name != "images"}
        return found | {"images": np.asarray(self.images, np.int64)}

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> StreamMemory:
        """The state that :meth:`arrays` gave; a ValueError if it cannot be one."""
        missing = [name for name in cls._fields if name not in arrays]
        if missing:
            raise ValueError(f"the memory of a stream lacks {', '.join(missing)}")
        memory = cls._make((*(np.array(arrays[name]) for name in cls._fields[:-1]), int(arrays["images"])))
        shape = memory.support_LK.shape
        same = all(each.shape == shape and each.dtype == np.int64 for each in memory[1:4])
        if memory.vectors_LKC.ndim != 3 or memory.vectors_LKC.shape[:2] != shape or not same or shape[1] < 2:
            raise ValueError("the arrays of a stream's memory do not fit each other")
        if memory.spacing_L.shape != shape[:1] or not np.isfinite(memory.vectors_LKC).all() or memory.images < 0:
            raise ValueError("the arrays of a stream's memory hold values that cannot be")
        return memory


def begin_stream(patches_HWC: Array, members: int, *, resolution: float = 0.0) -> StreamMemory:
    """An empty memory for images with patches like these, of at most ``members`` patches for each location.

    Patches within ``resolution`` of each other are the same from the beginning; with 0, a patch has support from other
    images only once a location had more different patches than it can hold. Every patch of the past then lies within
    ``resolution`` or within 8 times the best radius, whichever is more.

    >>> begin_stream(np.zeros((4, 4, 8), np.float32), 20).vectors_LKC.shape
    (16, 21, 8)
    """
    if members < 1 or not 0 <= resolution < float("inf"):
        raise ValueError(f"a memory needs at least 1 member and a finite resolution, got {members} and {resolution}")
    xp = namespace(patches_HWC)
    height, width, channels = patches_HWC.shape
    slots = (height * width, members + 1)
    whole_LK = like(np.zeros(slots), patches_HWC, xp.int64)
    return StreamMemory(
        like(np.zeros((*slots, channels)), patches_HWC, patches_HWC.dtype),
        whole_LK,
        xp.asarray(whole_LK, copy=True),
        xp.asarray(whole_LK, copy=True),
        like(np.full(slots[0], (resolution / 2) ** 2), patches_HWC, patches_HWC.dtype),
    )


def follow_stream(
    memory: StreamMemory, patches_NHWC: Array, *, patience: int | None = None, probation: int | None = None
) -> StreamMemory:
    """The memory after ``N`` more images, taken one after another: any split into batches gives the same bytes.

    A member leaves if no image had such a patch for more than ``patience`` images, and one that a single image had if
    no second one had it within ``probation`` images. The spacing stays: what left makes room, not a finer memory.

    >>> patches = np.random.default_rng(0).normal(size=(100, 2, 2, 3))
    >>> memory = follow_stream(begin_stream(patches[0], 5), patches)
    >>> memory.images, int(memory.support_LK.sum(axis=1)[0])
    (100, 100)
    """
    for name, value in (("patience", patience), ("probation", probation)):
        if value is not None and value < 1:
            raise ValueError(f"the {name} is at least 1 image, got {value}")
    xp = namespace(patches_NHWC)
    # One copy for all images: the memory that was given stays as it was.
    memory = StreamMemory._make((*(xp.asarray(each, copy=True) for each in memory[:-1]), memory.images))
    for image_HWC in patches_NHWC:
        memory = memory._replace(images=memory.images + 1)
        _take(memory, xp.reshape(image_HWC, memory.vectors_LKC.shape[::2]))
        _let_go(memory, patience, probation)
    return memory


def stream_distances(memory: StreamMemory, patches_NHWC: Array, *, least: int = SUPPORTED) -> Array:
    """Distance ``(N, H, W)`` of each patch to the nearest normal member of its location; infinite where none is.

    >>> memory = follow_stream(begin_stream(np.zeros((1, 1, 1)), 2, resolution=1), np.zeros((2, 1, 1, 1)))
    >>> stream_distances(memory, np.full((1, 1, 1, 1), 3.0)).tolist()
    [[[3.0]]]
    """
    xp = namespace(patches_NHWC)
    images, height, width, channels = patches_NHWC.shape
    points_LNC = xp.permute_dims(xp.reshape(patches_NHWC, (images, height * width, channels)), (1, 0, 2))
    squared_LNK = _squared_distances(points_LNC, memory.vectors_LKC)
    normal_LK = memory.normal(least)
    squared_LNK = xp.where(normal_LK[:, None, :], squared_LNK, xp.full_like(squared_LNK, float("inf")))
    nearest_LN = xp.sqrt(xp.clip(xp.min(squared_LNK, axis=2), min=0))
    return xp.reshape(xp.permute_dims(nearest_LN, (1, 0)), (images, height, width))


def _squared_distances(points_LNC: Array, others_LKC: Array) -> Array:
    xp = namespace(points_LNC)
    product_LNK = points_LNC @ xp.matrix_transpose(others_LKC)
    return squared_norms(points_LNC)[:, :, None] - 2 * product_LNK + squared_norms(others_LKC)[:, None, :]


def _take(memory: StreamMemory, patch_LC: Array) -> None:
    """Take one patch at each location, in place."""
    xp = namespace(patch_LC)
    locations, slots, channels = memory.vectors_LKC.shape
    step = max(1, ROW_BYTES // (slots * channels * patch_LC.itemsize))
    for start in range(0, locations, step):  # a share of a CPU's cache at a time; the same for every image
        part = slice(start, start + step)
        some = StreamMemory._make((*(each[part] for each in memory[:-1]), memory.images))
        _take_some(some, patch_LC[part])
    full_P = xp.nonzero(xp.all(memory.support_LK > 0, axis=1))[0]
    if full_P.shape[0]:
        _merge(memory, full_P)


def _take_some(memory: StreamMemory, patch_LC: Array) -> None:
    xp = namespace(patch_LC)
    lane_L = like(np.arange(patch_LC.shape[0]), patch_LC, xp.int64)
    squared_LK = _squared_distances(patch_LC[:, None, :], memory.vectors_LKC)[:, 0, :]
    taken_LK = memory.support_LK > 0
    nearest_L = xp.argmin(xp.where(taken_LK, squared_LK, xp.full_like(squared_LK, float("inf"))), axis=1)
    # The distance to that one is computed exactly: products cancel, and a copy must be at 0.
    apart_L = squared_norms(memory.vectors_LKC[lane_L, nearest_L] - patch_LC)
    covered_L = taken_LK[lane_L, nearest_L] & (apart_L <= 4 * memory.spacing_L)
    free_L = xp.argmax(xp.astype(~taken_LK, xp.int64), axis=1)  # the first free slot; one always is
    slot_L = xp.where(covered_L, nearest_L, free_L)
    new_L = lane_L[~covered_L]
    memory.vectors_LKC[new_L, free_L[new_L]] = patch_LC[new_L]
    memory.first_LK[new_L, free_L[new_L]] = memory.images
    memory.support_LK[lane_L, slot_L] += 1
    memory.last_LK[lane_L, slot_L] = memory.images


def _merge(memory: StreamMemory, full_P: Array) -> None:
    """Make room at locations without a free slot, in place; the member with the most support stays."""
    xp = namespace(memory.vectors_LKC)
    vectors_PKC, support_PK = memory.vectors_LKC[full_P], memory.support_LK[full_P]
    first_PK, last_PK = memory.first_LK[full_P], memory.last_LK[full_P]
    lane_P = like(np.arange(full_P.shape[0]), vectors_PKC, xp.int64)
    slot_K = like(np.arange(support_PK.shape[1]), vectors_PKC, xp.int64)
    squared_PKK = xp.clip(_squared_distances(vectors_PKC, vectors_PKC), min=0)
    squared_PKK[:, slot_K, slot_K] = float("inf")
    closest_P = xp.min(xp.min(squared_PKK, axis=2), axis=1)
    spacing_P = xp.maximum(4 * memory.spacing_L[full_P], closest_P)
    order_PK = xp.argsort(-support_PK, axis=1, stable=True)
    for rank in range(slot_K.shape[0]):
        own_P = order_PK[:, rank]
        near_PK = (squared_PKK[lane_P, own_P] <= spacing_P[:, None]) & (support_PK > 0)
        near_PK = near_PK & (support_PK[lane_P, own_P] > 0)[:, None]  # one that is gone takes none
        joined_PK = xp.where(near_PK, support_PK, xp.zeros_like(support_PK))
        support_PK[lane_P, own_P] += xp.sum(joined_PK, axis=1)
        last_PK[lane_P, own_P] = xp.maximum(
            last_PK[lane_P, own_P], xp.max(xp.where(near_PK, last_PK, xp.zeros_like(last_PK)), axis=1)
        )
        early_PK = xp.where(near_PK, first_PK, xp.full_like(first_PK, memory.images))
        first_PK[lane_P, own_P] = xp.minimum(first_PK[lane_P, own_P], xp.min(early_PK, axis=1))
        support_PK = xp.where(near_PK, xp.zeros_like(support_PK), support_PK)
    memory.support_LK[full_P], memory.spacing_L[full_P] = support_PK, spacing_P
    memory.first_LK[full_P], memory.last_LK[full_P] = first_PK, last_PK
    _clear_free(memory)


def _let_go(memory: StreamMemory, patience: int | None, probation: int | None) -> None:
    """Free the slots of what was not seen for long, in place. The patch of this image is always left."""
    xp = namespace(memory.vectors_LKC)
    old_LK = xp.zeros_like(memory.support_LK, dtype=xp.bool)
    if patience is not None:
        old_LK = old_LK | (memory.last_LK < memory.images - patience)
    if probation is not None:
        old_LK = old_LK | ((memory.support_LK == 1) & (memory.first_LK < memory.images - probation))
    old_LK = old_LK & (memory.support_LK > 0)
    if bool(xp.any(old_LK)):
        memory.support_LK[old_LK] = 0
        _clear_free(memory)


def _clear_free(memory: StreamMemory) -> None:
    """Nothing is left in free slots, so that equal memories have equal bytes."""
    free_LK = memory.support_LK == 0
    memory.vectors_LKC[free_LK] = 0
    memory.first_LK[free_LK] = 0
    memory.last_LK[free_LK] = 0
