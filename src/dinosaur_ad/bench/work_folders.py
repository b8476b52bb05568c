"""Folders for files that live for one step: within the cell, or in the system's temporary folder.

A killed process cannot remove its own. In a cell (on a disk) the folder has a fixed place and is emptied by the next
run of the cell. In the temporary folder, where there is no such place, each is locked while it is used, and whoever
makes the next one removes those that no process holds any more.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock

from dinosaur_ad.bench.places import LocalPlace, Place

_PREFIX, _LOCK, _CONTENT = "dinosaur-work-", ".lock", "content"


@contextmanager
def work_folder(place: Place, name: str) -> Iterator[Path]:
    """An empty folder, removed at the end; below ``place`` under that name if it is on a disk."""
    if not isinstance(place, LocalPlace):
        with _temporary() as folder:
            yield folder
        return
    place.remove(name)
    folder = place.path(name)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _temporary() -> Iterator[Path]:
    """A locked folder in the system's temporary folder."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    made = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
    with made, filelock.FileLock(Path(made.name, _LOCK)):
        folder = Path(made.name, _CONTENT)
        folder.mkdir()
        yield folder


def _remove_abandoned(parent: Path) -> None:
    """Remove folders of this user that a killed process has left: those whose lock can be had."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError, filelock.Timeout):
            lock = folder / _LOCK
            # Without a lock file it was only just made; links and folders of others are none of ours.
            if folder.is_symlink() or lock.is_symlink() or not lock.is_file() or not _is_mine(folder):
                continue
            with filelock.FileLock(lock, timeout=0):
                shutil.rmtree(folder, ignore_errors=True)


def _is_mine(folder: Path) -> bool:
    return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
