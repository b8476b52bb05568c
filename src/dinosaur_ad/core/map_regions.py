"""Connected regions of a patch map, and their outlines along the borders of the patches."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

Cell = tuple[int, int]
"""A patch of the grid, or a corner of one: (row, column)."""

# Directions along the borders of patches, clockwise: right, down, left, up.
_STEPS: tuple[Cell, ...] = ((0, 1), (1, 0), (0, -1), (-1, 0))


def connected_cells(mask_HW: NDArray[np.bool_]) -> list[list[Cell]]:
    """The cells of each region of ``mask_HW``, in reading order; cells that share a side or a corner are connected.

    >>> connected_cells(np.array([[1, 0, 0, 1], [0, 1, 0, 1]], bool))
    [[(0, 0), (1, 1)], [(0, 3), (1, 3)]]
    """
    left = {(int(row), int(column)) for row, column in zip(*np.nonzero(mask_HW), strict=True)}
    regions = []
    for start in sorted(left):
        if start not in left:
            continue
        left.remove(start)
        found = [start]
        for row, column in found:  # grows while it is read: a flood fill without recursion
            for down, right in product((-1, 0, 1), repeat=2):
                neighbour = (row + down, column + right)
                if neighbour in left:
                    left.remove(neighbour)
                    found.append(neighbour)
        regions.append(sorted(found))
    return regions


def cells_above(map_HW: NDArray[np.float32], threshold: float) -> list[list[Cell]]:
    """The regions of a map above a threshold, the largest peak first; the largest value always belongs to one.

    >>> cells_above(np.float32([[5, 0, 2], [0, 0, 3]]), 1.0)
    [[(0, 0)], [(0, 2), (1, 2)]]
    """
    above_HW = ~(map_HW <= threshold)  # written so that NaN counts as above
    above_HW[np.unravel_index(np.argmax(map_HW), map_HW.shape)] = True  # whatever the score was rounded to
    peak_HW = np.nan_to_num(map_HW, nan=np.inf)  # as for argmax, NaN is the largest value
    return sorted(connected_cells(above_HW), key=lambda cells: max(peak_HW[cell] for cell in cells), reverse=True)


def counts(cells: list[Cell], patches: int, smallest: float) -> bool:
    """Whether a region of a map of so many patches is at least as large as a share of it, up to rounding."""
    return len(cells) >= smallest * patches - 1e-6


def small_cells(map_HW: NDArray[np.float32], threshold: float, smallest: float) -> NDArray[np.bool_]:
    """Where a map lies above a threshold in regions that are smaller than a share of it: bool ``(H, W)``.

    >>> small_cells(np.float32([[5, 0, 2], [0, 0, 3]]), 1.0, 0.3).astype(int).tolist()
    [[1, 0, 0], [0, 0, 0]]
    """
    small_HW = np.zeros(map_HW.shape, np.bool_)
    for cells in cells_above(map_HW, threshold):
        if not counts(cells, map_HW.size, smallest):
            small_HW[tuple(np.transpose(cells))] = True
    return small_HW


def outer_contour(cells: list[Cell]) -> list[Cell]:
    """The corners of the outer border of a connected region, clockwise, as (row, column) of the lines of the grid.

    Holes are not outlined. Where two cells share only a corner, the border passes through it twice.

    >>> outer_contour([(0, 0)])
    [(0, 0), (0, 1), (1, 1), (1, 0)]
    """
    inside = set(cells)
    start = min(cells)  # the first cell of the first row: nothing lies above its upper left corner or left of it
    (row, column), direction = start, 0
    corners = []
    while True:
        turn = _turn(inside, row, column, direction)
        if turn:
            corners.append((row, column))
            direction = (direction + turn) % 4
        down, right = _STEPS[direction]
        row, column = row + down, column + right
        if (row, column) == start and direction == 3:  # back from below: the contour is closed
            return [start, *corners]


def _turn(inside: set[Cell], row: int, column: int, direction: int) -> int:
    """Where the border goes at a corner: -1 left, 0 straight on, 1 right; the region lies to the right of the border.

    Left comes first, so that cells that share only this corner are on the same contour.
    """
    cells = ((row - 1, column - 1), (row - 1, column), (row, column), (row, column - 1))  # around the corner, clockwise
    ahead_left, ahead_right = cells[(direction + 1) % 4], cells[(direction + 2) % 4]
    if ahead_left in inside:
        return -1
    return 0 if ahead_right in inside else 1
