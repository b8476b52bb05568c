from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dinosaur_ad.bench.cache import DiskCache
from dinosaur_ad.encoders import prepare
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Photo


class Camera:
    """Photos that count how often they are looked at."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def photo(self, number: int) -> Photo:
        def load() -> NDArray[np.uint8]:
            self.taken.append(str(number))
            return np.full((30, 40, 3), number, np.uint8)

        return Photo(f"{number:032x}", load)

    def photos(self, count: int) -> list[Photo]:
        return [self.photo(number) for number in range(count)]


def brightness(photos: Sequence[Photo]) -> NDArray[np.float32]:
    return np.asarray([[photo.pixels().mean(), 1.5] for photo in photos], np.float32)


def files(cache: DiskCache) -> list[Path]:
    return [path for path in cache.folder.rglob("*") if path.is_file()]


def test_features_are_computed_once_and_in_order(tmp_path: Path) -> None:
    camera = Camera()
    photos = camera.photos(9)
    first = DiskCache(tmp_path).features("r", photos[:6], brightness)
    np.testing.assert_array_equal(first, brightness(photos[:6]))
    camera.taken.clear()
    cache = DiskCache(tmp_path)
    mixed = cache.features("r", photos[::-1], brightness)
    np.testing.assert_array_equal(mixed[:, 0], np.arange(9)[::-1])
    assert sorted(camera.taken) == ["6", "7", "8"]
    assert (cache.hits, cache.misses) == (6, 3)


def test_twins_are_computed_once(tmp_path: Path) -> None:
    camera = Camera()
    rows = DiskCache(tmp_path).features("r", [camera.photo(3), camera.photo(3)], brightness)
    assert rows.tolist() == [[3, 1.5], [3, 1.5]]
    assert camera.taken == ["3"]


def test_another_recipe_is_another_file(tmp_path: Path) -> None:
    cache, photos = DiskCache(tmp_path), Camera().photos(2)
    cache.features("one", photos, brightness)
    doubled = cache.features("two", photos, lambda batch: 2 * brightness(batch))
    np.testing.assert_array_equal(doubled, 2 * brightness(photos))


def test_prepared_images_are_what_the_encoder_would_see(tmp_path: Path) -> None:
    camera = Camera()
    photos = camera.photos(5)
    expected = prepare([photo.pixels() for photo in photos], 14)
    for _ in range(2):
        np.testing.assert_array_equal(DiskCache(tmp_path).prepared(photos, 14), expected)
    assert len(camera.taken) == 10  # five for the expectation, five for the first time


def test_the_first_prepared_images_stay_in_memory_and_nobody_can_change_them(tmp_path: Path) -> None:
    camera, size = Camera(), 14
    photos = camera.photos(5)
    expected = prepare([photo.pixels() for photo in photos], size)
    cache = DiskCache(tmp_path, memory=3 * 3 * size**2)
    for _ in range(3):
        found = cache.prepared(photos, size)
        np.testing.assert_array_equal(found, expected)
        found[:] = 0
    for path in files(cache):
        path.unlink()
    camera.taken.clear()
    np.testing.assert_array_equal(cache.prepared(photos, size), expected)
    assert sorted(camera.taken) == ["3", "4"]  # the first three are held, the others were on disk only
    np.testing.assert_array_equal(cache.prepared(photos, 28), prepare([photo.pixels() for photo in photos], 28))


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-9], lambda data: data[:9] + b"!" + data[10:]])
def test_a_damaged_file_is_computed_again(tmp_path: Path, damage: object) -> None:
    cache, photos = DiskCache(tmp_path), Camera().photos(3)
    cache.features("r", photos, brightness)
    for path in files(cache):
        path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    np.testing.assert_array_equal(cache.features("r", photos, brightness), brightness(photos))
    assert cache.misses == 6


def test_the_limit_holds_and_the_longest_unused_go_first(tmp_path: Path) -> None:
    def ones(batch: Sequence[Photo]) -> NDArray[np.float32]:
        return np.ones((len(batch), 100), np.float32)

    photos = Camera().photos(41)
    cache = DiskCache(tmp_path)
    cache.features("r", photos[:40], ones)
    size = files(cache)[0].stat().st_size
    for age, path in enumerate(sorted(files(cache))):
        os.utime(path, (1000 + age, 1000 + age))
    small = DiskCache(tmp_path, limit=20 * size)
    small.features("r", [photos[0], photos[40]], ones)  # the first was used just now: it must stay
    left = {path.stem for path in files(cache)}
    assert 0 < len(left) <= 20
    assert photos[0].key in left
    assert photos[39].key in left
    assert photos[1].key not in left


def test_no_limit_means_no_files(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", limit=0)
    cache.features("r", Camera().photos(3), brightness)
    cache.prepared(Camera().photos(3), 14)
    assert files(cache) == []


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    photos = Camera().photos(3)
    np.testing.assert_array_equal(DiskCache(tmp_path / "cache").features("r", photos, brightness), brightness(photos))


def test_an_image_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    def broken() -> NDArray[np.uint8]:
        raise InputError("'a.png' is damaged.")

    with pytest.raises(InputError, match=r"a\.png"):
        DiskCache(tmp_path).prepared([Photo("0" * 32, broken)], 14)
