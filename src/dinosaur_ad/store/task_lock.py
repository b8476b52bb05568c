"""The lock for teaching a task: one thread of one process at a time; the others wait for as long as it takes.

Within a process it is a re-entrant lock, between processes a lock on a file. The system frees the lock of a process
that was killed; the empty file that it leaves is removed by the next holder.
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

NOTICE_AFTER = 1.0
"""Seconds of waiting before the caller is notified."""

_POLL = 0.05

# By the path of the lock file: the store may be opened several times in one process, and a thread that holds the
# lock through one of them would deadlock with itself through another.
_locks: weakref.WeakValueDictionary[str, TaskLock] = weakref.WeakValueDictionary()
_registry_lock = threading.Lock()


class TaskLock:
    """The lock of one task; ``path`` is its lock file, None for a store in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._thread = threading.RLock()
        self._depth = 0

    @classmethod
    def at(cls, path: Path) -> TaskLock:
        """The lock with this file, the same object everywhere in this process."""
        key = os.path.realpath(path.parent.parent) + "/" + path.name
        with _registry_lock:
            lock = _locks.get(key)
            if lock is None:
                lock = _locks[key] = cls(path)
            return lock

    @contextmanager
    def held(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Acquire the lock, hold it, release it; ``waiting`` is called once if acquiring takes more than a second."""
        notice = _WaitNotice(waiting)
        while not self._thread.acquire(timeout=_POLL):
            notice.check()
        try:
            if self._depth or self._path is None:
                yield from self._deeper()
            else:
                with _file_lock(self._path, notice):
                    yield from self._deeper()
        finally:
            self._thread.release()

    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1


class _WaitNotice:
    """Calls a function once, when :meth:`check` finds that a second has passed."""

    def __init__(self, waiting: Callable[[], None]) -> None:
        self._waiting: Callable[[], None] | None = waiting
        self._since = time.monotonic()

    def check(self) -> None:
        if self._waiting is not None and time.monotonic() - self._since >= NOTICE_AFTER:
            waiting, self._waiting = self._waiting, None
            waiting()


if sys.platform == "win32":

    @contextmanager
    def _file_lock(path: Path, notice: _WaitNotice) -> Iterator[None]:
        """Hold the lock on a file, which stays: Windows does not remove a file that another process has open."""
        path.parent.mkdir(exist_ok=True)
        lock = filelock.FileLock(path)
        while not lock.is_locked:
            with suppress(filelock.Timeout):
                lock.acquire(timeout=_POLL)
            notice.check()
        try:
            yield
        finally:
            lock.release()

else:

    @contextmanager
    def _file_lock(path: Path, notice: _WaitNotice) -> Iterator[None]:
        """Hold the lock on a file; an OSError where that cannot be had."""
        while (descriptor := _open_locked(path)) is None:
            notice.check()
            time.sleep(_POLL)
        try:
            yield
        finally:
            # While the lock is held: a process that opened the file meanwhile gets a lock on a file without a name,
            # notices that and opens the next one.
            with suppress(OSError):
                path.unlink()
                path.parent.rmdir()  # only if no other lock is held
            os.close(descriptor)

    def _open_locked(path: Path) -> int | None:
        """Open and lock the file that has this name; None if it is held elsewhere, or was removed just now."""
        with suppress(FileExistsError):
            path.parent.mkdir()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            if not stat.S_ISDIR(path.parent.lstat().st_mode):
                raise OSError(f"{path.parent.name} is not a folder of its own")
            descriptor = os.open(path, flags, 0o666)
        except FileNotFoundError:  # the folder was removed by the last holder
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
