"""Signs of an image that does not belong: each finds what it is for, and nothing in even sets."""

from __future__ import annotations

import numpy as np
import pytest

from dinosaur_ad.core.outliers import (
    BLANK_RANGE,
    MASK_SHARE,
    SPLIT_RATIO,
    black_and_white,
    grey_histogram,
    grey_range,
    highest_neighbour_ratio,
    highest_split_ratio,
    neighbour_ratios,
    split_in_two,
)


def cloud(count: int, centre: float = 0.0, seed: int = 0) -> np.ndarray:
    """Descriptors of one product: a point on the unit sphere and a little noise."""
    middle = np.random.default_rng(7).normal(size=64)
    other = np.random.default_rng(8).normal(size=64)
    middle = middle / np.linalg.norm(middle) + centre * other / np.linalg.norm(other)
    noise = np.random.default_rng(seed).normal(0, 0.01, (count, 64))
    return (middle + noise).astype(np.float32)


@pytest.mark.parametrize("level", [0, 17, 128, 255])
def test_a_flat_image_is_blank_even_with_the_noise_of_a_sensor(level: int) -> None:
    noise = np.random.default_rng(0).normal(0, 1, (64, 64, 3))
    pixels = np.clip(level + noise, 0, 255).astype(np.uint8)
    assert grey_range(grey_histogram(pixels)) <= BLANK_RANGE
    pixels[:20, :20] = (level + 120) % 256  # a tenth of it is something
    assert grey_range(grey_histogram(pixels)) > BLANK_RANGE


def test_a_mask_is_black_and_white_and_a_photo_is_not() -> None:
    mask = np.zeros((64, 64, 3), np.uint8)
    mask[10:30, 20:50] = 255
    assert black_and_white(grey_histogram(mask)) == 1.0
    photo = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    assert black_and_white(grey_histogram(photo)) < 0.1 < MASK_SHARE


@pytest.mark.parametrize("count", [6, 20, 100])
@pytest.mark.parametrize("strays", [1, 2])
def test_strays_lie_far_from_a_quarter_of_the_others(count: int, strays: int) -> None:
    ratios = neighbour_ratios(np.concatenate([cloud(count - strays), cloud(strays, centre=0.6, seed=1)]))
    highest = highest_neighbour_ratio(count)
    assert (ratios > highest).tolist() == [False] * (count - strays) + [True] * strays


@pytest.mark.parametrize("count", [6, 20, 100])
def test_an_even_set_has_no_strays_and_no_groups(count: int) -> None:
    for seed in range(20):
        descriptors = cloud(count, seed=seed)
        assert neighbour_ratios(descriptors).max() < highest_neighbour_ratio(count)
        assert split_in_two(descriptors)[0] < highest_split_ratio(count) <= SPLIT_RATIO


def test_brightness_that_varies_evenly_is_one_group() -> None:
    for seed in range(50):
        gains = np.random.default_rng(seed).uniform(0.8, 1.2, 40)
        assert split_in_two((cloud(1) * gains[:, None]).astype(np.float32))[0] < SPLIT_RATIO


@pytest.mark.parametrize("second", [4, 10, 16])
def test_two_products_are_two_groups(second: int) -> None:
    descriptors = np.concatenate([cloud(20 - second), cloud(second, centre=0.5, seed=1)])
    ratio, smaller = split_in_two(descriptors)
    assert ratio > SPLIT_RATIO
    assert smaller.sum() == min(second, 20 - second)
    assert len(set(smaller[: 20 - second].tolist())) == len(set(smaller[20 - second :].tolist())) == 1


def test_twins_do_not_set_the_scale() -> None:
    """Fifteen frames of one part that did not move, and five that did."""
    descriptors = np.concatenate([np.repeat(cloud(1), 15, axis=0), cloud(5, seed=3)])
    assert neighbour_ratios(descriptors).max() < highest_neighbour_ratio(20)
    assert split_in_two(descriptors)[0] < SPLIT_RATIO


def test_equal_images_are_neither() -> None:
    same = np.zeros((8, 4), np.float32)
    assert neighbour_ratios(same).tolist() == [1.0] * 8
    assert split_in_two(same)[0] == 0.0
