"""Connected regions of a grid, and their contours, against plain definitions."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core.map_regions import Cell, connected_cells, outer_contour

GRIDS = st.tuples(st.integers(1, 7), st.integers(1, 7)).flatmap(
    lambda shape: st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]).map(
        lambda cells: np.array(cells).reshape(shape)
    )
)


def touch(one: Cell, other: Cell) -> bool:
    return max(abs(one[0] - other[0]), abs(one[1] - other[1])) <= 1


def border_sides(cells: set[Cell]) -> Counter[tuple[Cell, Cell]]:
    """The sides of cells that have no cell beyond them, each from corner to corner with the cell on the right."""
    sides: Counter[tuple[Cell, Cell]] = Counter()
    for row, column in cells:
        corners = [(row, column), (row, column + 1), (row + 1, column + 1), (row + 1, column)]
        beyond = [(row - 1, column), (row, column + 1), (row + 1, column), (row, column - 1)]
        for side, neighbour in enumerate(beyond):
            if neighbour not in cells:
                sides[corners[side], corners[(side + 1) % 4]] += 1
    return sides


def filled(cells: set[Cell], shape: tuple[int, ...]) -> set[Cell]:
    """The cells and their holes: all that cannot be reached from outside without passing over a cell."""
    outside = {(-1, -1)}
    todo = [(-1, -1)]
    while todo:
        row, column = todo.pop()
        for step in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            inside = -1 <= step[0] <= shape[0] and -1 <= step[1] <= shape[1]
            if inside and step not in cells and step not in outside:
                outside.add(step)
                todo.append(step)
    return {(row, column) for row, column in np.ndindex(*shape) if (row, column) not in outside}


@given(GRIDS)
def test_regions_are_connected_apart_and_cover_the_mask(mask: NDArray[np.bool_]) -> None:
    regions = connected_cells(mask)
    cells = [cell for region in regions for cell in region]
    assert sorted(cells) == sorted((int(row), int(column)) for row, column in np.argwhere(mask))
    for region in regions:
        reached = {region[0]}
        while more := {cell for cell in region if cell not in reached and any(touch(cell, other) for other in reached)}:
            reached |= more
        assert reached == set(region)
    for one, other in combinations(regions, 2):
        assert not any(touch(a, b) for a in one for b in other)


@given(GRIDS)
def test_a_contour_is_the_border_of_the_region_without_its_holes(mask: NDArray[np.bool_]) -> None:
    for region in connected_cells(mask):
        contour = outer_contour(region)
        whole = filled(set(region), mask.shape)
        walked: Counter[tuple[Cell, Cell]] = Counter()
        for (row, column), (to_row, to_column) in zip(contour, contour[1:] + contour[:1], strict=True):
            assert (row == to_row) != (column == to_column)  # every part runs along a line of the grid
            down, right = np.sign(to_row - row), np.sign(to_column - column)
            while (row, column) != (to_row, to_column):
                walked[(row, column), (row + down, column + right)] += 1
                row, column = row + down, column + right
        assert walked == border_sides(whole)


@given(GRIDS)
def test_a_contour_has_a_point_only_where_it_turns(mask: NDArray[np.bool_]) -> None:
    for region in connected_cells(mask):
        contour = outer_contour(region)
        assert len(contour) % 2 == 0
        for before, here, after in zip(contour[-1:] + contour[:-1], contour, contour[1:] + contour[:1], strict=True):
            assert (before[0] == here[0]) != (here[0] == after[0])
