"""The one way in which this package writes files: whole or not at all, and on the disk before it says so.

Failures are plain :class:`OSError`; the caller knows what the file was for and says so to the user.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import time
import uuid
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

TEMPORARY = ".dinosaur-*.tmp"
"""Pattern of the names that a killed :func:`write_atomic` can leave behind."""


class UnconfirmedError(OSError):
    """The change was made, but the disk did not confirm it: it may not survive a power cut."""


def write_atomic(path: Path, content: bytes, *, distinct: bool = False) -> None:
    """Write a file, and the folders it needs, so that a crash at any moment leaves the old file or the new one.

    ``distinct`` gives it a time of change that no file before it had, for those who watch it: the clock may stand still
    between two changes or be set back, and the system gives the number of a removed file to the next one.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "results" / "demo.json"
    >>> write_atomic(path, b"{}")
    >>> path.read_bytes()
    b'{}'
    """
    make_folder(path.parent)
    temporary = temporary_name(path.parent)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if distinct:
            moment = time.time_ns() // 10**9 * 10**9 + secrets.randbelow(10**9)
            os.utime(temporary, ns=(moment, moment))
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _confirm(path.parent)


def temporary_name(folder: Path) -> Path:
    """A new name for a file that will be renamed; not after its final name, which may be as long as is allowed."""
    return folder / TEMPORARY.replace("*", uuid.uuid4().hex)


def move_atomic(path: Path, target: Path) -> None:
    """Give a file another name in its folder, at once and for good; needs no space on the disk."""
    path.replace(target)
    _confirm(target.parent)


def remove_atomic(path: Path) -> None:
    """Remove a file so that it stays removed."""
    path.unlink()
    _confirm(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, unless they are there."""
    missing = list(takewhile(lambda folder: not folder.exists(), (path, *path.parents)))
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_path(folder.parent)


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _confirm(folder: Path) -> None:
    try:
        sync_path(folder)
    except OSError as error:
        raise UnconfirmedError(error.errno, error.strerror, str(folder)) from error


def sync_path(path: Path) -> None:
    """Wait until the disk has a file's bytes, or a folder's names where the system has a way to ask for that.

    :raises OSError: the disk reports an error, or the path is gone.
    """
    if os.name == "nt":  # Windows cannot open a folder, and flushes only files that are open for writing
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # what some network drives answer
            raise
    finally:
        os.close(descriptor)
