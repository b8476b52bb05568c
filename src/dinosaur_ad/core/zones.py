"""Zones: which patches of a product are inspected, from a mask of pixels or from polygons.

A patch counts when at least half of it is inspected, a window of the coarse reading when at least half of its patches
are. Outside, distances are zero before they are pooled, and a share of the patches is a share of the inspected ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.readings import windows

Mask = NDArray[np.bool_]
Floats = NDArray[np.float32]
Points = Sequence[tuple[float, float]]
"""The corners (x, y) of a polygon."""

HALF = 0.5 - 1e-6
"""The share from which on a patch or a window counts, with room for rounding."""
FINENESS = 32
"""Points a side at which a patch is looked up in a polygon."""


class Zone(NamedTuple):
    """The inspected patches ``(H, W)`` and windows ``(h, w)``.

    >>> zone = Zone.of(np.eye(6, dtype=bool))
    >>> zone.windows_hw.shape, zone.share == 1 / 6
    ((2, 2), True)
    """

    patches_HW: Mask
    windows_hw: Mask

    @classmethod
    def of(cls, patches_HW: Mask) -> Zone:
        """The zone of these patches."""
        share_hw = windows(patches_HW.astype(np.float32)[None, :, :, None])[0, :, :, 0]
        return cls(patches_HW, share_hw >= HALF)

    @property
    def share(self) -> float:
        """How much of the image is inspected."""
        return float(self.patches_HW.mean())

    def without(self, left_out_HW: Mask) -> Zone:
        """The same without some patches and without every window that any of them lies in."""
        touched_hw = windows(left_out_HW.astype(np.float32)[None, :, :, None])[0, :, :, 0] > 0
        return Zone(self.patches_HW & ~left_out_HW, self.windows_hw & ~touched_hw)


def patch_shares(mask_HW: Mask, rows: int, columns: int) -> Floats:
    """How much of each patch of a grid a mask of pixels covers, ``(rows, columns)``; exact for any two sizes.

    >>> patch_shares(np.asarray([[True, True, True, False, False]]), 1, 2).tolist()
    [[1.0, 0.20000000298023224]]
    """
    height, width = mask_HW.shape
    shares = _overlaps(height, rows) @ mask_HW.astype(np.float32) @ _overlaps(width, columns).T
    return np.asarray(shares, np.float32)


def _overlaps(pixels: int, patches: int) -> Floats:
    """The share of each patch along a side that each pixel covers, ``(patches, pixels)``."""
    edge = np.arange(patches + 1) * (pixels / patches)
    start, place = edge[:-1, None], np.arange(pixels)
    covered = np.clip(np.minimum(edge[1:, None], place + 1) - np.maximum(start, place), 0, 1)
    return np.asarray(covered * (patches / pixels), np.float32)


def polygon_mask(points: Points, size: tuple[int, int], rows: int, columns: int) -> Mask:
    """Whether points of an image of that (height, width) lie in a polygon, 32 x 32 of them a patch: bool
    ``(32 rows, 32 columns)``. What a line that crosses itself encloses twice is outside.

    >>> square = polygon_mask([(0, 0), (5, 0), (5, 5), (0, 5)], (10, 10), 2, 2)
    >>> patch_shares(square, 2, 2).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    (height, width), tall, wide = size, rows * FINENESS, columns * FINENESS
    corner_P2 = np.asarray(points, np.float64) * (wide / width, tall / height)
    start_P2, end_P2 = corner_P2, np.roll(corner_P2, -1, axis=0)
    level = np.arange(tall) + 0.5
    reverse_P1 = (start_P2[:, 1] > end_P2[:, 1])[:, None]  # one way, so that a line there and back encloses nothing
    start_P2, end_P2 = np.where(reverse_P1, end_P2, start_P2), np.where(reverse_P1, start_P2, end_P2)
    (x0, y0), (x1, y1) = (each.T[:, :, None] for each in (start_P2, end_P2))
    crosses = (y0 <= level) != (y1 <= level)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = x0 + (level - y0) * (x1 - x0) / (y1 - y0)
    edge, row = np.nonzero(crosses)
    first_beyond = np.clip(np.ceil(x[edge, row] - 0.5), 0, wide).astype(int)
    crossings = np.zeros((tall, wide + 1), np.int64)
    np.add.at(crossings, (row, first_beyond), 1)
    inside: Mask = np.cumsum(crossings, axis=1)[:, :wide] % 2 == 1
    return inside


def combined(inspect: Sequence[Mask], ignore: Sequence[Mask], shape: tuple[int, int]) -> Mask:
    """What is inspected: the areas to inspect, or all where there are none, without the areas to ignore.

    >>> left, top = np.asarray([[1, 0], [1, 0]], bool), np.asarray([[1, 1], [0, 0]], bool)
    >>> combined([left], [top], (2, 2)).astype(int).tolist()
    [[0, 0], [1, 0]]
    """
    mask = np.logical_or.reduce(inspect) if inspect else np.ones(shape, np.bool_)
    for each in ignore:
        mask = mask & ~each
    return np.asarray(mask, np.bool_)
