"""Waiting until the disk has a file or the names in a folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path


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
