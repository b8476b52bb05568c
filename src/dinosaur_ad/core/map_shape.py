"""What becomes of a fused map before it is shown: narrow gaps in it are closed, and an image is seen beside itself.

Both change where a map is high and no score. Patches inside a defect that look like a normal part leave holes and gaps
in its map, and a fine grid has more of them than a coarse one; a grey closing fills those that are narrower than its
disc. And an image whose places of rest lie farther from the normals than usual is lowered by a part of that factor, so
that maps of several images can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dinosaur_ad.core.zones import Zone

Floats = NDArray[np.float32]

REST = 4
"""One in so many patches of an image lies at rest, those with the lowest values: a defect may cover half of it."""
RECTANGLES = ((2, 1), (1, 2))
"""The disc of a closing, five patches across and without the corners: two rectangles, as steps up and down, and to
either side."""


def closed(map_NHW: Floats) -> Floats:
    """Maps whose gaps are as high as what lies around them: the lowest, over discs, of what is highest in a disc.

    No value falls, and none exceeds the largest. What is no number is left out, and stays none.

    >>> closed(np.float32([[[0, 0, 0, 3, 0, 1, 2, 0, 0, 0, 0]]])).tolist()
    [[[0.0, 0.0, 0.0, 3.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0]]]
    """
    missing_NHW = np.isnan(map_NHW)
    filled_NHW = -_highest(-_highest(np.where(missing_NHW, np.float32(0), map_NHW)))
    return np.where(missing_NHW, np.float32(np.nan), filled_NHW)


def shaped(
    map_NHW: Floats, usual_rest: float = 0.0, *, closing: float = 0.0, relative: float = 0.0, zone: Zone | None = None
) -> Floats:
    """Maps, ``closing`` of the way to their :func:`closed` ones, and divided by how many times the usual :func:`rest`
    their own is, to the power of ``relative``; where nothing is usual (0) they are not divided.

    Both shares lie between 0, which leaves maps as they are, and 1. Outside a zone maps stay zero, and do not count.
    """
    if closing:
        map_NHW = map_NHW ** np.float32(1 - closing) * closed(map_NHW) ** np.float32(closing)
        if zone is not None:
            map_NHW = map_NHW * zone.patches_HW
    if relative and usual_rest > 0:
        own_N = rest(map_NHW, zone)
        share_N = np.where(own_N > 0, own_N / np.float32(usual_rest), np.float32(1)) ** np.float32(-relative)
        map_NHW = map_NHW * share_N[:, None, None]
    return np.asarray(map_NHW, np.float32)


def rest(map_NHW: Floats, zone: Zone | None = None) -> Floats:
    """The highest value of each map at its places of rest, ``(N,)``; 0 where nothing of it is a number.

    >>> rest(np.float32([[[9, 1, 5, 3, 4, 8, 2, 7]]])).tolist()
    [2.0]
    """
    values_NP = map_NHW.reshape(len(map_NHW), -1) if zone is None else map_NHW[:, zone.patches_HW]
    numbers = [np.sort(each[np.isfinite(each)]) for each in values_NP]
    return np.asarray([each[place_of_rest(each.size)] if each.size else 0 for each in numbers], np.float32)


def place_of_rest(patches: int) -> int:
    """Where that value is among so many in ascending order."""
    return max(0, patches // REST - 1)


def _highest(map_NHW: Floats) -> Floats:
    """At each place the highest value in the disc around it, as far as that lies in the map."""
    found = [_along(_along(map_NHW, 1, down), 2, right) for down, right in RECTANGLES]
    return np.maximum(*found)


def _along(values: Floats, axis: int, steps: int) -> Floats:
    """The highest value within so many steps along an axis."""
    side = values.shape[axis]
    shifted = [np.take(values, np.clip(np.arange(side) + step, 0, side - 1), axis) for step in range(-steps, steps + 1)]
    result: Floats = np.max(shifted, axis=0)
    return result
