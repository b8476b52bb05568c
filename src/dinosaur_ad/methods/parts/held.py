"""Images that are asked for again and again, in memory as far as there is room for them."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray


class Held:
    """The first images that fit into ``limit`` bytes, and none beyond.

    Nothing makes room for something newer: what is asked for in the same order every time would then never be there.

    >>> held, dot = Held(limit=3), np.zeros((1, 1, 3), np.uint8)
    >>> held.offer("first", dot), held.offer("second", dot)
    (None, None)
    >>> held.get("first").shape, held.get("second")
    ((1, 1, 3), None)
    """

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._images: dict[Hashable, NDArray[np.uint8]] = {}

    def get(self, key: Hashable) -> NDArray[np.uint8] | None:
        """The image of that name, or None."""
        return self._images.get(key)

    def offer(self, key: Hashable, pixels: NDArray[np.uint8]) -> None:
        """Hold a copy, if there is room: a view would keep the whole batch alive that it was cut from."""
        if pixels.nbytes <= self._left and key not in self._images:
            self._images[key] = pixels.copy()
            self._left -= pixels.nbytes
