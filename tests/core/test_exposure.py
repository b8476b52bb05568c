"""Brightness: what a lamp does to an image is undone, what a part looks like is not."""

from __future__ import annotations

import numpy as np
import pytest
from core_helpers import examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core.exposure import (
    LEAST_GAIN,
    MEAN_STEP,
    MOST_GAIN,
    SPREAD_STEP,
    Exposure,
    ExposureRange,
    exposure_gain,
    match_exposure,
    measure_exposure,
    thumbnails,
    unusual_light,
    usual_exposure,
)

Pixels = NDArray[np.uint8]


def photo(seed: int, mean: float = 120, spread: float = 25, shape: tuple[int, int] = (40, 56)) -> Pixels:
    """A grey image of coarse cells and fine noise, of about that mean and spread; well inside of black and white."""
    rng = np.random.default_rng(seed)
    cells = np.kron(rng.uniform(-1, 1, (5, 7)), np.ones((8, 8)))[: shape[0], : shape[1]]
    values = cells / cells.std() + rng.uniform(-0.2, 0.2, shape)
    grey = np.clip(mean + spread * (values - values.mean()) / values.std(), 0, 255)
    return np.repeat(np.rint(grey).astype(np.uint8)[..., None], 3, axis=2)


def measured(image: Pixels) -> tuple[float, float]:
    mean, spread = measure_exposure(image[None])[0].tolist()
    return mean, spread


@examples
@given(seed=st.integers(0, 10**6), count=st.integers(1, 3))
def test_it_is_the_mean_and_spread_of_the_grey(seed: int, count: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 7, 9, 3), np.uint8)
    grey = pixels.astype(int).sum(axis=3) // 3
    expected = np.stack([grey.mean(axis=(1, 2)), grey.std(axis=(1, 2))], axis=1)
    np.testing.assert_allclose(measure_exposure(pixels), expected, rtol=1e-5, atol=1e-3)


@examples
@given(
    seed=st.integers(0, 10**6),
    mean=st.floats(80, 170),
    spread=st.floats(12, 30),
    target=st.tuples(st.sampled_from([96.0, 112.0, 144.0]), st.sampled_from([16.0, 24.0])),
)
def test_a_matched_image_has_the_exposure_of_the_target(
    seed: int, mean: float, spread: float, target: tuple[float, float]
) -> None:
    image = photo(seed, mean, spread)
    matched = match_exposure(image[None], measure_exposure(image[None]), Exposure(*target))[0]
    assert int(matched.min()) > 0
    assert int(matched.max()) < 255
    np.testing.assert_allclose(measured(matched), target, atol=0.6)


@examples
@given(seed=st.integers(0, 10**6), light=st.floats(0.6, 1.4))
def test_another_light_gives_the_same_pixels(seed: int, light: float) -> None:
    image, target = photo(seed), Exposure(112.0, 24.0)
    lit = np.clip(np.rint(light * image.astype(np.float64)), 0, 255).astype(np.uint8)
    both = np.stack([image, lit])
    one, other = match_exposure(both, measure_exposure(both), target).astype(int)
    assert np.abs(one - other).max() <= 2


@examples
@given(seed=st.integers(0, 10**6))
def test_colours_and_defects_stay(seed: int) -> None:
    """One table for all pixels of an image: what was brighter or redder stays so, and what was alike stays alike."""
    image = photo(seed)
    image[10:20, 10:20] = (150, 90, 60)
    matched = match_exposure(image[None], measure_exposure(image[None]), Exposure(128.0, 32.0))[0]
    order = np.argsort(image.ravel(), kind="stable")
    assert np.all(np.diff(matched.ravel()[order].astype(int)) >= 0)
    red, green, blue = matched[15, 15].tolist()
    assert red > green > blue


@examples
@given(spread=st.floats(0, 128), target=st.floats(8, 128))
def test_the_gain_is_limited(spread: float, target: float) -> None:
    gain = float(exposure_gain(np.float32([spread]), Exposure(128.0, target))[0])
    assert LEAST_GAIN - 1e-6 <= gain <= MOST_GAIN + 1e-6
    if spread > 0 and LEAST_GAIN < target / spread < MOST_GAIN:
        assert gain == pytest.approx(target / spread, rel=1e-5)


def test_an_image_without_contrast_stays_without() -> None:
    blank = np.full((1, 8, 8, 3), 40, np.uint8)
    matched = match_exposure(blank, measure_exposure(blank), Exposure(112.0, 32.0))
    assert matched.tolist() == np.full((1, 8, 8, 3), 112).tolist()


@examples
@given(seed=st.integers(0, 10**6), count=st.integers(1, 9))
def test_the_usual_exposure_is_the_rounded_median(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    exposure = np.stack([rng.uniform(0, 255, count), rng.uniform(0, 100, count)], axis=1).astype(np.float32)
    mean, spread = usual_exposure(exposure)
    middle = np.median(exposure, axis=0)
    assert mean % MEAN_STEP == 0
    assert abs(mean - middle[0]) <= MEAN_STEP / 2 + 1e-3
    assert spread % SPREAD_STEP == 0
    assert spread >= SPREAD_STEP
    assert abs(spread - max(float(middle[1]), SPREAD_STEP)) <= SPREAD_STEP / 2 + 1e-3


def test_a_black_task_has_a_spread_to_divide_by() -> None:
    assert usual_exposure(np.zeros((3, 2), np.float32)) == Exposure(0.0, float(SPREAD_STEP))


@examples
@given(seed=st.integers(0, 10**6), gain=st.floats(0.5, 1.3), offset=st.floats(-15, 15))
def test_thumbnails_do_not_depend_on_light(seed: int, gain: float, offset: float) -> None:
    image = photo(seed)
    lit = np.clip(np.rint(gain * image.astype(np.float64) + offset), 0, 255).astype(np.uint8)
    one, other = thumbnails(np.stack([image, lit]))
    np.testing.assert_allclose(one, other, atol=0.05)


@examples
@given(seed=st.integers(0, 10**6), height=st.integers(8, 40), width=st.integers(8, 40))
def test_thumbnails_are_the_means_of_cells(seed: int, height: int, width: int) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    cells = np.empty((8, 8, 3))
    for i, j in np.ndindex(8, 8):
        rows = slice(i * height // 8, (i + 1) * height // 8)
        columns = slice(j * width // 8, (j + 1) * width // 8)
        cells[i, j] = image[rows, columns].mean(axis=(0, 1))
    expected = (cells - cells.mean()) / max(float(cells.std()), 1.0)
    np.testing.assert_allclose(thumbnails(image[None])[0], expected.ravel(), atol=1e-4)


def test_thumbnails_tell_products_apart() -> None:
    same, lit, other = thumbnails(np.stack([photo(1), (0.7 * photo(1)).astype(np.uint8), photo(2)]))
    assert np.linalg.norm(same - lit) < 0.2 * np.linalg.norm(same - other)


def test_a_blank_thumbnail_is_finite() -> None:
    assert np.all(thumbnails(np.full((1, 16, 16, 3), 255, np.uint8)) == 0)


exposures = st.lists(st.tuples(st.floats(0, 255), st.floats(0, 127)), min_size=1, max_size=8)


@examples
@given(images=exposures, images_more=exposures, count=st.integers(1, 100))
def test_no_image_of_a_range_is_in_unusual_light(
    images: list[tuple[float, float]], images_more: list[tuple[float, float]], count: int
) -> None:
    exposure_N2, more_N2 = np.float32(images), np.float32(images_more)
    usual = ExposureRange.of(exposure_N2).with_images(more_N2)
    assert usual == ExposureRange.of(more_N2).with_images(exposure_N2)
    assert all(unusual_light(each, usual, count) is None for each in (*exposure_N2, *more_N2))


@pytest.mark.parametrize(
    ("exposure", "how"),
    [((50, 30), "darker"), ((200, 30), "brighter"), ((110, 8), "flatter"), ((110, 80), "harsher")],
)
def test_light_far_outside_the_range_is_named(exposure: tuple[float, float], how: str) -> None:
    usual = ExposureRange(Exposure(100.0, 25.0), Exposure(120.0, 35.0))
    found = unusual_light(np.float32(exposure), usual, 20)
    assert found is not None
    assert found.how == how
    assert 1.5 < found.ratio < 2.5


def test_few_images_say_less_about_what_is_usual() -> None:
    usual = ExposureRange(Exposure(100.0, 25.0), Exposure(120.0, 35.0))
    darker = np.float32([100 / 1.75, 25])
    assert unusual_light(darker, usual, 19) is None
    assert unusual_light(darker, usual, 20) is not None


def test_near_black_a_few_grey_levels_are_nothing() -> None:
    usual = ExposureRange(Exposure(3.0, 2.0), Exposure(4.0, 3.0))
    assert unusual_light(np.float32([1, 1]), usual, 20) is None
