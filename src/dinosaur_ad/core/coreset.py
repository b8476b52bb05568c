"""Eq. 5: what a location remembers. Greedy k-centre selection, at every grid location at once.

The next pick is always the vector farthest from all picks so far, so every prefix of the picks is itself a coreset and
the covering radius never grows. Distances come from products (``|a|² - 2ab + |b|²``), many locations at once: row by
row of the Gram matrix while few are needed, or the whole matrix in one product when many are.
"""

from __future__ import annotations

import numpy as np

from dinosaur_ad.core.arrays import Array, is_numpy, like, namespace, squared_norms

# Gram matrices held at a time. On a CPU no more than its caches hold, because every pick reads a row of each; a GPU
# wants few long steps instead.
GRAM_BYTES, GPU_GRAM_BYTES = 64 * 2**20, 256 * 2**20
# Vectors gone through row by row at a time: about a CPU's share of cache, because every pick reads them all again.
ROW_BYTES = 8 * 2**20


def coreset_size(count: int, ratio: float, minimum: int) -> int:
    """How many of ``count`` vectors a location keeps: ``max(minimum, floor(ratio * count))``, never more than all.

    >>> coreset_size(443, 0.10, 20), coreset_size(60, 0.10, 20), coreset_size(7, 0.10, 20)
    (44, 20, 7)
    """
    # The small constant keeps 0.29 * 100 from flooring to 28.
    return min(count, max(minimum, int(ratio * count + 1e-9)))


def greedy_coreset(
    points_LDC: Array, size: int, *, seed: int = 0, first: int | None = None, gram_bytes: int | None = None
) -> Array:
    """Indices ``(L, size)`` of the vectors each of ``L`` locations keeps out of its ``D``, in the order picked.

    The first pick is ``first``, or drawn per location from ``seed``; all others follow. No index is picked twice,
    even among duplicates. Memory stays within about ``gram_bytes`` (by the device unless given): locations are taken in
    chunks, and when a single Gram matrix would be too large, or less than a quarter of it is needed, its rows are
    computed one by one.

    >>> points = np.asarray([[[0.0], [1.0], [10.0], [11.0]]])
    >>> sorted(greedy_coreset(points, 2, seed=0)[0].tolist()) in ([0, 3], [1, 3], [0, 2])
    True
    """
    xp = namespace(points_LDC)
    locations, count, channels = points_LDC.shape
    if not 1 <= size <= count:
        raise ValueError(f"a coreset of {size} cannot be picked from {count} vectors")
    drawn = (
        np.random.default_rng(seed).integers(0, count, size=locations) if first is None else np.full(locations, first)
    )
    first_L = like(drawn, points_LDC, xp.int64)
    if gram_bytes is None:
        gram_bytes = GRAM_BYTES if is_numpy(points_LDC) else GPU_GRAM_BYTES
    gram_size, points_size = count * count * points_LDC.itemsize, count * channels * points_LDC.itemsize
    with_gram = 4 * size > count and gram_size <= gram_bytes
    step = max(1, gram_bytes // gram_size if with_gram else ROW_BYTES // points_size)
    chunks = [
        _pick(points_LDC[start : start + step], first_L[start : start + step], size, with_gram=with_gram)
        for start in range(0, locations, step)
    ]
    return xp.concat(chunks, axis=0)


def _pick(points_LDC: Array, first_L: Array, size: int, *, with_gram: bool) -> Array:
    xp = namespace(points_LDC)
    lane_L = like(np.arange(points_LDC.shape[0]), points_LDC, xp.int64)
    gram_LDD = points_LDC @ xp.matrix_transpose(points_LDC) if with_gram else None
    if gram_LDD is None:
        norms_LD = _norms(points_LDC)
    else:
        place_D = like(np.arange(points_LDC.shape[1]), points_LDC, xp.int64)
        norms_LD = gram_LDD[:, place_D, place_D]

    def squared_distance_to(pick_L: Array) -> Array:
        if gram_LDD is not None:
            product_LD = gram_LDD[lane_L, pick_L]
        elif len(lane_L) == 1:
            # One huge location: a plain matrix-vector product runs at the speed of memory, a batched one may not.
            product_LD = (points_LDC[0] @ points_LDC[lane_L, pick_L][0])[None]
        else:
            product_LD = (points_LDC @ points_LDC[lane_L, pick_L][:, :, None])[:, :, 0]
        product_LD *= -2  # in its own place: this is done for every pick
        product_LD += norms_LD
        product_LD += norms_LD[lane_L, pick_L][:, None]
        return product_LD

    picks = [first_L]
    nearest_LD = xp.full_like(norms_LD, float("inf"))
    for _ in range(size - 1):
        nearest_LD = xp.minimum(nearest_LD, squared_distance_to(picks[-1]))
        # A picked vector must never win again, not even when nothing but its duplicates is left.
        nearest_LD[lane_L, picks[-1]] = -float("inf")
        picks.append(xp.argmax(nearest_LD, axis=1))
    return xp.stack(picks, axis=1)


def _norms(points_LDC: Array) -> Array:
    """``|x|²`` of every vector, a slice at a time: a million vectors must not be held twice."""
    locations, count, channels = points_LDC.shape
    step = max(1, GRAM_BYTES // (locations * channels * points_LDC.itemsize))
    slices = [squared_norms(points_LDC[:, start : start + step]) for start in range(0, count, step)]
    return namespace(points_LDC).concat(slices, axis=1)


def covering_radius(points_LDC: Array, centres_LMC: Array) -> Array:
    """Per location, the distance ``(L,)`` of the worst-covered point to its nearest centre: what k-centre minimises."""
    xp = namespace(points_LDC)
    squared_LDM = (
        squared_norms(points_LDC)[:, :, None]
        - 2 * (points_LDC @ xp.matrix_transpose(centres_LMC))
        + squared_norms(centres_LMC)[:, None, :]
    )
    worst_L = xp.max(xp.min(squared_LDM, axis=2), axis=1)
    return xp.sqrt(xp.maximum(worst_L, xp.zeros_like(worst_L)))
