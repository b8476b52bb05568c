"""Pictures that show no product: what a detector must be able to call anomalous whatever it has learned."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def foreign_pictures(size: int) -> NDArray[np.uint8]:
    """Six pictures (6, size, size, 3), the same every time: black, grey, white, noise, coarse colours, a chessboard.

    A covered lens, an empty belt, a wrong exposure and a broken camera look like the first four.

    >>> foreign_pictures(28).shape
    (6, 28, 28, 3)
    """
    random = np.random.default_rng(20)
    row, column = np.indices((size, size))
    cell = max(1, size // 8)
    coarse = random.integers(0, 256, (9, 9, 3), np.uint8)
    board = np.where((row // cell + column // cell) % 2, 255, 0).astype(np.uint8)
    flat = [np.full((size, size, 3), level, np.uint8) for level in (0, 128, 255)]
    noise = random.integers(0, 256, (size, size, 3), np.uint8)
    return np.stack([*flat, noise, coarse[row // cell % 9, column // cell % 9], np.repeat(board[..., None], 3, axis=2)])
