from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dinosaur_ad.bench.cache import OWN, DiskCache
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


# Only what is the cache's own


def ones(photos: Sequence[Photo]) -> NDArray[np.float32]:
    return np.ones((len(photos), 100), np.float32)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for the cache's own."""
    own = folder / OWN
    files = (path for path in folder.rglob("*") if path.is_file() and own not in path.parents)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_files_of_others_in_the_given_folder_are_neither_counted_nor_removed(tmp_path: Path) -> None:
    names = ["thesis.txt", "photos/a.png", f"{'0' * 16}/00/{'0' * 32}.bin", f"{OWN}-notes/b.bin"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode() * 1000)
        os.utime(tmp_path / name, (1000, 1000))  # older than anything of the cache
    before = tree(tmp_path)
    DiskCache(tmp_path, limit=2000).features("r", Camera().photos(40), ones)
    assert tree(tmp_path) == before
    assert sum(path.stat().st_size for path in (tmp_path / OWN).rglob("*.bin")) <= 2000


def test_strange_files_within_its_own_folder_stay(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=2000)
    cache.features("r", Camera().photos(3), ones)
    shard = files(cache)[0].parent
    strange = [cache.folder / "README", shard / "notes.bin", shard / f"{'0' * 31}x.bin", shard.parent / "zz" / "a.bin"]
    for path in strange:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine" * 5000)
        os.utime(path, (1000, 1000))
    DiskCache(tmp_path, limit=1000).features("r", Camera().photos(40), ones)
    assert all(path.read_bytes() == b"mine" * 5000 for path in strange)


@pytest.mark.parametrize("level", ["own", "recipe", "shard", "file"])
def test_links_are_not_followed(level: str, tmp_path: Path) -> None:
    """Whatever is replaced by a link: nothing behind it is read, written or removed."""
    photos = Camera().photos(40)
    cache = DiskCache(tmp_path / "cache")
    cache.features("r", photos[:1], ones)
    (file,) = files(cache)
    linked = {"own": cache.folder, "recipe": file.parents[1], "shard": file.parent, "file": file}[level]
    outside = tmp_path / "outside"
    linked.rename(outside)
    for path in [outside, *outside.rglob("*")] if outside.is_dir() else [outside]:
        if path.is_file():
            path.write_bytes(path.read_bytes().replace(np.float32(1).tobytes(), np.float32(9).tobytes()))
            os.utime(path, (1000, 1000))
    before = tree(tmp_path / "outside") if outside.is_dir() else outside.read_bytes()
    linked.symlink_to(outside)
    small = DiskCache(tmp_path / "cache", limit=1000)
    np.testing.assert_array_equal(small.features("r", photos, ones), ones(photos))
    assert (tree(tmp_path / "outside") if outside.is_dir() else outside.read_bytes()) == before


@pytest.mark.parametrize("key", ["../../../escaped", "/escaped", "a" * 300, "..", "ä/ö", "0" * 31])
def test_a_key_that_is_no_hash_stays_inside(key: str, tmp_path: Path) -> None:
    key = key.replace("/escaped", f"{tmp_path}/escaped") if key.startswith("/") else key
    photo = Photo(key, lambda: np.full((30, 40, 3), 7, np.uint8))
    for _ in range(2):
        cache = DiskCache(tmp_path / "cache")
        assert cache.features("r", [photo], brightness).tolist() == [[7, 1.5]]
    assert (cache.hits, cache.misses) == (1, 0)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == files(cache)


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    cache, photos = DiskCache(tmp_path), Camera().photos(1)
    cache.features("r", photos, brightness)
    (file,) = files(cache)
    file.unlink()
    os.mkfifo(file)
    np.testing.assert_array_equal(DiskCache(tmp_path).features("r", photos, brightness), brightness(photos))


def test_a_warm_cache_can_be_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    camera = Camera()
    photos = camera.photos(3)
    expected = DiskCache(tmp_path).features("r", photos, brightness)
    camera.taken.clear()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    for name in ("utime", "unlink", "mkdir", "replace"):
        monkeypatch.setattr(os, name, refuse)
    cache = DiskCache(tmp_path, limit=1)
    np.testing.assert_array_equal(cache.features("r", photos, brightness), expected)
    assert camera.taken == []
