"""File-system calls of a process, counted: at the n-th one it dies, or the call fails.

The calls are those that Python code makes through :mod:`os` and :func:`open`, as far as they concern one folder. A
write is two steps, the second one in the middle of its data, so that half written files are among what is left behind.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Whatever changes a folder, and whatever looks at it.
CHANGING = (
    *("write", "fsync", "fdatasync", "replace", "rename", "unlink", "remove", "mkdir", "rmdir", "link", "symlink"),
    *("utime", "ftruncate", "truncate", "chmod", "fchmod"),
)
LOOKING = ("open", "scandir", "listdir", "stat", "lstat", "read")
# A disk that is full or read-only stays so, but can be read.
LASTING = (errno.ENOSPC, errno.EROFS)


class Steps:
    """Counts the file-system calls below a folder and acts at one of them.

    ``action`` is ``"count"`` (does nothing; ``seen`` lists the calls), ``"kill"`` (the process ends as with
    ``kill -9``) or ``"fail"`` (the call raises the OSError of ``number``; with ``lasting`` all later changes fail too).
    """

    def __init__(self, folder: str, action: str, at: int = 0, number: int = 0, lasting: bool = False) -> None:
        self._folder = os.path.realpath(folder)
        self._action, self._at, self._number, self._lasting = action, at, number, lasting
        self._descriptors: set[int] = set()
        self.seen: list[str] = []

    def install(self) -> None:
        """Replace the functions, for the rest of this process's life."""
        for name in (*CHANGING, *LOOKING):
            if hasattr(os, name) and name != "open":
                setattr(os, name, self._before(name, getattr(os, name)))
        opened = self._open(io.open)
        replaced: Any = os
        replaced.open, replaced.close = self._os_open(os.open), self._os_close(os.close)
        for module in (io, builtins):  # the same function under two names
            replaced = module
            replaced.open = opened

    def step(self, name: str, path: Any) -> None:
        """Count one call; at the chosen one, act."""
        self.seen.append(name)
        count = len(self.seen)
        if self._action == "kill" and count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        later = self._lasting and count > self._at and name in (*CHANGING, "create")
        if self._action == "fail" and (count == self._at or later):
            where = os.fspath(path) if isinstance(path, str | os.PathLike) else None
            raise OSError(self._number, os.strerror(self._number), where)

    def concerns(self, path: Any, dir_fd: int | None = None) -> bool:
        """Tell whether a call is about the folder: by path, by open file, or relative to an open folder in it."""
        if isinstance(path, int):
            return path in self._descriptors
        if dir_fd is not None:
            return dir_fd in self._descriptors
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        absolute = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 (links are not to be followed)
        return absolute == self._folder or absolute.startswith(self._folder + os.sep)

    def _before(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            subject = args[0] if args else kwargs.get("path")
            if self.concerns(subject, kwargs.get("dir_fd")):
                self.step(name, subject)
                if name == "write":
                    data = memoryview(args[1]).cast("B")
                    half = int(function(subject, data[: len(data) // 2]))
                    self.step(name, subject)
                    return half + int(function(subject, data[half:]))
            return function(*args, **kwargs)

        return counted

    def _os_open(self, function: Callable[..., int]) -> Callable[..., int]:
        def counted(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if not self.concerns(path, kwargs.get("dir_fd")):
                return function(path, flags, *args, **kwargs)
            self.step("create" if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) else "open", path)
            descriptor = function(path, flags, *args, **kwargs)
            self._descriptors.add(descriptor)
            return descriptor

        return counted

    def _os_close(self, function: Callable[[int], None]) -> Callable[[int], None]:
        def forgotten(descriptor: int) -> None:
            self._descriptors.discard(descriptor)
            function(descriptor)

        return forgotten

    def _open(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
            if isinstance(file, int) or not self.concerns(file):
                return function(file, mode, buffering, *args, **kwargs)
            writes = bool(set(mode) & set("wxa+"))
            self.step("create" if writes else "open", file)
            raw = StepFile(self, os.fspath(file), mode.replace("b", "").replace("t", ""))
            if buffering == 0:
                return raw
            kind = io.BufferedRandom if "+" in mode else io.BufferedWriter if writes else io.BufferedReader
            buffered = kind(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *args, **kwargs)

        return counted


class StepFile(io.FileIO):
    """A file whose reads and writes are steps."""

    def __init__(self, steps: Steps, path: Any, mode: str) -> None:
        super().__init__(path, mode)
        self._steps, self._path = steps, Path(os.fsdecode(path))
        steps._descriptors.add(self.fileno())

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._steps.step("write", self._path)
        half = super().write(view[: len(view) // 2]) or 0
        self._steps.step("write", self._path)
        return half + (super().write(view[half:]) or 0)

    def readinto(self, buffer: Any) -> int:
        self._steps.step("read", self._path)
        return super().readinto(buffer) or 0

    def readall(self) -> bytes:
        self._steps.step("read", self._path)
        return super().readall() or b""

    def close(self) -> None:
        if not self.closed:
            self._steps._descriptors.discard(self.fileno())
        super().close()
