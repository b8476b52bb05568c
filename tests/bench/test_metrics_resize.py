from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from dinosaur_ad.bench.metrics import mask_at, upsample

SIZES = [((14, 14), (224, 224)), ((28, 28), (224, 224)), ((5, 9), (31, 17)), ((16, 16), (16, 16)), ((7, 1), (20, 3))]
SIZES += [((14, 14), (9, 40)), ((1, 1), (6, 6))]


@pytest.mark.parametrize(("source", "target"), SIZES)
def test_maps_grow_as_torch_lets_them(source: tuple[int, int], target: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
    map_hw = np.random.default_rng(0).random(source, dtype=np.float32)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(map_hw)[None, None], size=target, mode="bilinear", align_corners=False
    )
    grown = upsample(map_hw, *target)
    assert grown.dtype == np.float32
    np.testing.assert_allclose(grown, expected[0, 0].numpy(), atol=2e-6)
    assert map_hw.min() - 1e-6 <= grown.min()
    assert grown.max() <= map_hw.max() + 1e-6


def test_the_result_is_the_callers_own() -> None:
    map_hw = np.zeros((4, 4), np.float32)
    upsample(map_hw, 4, 4)[:] = 7
    assert not map_hw.any()


def test_a_nan_stays_where_it_has_a_say() -> None:
    map_hw = np.ones((4, 4))
    map_hw[0, 0] = np.nan
    grown = upsample(map_hw, 8, 8)
    # The centres of the second row and column of patches lie at 2.5 pixels: up to there the NaN is mixed in.
    np.testing.assert_array_equal(np.isnan(grown), np.pad(np.ones((3, 3), bool), (0, 5)))
    assert (grown[~np.isnan(grown)] == 1).all()
    np.testing.assert_array_equal(upsample(np.array([[1, np.nan]]), 1, 4), [[1, np.nan, np.nan, np.nan]])


# Sides that 64 does not divide, and 224: elsewhere a centre may lie on an edge, where Pillow rounds as it happens.
@pytest.mark.parametrize("shape", [(300, 260), (224, 224), (100, 631), (3, 5)])
def test_masks_are_sampled_at_pixel_centres(shape: tuple[int, int]) -> None:
    mask_HW = np.random.default_rng(0).random(shape) < 0.4
    expected = Image.fromarray(mask_HW.astype(np.uint8)).resize((224, 224), Image.Resampling.NEAREST)
    resized = mask_at(mask_HW, 224)
    assert resized.dtype == np.bool_
    np.testing.assert_array_equal(resized, np.asarray(expected) > 0)


def test_a_centre_on_an_edge_belongs_to_the_pixel_after_it() -> None:
    mask_HW = np.array([[True, False, True, False]] * 4)
    assert mask_at(mask_HW, 2).tolist() == [[False, False]] * 2


def test_whole_blocks_survive_and_single_pixels_need_not() -> None:
    mask_HW = np.zeros((20, 20), bool)
    mask_HW[0, 0] = True  # the centres of a 5 x 5 grid lie at pixel 2 of every 4
    mask_HW[4:8, 8:12] = True
    assert np.argwhere(mask_at(mask_HW, 5)).tolist() == [[1, 2]]
