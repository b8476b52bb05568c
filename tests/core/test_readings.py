"""Readings: windows as they are defined, and one score that rises with every distance, on the scale of its map."""

from __future__ import annotations

import numpy as np
import pytest
from core_helpers import Backend, examples, whole_numbers
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core.readings import (
    READINGS,
    SPREAD,
    STRIDE,
    TOP,
    WEIGHT,
    WINDOW,
    Distances,
    ReadingScale,
    fuse,
    fuse_readings,
    pooled_readings,
    reading_maps,
    reading_scale,
    spread_out,
    usual_distances,
    windows,
)

Floats = NDArray[np.float32]
SIDES = st.integers(1, 12)


def coarse_sides(height: int, width: int) -> tuple[int, int]:
    _, rows, columns, _ = windows(np.zeros((1, height, width, 1), np.float32)).shape
    return rows, columns


def some_distances(seed: int, images: int, height: int, width: int) -> Distances:
    """Distances as normal images have them: every image a little nearer or farther as a whole."""
    rng = np.random.default_rng(seed)
    own = rng.lognormal(-1, 0.1, (images, 1, 1))
    shapes = (images, height, width), (images, *coarse_sides(height, width))
    point, coarse = ((own * rng.lognormal(0, 0.3, shape)).astype(np.float32) for shape in shapes)
    return Distances(point, coarse)


# --- windows ---


@examples
@given(height=SIDES, width=SIDES, data=st.data())
def test_windows_are_the_means_of_their_patches(backend: Backend, height: int, width: int, data: st.DataObject) -> None:
    tokens = data.draw(whole_numbers((2, height, width, 3), np.float32))
    found = backend.back(windows(backend.array(tokens)))
    rows, columns = (max(1, (side - WINDOW) // STRIDE + 1) for side in (height, width))
    assert found.shape == (2, rows, columns, 3)
    assert found.dtype == tokens.dtype
    for i, j in np.ndindex(rows, columns):
        part = tokens[:, STRIDE * i : STRIDE * i + WINDOW, STRIDE * j : STRIDE * j + WINDOW].astype(np.float64)
        np.testing.assert_allclose(found[:, i, j], part.mean(axis=(1, 2)), rtol=1e-6, atol=1e-6)


@examples
@given(height=st.integers(4, 12), width=st.integers(4, 12), data=st.data())
def test_values_are_spread_out_between_the_centres_of_windows(height: int, width: int, data: st.DataObject) -> None:
    rows, columns = coarse_sides(height, width)
    values = data.draw(whole_numbers((1, rows, columns), np.float32))
    found = spread_out(values, height, width)
    for i, j in np.ndindex(height, width):
        # Where a patch lies on the grid of windows; the centre of the first is in the middle of its patches.
        places = (((at - (WINDOW - 1) / 2) / STRIDE, count) for at, count in ((i, rows), (j, columns)))
        down, right = (np.clip(place, 0, count - 1) for place, count in places)
        top, left = int(down), int(right)
        bottom, edge = min(top + 1, rows - 1), min(left + 1, columns - 1)
        upper = values[0, top, left] * (1 - right + left) + values[0, top, edge] * (right - left)
        lower = values[0, bottom, left] * (1 - right + left) + values[0, bottom, edge] * (right - left)
        assert found[0, i, j] == pytest.approx(upper * (1 - down + top) + lower * (down - top), abs=1e-5)


@examples
@given(height=SIDES, width=SIDES, data=st.data())
def test_what_is_spread_out_stays_within_its_values(height: int, width: int, data: st.DataObject) -> None:
    values = data.draw(whole_numbers((1, *coarse_sides(height, width)), np.float32))
    found = spread_out(values, height, width)
    assert found.shape == (1, height, width)
    assert values.min() - 1e-5 <= found.min() <= found.max() <= values.max() + 1e-5
    constant = spread_out(np.full_like(values, 3.0), height, width)
    np.testing.assert_allclose(constant, 3.0, rtol=1e-6)


# --- what is usual ---


@examples
@given(seed=st.integers(0, 10**6), images=st.integers(1, 6), height=SIDES, width=SIDES)
def test_the_usual_distance_is_drawn_to_the_mean_of_all_places(seed: int, images: int, height: int, width: int) -> None:
    point = some_distances(seed, images, height, width).point_NHW
    mean = point.astype(np.float64).mean(axis=0)
    found = usual_distances(point)
    for i, j in np.ndindex(height, width):
        near = [
            mean[min(max(i + down, 0), height - 1), min(max(j + right, 0), width - 1)]
            for down in (-1, 0, 1)
            for right in (-1, 0, 1)
        ]
        expected = (images * np.mean(near) + 10 * mean.mean()) / (images + 10)
        assert found[i, j] == pytest.approx(expected, rel=1e-5)


def test_places_without_distances_can_be_divided_by() -> None:
    """Images that are twins of each other are at distance zero everywhere."""
    nothing = Distances(np.zeros((3, 4, 4), np.float32), np.zeros((3, 1, 1), np.float32))
    scale = reading_scale(nothing, READINGS)
    assert np.all(scale.usual_HW > 0)
    fused = fuse(nothing, scale, READINGS)
    np.testing.assert_allclose(fused.score_N, 1.0, rtol=1e-5)
    assert np.isfinite(fused.map_NHW).all()


@examples
@given(seed=st.integers(0, 10**6), images=st.integers(2, 40))
def test_few_images_hardly_move_the_usual_deviation(seed: int, images: int) -> None:
    distances = some_distances(seed, images, 6, 6)
    scale = reading_scale(distances, READINGS)
    logs = np.log(pooled_readings(reading_maps(distances, scale.usual_HW, READINGS), READINGS))
    np.testing.assert_allclose(scale.mean_R, logs.mean(axis=0), atol=1e-5)
    expected = np.sqrt((images * logs.var(axis=0) + WEIGHT * SPREAD**2) / (images + WEIGHT))
    np.testing.assert_allclose(scale.spread_R, expected, rtol=1e-4)


# --- readings ---


def test_each_reading_is_the_mean_of_its_largest_values() -> None:
    distances = some_distances(3, 2, 24, 24)
    usual = usual_distances(distances.point_NHW)
    coarse = distances.coarse_Nhw
    assert coarse is not None
    point = distances.point_NHW
    by_name = {"point": point, "located": point * np.sqrt(usual.mean() / usual), "coarse": coarse}
    found = pooled_readings(reading_maps(distances, usual, READINGS), READINGS)
    for place, (name, values) in enumerate(by_name.items()):
        ordered = np.sort(values.reshape(2, -1), axis=1)
        most = max(1, round(TOP[name] * ordered.shape[1]))
        np.testing.assert_allclose(found[:, place], ordered[:, -most:].mean(axis=1), rtol=1e-5)


def test_a_deviation_counts_more_where_normals_never_differ() -> None:
    usual = np.ones((4, 4), np.float32)
    usual[0, 0] = 16.0
    located = reading_maps(Distances(np.full((1, 4, 4), 2.0, np.float32)), usual, ("located",))[0][0]
    assert located[1, 1] == pytest.approx(4 * located[0, 0])


def test_a_coarse_reading_needs_coarse_distances() -> None:
    with pytest.raises(ValueError, match="no coarse part"):
        reading_maps(Distances(np.ones((1, 4, 4), np.float32)), np.ones((4, 4), np.float32), ("coarse",))


# --- the fused score ---


@examples
@given(seed=st.integers(0, 10**6), height=SIDES, width=SIDES)
def test_one_reading_is_the_distance_over_its_usual_value(seed: int, height: int, width: int) -> None:
    distances, mean = some_distances(seed, 3, height, width), np.float32(-0.7)
    scale = ReadingScale(np.ones((height, width), np.float32), mean[None], np.full(1, SPREAD, np.float32))
    fused = fuse(distances, scale, ("point",))
    np.testing.assert_allclose(fused.score_N, fused.reading_NR[:, 0] / np.exp(mean), rtol=1e-4)
    np.testing.assert_allclose(fused.map_NHW, distances.point_NHW / np.exp(mean), rtol=1e-4)


@examples
@given(seed=st.integers(0, 10**6), factor=st.floats(0.5, 2))
def test_score_and_map_are_on_one_scale(seed: int, factor: float) -> None:
    """Of an image with the same distance everywhere the map equals the score; a usual one has 1."""
    scale = reading_scale(some_distances(seed, 20, 8, 8), READINGS)
    scale = scale._replace(usual_HW=np.full((8, 8), scale.usual_HW.mean(), np.float32))
    flat = Distances(np.full((1, 8, 8), factor, np.float32), np.full((1, 3, 3), factor, np.float32))
    fused = fuse(flat, scale, READINGS)
    np.testing.assert_allclose(fused.map_NHW, fused.score_N[0], rtol=1e-4)
    usual = fuse_readings(np.exp(scale.mean_R)[None], scale.mean_R, scale.spread_R)
    np.testing.assert_allclose(usual, 1.0, rtol=1e-5)


@examples
@given(seed=st.integers(0, 10**6), data=st.data())
def test_no_larger_distance_lowers_score_or_map(seed: int, data: st.DataObject) -> None:
    normals = some_distances(seed, 12, 8, 8)
    scale = reading_scale(normals, READINGS)
    image = Distances(*(each[:1].copy() for each in normals if each is not None))
    before = fuse(image, scale, READINGS)
    values = data.draw(st.sampled_from([image.point_NHW, image.coarse_Nhw]))
    place = data.draw(st.integers(0, values.size - 1))
    values.reshape(-1)[place] *= data.draw(st.floats(1, 30))
    after = fuse(image, scale, READINGS)
    assert np.all(after.score_N >= before.score_N * (1 - 1e-6))
    assert np.all(after.map_NHW >= before.map_NHW * (1 - 1e-6))
    assert np.all(after.reading_NR >= before.reading_NR * (1 - 1e-6))


@examples
@given(seed=st.integers(0, 10**6), factor=st.floats(2, 20))
def test_a_far_window_or_patch_raises_the_score(seed: int, factor: float) -> None:
    normals = some_distances(seed, 12, 8, 8)
    scale = reading_scale(normals, READINGS)
    for k in range(2):
        image = Distances(*(each[:1].copy() for each in normals if each is not None))
        part = image[k]
        assert part is not None
        part[0, 1, 1] = factor * part.max()
        assert fuse(image, scale, READINGS).score_N[0] > 1.05 * fuse(normals, scale, READINGS).score_N[0]


@examples
@given(readings=st.lists(st.floats(0.1, 10), min_size=3, max_size=3), order=st.permutations(range(3)))
def test_the_readings_count_alike(readings: list[float], order: list[int]) -> None:
    reading, mean, spread = np.float32([readings]), np.float32([-1, 0, 0.5]), np.float32([0.08, 0.06, 0.2])
    one = fuse_readings(reading, mean, spread)
    other = fuse_readings(reading[:, order], mean[order], spread[order])
    np.testing.assert_allclose(one, other, rtol=1e-5)
    deviation = (np.log(reading[0].astype(np.float64)) - mean) / spread
    # Between the mean and the largest of the deviations: one that stands out decides, several count more than one.
    assert np.exp(SPREAD * deviation.mean()) * (1 - 1e-4) <= one[0] <= np.exp(SPREAD * deviation.max()) * (1 + 1e-4)
    assert one[0] >= np.exp(SPREAD * (deviation.max() - np.log(3))) * (1 - 1e-4)


@examples
@given(
    readings=st.lists(st.floats(0.1, 10), min_size=3, max_size=3),
    softer=st.lists(st.floats(1, 1000), min_size=2, max_size=2).map(sorted),
)
def test_a_softer_map_lies_nearer_to_the_mean(readings: list[float], softer: list[float]) -> None:
    reading, mean, spread = np.float32([readings]), np.float32([-1, 0, 0.5]), np.float32([0.08, 0.06, 0.2])
    deviation = SPREAD * (np.log(reading[0].astype(np.float64)) - mean) / spread
    largest, hard, soft, softest = (
        np.log(float(fuse_readings(reading, mean, spread, softness)[0])) for softness in (1e-3, *softer, 1e3)
    )
    assert largest == pytest.approx(deviation.max(), abs=1e-3)
    assert largest >= hard - 1e-3
    assert hard >= soft - 1e-3
    assert soft >= softest - 1e-3
    # What is left is half the variance of the deviations, over the softness.
    assert softest == pytest.approx(deviation.mean(), abs=1e-3 + deviation.var() / SPREAD / 1e3)
    assert fuse_readings(reading, mean, spread, 1.0) == fuse_readings(reading, mean, spread)


@examples
@given(seed=st.integers(0, 10**6), softness=st.sampled_from([1.0, 8.0, 1000.0]))
def test_the_softness_of_the_map_changes_no_score(seed: int, softness: float) -> None:
    distances = some_distances(seed, 5, 8, 8)
    scale = reading_scale(distances, READINGS)
    one, other = fuse(distances, scale, READINGS), fuse(distances, scale, READINGS, softness=softness)
    np.testing.assert_array_equal(one.score_N, other.score_N)
    np.testing.assert_array_equal(one.reading_NR, other.reading_NR)
    assert np.all(other.map_NHW <= one.map_NHW * (1 + 1e-3))


@pytest.mark.parametrize("part", [0, 1])
def test_what_is_no_number_stays_none(part: int) -> None:
    distances = some_distances(1, 4, 8, 8)
    scale = reading_scale(distances, READINGS)
    values = distances[part]
    assert values is not None
    values[2, 1, 1] = np.nan
    fused = fuse(distances, scale, READINGS)
    assert np.isnan(fused.score_N).tolist() == [False, False, True, False]
    assert np.isnan(fused.map_NHW[2]).any()
    assert np.isfinite(fused.map_NHW[[0, 1, 3]]).all()
