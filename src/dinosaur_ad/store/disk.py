"""The files of a store in a folder. Links are never followed, and only plain files are opened."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import FileIO
from pathlib import Path

import filelock
import numpy as np

from dinosaur_ad._atomic import UnconfirmedError, move_atomic, remove_atomic, temporary_name, write_atomic
from dinosaur_ad.errors import StoreError
from dinosaur_ad.store.codec import Array
from dinosaur_ad.store.names import (
    LOCK,
    LOCKS,
    WRITER,
    is_own_file,
    is_task_name,
    is_temporary,
    version_name,
    version_number,
)
from dinosaur_ad.store.task_lock import TaskLock

# Opening a pipe would wait for its other end, and a link would lead elsewhere. Windows has neither flag, nor the need.
_PLAIN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0)
_RELATIVE = {os.open, os.unlink, os.rmdir} <= os.supports_dir_fd and os.scandir in os.supports_fd
_MARK_BYTES = 100_000

LOCK_TIMEOUT = 10.0
"""Seconds to wait for another writer; a change holds the lock for as long as writing a bank takes."""

FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


class LinkError(OSError):
    """A folder of the store is a link; a store follows none."""


class NotPlainError(ValueError):
    """There is something else where a file of the store was expected: a link, a folder, a pipe, a device."""


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
    except (OSError, NotPlainError) as error:
        raise StoreError(
            f"The store {where} could not be written ({reason(error)}) and was left as it was; {_advice(error)}."
        ) from error


def reason(error: BaseException) -> str:
    """Return why a file could not be used, in a few words."""
    words = error.strerror if isinstance(error, OSError) else None
    return words or str(error) or type(error).__name__


def _advice(error: OSError | NotPlainError) -> str:
    if isinstance(error, LinkError | NotPlainError):
        return "put a plain file or folder in its place, or remove it"
    if error.errno in FULL:
        return "free some space and try again"
    if error.errno in DENIED:
        return "check its permissions or choose another folder"
    return "check the disk and try again"


class Disk:
    """The files of a store in a folder. Paths are relative to it; what is written is durable on return."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = filelock.FileLock(root / LOCK, timeout=LOCK_TIMEOUT)
        self._pending: set[tuple[str, int]] = set()
        self._tidy = True

    def __str__(self) -> str:
        return str(self.root)

    # --- one writer at a time ---

    @contextmanager
    def lock(self) -> Iterator[set[tuple[str, int]] | None]:
        """Keep other writers out, re-entrantly.

        Yields None if the writer before has finished; else the versions of tasks that it was writing or removing.
        """
        with self._acquired():
            if self._lock.lock_counter > 1:
                yield None
                return
            self._tidy, left = True, self._read_mark()
            self._pending = set(left or ())  # they stay named until it has been tidied up after them
            self._leave_mark()
            yield left
            # Not after an error or an interruption, nor where something could not be removed: then the mark
            # stays, as it does after a crash, and tells the next writer to look for rubbish.
            if self._tidy:
                with suppress(OSError):
                    (self.root / WRITER).unlink()

    def note(self, name: str, versions: Iterable[int]) -> None:
        """Note which versions the holder of the lock is about to write or remove, for the cleanup after a crash."""
        self._pending |= {(name, version) for version in versions}
        self._leave_mark()

    def task_lock(self, name: str) -> TaskLock:
        """Return the lock for teaching a task, in this process and in others."""
        return TaskLock.at(self.root / LOCKS / f"{name}.lock")

    def _acquired(self) -> AbstractContextManager[object]:
        with write_errors(self):
            self._refuse_odd(LOCK)
            self._refuse_odd(WRITER)
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

    def _leave_mark(self) -> None:
        """Write who is writing, and what. A new file each time: the one that is there may be anything."""
        lines = [f"{os.getpid()}", *(f"{name}/{version_name(version)}" for name, version in sorted(self._pending))]
        content = "".join(f"{line}\n" for line in lines).encode()
        temporary = temporary_name(self.root)
        with write_errors(self):
            try:
                with temporary.open("xb", buffering=0) as file, suppress(OSError):
                    file.write(content)  # a full disk may take a name but no content
                temporary.replace(self.root / WRITER)
            except OSError as error:
                with suppress(OSError):
                    temporary.unlink()
                if error.errno not in FULL:  # a full disk must not stop what frees it
                    raise

    def _read_mark(self) -> set[tuple[str, int]] | None:
        try:
            lines = self.read(WRITER, _MARK_BYTES).decode(errors="replace").split("\n")
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return set()
        pairs = (line.partition("/") for line in lines[1:-1])  # the last line may have been cut by a crash
        found = ((name, version_number(version)) for name, _, version in pairs if is_task_name(name))
        return {(name, version) for name, version in found if version}

    def _holder(self) -> str:
        try:
            return f"process {int(self.read(WRITER, _MARK_BYTES).split(maxsplit=1)[0])}"
        except (OSError, ValueError, IndexError):
            return "another process"

    # --- reading ---

    def read(self, path: str, limit: int) -> bytes:
        """Return the content of a file of at most so many bytes."""
        with self._opened(path) as (file, size):
            if size > limit:
                raise ValueError(f"it has {size} bytes, and {limit} is the most that is read")
            return self._exactly(file, size).tobytes()

    def load(self, path: str, size: int) -> Array:
        """Return the bytes of a file (uint8, 1-D) of a known size: a copy, which no change of the file can reach."""
        with self._opened(path) as (file, found):
            if found != size:
                raise ValueError(f"it has {found} bytes instead of {size}")
            return self._exactly(file, size)

    @contextmanager
    def _opened(self, path: str) -> Iterator[tuple[FileIO, int]]:
        """Open a plain file and give it with its size."""
        self._refuse_links(path)
        try:
            descriptor = os.open(f"{self.root}/{path}", _PLAIN)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotPlainError("it is a link") from error
            raise
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "it is a folder")
            raise NotPlainError("it is not a plain file")
        with FileIO(descriptor) as file:
            yield file, status.st_size

    @staticmethod
    def _exactly(file: FileIO, size: int) -> Array:
        try:
            buffer = np.empty(size, np.uint8)
        except MemoryError as error:
            raise OSError(errno.ENOMEM, f"its {size} bytes do not fit into memory") from error
        view, done = memoryview(buffer.data), 0
        while done < size:
            count = file.readinto(view[done : done + 2**30])
            if not count:
                raise ValueError("it became shorter while it was read")
            done += count
        return buffer

    def stamp(self, path: str) -> Hashable | None:
        """Return what tells one version of a replaced file from another, None if there is no such file."""
        try:  # not Path.lstat, which takes three times as long: every inspection does this for every task
            status = os.lstat(f"{self.root}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            # Behind a link nothing is looked for, so nothing is known to be missing.
            return "link" if self._is_link(path.rpartition("/")[0]) else None
        except OSError as error:  # it is there, and reading it will say what is wrong
            return error.errno
        return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size

    def children(self, path: str) -> list[str]:
        """Return the names in a folder; none if there is nothing of that name."""
        self._refuse_links(f"{path}/")
        try:
            with os.scandir(self.root / path) as entries:
                return sorted(entry.name for entry in entries)
        except FileNotFoundError:
            return []

    # --- changing ---

    def write(self, path: str, data: bytes) -> None:
        """Write a file atomically: a reader sees all of the old content or all of the new."""
        self._refuse_links(path)
        write_atomic(self.root / path, data, distinct=True)

    def move(self, path: str, target: str) -> None:
        """Give a file another name, at once and durably; takes no space on the disk."""
        self._refuse_links(path)
        move_atomic(self.root / path, self.root / target)

    def move_folder(self, path: str, target: str) -> None:
        """Give a folder a name that is free, at once and durably."""
        self._refuse_links(f"{path}/")
        self.discard_folder(target)  # an empty one may be left over
        try:
            taken = not os.path.samestat(os.lstat(self.root / target), os.lstat(self.root / path))
        except FileNotFoundError:
            taken = False
        if taken:  # else it differs in case only, and the file system ignores case
            raise StoreError(f"There are other files in {self.root / target}: choose another name, or move them.")
        move_atomic(self.root / path, self.root / target)

    def unlink(self, path: str) -> None:
        """Remove one file, at once and durably."""
        self._refuse_links(path)
        remove_atomic(self.root / path)

    def discard(self, path: str) -> list[str]:
        """Remove one file that nothing names, if it is a plain file; all of these return the paths they removed."""
        folder, _, name = path.rpartition("/")
        return self._discard(folder, lambda each: each == name)

    def discard_temporaries(self, path: str) -> list[str]:
        """Remove what a killed writer left in a folder."""
        return self._discard(path, is_temporary)

    def discard_version(self, path: str) -> list[str]:
        """Remove the files that the store writes into the folder of a version, and the folder if it is empty then."""
        removed = self._discard(path, is_own_file)
        return self.discard_folder(path) or removed

    def discard_folder(self, path: str) -> list[str]:
        """Remove a folder if it is empty."""
        above, _, name = path.rpartition("/")
        removed: list[str] = []
        with self._removing(), self._folder(above) as folder:
            try:
                os.rmdir(name, dir_fd=folder) if _RELATIVE else (self.root / path).rmdir()
                removed.append(path)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:  # else it is not ours alone
                    raise
        return removed

    def _discard(self, path: str, wanted: Callable[[str], bool]) -> list[str]:
        removed: list[str] = []
        with self._removing(), self._folder(path) as folder:
            with os.scandir(folder if _RELATIVE else self.root / path) as entries:
                names = [each.name for each in entries if wanted(each.name) and each.is_file(follow_symlinks=False)]
            for name in sorted(names):
                os.unlink(name, dir_fd=folder) if _RELATIVE else (self.root / path / name).unlink()
                removed.append(f"{path}/{name}" if path else name)
        return removed

    @contextmanager
    def _removing(self) -> Iterator[None]:
        """What cannot be removed stays, and a later writer tries again; what lies behind a link is not ours."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, LinkError):
            pass
        except OSError:
            self._tidy = False

    # --- no links ---

    @contextmanager
    def _folder(self, path: str) -> Iterator[int | None]:
        """Open a folder without following a link on the way, even one that is put there at this moment."""
        self._refuse_links(f"{path}/")
        if not _RELATIVE:
            yield None
            return
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            for part in path.split("/") if path else []:
                inner = os.open(part, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def _refuse_links(self, path: str) -> None:
        """Refuse a path that leads through a link."""
        place = path.find("/")
        while place > 0:
            if self._is_link(path[:place]):
                raise LinkError(f"{path[:place]} is a link")
            place = path.find("/", place + 1)

    def _is_link(self, path: str) -> bool:
        try:
            return stat.S_ISLNK(os.lstat(f"{self.root}/{path}").st_mode)
        except OSError:
            return False

    def _refuse_odd(self, path: str) -> None:
        """Refuse anything but a plain file, if there is anything."""
        with suppress(FileNotFoundError, NotADirectoryError):
            if not stat.S_ISREG(os.lstat(f"{self.root}/{path}").st_mode):
                raise NotPlainError(f"{path} is not a plain file")
