"""How far a cell has come: its finished rows, and the method's state after each.

A row counts when its file can be read, a state when every file of it has the hash in its manifest. The last two states
are kept, so that one damaged by a crash costs one task and not the whole sequence. What a method that trains has done
of the current task is in its scratch folder.

Temporary folders: on a disk they have a fixed name within the cell and are emptied by its next run. For cells in an
object store they are in the system's temporary folder, each locked while it is in use; those left by a killed process
are removed when the next one is made.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._atomic import sha256_file
from dinosaur_ad.bench.foreign_results import (
    LARGEST_DOCUMENT,
    array,
    indices,
    listed,
    manifest,
    maybe,
    number,
    read_arrays,
    record,
    relative_parts,
    text,
    whole,
)
from dinosaur_ad.bench.places import LocalPlace, Place
from dinosaur_ad.bench.results import PARTIAL, SCRATCH
from dinosaur_ad.datasets.tasks import Task
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.methods.contract import Method

KEEP = 2
_MANIFEST, _WORK = "manifest.json", "work"


@dataclass(frozen=True)
class MatrixRow:
    """One row of the T x T matrix, measured after learning a task: arrays by name, and notes."""

    arrays: dict[str, NDArray[Any]]
    notes: dict[str, Any]

    def encode(self) -> bytes:
        """The content of its file."""
        buffer = io.BytesIO()
        notes = np.frombuffer(json.dumps(self.notes).encode(), np.uint8)
        np.savez_compressed(buffer, allow_pickle=False, notes=notes, **self.arrays)
        return buffer.getvalue()

    @classmethod
    def decode(cls, content: bytes) -> MatrixRow:
        """Read the content of such a file; ValueError when it is damaged."""
        arrays = read_arrays(content)
        try:
            return cls(arrays, record(json.loads(arrays.pop("notes").tobytes())))
        except (KeyError, RecursionError) as error:
            raise ValueError("its notes cannot be read") from error


def check_row(row: MatrixRow, index: int, tasks: Sequence[Task], method: Method) -> None:
    """Whether a row read from a file is what this method writes after task ``index``; ValueError says why not."""
    last = index == len(tasks) - 1
    try:
        for column, task in enumerate(tasks):
            count = len(task.test)
            array(row.arrays[f"{column}/scores"], "f", count)
            if f"{column}/own_thresholds" in row.arrays:
                array(row.arrays[f"{column}/own_thresholds"], "f", count)
            if method.routes:
                indices(row.arrays[f"{column}/routes"], count, len(tasks))
            if method.routes and column <= index:
                array(row.arrays[f"{column}/oracle"], "f", count)
            if method.has_maps and last:
                array(row.arrays[f"{column}/maps"], "f", count, None, None)
    except KeyError as error:
        raise ValueError(f"the array {error} is missing") from error
    record(
        row.notes,
        {
            "task": text,
            "learn_seconds": number,
            "score_seconds": number,
            "images_scored": whole,
            "storage_bytes": whole,
            "peak_memory_bytes": maybe(whole),
            "peak_device_bytes": maybe(whole),
            "thresholds": lambda value: listed(value, _threshold, index + 1),
            "environment": record,
        },
    )
    if row.notes["task"] != tasks[index].name:
        raise ValueError("it is of another task")


def _threshold(value: Any) -> float:
    """A number; NaN and infinities are allowed, because NaN scores lead to them."""
    if not isinstance(value, float):
        raise ValueError("a threshold is no number")
    return value


class Checkpoints:
    """The rows and states of one cell, in the folder where its result will be."""

    def __init__(self, place: Place) -> None:
        self._place = place.below(PARTIAL)

    def keep(self, index: int, method: Method, row: MatrixRow) -> None:
        """Store the method's state, then the row; a row that is there says that its state is too."""
        with work_folder(self._place, _WORK) as folder:
            method.save(folder)
            paths = sorted(path for path in folder.rglob("*") if path.is_file())
            hashes = {path.relative_to(folder).as_posix(): sha256_file(path) for path in paths}
            (folder / _MANIFEST).write_text(json.dumps(hashes), "utf-8")
            self._place.take_folder(folder, f"state-{index:03d}")
        self._place.write(f"row-{index:03d}.npz", row.encode())
        if index >= KEEP:
            self._place.remove(f"state-{index - KEEP:03d}")

    def resume(self, method: Method, tasks: Sequence[Task], say: Callable[[str], None]) -> list[MatrixRow]:
        """Load the last good state into ``method`` and return the rows up to it; what was damaged is reported."""
        rows = self._rows(method, tasks, say)
        while rows:
            damage = self._restore(len(rows) - 1, method)
            if damage is None:
                return rows
            say(f"the state after task {len(rows)} is damaged ({damage}); going back by one task")
            rows.pop()
        return []

    def clear(self) -> None:
        """Remove everything; the result is there, so what cannot be removed now is left to the next run."""
        with suppress(OSError):
            self._place.remove("")

    def _rows(self, method: Method, tasks: Sequence[Task], say: Callable[[str], None]) -> list[MatrixRow]:
        rows: list[MatrixRow] = []
        while len(rows) < len(tasks):
            try:
                row = MatrixRow.decode(self._place.read(f"row-{len(rows):03d}.npz"))
                check_row(row, len(rows), tasks, method)
            except FileNotFoundError:
                break
            except (ValueError, OSError) as error:
                say(f"the row of task {len(rows) + 1} is damaged ({error}); it is made again")
                break
            rows.append(row)
        return rows

    def _restore(self, index: int, method: Method) -> str | None:
        """Load the state after task ``index``; returns what is wrong with it, if anything."""
        state = self._place.below(f"state-{index:03d}")
        try:
            hashes = manifest(state.read(_MANIFEST, LARGEST_DOCUMENT))
            with work_folder(self._place, _WORK) as folder:
                for name, expected in hashes.items():
                    content = state.read(name)
                    if hashlib.sha256(content).hexdigest() != expected:
                        return f"{name} has changed"
                    path = folder.joinpath(*relative_parts(name))
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                method.load(folder)
        except FileNotFoundError as error:
            return f"{Path(str(error.filename or error)).name} is missing"
        except DinosaurError:
            raise
        except ValueError as error:
            return f"the manifest cannot be read: {error}"
        except Exception as error:  # damaged files can make a method fail in any way
            return f"{type(error).__name__}: {error}"
        return None


@contextmanager
def scratch_folder(place: Place) -> Iterator[Path]:
    """The folder for the checkpoints of a training within one task; it need not exist.

    On a disk it is beside the rows, so that a training that was killed resumes on any machine that has the disk. For
    a cell in an object store it is a temporary folder of this process, and a killed training starts its task again.
    """
    if isinstance(place, LocalPlace):
        yield place.path(f"{PARTIAL}/{SCRATCH}")
        return
    with work_folder(place, SCRATCH) as folder:
        yield folder / SCRATCH


def clear_scratch(folder: Path) -> None:
    """Remove a scratch folder; what cannot be removed belongs to a task that is done, and is not read again."""
    shutil.rmtree(folder, ignore_errors=True)


# --- temporary folders ---

_PREFIX, _LOCK, _CONTENT = "dinosaur-work-", ".lock", "content"


@contextmanager
def work_folder(place: Place, name: str) -> Iterator[Path]:
    """An empty folder that is removed at the end; on a disk it is below ``place`` and has that name."""
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
    """Remove the folders of this user that a killed process has left: those that are not locked."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError, filelock.Timeout):
            lock = folder / _LOCK
            # One without a lock file was made just now; links and folders of other users are left alone.
            if folder.is_symlink() or lock.is_symlink() or not lock.is_file() or not _is_mine(folder):
                continue
            with filelock.FileLock(lock, timeout=0):
                shutil.rmtree(folder, ignore_errors=True)


def _is_mine(folder: Path) -> bool:
    return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
