"""The result of a cell: one JSON file and one array file, from which every table and figure is computed.

``result.json`` says what was run, on what, with which outcome as T x T matrices; ``arrays.npz`` holds the scores of the
final model image by image. A full result also has the scores after every earlier task, image names and the maps; the
compact form, small enough to commit, has not.

Results are exchanged, so what is read may come from a stranger: all of it is checked before it is used (see
:mod:`~dinosaur_ad.bench.foreign_results`), and it must lie in the folder that its method, scenario and seed have.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bench.foreign_results import (
    LARGEST_DOCUMENT,
    check_arrays,
    check_document,
    format_of,
    names_a_cell,
    read_arrays,
    read_document,
    text,
)
from dinosaur_ad.bench.places import LocalPlace, Place, open_place
from dinosaur_ad.errors import InputError

FORMAT = 1
"""The version of the schema of ``result.json``; a field that is added leaves it as it is."""
RESULT, ARRAYS, ERROR = "result.json", "arrays.npz", "error.json"

PARTIAL, SCRATCH = "partial", "scratch"
"""The folder of what a cell has not finished yet, and in it that of its method; nothing in them is a result."""
_UNFINISHED = re.compile(rf"(.*/)?{PARTIAL}/(state-\d+|work|{SCRATCH})/.*")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TaskScores:
    """What the final model said about one task's N test images, in the order of the dataset.

    ``routes`` are indices into the cell's tasks; ``oracle`` the scores with the true task given; ``history`` (T, N) the
    scores after every task. ``history``, ``names`` and ``maps`` are None in the compact form.
    """

    labels: NDArray[np.int8]
    kinds: tuple[str, ...]
    scores: NDArray[np.float32]
    oracle: NDArray[np.float32] | None = None
    routes: NDArray[np.int16] | None = None
    own_thresholds: NDArray[np.float32] | None = None
    history: NDArray[np.float32] | None = None
    names: tuple[str, ...] | None = None
    maps: NDArray[np.float16] | None = None


@dataclass(frozen=True)
class FailedCell:
    """A cell that ended with an error; ``details`` is a traceback where the error was not foreseen."""

    method: str
    scenario: str
    seed: int
    error: str
    details: str = ""

    def save(self, place: Place) -> None:
        """Leave a note where the result would be."""
        place.write(ERROR, (json.dumps(asdict(self), indent=1) + "\n").encode())

    @classmethod
    def load(cls, place: Place) -> FailedCell:
        """Read the note."""
        try:
            document = read_document(place.read(ERROR, LARGEST_DOCUMENT))
            names = names_a_cell(document)
            failed = cls(*names, error=text(document["error"]), details=text(document.get("details", "")))
        except (KeyError, ValueError, OSError) as error:
            raise InputError(f"'{place}/{ERROR}' is damaged; remove it and run that cell again.") from error
        _refuse_other_folder(place, names)
        return failed


@dataclass(frozen=True)
class CellResult:
    """One (method, scenario, seed), finished.

    Matrices are T x T: row ``t`` is the state after learning task ``t``, column ``j`` the task it is tested on. What is
    undefined (the true task given before it was learned) is NaN, and null in the file. ``published`` says that it was
    run with ``--publish``, by one exact revision; a file without the word was not.
    """

    method: str
    summary: str
    scenario: str
    seed: int
    settings: dict[str, Any]
    info: dict[str, Any]
    parameters: dict[str, int]
    scenario_info: dict[str, Any]
    tasks: list[dict[str, Any]]
    auroc: Floats
    nan_scores: NDArray[np.int64]
    thresholds: Floats
    oracle_auroc: Floats | None
    routing: Floats | None
    pixel: list[dict[str, float]] | None
    rows: list[dict[str, Any]]
    environments: list[dict[str, Any]]
    final: list[TaskScores]
    published: bool = False

    @property
    def name(self) -> str:
        """The cell in words."""
        return f"{self.method} on {self.scenario}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """Where its files are, below the folder of all results."""
        return cell_folder(self.method, self.scenario, self.seed)

    def save(self, place: Place, *, compact: bool = False) -> None:
        """Write both files; the JSON last, because it says that the cell is finished."""
        for name, content in self.files(compact=compact).items():
            place.write(name, content)

    def files(self, *, compact: bool = False) -> dict[str, bytes]:
        """The content of both files by name; the same result gives the same bytes."""
        arrays = dict(_to_arrays(self.final, compact=compact))
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        document = {
            "format": FORMAT,
            **{key: getattr(self, key) for key in _PLAIN},
            **{key: _nested(getattr(self, key)) for key in _MATRICES},
            **({"published": True} if self.published else {}),
        }
        written = json.dumps(without_nan(document), indent=1, allow_nan=False) + "\n"
        return {ARRAYS: buffer.getvalue(), RESULT: written.encode()}

    @classmethod
    def load(cls, place: Place) -> CellResult:
        """Read both files; a damaged or foreign one is refused with a sentence that names it."""
        try:
            document = read_document(place.read(RESULT, LARGEST_DOCUMENT))
            if (version := format_of(document)) > FORMAT:
                raise InputError(
                    f"'{place}' was written in format {version} by another version of dinosaur-ad, and this one reads "
                    f"formats up to {FORMAT}; use a newer version."
                )
            check_document(document)
            arrays = _read_arrays(place)
            plain = {key: document[key] for key in _PLAIN}
            matrices: dict[str, Any] = {key: _matrix(document[key]) for key in _MATRICES}
            matrices["nan_scores"] = np.asarray(document["nan_scores"], np.int64)
            for index in range(len(document["tasks"])):
                check_arrays(arrays, index, document["tasks"])
            final = [_from_arrays(arrays, index) for index in range(len(document["tasks"]))]
            pixel = plain["pixel"]
            plain["pixel"] = pixel and [
                {key: math.nan if value is None else value for key, value in task.items()} for task in pixel
            ]
            found = cls(**plain, **matrices, final=final, published=document.get("published", False))
        except FileNotFoundError as error:
            raise InputError(
                f"'{place}' holds no whole result ({error.filename or error} is missing); remove that folder and run "
                "the cell again."
            ) from error
        except (KeyError, ValueError, OSError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise InputError(
                f"The result in '{place}' is damaged ({what}); remove that folder and run the cell again."
            ) from error
        _refuse_other_folder(place, (found.method, found.scenario, found.seed))
        return found


_PLAIN = (
    "method", "summary", "scenario", "seed", "settings", "info", "parameters",
    "scenario_info", "tasks", "pixel", "rows", "environments",
)  # fmt: skip
_MATRICES = ("auroc", "nan_scores", "thresholds", "oracle_auroc", "routing")


def cell_folder(method: str, scenario: str, seed: int) -> str:
    """Where the files of a cell are, below the folder of all results.

    >>> cell_folder("dinosaur:paper", "folder:/photos/line 3", 0)
    'folder-line 3/dinosaur-paper/seed-0'
    """
    kind, colon, path = scenario.partition(":")
    last = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return f"{f'{kind}-{last}' if colon else scenario}/{method.replace(':', '-')}/seed-{seed}"


def _refuse_other_folder(place: Place, named: tuple[str, str, int]) -> None:
    """A result lies where its cell would write it: what it says and where it is found cannot differ."""
    expected = cell_folder(*named)
    parts = tuple(expected.split("/"))
    if place.parts[-len(parts) :] != parts:
        raise InputError(
            f"The result in '{place}' says that it belongs to a folder '{expected[:200]}'; put it into one of that "
            "name, or remove it."
        )


def is_grid(name: str) -> bool:
    """Whether a file of that name is a grid of hyperparameters.

    >>> is_grid("grids/grid-paper-mvtec-ad.json"), is_grid("mvtec-ad/dinosaur/seed-0/result.json")
    (True, False)
    """
    file = name.rpartition("/")[2]
    return file.startswith("grid-") and file.endswith(".json")


def result_files(place: Place) -> list[str]:
    """The names of all files below a place, without those of cells that are not finished."""
    return [name for name in place.list() if not _UNFINISHED.fullmatch(name)]


def open_results(folder: str, files: Sequence[str], advice: str) -> tuple[Place, list[str]]:
    """A folder (or fsspec address) of results, and the names of the finished files in it.

    :raises InputError: it holds no grid and none of the ``files``; the message ends with ``advice``.
    """
    place = open_place(folder)
    names = result_files(place)
    if not any(is_grid(name) or name.rpartition("/")[2] in files for name in names):
        absent = isinstance(place, LocalPlace) and not place.folder.is_dir()
        where = f"'{folder}', which is no folder" if absent else f"'{folder}'"
        raise InputError(f"There are no results in {where}; {advice}.")
    return place, names


def find_results(folders: Sequence[str]) -> tuple[list[CellResult], list[FailedCell]]:
    """All finished and failed cells below the given folders (or fsspec addresses), sorted.

    :raises InputError: something is damaged, or one of the folders holds nothing: neither cells nor grids.
    """
    finished: list[CellResult] = []
    failed: list[FailedCell] = []
    for folder in folders:
        place, names = open_results(folder, (RESULT, ERROR), "make some with: dinosaur bench run")
        for name in names:
            parent, _, file = name.rpartition("/")
            if file == RESULT:
                finished.append(CellResult.load(place.below(parent) if parent else place))
            elif file == ERROR:
                failed.append(FailedCell.load(place.below(parent) if parent else place))
    return sorted(finished, key=_order), sorted(failed, key=_order)


def _order(cell: CellResult | FailedCell) -> tuple[str, str, int]:
    return cell.scenario, cell.method, cell.seed


def _to_arrays(final: Iterable[TaskScores], *, compact: bool) -> Iterator[tuple[str, NDArray[Any]]]:
    for index, task in enumerate(final):
        kinds = sorted(set(task.kinds))
        yield f"{index}/kind_names", np.asarray(kinds, np.str_)
        yield f"{index}/kinds", np.asarray([kinds.index(kind) for kind in task.kinds], np.int16)
        for key in ("labels", "scores", "oracle", "routes", "own_thresholds", "history", "maps"):
            value = getattr(task, key)
            if value is not None and not (compact and key in ("history", "maps")):
                yield f"{index}/{key}", value
        if task.names is not None and not compact:
            yield f"{index}/names", np.asarray(task.names, np.str_)


def _read_arrays(place: Place) -> dict[str, NDArray[Any]]:
    """The array file; whatever is wrong with it becomes a ValueError that names it."""
    try:
        return read_arrays(place.read(ARRAYS))
    except ValueError as error:
        raise ValueError(f"{ARRAYS} cannot be read") from error


def _from_arrays(arrays: Mapping[str, NDArray[Any]], index: int) -> TaskScores:
    kind_names = arrays[f"{index}/kind_names"].tolist()
    names = arrays.get(f"{index}/names")
    return TaskScores(
        labels=arrays[f"{index}/labels"],
        kinds=tuple(kind_names[kind] for kind in arrays[f"{index}/kinds"]),
        scores=arrays[f"{index}/scores"],
        oracle=arrays.get(f"{index}/oracle"),
        routes=arrays.get(f"{index}/routes"),
        own_thresholds=arrays.get(f"{index}/own_thresholds"),
        history=arrays.get(f"{index}/history"),
        names=None if names is None else tuple(names.tolist()),
        maps=arrays.get(f"{index}/maps"),
    )


def _nested(matrix: NDArray[Any] | None) -> list[list[float]] | None:
    return None if matrix is None else matrix.tolist()


def _matrix(nested: list[list[float | None]] | None) -> Floats | None:
    if nested is None:
        return None
    return np.asarray([[math.nan if value is None else value for value in row] for row in nested], np.float64)


def without_nan(value: Any) -> Any:
    """The same document with null for NaN, which JSON does not know."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: without_nan(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(entry) for entry in value]
    return value
