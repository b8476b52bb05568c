"""Reading a file that is not trusted: only a regular file, only up to a size."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_plain(path: Path, most: int, *, follow: bool = True) -> bytes:
    """The bytes of a regular file; a pipe or a device is not waited for, and with ``follow`` off no link is followed.

    :raises OSError: there is none, it is no regular file, or the disk does not give it.
    :raises ValueError: it is longer than ``most`` bytes.
    """
    flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, os.O_RDONLY | flags | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path.name} is not a regular file")
        if not follow and path.is_symlink():  # where the system has no O_NOFOLLOW
            raise OSError(f"{path.name} is a link")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path.name} is longer than {most} bytes")
    return content
