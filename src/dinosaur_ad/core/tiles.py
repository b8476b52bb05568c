"""A large image as tiles that are encoded one by one, and their tokens as one grid of patches.

The image is scaled to a whole number of overlapping tiles, each of the size of an encoder's input. Where two tiles
overlap, each gives the patches of its half, which lie farthest from its border. So a large image has a larger grid of
patches, and all that follows (memory, distances, readings, maps, zones) is the same as for a small one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]

OVERLAP = 0.1
"""The share of a tile's side that it has in common with the next one."""
MOST_TILES = 64
"""Tiles of an image; each takes as long as a small image and as much memory."""
MOST_PATCHES = 1024
"""A side of the grid of an image."""
OTHER_SIZE = 0.02
"""By which share of a side a photo may differ from the size that the product was learned at."""


@dataclass(frozen=True)
class Tiling:
    """How the photos of a product are cut: ``columns`` x ``rows`` tiles of ``size`` pixels and ``side`` patches a side,
    ``overlap`` patches of which are those of the next tile too. ``height`` and ``width`` are those of a photo.

    >>> bar = Tiling(4, 1, 336, 24, 2, 2000, 8000)
    >>> bar.count, bar.grid, bar.scaled
    (4, (24, 90), (336, 1260))
    """

    columns: int
    rows: int
    size: int
    side: int
    overlap: int
    height: int
    width: int

    @classmethod
    def of(cls, columns: int, rows: int, size: int, side: int, photo: tuple[int, int]) -> Tiling:
        """With the usual overlap, for an encoder of ``size`` pixels and ``side`` patches a side."""
        return cls(columns, rows, size, side, min(side - 1, max(1, round(OVERLAP * side))), *photo)

    @property
    def count(self) -> int:
        """The number of tiles."""
        return self.columns * self.rows

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches of a whole image."""
        high, wide = (number * (self.side - self.overlap) + self.overlap for number in (self.rows, self.columns))
        return high, wide

    @property
    def scaled(self) -> tuple[int, int]:
        """(Height, width) in pixels that an image is scaled to before it is cut."""
        patch = self.size // self.side
        return self.grid[0] * patch, self.grid[1] * patch

    @property
    def tile_pixels(self) -> tuple[float, float]:
        """(Height, width) of a tile in pixels of the photo."""
        return self.height * self.side / self.grid[0], self.width * self.side / self.grid[1]

    def fits(self, height: int, width: int) -> bool:
        """Whether an image of that size is such a photo, or one that was scaled already."""
        near = (
            abs(height - self.height) <= OTHER_SIZE * self.height and abs(width - self.width) <= OTHER_SIZE * self.width
        )
        return near or (height, width) == self.scaled

    def cut(self, pixels_HWC: Pixels) -> Iterator[tuple[int, Pixels]]:
        """Each tile of a scaled image, with its number; row by row."""
        step = (self.side - self.overlap) * (self.size // self.side)
        for number in range(self.count):
            top, left = (step * place for place in divmod(number, self.columns))
            yield number, pixels_HWC[top : top + self.size, left : left + self.size]

    def put(self, grid_HWC: Floats, number: int, tile_hwC: Floats) -> None:
        """Put the patches of a tile into the grid of the whole image, those of its half where it overlaps others.

        >>> tiling, grid = Tiling(2, 1, 8, 4, 2, 100, 200), np.zeros((4, 6, 1), np.float32)
        >>> for number in (0, 1):
        ...     tiling.put(grid, number, np.full((4, 4, 1), number + 1, np.float32))
        >>> grid[0, :, 0].tolist()
        [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
        """
        slices = []
        for place, last in zip(divmod(number, self.columns), (self.rows - 1, self.columns - 1), strict=True):
            first = 0 if place == 0 else self.overlap // 2
            end = self.side if place == last else self.side - (self.overlap - self.overlap // 2)
            start = place * (self.side - self.overlap)
            slices.append((slice(start + first, start + end), slice(first, end)))
        (rows, own_rows), (columns, own_columns) = slices
        grid_HWC[rows, columns] = tile_hwC[own_rows, own_columns]

    def stitch(self, tile_THWC: Floats) -> Floats:
        """The grid ``(H, W, C)`` of all tiles ``(T, h, w, C)``."""
        grid_HWC = np.empty((*self.grid, tile_THWC.shape[-1]), np.float32)
        for number, tile_hwC in enumerate(tile_THWC):
            self.put(grid_HWC, number, tile_hwC)
        return grid_HWC

    def to_json(self) -> dict[str, Any]:
        """As the manifest of a task has it."""
        return asdict(self)


class LargeImage(NamedTuple):
    """An image that was scaled for a tiling, uint8 ``(H, W, 3)``."""

    tiling: Tiling
    pixels: Pixels
