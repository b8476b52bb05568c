"""Where results are kept: a folder on this machine or on a shared disk, or any address that fsspec can open.

Files are small trees of bytes. On a disk each is written whole or not at all; object stores promise that themselves.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from dinosaur_ad._atomic import TEMPORARY, write_atomic
from dinosaur_ad.errors import InputError, install_advice


class Place(ABC):
    """A folder of files by relative name (``rows/03.npz``)."""

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The file's content; FileNotFoundError when there is none."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Make or replace a file, whole or not at all."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file or everything below a folder, if it is there."""

    @abstractmethod
    def list(self) -> list[str]:
        """The names of all files, at any depth."""

    @abstractmethod
    def below(self, name: str) -> Place:
        """A folder in this one; it need not exist."""

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        try:
            self.read(name)
        except FileNotFoundError:
            return False
        return True


class LocalPlace(Place):
    """A folder on a disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def read(self, name: str) -> bytes:
        """The file's content."""
        return (self.folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write, wait for the disk, then rename."""
        write_atomic(self.folder / name, content)

    def remove(self, name: str) -> None:
        """Remove a file or a folder."""
        path = self.folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def list(self) -> list[str]:
        """All files but the remains of writes that were killed."""
        if not self.folder.is_dir():
            return []
        files = (path for path in self.folder.rglob("*") if path.is_file() and not path.match(TEMPORARY))
        return sorted(path.relative_to(self.folder).as_posix() for path in files)

    def below(self, name: str) -> LocalPlace:
        """A folder in this one."""
        return LocalPlace(self.folder / name)

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return (self.folder / name).is_file()


class RemotePlace(Place):
    """A folder behind an address such as ``s3://bucket/results``, through fsspec."""

    def __init__(self, filesystem: Any, root: str, address: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._address = address.rstrip("/")

    def __str__(self) -> str:
        return self._address

    def read(self, name: str) -> bytes:
        """The object's content."""
        content: bytes = self._filesystem.cat_file(f"{self._root}/{name}")
        return content

    def write(self, name: str, content: bytes) -> None:
        """Put the object; stores show it only when it is whole."""
        path = f"{self._root}/{name}"
        self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._filesystem.pipe_file(path, content)

    def remove(self, name: str) -> None:
        """Remove an object or all below a prefix."""
        path = f"{self._root}/{name}"
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
        return RemotePlace(self._filesystem, f"{self._root}/{name}", f"{self._address}/{name}")


def open_place(address: str | Path) -> Place:
    """The place at a path, or at a ``protocol://`` address.

    >>> str(open_place("runs/bench"))
    'runs/bench'
    """
    protocol, separator, rest = str(address).partition("://")
    if not separator:
        return LocalPlace(Path(address))
    if protocol == "file":
        return LocalPlace(Path(rest))
    try:
        import fsspec
    except ImportError as error:
        raise InputError(f"The address '{address}' needs fsspec; {install_advice('bench')}.") from error
    try:
        filesystem, root = fsspec.core.url_to_fs(str(address))
    except (ValueError, ImportError) as error:
        raise InputError(f"The address '{address}' cannot be opened: {error}.") from error
    return RemotePlace(filesystem, root, str(address))
