"""The control: one number of an image, and nothing hidden in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Lesson, Method, Photo, Workbench, get_method


def grey(*levels: float) -> tuple[Photo, ...]:
    """Photos of noise around these levels: their mean is not that of their middle."""
    made = []
    for number, level in enumerate(levels):
        noise = np.random.default_rng(number).normal(0, 5, (16, 24, 3))
        pixels = np.clip(level + noise - noise.mean(), 0, 255).round().astype(np.uint8)
        made.append(Photo(f"{level}-{number}", lambda pixels=pixels: pixels))  # type: ignore[misc]
    return tuple(made)


def taught(variant: str = "photometer", **settings: float) -> Method:
    method = get_method(variant).with_settings(settings).build(Workbench())
    method.learn(Lesson("dark", grey(38, 40, 42)))
    method.learn(Lesson("light", grey(190, 200, 210)))
    return method


def test_the_score_is_the_distance_from_the_nearest_task_in_its_own_spread() -> None:
    photos = grey(40, 45, 200, 180, 120)
    scores = taught().score(photos)
    means = np.array([photo.pixels().mean() for photo in photos])
    dark, light = (
        np.array([photo.pixels().mean() for photo in grey(*levels)]) for levels in ((38, 40, 42), (190, 200, 210))
    )
    literal = [min(abs(mean - dark.mean()) / dark.std(), abs(mean - light.mean()) / light.std()) for mean in means]
    np.testing.assert_allclose(scores.image, literal, rtol=1e-5, atol=1e-5)
    assert scores.routes == ("dark", "dark", "light", "light", "light")
    assert scores.maps is None


def test_told_the_task_it_compares_with_that_one() -> None:
    (score,) = taught().score(grey(200), "dark").image
    assert score > 90


def test_the_signed_form_is_the_brightness_itself_whatever_the_task() -> None:
    method, photos = taught("photometer:signed"), grey(10, 100, 250)
    means = [photo.pixels().mean() for photo in photos]
    np.testing.assert_allclose(method.score(photos).image, means, rtol=1e-6)
    np.testing.assert_array_equal(method.score(photos, "light").image, method.score(photos, "dark").image)


def test_about_all_training_images_are_below_the_threshold() -> None:
    for variant in ("photometer", "photometer:signed"):
        method = get_method(variant).build(Workbench())
        photos = grey(*np.linspace(80, 120, 41))
        method.learn(Lesson("task", photos))
        scores = method.score(photos)
        assert scores.thresholds is not None
        assert 0 < (scores.image > scores.thresholds).sum() <= 2


def test_images_that_are_all_the_same_give_no_nan() -> None:
    method = get_method("photometer").build(Workbench())
    photo = Photo("flat", lambda: np.full((8, 8, 3), 7, np.uint8))
    method.learn(Lesson("flat", (photo,)))
    assert method.score([photo]).image.tolist() == [0.0]
    assert np.isfinite(method.score(grey(200)).image).all()


def test_wrong_use_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"least_spread must be above 0, got 0\.0"):
        get_method("photometer").with_settings({"least_spread": "0"})
    fresh = get_method("photometer").build(Workbench())
    with pytest.raises(InputError, match="has learned no task yet; call learn first"):
        fresh.score(grey(1))
    with pytest.raises(InputError, match="'empty' has no training images; give at least one normal"):
        fresh.learn(Lesson("empty", ()))
    with pytest.raises(InputError, match="at least one image to score, got none"):
        taught().score([])
    with pytest.raises(InputError, match="has not learned the task 'grey'; choose from: dark, light"):
        taught().score(grey(1), "grey")
    taught().save(tmp_path)
    with pytest.raises(InputError, match="was made with"):
        get_method("photometer:signed").build(Workbench()).load(tmp_path)
