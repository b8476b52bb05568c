"""Tiles cover an image, and their patches make one grid without a gap."""

from __future__ import annotations

import numpy as np
import pytest

from dinosaur_ad.core.tiles import Tiling

SHAPES = [(4, 1, 336, 24), (1, 3, 70, 5), (2, 2, 28, 2), (5, 4, 84, 6)]


@pytest.mark.parametrize(("columns", "rows", "size", "side"), SHAPES)
def test_what_is_cut_and_put_together_is_the_image(columns: int, rows: int, size: int, side: int) -> None:
    tiling = Tiling.of(columns, rows, size, side, (2000, 8000))
    high, wide = tiling.grid
    place_HW = np.arange(high * wide, dtype=np.float32).reshape(high, wide)
    patch = size // side
    pixels = np.repeat(place_HW.repeat(patch, 0).repeat(patch, 1)[..., None], 3, axis=2)
    assert pixels.shape[:2] == tiling.scaled
    tiles = [tile for _, tile in tiling.cut(pixels)]
    assert [tile.shape for tile in tiles] == [(size, size, 3)] * tiling.count
    np.testing.assert_array_equal(tiling.stitch(np.stack(tiles)[:, ::patch, ::patch])[..., 0], place_HW)


def test_a_patch_comes_from_the_tile_in_which_it_lies_farther_inside() -> None:
    tiling = Tiling(2, 2, 40, 10, 4, 100, 100)
    numbers = np.arange(4, dtype=np.float32)[:, None, None, None] * np.ones((1, 10, 10, 1), np.float32)
    grid_HW = tiling.stitch(numbers)[..., 0]
    assert grid_HW.shape == (16, 16)
    np.testing.assert_array_equal(grid_HW, np.kron([[0, 1], [2, 3]], np.ones((8, 8))))


def test_neighbouring_tiles_overlap_by_about_a_tenth() -> None:
    tiling = Tiling.of(3, 2, 336, 24, (1000, 1500))
    (_, left), (_, right), *_ = tiling.cut(np.arange(tiling.scaled[1])[None, :, None].repeat(tiling.scaled[0], 0))
    common = np.intersect1d(left[0, :, 0], right[0, :, 0])
    assert 0.05 < len(common) / 336 < 0.15


def test_a_photo_fits_if_its_size_is_that_of_the_others() -> None:
    tiling = Tiling.of(4, 1, 336, 24, (2000, 8000))
    assert tiling.fits(2000, 8000)
    assert tiling.fits(1990, 8100)
    assert tiling.fits(*tiling.scaled)  # what the gallery keeps
    assert not tiling.fits(8000, 2000)
    assert not tiling.fits(1000, 4000)
    assert not tiling.fits(2000, 7000)
