"""Moved copies: remembered with the images, named after them, and never a help to calibrate the image they show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detector_helpers import TINY, product, spoil, tiny
from dinosaur_ad import Dinosaur
from dinosaur_ad.bank.building import BankBuilder
from dinosaur_ad.bank.image_features import ImageFeatures
from dinosaur_ad.bank.learning_block import COARSE_SHARE, Copies
from dinosaur_ad.bank.teaching import MOST_COPIES, copy_plan, moved_pixels
from dinosaur_ad.core.coreset import coreset_size
from dinosaur_ad.images.alignment import moved_copy


def unlike_images(images: int) -> ImageFeatures:
    """Images of which each has one patch that nothing else resembles."""
    rng = np.random.default_rng(0)
    patches = rng.normal(scale=0.01, size=(images, 3, 3, images)).astype(np.float32)
    patches[np.arange(images), np.arange(images) % 3, np.arange(images) // 3 % 3, np.arange(images)] = 10
    return ImageFeatures(
        [f"image-{n}" for n in range(images)],
        [f"1:{n:032x}" for n in range(images)],
        patches,
        patches.mean(axis=(1, 2)),
        np.zeros((images, 192), np.float32),
        [200] * images,
        [0.0] * images,
        [np.zeros((8, 8, 3), np.uint8)] * images,
    )


def copied(features: ImageFeatures, times: int) -> Copies:
    """Copies that are exactly the images: what remembers one would give its image a score of nothing."""
    count = len(features.names)
    return Copies(np.concatenate([features.patches_NHWC] * times), np.tile(np.arange(count), times))


def learned(features: ImageFeatures, copies: Copies | None, **settings: Any) -> BankBuilder:
    builder = BankBuilder(replace(TINY, exposure=False, **settings), 0, "unseen")
    builder.add(features, copies)
    return builder


@pytest.mark.parametrize("images", [2, 7, 20])
def test_no_image_is_calibrated_with_a_copy_of_itself(images: int) -> None:
    features = unlike_images(images)
    builder = learned(features, copied(features, 3))
    point = builder.calibration.maps()["point"]
    assert sorted(builder.calibration.scored) == list(range(images))
    assert np.all(point.max(axis=(1, 2)) > 9)


def test_no_image_of_an_update_is_calibrated_with_a_copy_of_itself() -> None:
    features = unlike_images(12)
    builder = BankBuilder(replace(TINY, exposure=False, budget=None, precision="float32"), 0, "unseen")
    for rows in (np.arange(8), np.arange(8, 12)):
        some = features.some(rows)
        builder.add(some, copied(some, 2))
    point = builder.calibration.maps()["point"]
    assert sorted(builder.calibration.scored) == list(range(12))
    assert np.all(point[8:].max(axis=(1, 2)) > 9)


@pytest.mark.parametrize("times", [0, 1, 3])
def test_members_come_from_images_and_copies_and_name_the_image(times: int) -> None:
    features = unlike_images(30)
    builder = learned(features, copied(features, times) if times else None, minimum=5)
    bank = builder.files()["bank"]
    assert builder.copies == 30 * times
    assert builder.members == coreset_size(30, TINY.ratio, 5) == 12
    for name in ("source", "coarse_source"):
        assert int(bank[name].max()) < 30
    assert bank["source"].shape[2] == 12
    assert bank["coarse_source"].shape[2] == min(COARSE_SHARE * 12, 30 * (1 + times))
    if times:  # each image is there as often as it is copied: a greedy choice takes none twice
        assert all(len(set(row.tolist())) == 12 for row in bank["source"].reshape(9, 12))


def test_members_are_as_many_as_the_images_ask_for_with_copies_to_choose_from() -> None:
    """Few images would not fill the least number of members; their copies do."""
    few = unlike_images(4)
    assert learned(few, None).members == 4
    assert learned(few, copied(few, 3)).members == 16
    assert learned(few, copied(few, 9)).members == TINY.minimum


def test_sources_are_those_of_the_copied_image(tmp_path: Path) -> None:
    detector = tiny(tmp_path)
    detector.learn("x", product(0, 6))
    record = detector.store.record("x")
    source = detector.store.arrays(record, "bank")["source"]
    assert record.manifest["members"] == source.shape[2] == 20
    assert record.manifest["bank"]["copies"] == 18
    assert len(record.manifest["images"]) == 6
    assert set(np.unique(source).tolist()) == set(range(6))
    assert detector.inspect(spoil(product(0, 1, seed=5)[0])).worst.like_image in record.manifest["images"]


def test_a_part_that_lies_a_little_aside_scores_less_with_copies() -> None:
    images, asked = product(0, 8), [np.roll(image, 1, axis=1) for image in product(0, 8, seed=9)]
    medians = []
    for copies in (0, 3):
        detector = tiny(preset=replace(TINY, copies=copies))
        detector.learn("x", images)
        medians.append(float(np.median([each.level for each in detector.inspect(asked)])))
    assert medians[1] < medians[0]


def test_updates_copy_up_to_the_limit_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dinosaur_ad.bank.teaching.MOST_COPIES", 20)
    detector = tiny()
    detector.learn("x", product(0, 5))
    assert detector.tasks()[0].manifest["bank"]["copies"] == 15
    detector.update("x", product(0, 5, seed=1))
    assert detector.tasks()[0].manifest["bank"]["copies"] == 20
    detector.update("x", product(0, 5, seed=2))
    assert detector.tasks()[0].manifest["bank"]["copies"] == 20
    assert len(detector.tasks()[0].manifest["images"]) == 15


@pytest.mark.parametrize("images", [1, 7, 199, 200, 450, 5000])
def test_every_image_is_copied_before_one_is_copied_twice(images: int) -> None:
    plan = copy_plan(images, TINY)
    assert len(plan) == min(3 * images, MOST_COPIES)
    assert len(set(plan)) == len(plan)
    assert [turn for turn, _ in plan] == sorted(turn for turn, _ in plan)
    for turn in range(plan[-1][0]):
        assert [n for own, n in plan if own == turn] == list(range(images))
    assert copy_plan(images, replace(TINY, copies=0)) == []


def test_copies_depend_on_the_image_alone() -> None:
    first, second = product(0, 2)
    np.testing.assert_array_equal(moved_pixels(first, 1), moved_pixels(first.copy(), 1))
    assert not np.array_equal(moved_pixels(first, 1), moved_pixels(first, 2))
    assert not np.array_equal(moved_pixels(first, 1), moved_pixels(second, 1))


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_is_the_image_moved_a_little(seed: int) -> None:
    image = product(0, 1, size=140)[0]
    moved = moved_copy(image, np.random.default_rng(seed))
    assert moved.shape == image.shape
    assert moved.dtype == np.uint8
    assert not np.array_equal(moved, image)
    inner, other = image[30:-30, 30:-30].astype(float), product(1, 1, size=140)[0][30:-30, 30:-30].astype(float)
    away = np.abs(moved[30:-30, 30:-30] - inner).mean()
    assert away < 0.6 * np.abs(other - inner).mean()


def test_copies_can_be_turned_off_and_a_store_says_so(tmp_path: Path) -> None:
    tiny(tmp_path, preset=replace(TINY, copies=0)).learn("x", product(0, 6))
    opened = Dinosaur(tmp_path)
    assert opened.preset.copies == 0
    assert opened.tasks()[0].manifest["bank"]["copies"] == 0
    assert opened.tasks()[0].manifest["members"] == 6
