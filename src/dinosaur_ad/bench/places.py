"""Where results are kept: a folder here or on a shared disk, any address that fsspec can open, or a submitted row.

Files are small trees of bytes. On a disk each is written whole or not at all; object stores promise that themselves.

Results may come from strangers, so a place is a boundary: names that lead out of it are refused, and so are links in
it. The place itself may be reached through a link.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dinosaur_ad._atomic import TEMPORARY, make_folder, move_atomic, write_atomic
from dinosaur_ad._plain import read_plain
from dinosaur_ad.bench.foreign_results import relative_parts
from dinosaur_ad.bench.row_files import read_row
from dinosaur_ad.errors import InputError, install_advice

LARGEST_FILE = 4 * 2**30
"""Bytes; no file of a result is larger."""


class Place(ABC):
    """A folder of files by relative name (``rows/03.npz``)."""

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def read(self, name: str, limit: int = LARGEST_FILE) -> bytes:
        """The file's content; FileNotFoundError when there is none, ValueError when it is larger than ``limit``."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Make or replace a file, whole or not at all."""

    def take_folder(self, folder: Path, name: str) -> None:
        """Put a local folder here under that name, in place of one that is there; ``folder`` may be moved."""
        self.remove(name)
        below = self.below(name)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            below.write(path.relative_to(folder).as_posix(), path.read_bytes())

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file or everything below a folder, if it is there."""

    @abstractmethod
    def list(self) -> list[str]:
        """The names of all files, at any depth."""

    @abstractmethod
    def below(self, name: str) -> Place:
        """A folder in this one; it need not exist."""

    @property
    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """The names of the folders that lead here, as far as they are known; the last is that of the place itself."""

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        try:
            self.read(name)
        except FileNotFoundError:
            return False
        return True


class LocalPlace(Place):
    """A folder on a disk; ``root`` is the folder that nothing in it may lead out of, itself unless given."""

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.folder = folder
        self._root = folder if root is None else root

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the folders that lead here."""
        return Path(os.path.abspath(self.folder)).parts  # noqa: PTH100 - resolve() would follow links

    def path(self, name: str = "") -> Path:
        """Where a file or folder of that name is or would be.

        :raises InputError: the name leads out of this place, or something on the way there is a link.
        """
        path = self.folder / Path(*_checked(self, name)) if name else self.folder
        below = self._root
        for part in path.relative_to(self._root).parts:
            below /= part
            if below.is_symlink():
                raise InputError(
                    f"'{below}' is a link, and results are read from and written to their own folder only; put there "
                    "what it leads to, or remove it."
                )
        return path

    def read(self, name: str, limit: int = LARGEST_FILE) -> bytes:
        """The file's content."""
        return read_plain(self.path(name), limit, follow=False)

    def write(self, name: str, content: bytes) -> None:
        """Write, wait for the disk, then rename."""
        write_atomic(self.path(name), content)

    def take_folder(self, folder: Path, name: str) -> None:
        """Wait until the files are on the disk, then rename the folder; it must be on the same disk."""
        for path in folder.rglob("*"):
            if path.is_file():
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
        target = self.path(name)
        self.remove(name)
        make_folder(target.parent)
        move_atomic(folder, target)

    def remove(self, name: str) -> None:
        """Remove a file or a folder."""
        path = self.path(name)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def list(self) -> list[str]:
        """All files but the remains of writes that were killed; what is behind links to folders is not listed."""
        if not self.folder.is_dir():
            return []
        files = (path for path in self.path().rglob("*") if path.is_file() and not path.match(TEMPORARY))
        return sorted(path.relative_to(self.folder).as_posix() for path in files)

    def below(self, name: str) -> LocalPlace:
        """A folder in this one."""
        return LocalPlace(self.folder / Path(*_checked(self, name)), self._root)

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return self.path(name).is_file()


class RemotePlace(Place):
    """A folder behind an address such as ``s3://bucket/results``, through fsspec."""

    def __init__(self, filesystem: Any, root: str, address: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._address = address.rstrip("/")

    def __str__(self) -> str:
        return self._address

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the prefixes that lead here."""
        return tuple(part for part in self._root.split("/") if part)

    def read(self, name: str, limit: int = LARGEST_FILE) -> bytes:
        """The object's content."""
        path = self._path(name)
        size = self._filesystem.size(path)
        if size is not None and size > limit:
            raise ValueError(f"{name} has {size} bytes, more than the {limit} that are possible")
        content: bytes = self._filesystem.cat_file(path)
        return content

    def write(self, name: str, content: bytes) -> None:
        """Put the object; stores show it only when it is whole."""
        path = self._path(name)
        self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._filesystem.pipe_file(path, content)

    def remove(self, name: str) -> None:
        """Remove an object or all below a prefix."""
        path = self._path(name) if name else self._root
        if self._filesystem.exists(path):
            self._filesystem.rm(path, recursive=True)

    def list(self) -> list[str]:
        """All objects below the address."""
        self._filesystem.invalidate_cache()
        if not self._filesystem.exists(self._root):
            return []
        prefix = self._filesystem._strip_protocol(self._root)
        return sorted(str(path)[len(prefix) :].lstrip("/") for path in self._filesystem.find(self._root))

    def below(self, name: str) -> RemotePlace:
        """A prefix in this one."""
        return RemotePlace(self._filesystem, self._path(name), f"{self._address}/{name}")

    def _path(self, name: str) -> str:
        return "/".join((self._root, *_checked(self, name)))


class ArchivePlace(Place):
    """The files of a submitted row, all of them read and checked; nothing can be written there.

    ``prefix`` is empty or ends with a slash.
    """

    def __init__(self, files: Mapping[str, bytes], address: str, prefix: str = "") -> None:
        self.files = files
        self._address, self._prefix = address, prefix

    def __str__(self) -> str:
        return f"{self._address}/{self._prefix}".rstrip("/")

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the folders in the archive that lead here."""
        return tuple(self._prefix.rstrip("/").split("/"))

    def read(self, name: str, limit: int = LARGEST_FILE) -> bytes:
        """The file's content."""
        path = self._prefix + "/".join(_checked(self, name))
        if path not in self.files:
            raise FileNotFoundError(name)
        if len(self.files[path]) > limit:
            raise ValueError(f"{name} has more than the {limit} bytes that are possible")
        return self.files[path]

    def write(self, name: str, content: bytes) -> None:
        """Refuse."""
        raise InputError(f"'{self._address}' is a submitted row, which is only read; choose another --out.")

    def remove(self, name: str) -> None:
        """Refuse."""
        self.write(name, b"")

    def list(self) -> list[str]:
        """All files below this folder."""
        return sorted(name.removeprefix(self._prefix) for name in self.files if name.startswith(self._prefix))

    def below(self, name: str) -> ArchivePlace:
        """A folder in this one."""
        return ArchivePlace(self.files, self._address, f"{self._prefix}{'/'.join(_checked(self, name))}/")


def _checked(place: Place, name: str) -> tuple[str, ...]:
    """The parts of a name that stays in its place."""
    try:
        return relative_parts(name)
    except ValueError as error:
        raise InputError(
            f"A result in '{place}' names a file that it cannot have ({error}); it is not from this program: remove it."
        ) from error


def open_place(address: str | Path) -> Place:
    """The place at a path, or at a ``protocol://`` address; a file is taken for a submitted row.

    >>> str(open_place("runs/bench"))
    'runs/bench'
    """
    protocol, separator, rest = str(address).partition("://")
    if not separator or protocol == "file":
        path = Path(rest if separator else address)
        return ArchivePlace(read_row(path), str(path)) if path.is_file() else LocalPlace(path)
    try:
        import fsspec
    except ImportError as error:
        raise InputError(f"The address '{address}' needs fsspec; {install_advice('bench')}.") from error
    try:
        filesystem, root = fsspec.core.url_to_fs(str(address))
    except (ValueError, ImportError) as error:
        raise InputError(f"The address '{address}' cannot be opened: {error}.") from error
    return RemotePlace(filesystem, root, str(address))
