"""Names and files that may come from strangers: a name stays below its folder, and only regular files are opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def relative_parts(name: str) -> tuple[str, ...]:
    """The parts of a relative name such as ``rows/03.npz``.

    >>> relative_parts("rows/03.npz")
    ('rows', '03.npz')

    :raises ValueError: the name could lead out of the folder it is used in, or be none at all.
    """
    parts = tuple(name.split("/"))
    strange = "\\" in name or (os.name == "nt" and ":" in name) or not name.isprintable()
    if strange or any(part in ("", ".", "..") for part in parts) or len(name) > 1000:
        raise ValueError(f"{_cut(name)!r} is no plain relative name")
    return parts


def read_plain(path: Path, limit: int | None = None) -> bytes:
    """The content of a regular file of at most ``limit`` bytes.

    :raises OSError: it is a link, a pipe or anything else but a file; FileNotFoundError where there is nothing.
    :raises ValueError: it is larger than ``limit``.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        if limit is not None and status.st_size > limit:
            raise ValueError(f"{path.name} has {status.st_size} bytes, more than the {limit} that are possible")
        return file.read()


def _cut(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[:length]}…"
