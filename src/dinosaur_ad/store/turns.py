"""Whose turn it is to teach a task: one thread of one process at a time; the others wait for as long as it takes.

Within a process a re-entrant lock decides, between processes a lock on a file. The system frees the lock of a process
that was killed; the file that it leaves is empty, and the next turn removes it.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock

if sys.platform != "win32":
    import fcntl

PATIENCE = 1.0
"""Seconds of waiting before it is said."""

_POLL = 0.05

# By the path of the lock file: the store may be opened several times in one process, and a thread that has the turn
# through one of them would wait for itself for ever through another.
_turns: weakref.WeakValueDictionary[str, Turn] = weakref.WeakValueDictionary()
_finding = threading.Lock()


class Turn:
    """The turn for one task; ``path`` is its lock file, None for a store that no other process can see."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._thread = threading.RLock()
        self._depth = 0

    @classmethod
    def at(cls, path: Path) -> Turn:
        """The turn with this lock file, the same one for all who ask in this process."""
        key = os.path.realpath(path.parent.parent) + "/" + path.name
        with _finding:
            turn = _turns.get(key)
            if turn is None:
                turn = _turns[key] = cls(path)
            return turn

    @contextmanager
    def taken(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Wait for the turn, hold it, give it on; ``waiting`` is called once if that takes more than a moment."""
        impatience = _Impatience(waiting)
        while not self._thread.acquire(timeout=_POLL):
            impatience.grow()
        try:
            if self._depth or self._path is None:
                yield from self._deeper()
            else:
                with _file_lock(self._path, impatience):
                    yield from self._deeper()
        finally:
            self._thread.release()

    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1


class _Impatience:
    """Calls once, when the waiting has lasted for a moment."""

    def __init__(self, waiting: Callable[[], None]) -> None:
        self._waiting: Callable[[], None] | None = waiting
        self._since = time.monotonic()

    def grow(self) -> None:
        if self._waiting is not None and time.monotonic() - self._since >= PATIENCE:
            waiting, self._waiting = self._waiting, None
            waiting()


if sys.platform == "win32":

    @contextmanager
    def _file_lock(path: Path, impatience: _Impatience) -> Iterator[None]:
        """Hold the lock on a file, which stays: Windows does not remove a file that somebody else has open."""
        path.parent.mkdir(exist_ok=True)
        lock = filelock.FileLock(path)
        while not lock.is_locked:
            with suppress(filelock.Timeout):
                lock.acquire(timeout=_POLL)
            impatience.grow()
        try:
            yield
        finally:
            lock.release()

else:

    @contextmanager
    def _file_lock(path: Path, impatience: _Impatience) -> Iterator[None]:
        """Hold the lock on a file; an OSError where that cannot be had."""
        while (descriptor := _open_locked(path)) is None:
            impatience.grow()
            time.sleep(_POLL)
        try:
            yield
        finally:
            # While the lock is held: whoever opened the file meanwhile gets a lock on a file without a name, notices
            # that and opens the next one.
            with suppress(OSError):
                path.unlink()
                path.parent.rmdir()  # only if nobody else has a turn
            os.close(descriptor)

    def _open_locked(path: Path) -> int | None:
        """Open and lock the file that has this name; None if somebody else holds it, or has just removed it."""
        with suppress(FileExistsError):
            path.parent.mkdir()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            if not stat.S_ISDIR(path.parent.lstat().st_mode):
                raise OSError(f"{path.parent.name} is not a folder of its own")
            descriptor = os.open(path, flags, 0o666)
        except FileNotFoundError:  # the folder was removed by one whose turn ended
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(f"{path.parent.name}/{path.name} is a link") from error
            raise
        try:
            opened = os.fstat(descriptor)
            if not stat.S_ISREG(opened.st_mode):
                raise OSError(f"{path.parent.name}/{path.name} is not a file")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(opened, path.lstat()):
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None
