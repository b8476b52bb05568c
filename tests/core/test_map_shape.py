"""Maps before they are shown: gaps are closed and images seen beside themselves, and neither invents a defect."""

from __future__ import annotations

import numpy as np
import pytest
from core_helpers import examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core.map_shape import closed, place_of_rest, rest, shaped
from dinosaur_ad.core.zones import Zone

Floats = NDArray[np.float32]

DISC = [(down, right) for down in range(-2, 3) for right in range(-2, 3) if abs(down) + abs(right) < 4]


def some_maps(seed: int, images: int = 3, height: int = 7, width: int = 9) -> Floats:
    return np.random.default_rng(seed).lognormal(-0.5, 0.4, (images, height, width)).astype(np.float32)


def literally(map_HW: Floats) -> Floats:
    """A closing as it is defined, patch by patch."""

    def over(values: Floats, best: type[max] | type[min]) -> Floats:
        height, width = values.shape
        found = np.empty_like(values)
        for row, column in np.ndindex(height, width):
            places = ((row + down, column + right) for down, right in DISC)
            found[row, column] = best(values[r, c] for r, c in places if 0 <= r < height and 0 <= c < width)
        return found

    return over(over(map_HW, max), min)  # type: ignore[arg-type]


@examples
@given(seed=st.integers(0, 10**6), height=st.integers(1, 9), width=st.integers(1, 9))
def test_a_closing_is_the_lowest_over_discs_of_the_highest(seed: int, height: int, width: int) -> None:
    maps_NHW = some_maps(seed, 2, height, width)
    np.testing.assert_array_equal(closed(maps_NHW), np.stack([literally(each) for each in maps_NHW]))


@examples
@given(seed=st.integers(0, 10**6))
def test_a_closing_lowers_nothing_and_closes_once_and_for_all(seed: int) -> None:
    maps_NHW = some_maps(seed)
    once = closed(maps_NHW)
    assert np.all(once >= maps_NHW)
    assert np.all(once.max(axis=(1, 2)) == maps_NHW.max(axis=(1, 2)))
    np.testing.assert_array_equal(closed(once), once)


def test_a_speck_stays_a_speck_and_a_gap_is_closed() -> None:
    speck = np.full((1, 11, 11), 0.5, np.float32)
    speck[0, 5, 5] = 3
    np.testing.assert_array_equal(closed(speck), speck)
    ring = np.full((1, 11, 11), 0.5, np.float32)
    ring[0, 3:8, 3:8] = 3
    ring[0, 4:7, 4:7] = 0.5
    assert np.all(closed(ring)[0, 3:8, 3:8] == 3)
    assert closed(ring).sum() == pytest.approx(25 * 3 + 96 * 0.5)


@examples
@given(seed=st.integers(0, 10**6), closing=st.floats(0, 1), relative=st.floats(0, 1), factor=st.floats(0.2, 5))
def test_the_worst_place_stays_and_order_between_images_alone_depends_on_their_level(
    seed: int, closing: float, relative: float, factor: float
) -> None:
    maps_NHW = some_maps(seed)
    made = shaped(maps_NHW, 0.6, closing=closing, relative=relative)
    alone = shaped(maps_NHW, closing=closing)
    assert made.dtype == np.float32
    for one, other, before in zip(made, alone, maps_NHW, strict=True):
        assert one[np.unravel_index(before.argmax(), before.shape)] == one.max()
        assert np.all(np.diff(one.ravel()[other.ravel().argsort()]) >= 0)
    # An image that lies farther from the normals all over is higher by less than that.
    again = shaped(maps_NHW * np.float32(factor), 0.6, closing=closing, relative=relative)
    np.testing.assert_allclose(again, made * factor ** (1 - relative), rtol=1e-4)


def test_an_image_with_the_usual_level_keeps_its_map_and_so_do_all_without_either() -> None:
    maps_NHW = some_maps(1)
    np.testing.assert_array_equal(shaped(maps_NHW, 0.7), maps_NHW)
    np.testing.assert_array_equal(shaped(maps_NHW, 0.0, relative=0.5), maps_NHW)
    one = maps_NHW[:1]
    np.testing.assert_allclose(shaped(one, float(rest(one)[0]), relative=0.5), one, rtol=1e-6)


@examples
@given(seed=st.integers(0, 10**6), closing=st.sampled_from([0.0, 0.5, 1.0]))
def test_outside_a_zone_maps_stay_zero_and_say_nothing(seed: int, closing: float) -> None:
    patches_HW = np.random.default_rng(seed).random((7, 9)) < 0.7
    patches_HW[3, 4] = True
    zone, maps_NHW = Zone.of(patches_HW), some_maps(seed) * patches_HW
    made = shaped(maps_NHW, 0.6, closing=closing, relative=0.3, zone=zone)
    assert np.all(made[:, ~patches_HW] == 0)
    assert np.all(made[:, patches_HW] > 0)
    own_N = np.sort(shaped(maps_NHW, closing=closing, zone=zone)[:, patches_HW], axis=1)
    own_N = own_N[:, place_of_rest(int(patches_HW.sum()))]
    np.testing.assert_allclose(rest(made, zone), own_N * (own_N / 0.6) ** -0.3, rtol=1e-4)


@examples
@given(seed=st.integers(0, 10**6), share=st.floats(0, 0.7), by=st.floats(1, 100))
def test_a_defect_of_most_of_an_image_does_not_lower_itself(seed: int, share: float, by: float) -> None:
    maps_NHW = some_maps(seed, 1, 10, 10)
    order = maps_NHW[0].ravel().argsort()[::-1][: int(100 * share)]
    with_defect = maps_NHW.copy()
    with_defect[0].ravel()[order] *= np.float32(by)
    np.testing.assert_array_equal(rest(with_defect), rest(maps_NHW))


@pytest.mark.parametrize("closing", [0.0, 0.5, 1.0])
def test_what_is_no_number_stays_none_and_spreads_no_farther(closing: float) -> None:
    maps_NHW = some_maps(2)
    maps_NHW[1, 2, 3] = np.nan
    maps_NHW[2] = np.nan
    made = shaped(maps_NHW, 0.6, closing=closing, relative=0.2)
    np.testing.assert_array_equal(np.isnan(made), np.isnan(maps_NHW))


def test_a_map_of_zeros_stays_one() -> None:
    nothing = np.zeros((2, 4, 4), np.float32)
    for closing in (0.0, 0.5, 1.0):
        np.testing.assert_array_equal(shaped(nothing, 0.6, closing=closing, relative=0.5), nothing)
