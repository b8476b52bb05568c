"""Zones against literal loops: shares of patches, polygons, windows, and scores of what is inspected."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from dinosaur_ad.core.map_regions import small_cells
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.readings import STRIDE, TOP, WINDOW, Distances, fuse, fuse_readings, reading_scale, windows
from dinosaur_ad.core.zones import FINENESS, Zone, combined, patch_shares, polygon_mask

MASKS = hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9))
READINGS = ("located", "coarse")


@settings(max_examples=40, deadline=None)
@given(MASKS, st.integers(1, 6), st.integers(1, 6))
def test_patch_shares_are_areas(mask_HW: NDArray[np.bool_], rows: int, columns: int) -> None:
    height, width = mask_HW.shape
    fine = np.kron(mask_HW, np.ones((rows, columns)))  # divides evenly into patches of height x width cells
    expected = [
        [fine[r * height : (r + 1) * height, c * width : (c + 1) * width].mean() for c in range(columns)]
        for r in range(rows)
    ]
    np.testing.assert_allclose(patch_shares(mask_HW, rows, columns), expected, atol=1e-5)


def _literally_inside(x: float, y: float, points: list[tuple[float, float]]) -> bool:
    inside = False
    for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
        if (y0 <= y) != (y1 <= y) and x0 + (y - y0) * (x1 - x0) / (y1 - y0) <= x:
            inside = not inside
    return inside


def _is_on_an_edge(x: float, y: float, points: list[tuple[float, float]]) -> bool:
    """Whether rounding alone says on which side of an edge a point lies."""
    return any(
        (y0 <= y) != (y1 <= y) and abs(x0 + (y - y0) * (x1 - x0) / (y1 - y0) - x) < 1e-6
        for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True)
    )


def test_a_line_there_and_back_encloses_nothing() -> None:
    assert not polygon_mask([(0, 1), (8, 3), (8, 3)], (6, 8), 1, 1).any()
    for end in range(1, 40):
        assert not polygon_mask([(0, 1), (8, 1 + end / 7), (8, 1 + end / 7)], (6, 8), 1, 1).any()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6)), min_size=3, max_size=6))
def test_polygons_hold_the_points_inside_them(corners: list[tuple[int, int]]) -> None:
    points = [(float(x), float(y)) for x, y in corners]
    mask = polygon_mask(points, (6, 8), 1, 1)
    assert mask.shape == (FINENESS, FINENESS)
    for row in range(0, FINENESS, 5):
        for column in range(0, FINENESS, 5):
            x, y = (column + 0.5) * 8 / FINENESS, (row + 0.5) * 6 / FINENESS
            assert _is_on_an_edge(x, y, points) or mask[row, column] == _literally_inside(x, y, points)


def test_a_triangle_covers_half_its_box() -> None:
    share = patch_shares(polygon_mask([(0, 0), (12, 0), (0, 9)], (9, 12), 1, 1), 1, 1)
    assert share[0, 0] == pytest.approx(0.5, abs=1 / FINENESS)


@settings(max_examples=30, deadline=None)
@given(hnp.arrays(np.bool_, st.tuples(st.integers(3, 9), st.integers(3, 9))))
def test_a_window_counts_when_half_of_its_patches_do(patches_HW: NDArray[np.bool_]) -> None:
    zone = Zone.of(patches_HW)
    for row, column in np.ndindex(*zone.windows_hw.shape):
        inside = patches_HW[row * STRIDE : row * STRIDE + WINDOW, column * STRIDE : column * STRIDE + WINDOW]
        assert zone.windows_hw[row, column] == (inside.mean() >= 0.5)
    left_out = np.zeros_like(patches_HW)
    left_out[1, 1] = True
    rest = zone.without(left_out)
    assert not rest.patches_HW[1, 1]
    assert not rest.windows_hw[0, 0]  # the window that the patch lies in
    np.testing.assert_array_equal(rest.windows_hw[1:, 1:], zone.windows_hw[1:, 1:])


def test_what_is_ignored_goes_before_what_is_inspected() -> None:
    all_HW, one_HW = np.ones((2, 2), bool), np.asarray([[True, False], [False, False]])
    assert combined([], [one_HW], (2, 2)).sum() == 3
    assert combined([one_HW], [], (2, 2)).sum() == 1
    assert combined([all_HW, one_HW], [one_HW], (2, 2)).sum() == 3


def _distances(count: int, seed: int = 0, side: int = 9) -> Distances:
    point = np.random.default_rng(seed).uniform(0.5, 1.5, (count, side, side)).astype(np.float32)
    return Distances(point, windows(point[..., None])[..., 0])


def test_scores_in_a_zone_are_those_of_the_inspected_values_alone() -> None:
    patches_HW = np.zeros((9, 9), bool)
    patches_HW[2:7, 3:9] = True
    zone, learned, seen = Zone.of(patches_HW), _distances(12), _distances(3, seed=1)
    scale = reading_scale(learned, READINGS, zone)
    np.testing.assert_array_equal(scale.usual_HW, reading_scale(learned, READINGS).usual_HW)
    fused = fuse(seen, scale, READINGS, zone)
    located = np.asarray(seen.point_NHW) * np.sqrt(scale.usual_HW.mean() / scale.usual_HW)
    coarse = np.asarray(seen.coarse_Nhw)
    for n in range(3):
        readings = []
        for name, values in (("located", located[n][patches_HW]), ("coarse", coarse[n][zone.windows_hw])):
            count = max(1, round(TOP[name] * len(values)))
            readings.append(np.sort(values)[-count:].mean())
        np.testing.assert_allclose(fused.reading_NR[n], readings, rtol=1e-5)
        expected = fuse_readings(np.float32(readings), scale.mean_R, scale.spread_R)
        assert fused.score_N[n] == pytest.approx(float(expected), rel=1e-4)
    assert not fused.map_NHW[:, ~patches_HW].any()
    assert (fused.map_NHW[:, patches_HW] > 0).all()


def test_a_zone_of_everything_changes_nothing() -> None:
    zone, learned, seen = Zone.of(np.ones((9, 9), bool)), _distances(12), _distances(3, seed=1)
    scale = reading_scale(learned, READINGS)
    for one, other in zip(reading_scale(learned, READINGS, zone), scale, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(fuse(seen, scale, READINGS, zone), fuse(seen, scale, READINGS), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_no_number_outside_a_zone_is_not_hidden() -> None:
    patches_HW = np.zeros((9, 9), bool)
    patches_HW[4:, 4:] = True
    seen = _distances(2, seed=1)
    seen.point_NHW[1, 0, 0] = np.nan
    scale = reading_scale(_distances(12), READINGS)
    assert np.isfinite(fuse(seen, scale, READINGS, Zone.of(patches_HW)).score_N).tolist() == [True, False]


def test_the_share_of_patches_that_are_pooled_is_one_of_the_inspected() -> None:
    grid = np.zeros((1, 10, 20))
    grid[0, 0, :10] = range(10)
    assert float(pool(grid, 0.2)[0]) == pytest.approx(45 / 40)
    assert float(pool(grid, 0.2, inspected=10)[0]) == 8.5


@settings(max_examples=30, deadline=None)
@given(hnp.arrays(np.float32, (5, 5), elements=st.sampled_from([0.0, 2.0])), st.integers(1, 6))
def test_small_regions_are_those_with_fewer_patches(map_HW: NDArray[np.float32], patches: int) -> None:
    map_HW[0, 0] = 3.0  # something is above
    small_HW = small_cells(map_HW, 1.0, patches / 25)
    assert not small_HW[map_HW <= 1].any()
    sizes: dict[tuple[int, int], int] = {}
    for cell in zip(*np.nonzero(map_HW > 1), strict=True):
        group, todo = {cell}, [cell]
        while todo:
            row, column = todo.pop()
            near = [(row + i, column + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
            new = [c for c in near if min(c) >= 0 and max(c) < 5 and map_HW[c] > 1 and c not in group]
            group |= set(new)
            todo += new
        sizes[cell] = len(group)
    assert {cell: bool(small_HW[cell]) for cell in sizes} == {cell: size < patches for cell, size in sizes.items()}
