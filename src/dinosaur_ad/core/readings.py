"""Several readings of the same tokens, and one score and map fused from them.

- ``point``: every patch against the patches remembered around its place (Eq. 6-7), the mean of the largest few.
- ``located``: the same distances, divided by the square root of what is usual at the place, so that a small deviation
  where normals never differ counts as much as a large one where they always do.
- ``coarse``: tokens averaged over windows of 3 x 3 patches against a memory of such averages. Sees what no single
  patch shows: a part that is missing, doubled or in another place (logical anomalies).

The logarithm of a reading of an unseen normal image is close to normally distributed. So each reading becomes a number
of deviations from its usual value, and the score is their log-mean-exp: a reading that stands out decides, and several
that rise together count more than one. The map of a softness above 1 is nearer to the mean of the readings at a place:
each lies high around a defect, at other places, and where both do is the defect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.arrays import Array, namespace, to_numpy
from dinosaur_ad.core.pooling import pool

if TYPE_CHECKING:
    from dinosaur_ad.core.zones import Zone

Floats = NDArray[np.float32]

READINGS = ("point", "located", "coarse")
TOP = {"point": 0.003, "located": 0.01, "coarse": 0.03}
"""The share of patches, those with the largest distance, that a reading is the mean of."""
WINDOW, STRIDE = 3, 2
"""Patches a side that the coarse reading averages, and how far apart its windows lie."""
COARSE_RADIUS = 1
"""How many windows away a window is compared."""
LEAST = 1e-6
"""What a distance of zero, which identical images have, counts as."""

SPREAD = 0.08
"""The usual deviation of the logarithm of a reading over unseen normal images: .03 to .18 on twenty real sets."""
WEIGHT = 6
"""With how many images that prior counts when the deviation of a task is estimated."""


class Distances(NamedTuple):
    """Distances of images to a memory: of patches ``(N, H, W)``, and of windows ``(N, h, w)`` where it has any."""

    point_NHW: Array
    coarse_Nhw: Array | None = None

    def one(self, n: int) -> Distances:
        """Those of one image."""
        return Distances(*(None if each is None else each[n : n + 1] for each in self))


class ReadingScale(NamedTuple):
    """What is usual for the normal images of a task: the distance at each place ``(H, W)``, of the logarithm of each
    reading the mean and the deviation ``(R,)``, and the value of a map at its places of rest, 0 where that is not
    known."""

    usual_HW: Floats
    mean_R: Floats
    spread_R: Floats
    map_rest: float = 0.0


class Fused(NamedTuple):
    """Scores ``(N,)``, maps ``(N, H, W)`` in the unit of the score, and the readings ``(N, R)`` they were made from."""

    score_N: Floats
    map_NHW: Floats
    reading_NR: Floats


def windows(tokens_NHWC: Array) -> Array:
    """Tokens averaged over windows of 3 x 3 patches, two apart: ``(N, h, w, C)``.

    A grid with fewer than three patches a side has one window.

    >>> windows(np.ones((1, 24, 24, 2))).shape
    (1, 11, 11, 2)
    """
    xp = namespace(tokens_NHWC)

    def averaged(array: Array, axis: int) -> Array:
        side = array.shape[axis]
        size = min(WINDOW, side)
        count = (side - size) // STRIDE + 1
        slices = [[slice(None)] * array.ndim for _ in range(size)]
        for start, index in enumerate(slices):
            index[axis] = slice(start, start + STRIDE * (count - 1) + 1, STRIDE)
        total = array[tuple(slices[0])]
        for index in slices[1:]:
            total = total + array[tuple(index)]
        return total / size

    return xp.asarray(averaged(averaged(tokens_NHWC, 1), 2), dtype=tokens_NHWC.dtype)


def spread_out(coarse_Nhw: Floats, height: int, width: int) -> Floats:
    """Values of windows as a map of patches ``(N, H, W)``, linear between the centres of the windows.

    >>> spread_out(np.float32([[[1, 3]]]), 4, 6)[0, 0].tolist()
    [1.0, 1.0, 2.0, 3.0, 3.0, 3.0]
    """
    return _between(_between(coarse_Nhw, 1, height), 2, width)


def _between(values: Floats, axis: int, side: int) -> Floats:
    count = values.shape[axis]
    centre = (min(WINDOW, side) - 1) / 2
    place = np.clip((np.arange(side) - centre) / STRIDE, 0, count - 1)
    low = np.floor(place).astype(int)
    high = np.minimum(low + 1, count - 1)
    shape = [1] * values.ndim
    shape[axis] = side
    share = (place - low).astype(np.float32).reshape(shape)
    result: Floats = np.take(values, low, axis) * (1 - share) + np.take(values, high, axis) * share
    return result


def usual_distances(distance_NHW: Floats) -> Floats:
    """The usual distance at each place ``(H, W)``, from unseen normal images: the mean over images and neighbours.

    Few images say little about a single place: the mean over all places counts as much as ten images.
    """
    mean_HW = np.asarray(distance_NHW, np.float32).mean(axis=0)
    padded = np.pad(mean_HW, 1, mode="edge")
    height, width = mean_HW.shape
    smooth_HW = sum(padded[i : i + height, j : j + width] for i in range(3) for j in range(3)) / np.float32(9)
    count, overall = len(distance_NHW), float(mean_HW.mean())
    usual_HW = np.asarray((count * smooth_HW + 10 * overall) / (count + 10), np.float32)
    return np.maximum(usual_HW, np.finfo(np.float32).tiny)


def reading_maps(
    distances: Distances, usual_HW: Floats, names: tuple[str, ...], zone: Zone | None = None
) -> list[Floats]:
    """A map for each reading, ``(N, H, W)`` or ``(N, h, w)``, in the order of ``names``; zero outside a zone."""
    point_NHW = np.asarray(to_numpy(distances.point_NHW), np.float32)
    maps = []
    for name in names:
        if name == "located":
            maps.append(point_NHW * np.sqrt(np.float32(usual_HW.mean()) / usual_HW))
        elif name == "coarse":
            if distances.coarse_Nhw is None:
                raise ValueError("the memory has no coarse part")
            maps.append(np.asarray(to_numpy(distances.coarse_Nhw), np.float32))
        else:
            maps.append(point_NHW)
    if zone is None:
        return maps
    # Multiplied: a distance that is no number stays none, wherever it is.
    return [
        each * (zone.windows_hw if name == "coarse" else zone.patches_HW)
        for each, name in zip(maps, names, strict=True)
    ]


def pooled_readings(maps: list[Floats], names: tuple[str, ...], zone: Zone | None = None, tiles: int = 1) -> Floats:
    """The readings ``(N, R)``: of each map the mean of its largest values, a share of those that are inspected.

    Of an image of several ``tiles`` it is the share of one tile, wherever they lie: a defect is no larger for it.
    """

    def inspected(name: str) -> int | None:
        return None if zone is None else int((zone.windows_hw if name == "coarse" else zone.patches_HW).sum())

    pooled = [pool(each, TOP[name] / tiles, inspected(name)) for each, name in zip(maps, names, strict=True)]
    return np.stack(pooled, axis=1)


def reading_scale(
    distances: Distances,
    names: tuple[str, ...],
    zone: Zone | None = None,
    tiles: int = 1,
    *,
    anywhere: bool = False,
) -> ReadingScale:
    """What is usual, from the distances of unseen normal images; deviations are drawn towards the usual one. What is
    usual at a place does not depend on a zone, the readings do. ``anywhere``: places do not count, and what is usual is
    the same at all of them.

    >>> some = Distances(np.float32([1.0, 1.1, 0.9]).reshape(3, 1, 1))
    >>> scale = reading_scale(some, ("point",))
    >>> round(float(scale.mean_R[0]), 3), round(float(scale.spread_R[0]), 3)
    (-0.003, 0.081)
    """
    usual_HW = usual_distances(np.asarray(to_numpy(distances.point_NHW)))
    if anywhere:
        usual_HW = np.full_like(usual_HW, usual_HW.mean())
    log_NR = _logs(pooled_readings(reading_maps(distances, usual_HW, names, zone), names, zone, tiles))
    count = len(log_NR)
    variance_R = (count * log_NR.var(axis=0) + WEIGHT * SPREAD**2) / (count + WEIGHT)
    return ReadingScale(usual_HW, log_NR.mean(axis=0).astype(np.float32), np.sqrt(variance_R).astype(np.float32))


def fuse(
    distances: Distances,
    scale: ReadingScale,
    names: tuple[str, ...],
    zone: Zone | None = None,
    tiles: int = 1,
    *,
    softness: float = 1.0,
) -> Fused:
    """Score, map and readings of images. A score of 1 is usual for a normal image, and one of 1.17 lies two usual
    deviations above it. Outside a zone the map is zero; ``softness`` is that of the map alone.

    >>> scale = ReadingScale(np.ones((2, 2), np.float32), np.zeros(1, np.float32), np.full(1, SPREAD, np.float32))
    >>> fuse(Distances(np.full((1, 2, 2), 1.5, np.float32)), scale, ("point",)).score_N.round(3).tolist()
    [1.5]
    """
    maps = reading_maps(distances, scale.usual_HW, names, zone)
    reading_NR = pooled_readings(maps, names, zone, tiles)
    height, width = scale.usual_HW.shape
    full = [
        spread_out(each, height, width) if name == "coarse" else each for each, name in zip(maps, names, strict=True)
    ]
    map_NHW = fuse_readings(np.stack(full, axis=-1), scale.mean_R, scale.spread_R, softness)
    if zone is not None:
        map_NHW = map_NHW * zone.patches_HW
    return Fused(fuse_readings(reading_NR, scale.mean_R, scale.spread_R), map_NHW, reading_NR)


def fuse_readings(reading_R: Floats, mean_R: Floats, spread_R: Floats, softness: float = 1.0) -> Floats:
    """Readings ``(..., R)`` as one score ``(...)``: the log-mean-exp of their deviations, in usual deviations, as a
    factor; the larger the ``softness``, the nearer to their mean. NaN stays NaN.

    >>> two, mean, spread = np.exp(np.float32([0.0, 0.16])), np.zeros(2, np.float32), np.full(2, SPREAD, np.float32)
    >>> [round(float(np.log(fuse_readings(two, mean, spread, softness))), 3) for softness in (1, 8, 1000)]
    [0.115, 0.085, 0.08]
    """
    deviation_R = (_logs(reading_R) - mean_R) / (spread_R * np.float32(softness))
    highest = deviation_R.max(axis=-1, keepdims=True)
    fused = highest[..., 0] + np.log(np.exp(deviation_R - highest).mean(axis=-1))
    return np.asarray(np.exp(np.float32(SPREAD * softness) * fused), np.float32)


def _logs(values: Floats) -> Floats:
    """Logarithms of distances of :data:`LEAST` and more."""
    result: Floats = np.log(np.maximum(values, np.float32(LEAST)))  # NaN stays NaN
    return result
