"""Patch maps at the size of an image, for people and for pixel metrics.

A pixel is a small square and its value is that at its centre, as in torch with ``align_corners=False``: pixel ``i`` of
``n`` lies at ``(i + 0.5) / n``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Map = NDArray[np.float32]


def upsample(map_hw: NDArray[Any], height: int, width: int) -> Map:
    """The map (h, w) at another size, float32 (height, width): bilinear, the border value beyond the outer centres.

    No value leaves the range of the map by more than rounding. A NaN spreads to the pixels that would mix it in and no
    further. Infinities are not for this function; clip them first.

    >>> upsample(np.array([[0.0, 1.0]]), 1, 4).tolist()
    [[0.0, 0.25, 0.75, 1.0]]
    """
    result_Hw = _along(np.asarray(map_hw, dtype=np.float32), 0, height)
    return _along(result_Hw, 1, width)


def _along(map_hw: Map, axis: int, target: int) -> Map:
    """The map with ``target`` values along one axis.

    Two neighbours are picked and mixed. A matrix product says the same in one line, but starts BLAS threads for a few
    thousand multiplications: on busy cores, with several workers side by side, that took many times as long.
    """
    lower_T, upper_T, weight_T = _neighbours(map_hw.shape[axis], target)
    mixed = map_hw.take(lower_T, axis=axis)
    step = map_hw.take(upper_T, axis=axis)
    step -= mixed
    step *= weight_T[:, None] if axis == 0 else weight_T
    mixed += step
    return mixed


@lru_cache(maxsize=64)
def _neighbours(source: int, target: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Map]:
    """Of ``source`` values, the two that each of ``target`` mixes, and the weight of the second."""
    place_T = ((np.arange(target) + 0.5) * (source / target) - 0.5).clip(0, source - 1)
    lower_T = np.floor(place_T).astype(np.intp)
    upper_T = np.ceil(place_T).astype(np.intp)  # the same one where nothing is mixed
    weight_T = (place_T - lower_T).astype(np.float32)
    for shared in (lower_T, upper_T, weight_T):
        shared.flags.writeable = False
    return lower_T, upper_T, weight_T
