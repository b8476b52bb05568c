"""Eq. 5: what a location remembers. Greedy k-centre selection, at every grid location at once.

The next pick is always the vector farthest from all picks so far, so every prefix of the picks is itself a coreset and
the covering radius never grows. Distances come from products (``|a|² - 2ab + |b|²``), many locations at once: row by
row of the Gram matrix while few are needed, or the whole matrix in one product when many are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.arrays import Array, is_numpy, like, namespace, squared_norms
from dinosaur_ad.core.scoring import QUIET_PRODUCT
from dinosaur_ad.core.threads import in_threads, usable_threads

# Gram matrices held at a time. On a CPU no more than its caches hold, because every pick reads a row of each; a GPU
# wants few long steps instead.
GRAM_BYTES, GPU_GRAM_BYTES = 64 * 2**20, 256 * 2**20
# Vectors gone through row by row at a time: about a CPU's share of cache, because every pick reads them all again.
ROW_BYTES = 8 * 2**20
# Columns of a Gram matrix at a time.
GRAM_BLOCK = 48


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
    count = points_LDC.shape[1]
    if not 1 <= size <= count:
        raise ValueError(f"a coreset of {size} cannot be picked from {count} vectors")
    return _coresets(points_LDC, size, [np.arange(count)], seed, first, gram_bytes)[0]


def greedy_coresets(
    points_LDC: Array,
    size: int,
    parts: Sequence[NDArray[np.intp]],
    *,
    seed: int = 0,
    first: int | None = None,
    gram_bytes: int | None = None,
) -> list[Array]:
    """For each of some parts of the ``D`` vectors, given by index, what :func:`greedy_coreset` keeps of it alone.

    Parts with fewer than ``size`` vectors keep all. What parts have in common is computed once for all of them: one
    Gram matrix, where each of them picks by its own rows. ``first`` counts in the part.

    >>> points = np.asarray([[[0.0], [1.0], [10.0], [11.0]]])
    >>> [picks[0].tolist() for picks in greedy_coresets(points, 2, [np.arange(3), np.arange(1, 4)], first=0)]
    [[0, 2], [1, 3]]
    """
    if size < 1 or not all(len(part) for part in parts):
        raise ValueError("a coreset needs at least one vector of every part")
    count = points_LDC.shape[1]
    if _with_gram(points_LDC, size * len(parts), gram_bytes):
        return _coresets(points_LDC, size, parts, seed, first, gram_bytes)
    found = []
    for part in parts:
        rows = like(part, points_LDC, namespace(points_LDC).int64)
        some_LDC = points_LDC if len(part) == count else points_LDC[:, rows]
        found.append(rows[_coresets(some_LDC, size, [np.arange(len(part))], seed, first, gram_bytes)[0]])
    return found


def _with_gram(points_LDC: Array, picks: int, gram_bytes: int | None) -> bool:
    """Whether whole Gram matrices are worth it for so many picks at each location, and fit."""
    count = points_LDC.shape[1]
    gram_size = count * count * points_LDC.itemsize
    return bool(4 * picks > count and gram_size <= _gram_bytes(points_LDC, gram_bytes))


def _gram_bytes(points_LDC: Array, wanted: int | None) -> int:
    if wanted is not None:
        return wanted
    return GRAM_BYTES if is_numpy(points_LDC) else GPU_GRAM_BYTES


def _coresets(
    points_LDC: Array,
    size: int,
    parts: Sequence[NDArray[np.intp]],
    seed: int,
    first: int | None,
    gram_bytes: int | None,
) -> list[Array]:
    """Indices ``(L, at most size)`` of what each part keeps; several parts only where whole Gram matrices fit."""
    xp = namespace(points_LDC)
    locations, count, channels = points_LDC.shape
    with_gram = len(parts) > 1 or _with_gram(points_LDC, size, gram_bytes)
    threads = usable_threads() if is_numpy(points_LDC) else 1
    gram_size, points_size = count * count * points_LDC.itemsize, count * channels * points_LDC.itemsize
    room = _gram_bytes(points_LDC, gram_bytes) // threads
    step = max(1, room // gram_size if with_gram else ROW_BYTES // points_size)
    first_PL = np.stack([_first_picks(part, locations, seed, first) for part in parts])
    outside_PD = np.ones((len(parts), count), np.bool_)
    for outside_D, part in zip(outside_PD, parts, strict=True):
        outside_D[part] = False
    most = min(size, max(len(part) for part in parts))
    chunks: dict[int, Array] = {}

    def pick(start: int) -> None:
        some = slice(start, start + step)
        first = like(first_PL[:, some], points_LDC, xp.int64)
        chunks[start] = _pick(points_LDC[some], first, like(outside_PD, points_LDC), most, with_gram=with_gram)

    in_threads(pick, range(0, locations, step), threads)
    picks_PLM = xp.concat([chunks[start] for start in sorted(chunks)], axis=1)
    return [picks_PLM[p, :, : min(size, len(part))] for p, part in enumerate(parts)]


def _first_picks(part: NDArray[np.intp], locations: int, seed: int, first: int | None) -> NDArray[np.intp]:
    """What each location picks first, ``(L,)``."""
    at_L = np.random.default_rng(seed).integers(0, len(part), size=locations)
    picked_L: NDArray[np.intp] = part[at_L if first is None else np.full(locations, first)]
    return picked_L


def _gram(points_LDC: Array) -> Array:
    """Products ``(L, D, D)`` of all vectors of a location with each other.

    NumPy gets blocks that BLAS computes without waking its threads, which on a busy machine takes ten times as long as
    the product (:func:`~dinosaur_ad.core.scoring.products`). A block is wider than high: of a matrix with itself BLAS
    wakes them earlier.
    """
    xp = namespace(points_LDC)
    if not is_numpy(points_LDC):
        return points_LDC @ xp.matrix_transpose(points_LDC)
    locations, count, channels = points_LDC.shape
    points_LDC = np.ascontiguousarray(points_LDC)  # the images of a location lie far apart
    gram_LDD = np.empty((locations, count, count), points_LDC.dtype)
    high = max(1, QUIET_PRODUCT // (channels * GRAM_BLOCK))
    for top in range(0, count, high):
        for left in range(0, count, GRAM_BLOCK):
            rows, columns = slice(top, top + high), slice(left, left + GRAM_BLOCK)
            gram_LDD[:, rows, columns] = points_LDC[:, rows] @ points_LDC[:, columns].swapaxes(1, 2)
    return gram_LDD


def _pick(points_LDC: Array, first_PL: Array, outside_PD: Array, size: int, *, with_gram: bool) -> Array:
    """Picks ``(P, L, size)``; the lanes of all parts and locations go side by side."""
    xp = namespace(points_LDC)
    parts, locations = first_PL.shape
    count = points_LDC.shape[1]
    place_L = like(np.tile(np.arange(locations), parts), points_LDC, xp.int64)  # the location of each lane
    lane_L = like(np.arange(parts * locations), points_LDC, xp.int64)
    gram_LDD = _gram(points_LDC) if with_gram else None
    if gram_LDD is None:
        norms_LD = _norms(points_LDC)
    else:
        place_D = like(np.arange(count), points_LDC, xp.int64)
        norms_LD = gram_LDD[:, place_D, place_D]
    if parts > 1:
        norms_LD = norms_LD[place_L]

    def squared_distance_to(pick_L: Array) -> Array:
        if gram_LDD is not None:
            product_LD = gram_LDD[place_L, pick_L]
        elif len(lane_L) == 1:
            # One huge location: a plain matrix-vector product runs at the speed of memory, a batched one may not.
            product_LD = (points_LDC[0] @ points_LDC[lane_L, pick_L][0])[None]
        else:
            product_LD = (points_LDC @ points_LDC[lane_L, pick_L][:, :, None])[:, :, 0]
        product_LD *= -2  # in its own place: this is done for every pick
        product_LD += norms_LD
        product_LD += norms_LD[lane_L, pick_L][:, None]
        return product_LD

    picks = [xp.reshape(first_PL, (-1,))]
    nearest_LD = xp.full_like(norms_LD, float("inf"))
    nearest_PLD = xp.reshape(nearest_LD, (parts, locations, count))
    nearest_PLD[xp.broadcast_to(outside_PD[:, None, :], nearest_PLD.shape)] = -float("inf")
    for _ in range(size - 1):
        nearest_LD = xp.minimum(nearest_LD, squared_distance_to(picks[-1]))
        # A picked vector must never win again, not even when nothing but its duplicates is left.
        nearest_LD[lane_L, picks[-1]] = -float("inf")
        picks.append(xp.argmax(nearest_LD, axis=1))
    return xp.reshape(xp.stack(picks, axis=1), (parts, locations, size))


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
