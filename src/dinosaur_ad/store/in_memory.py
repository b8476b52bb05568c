"""The files of a store in memory, for a detector without a folder."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from dinosaur_ad.store.codec import Array
from dinosaur_ad.store.task_lock import TaskLock


class MemoryFiles:
    """The same as :class:`~dinosaur_ad.store.disk.Disk`, where nothing is on disk."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[int, bytes]] = {}
        self._changes = itertools.count()
        self._lock = threading.RLock()
        self._task_locks: dict[str, TaskLock] = {}

    def __str__(self) -> str:
        return "(in memory)"

    @contextmanager
    def lock(self) -> Iterator[set[tuple[str, int]] | None]:
        """Keep other threads out; no writer leaves rubbish, because each removes its own."""
        with self._lock:
            yield None

    def note(self, name: str, versions: Iterable[int]) -> None:
        """Nothing to note: a crash leaves nothing at all."""

    def task_lock(self, name: str) -> TaskLock:
        """Return the lock for teaching a task."""
        return self._task_locks.setdefault(name, TaskLock(None))

    def read(self, path: str, limit: int) -> bytes:
        """Return the content of a file of at most so many bytes."""
        try:
            data = self._files[path][1]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        if len(data) > limit:
            raise ValueError(f"it has {len(data)} bytes, and {limit} is the most that is read")
        return data

    def load(self, path: str, size: int) -> Array:
        """Return the bytes of a file (uint8, 1-D) of a known size."""
        data = self.read(path, limit=2**63)
        if len(data) != size:
            raise ValueError(f"it has {len(data)} bytes instead of {size}")
        return np.frombuffer(data, np.uint8)

    def stamp(self, path: str) -> Hashable | None:
        """Return the number of the change that wrote a file, None if there is no such file."""
        found = self._files.get(path)
        return None if found is None else found[0]

    def children(self, path: str) -> list[str]:
        """Return the names in a folder; none if there is no such folder."""
        inside = (each.removeprefix(f"{path}/") for each in list(self._files) if each.startswith(f"{path}/"))
        return sorted({each.partition("/")[0] for each in inside})

    def write(self, path: str, data: bytes) -> None:
        """Write or replace a file."""
        self._files[path] = (next(self._changes), data)

    def move(self, path: str, target: str) -> None:
        """Give a file another name."""
        self._files[target] = self._files.pop(path)

    def move_folder(self, path: str, target: str) -> None:
        """Give a folder a name that is free."""
        self._files = {
            f"{target}/{each.removeprefix(f'{path}/')}" if each.startswith(f"{path}/") else each: found
            for each, found in self._files.items()
        }

    def unlink(self, path: str) -> None:
        """Remove one file."""
        del self._files[path]

    def discard(self, path: str) -> list[str]:
        """Remove one file that nothing names; all of these return the paths they removed."""
        return [path] if self._files.pop(path, None) else []

    def discard_temporaries(self, path: str) -> list[str]:
        """Nothing to remove: there are no temporary files."""
        return []

    def discard_version(self, path: str) -> list[str]:
        """Remove the folder of a version."""
        inside = [each for each in list(self._files) if each.startswith(f"{path}/")]
        for each in inside:
            del self._files[each]
        return [path] if inside else []

    def discard_folder(self, path: str) -> list[str]:
        """A folder without files is not there."""
        return []
