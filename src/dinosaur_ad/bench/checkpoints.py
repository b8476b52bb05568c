"""How far a cell has come: its finished rows, and the method as it was after each.

A row counts when its file can be read, the method's state when every file of it has the hash its manifest says. The
last two states are kept, so that one damaged by a crash costs one task and not the whole sequence. What a method has
done of the task after them lies in its scratch folder, and is its own business.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dinosaur_ad.bench.foreign_results import LARGEST_DOCUMENT, manifest
from dinosaur_ad.bench.places import LocalPlace, Place
from dinosaur_ad.bench.relative_names import relative_parts
from dinosaur_ad.bench.result_rows import Row, check_row
from dinosaur_ad.bench.results import PARTIAL, SCRATCH
from dinosaur_ad.bench.work_folders import work_folder
from dinosaur_ad.datasets.tasks import Task
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.methods.contract import Method

KEEP = 2
_MANIFEST, _WORK = "manifest.json", "work"


class Checkpoints:
    """The rows and states of one cell, in the folder where its result will be."""

    def __init__(self, place: Place) -> None:
        self._place = place.below(PARTIAL)

    def keep(self, index: int, method: Method, row: Row) -> None:
        """File the method's state, then the row: the row says that both are there."""
        state = self._place.below(f"state-{index:03d}")
        hashes = {}
        with work_folder(self._place, _WORK) as folder:
            method.save(folder)
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                name, content = path.relative_to(folder).as_posix(), path.read_bytes()
                hashes[name] = hashlib.sha256(content).hexdigest()
                state.write(name, content)
        state.write(_MANIFEST, json.dumps(hashes).encode())
        self._place.write(f"row-{index:03d}.npz", row.encode())
        if index >= KEEP:
            self._place.remove(f"state-{index - KEEP:03d}")

    def resume(self, method: Method, tasks: Sequence[Task], say: Callable[[str], None]) -> list[Row]:
        """Bring ``method`` to the last good state and return the rows up to it; says what was damaged."""
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

    def _rows(self, method: Method, tasks: Sequence[Task], say: Callable[[str], None]) -> list[Row]:
        rows: list[Row] = []
        while len(rows) < len(tasks):
            try:
                row = Row.decode(self._place.read(f"row-{len(rows):03d}.npz"))
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
        except Exception as error:  # whatever a method makes of files that it did not write
            return f"{type(error).__name__}: {error}"
        return None


@contextmanager
def scratch_folder(place: Place) -> Iterator[Path]:
    """Where the method of the cell at ``place`` may keep what is half done; it need not exist.

    Beside the rows when they are on a disk: a training that was killed goes on in the middle of its epoch, on any
    machine that has the disk. For rows in an object store it is a temporary folder of this process, and a killed one
    begins its task anew.
    """
    if isinstance(place, LocalPlace):
        yield place.path(f"{PARTIAL}/{SCRATCH}")
        return
    with work_folder(place, SCRATCH) as folder:
        yield folder / SCRATCH


def clear_scratch(folder: Path) -> None:
    """Empty a scratch folder. What cannot be removed does no harm: it is of a task that is done."""
    shutil.rmtree(folder, ignore_errors=True)
