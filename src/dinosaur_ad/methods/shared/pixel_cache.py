"""A cache in memory for images that are read many times."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray


class PixelCache:
    """The first images that fit into ``limit`` bytes; nothing is evicted.

    Images are read in the same order again and again. There an LRU cache that is too small would evict each image just
    before it is needed.

    >>> cache, dot = PixelCache(limit=3), np.zeros((1, 1, 3), np.uint8)
    >>> cache.add("first", dot), cache.add("second", dot)
    (None, None)
    >>> cache.get("first").shape, cache.get("second")
    ((1, 1, 3), None)
    """

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._images: dict[Hashable, NDArray[np.uint8]] = {}

    def get(self, key: Hashable) -> NDArray[np.uint8] | None:
        """The image with that key, or None."""
        return self._images.get(key)

    def add(self, key: Hashable, pixels: NDArray[np.uint8]) -> None:
        """Store a copy if there is room; a view would keep its whole batch in memory."""
        if pixels.nbytes <= self._left and key not in self._images:
            self._images[key] = pixels.copy()
            self._left -= pixels.nbytes
