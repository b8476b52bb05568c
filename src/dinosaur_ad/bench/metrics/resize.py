"""Maps and masks at the size at which they are compared.

Both take the pixel for a small square and its value for the one at its centre, as torch does with
``align_corners=False`` (and ``nearest-exact`` for masks): pixel ``i`` of ``n`` lies at ``(i + 0.5) / n``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.images.loading import Mask

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


def mask_at(mask_HW: Mask, size: int) -> Mask:
    """The mask (H, W) at (size, size): every pixel takes the value of the source pixel that holds its centre.

    Pixels are chosen, never mixed, so that no threshold on grey can grow or shrink a region. What is thinner than the
    step between centres may vanish.

    >>> mask_at(np.array([[True, False, False, False]]), 2).tolist()
    [[False, False], [False, False]]
    """
    height, width = mask_HW.shape
    return mask_HW[_centres(height, size)][:, _centres(width, size)]  # row by row is ten times faster than both at once


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


@lru_cache(maxsize=64)
def _centres(source: int, target: int) -> NDArray[np.intp]:
    """Which of ``source`` pixels holds the centre of each of ``target``; whole numbers, so that nothing is rounded."""
    chosen = (2 * np.arange(target) + 1) * source // (2 * target)
    chosen.flags.writeable = False  # shared by all callers
    return chosen
