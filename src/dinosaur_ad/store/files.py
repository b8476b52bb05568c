"""Where the files of a store are: in a folder or in memory. Nothing here knows what a task is."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import shutil
import threading
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import filelock
import numpy as np

from dinosaur_ad._atomic import UnconfirmedError, remove_atomic, sha256_file, write_atomic
from dinosaur_ad.errors import StoreError
from dinosaur_ad.store.codec import Array
from dinosaur_ad.store.turns import Turn

LOCK = ".lock"
LOCKS = ".locks"
WRITER = ".writer"
LOCK_TIMEOUT = 10.0
"""Seconds to wait for another writer; a change holds the lock for as long as writing a bank takes."""


@contextmanager
def write_errors(where: object) -> Iterator[None]:
    """Turn the operating system's refusal to write into the sentence the user sees."""
    try:
        yield
    except UnconfirmedError as error:
        raise StoreError(
            f"The change to the store {where} was made, but the disk did not confirm it ({reason(error)}), "
            "so it may not survive a power cut; check the disk."
        ) from error
    except OSError as error:
        if error.errno in {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}:
            advice = "free some space and try again"
        elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            advice = "check its permissions or choose another folder"
        else:
            advice = "check the disk and try again"
        raise StoreError(
            f"The store {where} could not be written ({reason(error)}) and was left as it was; {advice}."
        ) from error


def reason(error: OSError | ValueError) -> str:
    """Return why a file could not be used, in a few words."""
    words = error.strerror if isinstance(error, OSError) else None
    return words or str(error) or type(error).__name__


class Disk:
    """The files of a store in a folder. Paths are relative to it; what is written is durable on return."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = filelock.FileLock(root / LOCK, timeout=LOCK_TIMEOUT)
        self._mark = root / WRITER
        self._tidy = True

    def __str__(self) -> str:
        return str(self.root)

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Keep other writers out, re-entrantly; yields whether the writer before may have left rubbish."""
        with self._acquired():
            if self._lock.lock_counter > 1:
                yield False
                return
            untidy = self._mark.exists()
            self._leave_mark()
            yield untidy
            # Not after an error or an interruption, nor where something could not be removed: then the mark
            # stays, as it does after a crash, and tells the next writer to look for rubbish.
            if self._tidy:
                with suppress(OSError):
                    self._mark.unlink()

    def turn(self, name: str) -> Turn:
        """Return whose turn it is to teach a task, in this process and in others."""
        return Turn.at(self.root / LOCKS / f"{name}.lock")

    def _leave_mark(self) -> None:
        self._tidy = True
        with write_errors(self):
            self._mark.touch()
        with suppress(OSError):  # a full disk may take a name but no content, and prune must work there
            self._mark.write_text(str(os.getpid()))

    def _acquired(self) -> AbstractContextManager[object]:
        with write_errors(self):
            try:
                return self._lock.acquire()
            except filelock.Timeout:  # an OSError too, but not a refusal to write
                raise StoreError(
                    f"The store {self} is being written by {self._holder()}; wait a moment and try again."
                ) from None
            except NotImplementedError as error:
                raise StoreError(
                    f"The file system of the store {self} cannot lock files, so nothing was written; "
                    "choose a folder on another one."
                ) from error

    def _holder(self) -> str:
        try:
            return f"process {int(self._mark.read_text())}"
        except (OSError, ValueError):
            return "another process"

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        return (self.root / path).read_bytes()

    def view(self, path: str) -> Array:
        """Return the bytes of a file (uint8, 1-D) as a read-only memory map."""
        return np.memmap(self.root / path, dtype=np.uint8, mode="r")

    def sha256(self, path: str) -> str:
        """Return the hash of a file; not through a map, where a failing disk kills the process."""
        return sha256_file(self.root / path)

    def stamp(self, path: str) -> Hashable | None:
        """Return what tells one version of a replaced file from another, None if there is no such file."""
        try:  # not Path.stat, which takes three times as long: every inspection asks about every task
            stat = os.stat(f"{self.root}/{path}")  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:  # it is there, and reading it will say what is wrong
            return error.errno
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def children(self, path: str) -> list[str]:
        """Return the names in a folder; none if there is no such folder."""
        try:
            with os.scandir(self.root / path) as entries:
                return sorted(entry.name for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def write(self, path: str, data: bytes) -> None:
        """Write a file: whoever reads it, at whatever moment, sees all of the old or all of the new."""
        write_atomic(self.root / path, data)

    def unlink(self, path: str) -> None:
        """Remove one file, at once and durably."""
        remove_atomic(self.root / path)

    def discard(self, path: str) -> None:
        """Remove a file or folder that nothing names, if possible: a later writer tries again."""
        target = self.root / path
        try:
            shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
        except OSError:
            self._tidy = False


class Memory:
    """The same files in memory, for a store without a folder."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[int, bytes]] = {}
        self._changes = itertools.count()
        self._lock = threading.RLock()
        self._turns: dict[str, Turn] = {}

    def __str__(self) -> str:
        return "(in memory)"

    def turn(self, name: str) -> Turn:
        """Return whose turn it is to teach a task."""
        return self._turns.setdefault(name, Turn(None))

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Keep other threads out; no writer leaves rubbish, because each removes its own."""
        with self._lock:
            yield False

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        try:
            return self._files[path][1]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def view(self, path: str) -> Array:
        """Return the bytes of a file (uint8, 1-D), read-only."""
        return np.frombuffer(self.read(path), np.uint8)

    def sha256(self, path: str) -> str:
        """Return the hash of a file."""
        return hashlib.sha256(self.read(path)).hexdigest()

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

    def unlink(self, path: str) -> None:
        """Remove one file."""
        del self._files[path]

    def discard(self, path: str) -> None:
        """Remove a file or folder that nothing names."""
        for each in list(self._files):
            if each == path or each.startswith(f"{path}/"):
                del self._files[each]
