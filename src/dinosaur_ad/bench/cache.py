"""A cache on disk of prepared images and their features.

Everything is filed under the content key of its image and the recipe that made it, so nothing stale is ever found:
another drift is another key, another encoder another recipe. One file an image, least recently used ones go first when
the limit is reached. Several processes may share a cache: a file appears whole, and whoever finds one damaged or gone
computes it again.

All files are in a sub-folder of the given folder (:data:`OWN`), under names of one pattern. Nothing else is ever
counted, read or removed: not what lies beside them, and nothing that a link leads to.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._plain import read_plain
from dinosaur_ad.encoders import prepare
from dinosaur_ad.methods.contract import Floats, Photo
from dinosaur_ad.methods.shared.pixel_cache import PixelCache

OWN = "dinosaur-cache-1"
"""The folder of the cache; its number goes up when the file format changes."""

DEFAULT_LIMIT = 20 * 10**9
# Bytes of prepared images held in memory for a GPU, which scores faster than files are read: all of a drift scenario
# at 336 pixels.
GPU_MEMORY = 5 * 10**9
# Photos whose features are computed before they are filed: bounds memory, and what an interruption loses.
COMPUTE_AT_ONCE = 256
# Below the limit by this share after a clean-up, so that not every new file starts another.
_ROOM = 0.1
_CRC = 4
LARGEST_ENTRY = 2**30
"""Bytes; nothing that is computed of one image is larger."""
# What the cache makes: a folder a recipe, in it a folder for the first two digits of a key, in it files.
_RECIPE, _SHARD = re.compile(r"[0-9a-f]{16}"), re.compile(r"[0-9a-f]{2}")
_FILE = re.compile(r"[0-9a-f]{32}\.bin|\.[0-9a-f]{32}\.tmp")
_KEY = re.compile(r"[0-9a-f]{32}")

Progress = Callable[[str, int, int], None]


class DiskCache:
    """A cache below a folder. ``limit`` is in bytes; ``progress`` is called with ("encoding", done, total).

    Prepared images are also held in memory, up to ``memory`` bytes of them.
    """

    def __init__(
        self, folder: Path, limit: int = DEFAULT_LIMIT, progress: Progress | None = None, memory: int = 0
    ) -> None:
        self.folder = folder / OWN
        self.limit = limit
        self._held = PixelCache(memory)
        self.hits = self.misses = 0
        self._progress = progress or (lambda what, done, total: None)
        self._bytes: int | None = None

    def prepared(self, photos: Sequence[Photo], size: int) -> NDArray[np.uint8]:
        """The photos as an encoder sees them, (N, size, size, 3) uint8; new ones are read or drawn in parallel."""
        shape = (size, size, 3)
        pixels = np.empty((len(photos), *shape), np.uint8)
        missing = []
        for index, photo in enumerate(photos):
            held = self._held.get((size, photo.key))
            if held is None:
                missing.append(index)
            else:
                pixels[index] = held
        if not missing:
            return pixels

        def fill(index: int) -> None:
            photo = photos[index]
            found = self._read(f"prepared-{size}", photo.key, np.uint8, shape)
            if found is None:
                found = prepare([photo.pixels()], size)[0]
                self._write(f"prepared-{size}", photo.key, found)
            pixels[index] = found

        with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1), thread_name_prefix="prepare") as pool:
            list(pool.map(fill, missing))  # list: an error in a thread is raised here
        for index in missing:
            self._held.add((size, photos[index].key), pixels[index])
        self._make_room()
        return pixels

    def features(self, recipe: str, photos: Sequence[Photo], compute: Callable[[Sequence[Photo]], Floats]) -> Floats:
        """``compute(photos)``, float32 with N as first axis, computing only what is not here yet."""
        found = {photo.key: self._read(recipe, photo.key, np.float32) for photo in photos}
        missing = list({photo.key: photo for photo in photos if found[photo.key] is None}.values())
        self.hits += len(photos) - len(missing)
        self.misses += len(missing)
        for start in range(0, len(missing), COMPUTE_AT_ONCE):
            self._progress("encoding", start, len(missing))
            group = missing[start : start + COMPUTE_AT_ONCE]
            for photo, row in zip(group, compute(group), strict=True):
                found[photo.key] = row
                self._write(recipe, photo.key, row)
            self._make_room()
        if missing:
            self._progress("encoding", len(missing), len(missing))
        return np.stack([row for photo in photos if (row := found[photo.key]) is not None])

    # --- files: a header line with the shape, the values, and their checksum ---

    def _path(self, recipe: str, key: str) -> Path | None:
        """Where a value is or would be; None where a link in place of one of the cache's folders leads elsewhere."""
        name = key if _KEY.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()[:32]
        shard = self.folder / hashlib.sha256(recipe.encode()).hexdigest()[:16] / name[:2]
        if any(folder.is_symlink() for folder in (shard, shard.parent, self.folder)):
            return None
        return shard / f"{name}.bin"

    def _read(self, recipe: str, key: str, dtype: type, shape: tuple[int, ...] | None = None) -> NDArray[Any] | None:
        path = self._path(recipe, key)
        if path is None:
            return None
        try:
            content = read_plain(path, LARGEST_ENTRY, follow=False)
            header, _, body = content.partition(b"\n")
            stored = tuple(int(side) for side in header.split())
            values, crc = body[:-_CRC], body[-_CRC:]
            if zlib.crc32(values).to_bytes(_CRC, "big") != crc or (shape is not None and stored != shape):
                raise ValueError("damaged")
            array: NDArray[Any] = np.frombuffer(values, dtype).reshape(stored)
        except OSError:  # not there, not readable, or no file: the value is computed
            return None
        except ValueError:
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):  # a read-only cache works too, it only cannot tell what was used last
            os.utime(path)
        return array

    def _write(self, recipe: str, key: str, array: NDArray[Any]) -> None:
        path = self._path(recipe, key)
        if self.limit <= 0 or path is None:
            return
        values = np.ascontiguousarray(array).tobytes()
        header = " ".join(map(str, array.shape)).encode() + b"\n"
        temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
        # Renamed but not synced: what a power cut spoils, the checksum finds.
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(header + values + zlib.crc32(values).to_bytes(_CRC, "big"))
            temporary.replace(path)
        except OSError:  # a full disk must not end a run that could do without a cache
            with suppress(OSError):
                temporary.unlink()
            return
        if self._bytes is not None:
            self._bytes += len(header) + len(values) + _CRC

    def _make_room(self) -> None:
        if self._bytes is not None and self._bytes <= self.limit:
            return
        files = sorted(_own_files(self.folder), reverse=True)
        self._bytes = sum(size for _, size, _ in files)
        allowed = self.limit if self._bytes <= self.limit else int(self.limit * (1 - _ROOM))
        while files and self._bytes > allowed:
            _, size, path = files.pop()  # the one longest unused
            with suppress(OSError):
                Path(path).unlink()
            self._bytes -= size


def _own_files(folder: Path) -> Iterator[tuple[int, int, str]]:
    """The cache's files: when each was last used, its size, and its path. Links are not followed."""
    if folder.is_symlink():
        return
    for recipe in _entries(os.fspath(folder), _RECIPE):
        for shard in _entries(recipe.path, _SHARD) if recipe.is_dir(follow_symlinks=False) else ():
            for file in _entries(shard.path, _FILE) if shard.is_dir(follow_symlinks=False) else ():
                with suppress(OSError):
                    status = file.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield status.st_mtime_ns, status.st_size, file.path


def _entries(folder: str, names: re.Pattern[str]) -> list[os.DirEntry[str]]:
    """What is in a folder under such a name; nothing where it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if names.fullmatch(entry.name)]
    except OSError:
        return []
