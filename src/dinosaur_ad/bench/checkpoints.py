"""How far a cell has come: its finished rows, and the method as it was after each.

A row counts when its file can be read, the method's state when every file of it has the hash its manifest says. The
last two states are kept, so that one damaged by a crash costs one task and not the whole sequence. What a method has
done of the task after them lies in its scratch folder, and is its own business.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bench.places import LocalPlace, Place
from dinosaur_ad.bench.results import DAMAGED_ARRAYS
from dinosaur_ad.methods.contract import Method

KEEP = 2
_PARTIAL, _SCRATCH = "partial", "scratch"
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Row:
    """What was found out after learning one task: arrays by name, and the rest."""

    arrays: dict[str, NDArray[Any]]
    notes: dict[str, Any]

    def encode(self) -> bytes:
        """As one file."""
        buffer = io.BytesIO()
        notes = np.frombuffer(json.dumps(self.notes).encode(), np.uint8)
        np.savez_compressed(buffer, allow_pickle=False, notes=notes, **self.arrays)
        return buffer.getvalue()

    @classmethod
    def decode(cls, content: bytes) -> Row:
        """Read such a file; ValueError when it is damaged."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as stored:
                arrays = {key: stored[key] for key in stored.files}
            return cls(arrays, json.loads(arrays.pop("notes").tobytes()))
        except DAMAGED_ARRAYS as error:
            raise ValueError(str(error)) from error


class Checkpoints:
    """The rows and states of one cell, in the folder where its result will be."""

    def __init__(self, place: Place) -> None:
        self._place = place.below(_PARTIAL)

    def keep(self, index: int, method: Method, row: Row) -> None:
        """File the method's state, then the row: the row says that both are there."""
        state = self._place.below(f"state-{index:03d}")
        hashes = {}
        with tempfile.TemporaryDirectory(prefix="dinosaur-state-") as folder:
            method.save(Path(folder))
            for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
                name, content = path.relative_to(folder).as_posix(), path.read_bytes()
                hashes[name] = hashlib.sha256(content).hexdigest()
                state.write(name, content)
        state.write(_MANIFEST, json.dumps(hashes).encode())
        self._place.write(f"row-{index:03d}.npz", row.encode())
        if index >= KEEP:
            self._place.remove(f"state-{index - KEEP:03d}")

    def resume(self, method: Method, say: Callable[[str], None]) -> list[Row]:
        """Bring ``method`` to the last good state and return the rows up to it; says what was damaged."""
        rows = self._rows(say)
        while rows:
            damage = self._restore(len(rows) - 1, method)
            if damage is None:
                return rows
            say(f"the state after task {len(rows)} is damaged ({damage}); going back by one task")
            rows.pop()
        return []

    def clear(self) -> None:
        """Remove everything; the result is there."""
        self._place.remove("")

    def _rows(self, say: Callable[[str], None]) -> list[Row]:
        rows: list[Row] = []
        while True:
            try:
                rows.append(Row.decode(self._place.read(f"row-{len(rows):03d}.npz")))
            except FileNotFoundError:
                return rows
            except ValueError as error:
                say(f"the row of task {len(rows) + 1} is damaged ({error}); it is made again")
                return rows

    def _restore(self, index: int, method: Method) -> str | None:
        """Load the state after task ``index``; returns what is wrong with it, if anything."""
        state = self._place.below(f"state-{index:03d}")
        try:
            hashes = json.loads(state.read(_MANIFEST))
            with tempfile.TemporaryDirectory(prefix="dinosaur-state-") as folder:
                for name, expected in hashes.items():
                    content = state.read(name)
                    if hashlib.sha256(content).hexdigest() != expected:
                        return f"{name} has changed"
                    path = Path(folder) / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                method.load(Path(folder))
        except FileNotFoundError as error:
            return f"{Path(str(error.filename or error)).name} is missing"
        except ValueError as error:
            return f"the manifest cannot be read: {error}"
        return None


@contextmanager
def scratch_folder(place: Place) -> Iterator[Path]:
    """Where the method of the cell at ``place`` may keep what is half done; it need not exist.

    Beside the rows when they are on a disk: a training that was killed goes on in the middle of its epoch, on any
    machine that has the disk. For rows in an object store it is a temporary folder of this process, and a killed one
    begins its task anew.
    """
    if isinstance(place, LocalPlace):
        yield place.folder / _PARTIAL / _SCRATCH
        return
    with tempfile.TemporaryDirectory(prefix="dinosaur-scratch-", ignore_cleanup_errors=True) as folder:
        yield Path(folder) / _SCRATCH


def clear_scratch(folder: Path) -> None:
    """Empty a scratch folder. What cannot be removed does no harm: it is of a task that is done."""
    shutil.rmtree(folder, ignore_errors=True)
