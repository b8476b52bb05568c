"""Results of ``dinosaur bench grid``: one JSON file a scenario, and means over several scenarios."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bench.foreign_results import (
    LARGEST_DOCUMENT,
    format_of,
    listed,
    maybe,
    number,
    plain_name,
    read_document,
    record,
    scenario_name,
    text,
    whole,
)
from dinosaur_ad.bench.places import Place, open_place
from dinosaur_ad.bench.results import cell_folder, is_grid, result_files, without_nan
from dinosaur_ad.errors import InputError

FORMAT, KIND = 1, "grid"

Floats = NDArray[np.float64]
_COMMON = ("preset", "settings", "ratios", "radii", "minimum", "seed", "device")


@dataclass(frozen=True)
class ScenarioGrid:
    """The grid of one scenario: image AUROC of the final model for every coreset ratio and radius.

    ``members[i][t]`` is how many patches a location of task ``t`` keeps at ratio ``i``, and ``per_task[i][j][t]`` the
    AUROC on it with radius ``j``; NaN (null in the file) where its test images are of one class. ``data`` are the
    checksums of the tasks.
    """

    preset: str
    encoder: dict[str, Any]
    scenario: str
    seed: int
    device: str
    ratios: list[float]
    radii: list[int]
    minimum: int
    members: list[list[int]]
    per_task: list[list[list[float]]]
    tasks: list[str]
    settings: dict[str, Any]
    data: list[str]
    environment: dict[str, Any]
    seconds: float

    @property
    def auroc(self) -> Floats:
        """(ratios, radii): the mean over the tasks, each of the same weight."""
        mean: Floats = np.asarray(self.per_task, np.float64).mean(axis=2)
        return mean

    @property
    def repeated(self) -> int:
        """How many cells repeat the one of the next smaller ratio, because every task keeps as many patches there.

        The minimum does that: with 20 patches at least, 1 %, 2.5 % and 5 % are the same up to 400 images.
        """
        return sum(fewer == more for fewer, more in pairwise(self.members)) * len(self.radii)

    def common(self) -> dict[str, Any]:
        """See :func:`common`."""
        return common(vars(self))

    def save(self, place: Place) -> None:
        """Write the file, whole or not at all."""
        document = {"format": FORMAT, "kind": KIND} | asdict(self)
        document |= {"auroc": without_nan(self.auroc.tolist()), "per_task": without_nan(self.per_task)}
        place.write(grid_file(self.preset, self.scenario), (json.dumps(document, indent=1) + "\n").encode())

    @classmethod
    def load(cls, place: Place, name: str) -> ScenarioGrid:
        """Read such a file; the mean stored in it is not read but computed again."""
        try:
            document = read_document(place.read(name, LARGEST_DOCUMENT))
            if (version := format_of(document)) > FORMAT:
                raise InputError(
                    f"'{place}/{name}' is a grid of format {version} from another version of dinosaur-ad, and this one "
                    f"reads formats up to {FORMAT}; use a newer version."
                )
            _check(document)
            grid = cls(**{entry.name: document[entry.name] for entry in fields(cls)})
            shape = (len(grid.ratios), len(grid.radii), len(grid.tasks))
            per_task = np.asarray(grid.per_task, np.float64)  # null becomes NaN
            if per_task.shape != shape or np.shape(grid.members) != (shape[0], shape[2]):
                raise ValueError(f"{shape} values expected, {per_task.shape} found")
        except (KeyError, ValueError, OSError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise InputError(f"'{place}/{name}' is damaged ({what}); remove it and make it again.") from error
        if name.rpartition("/")[2] != grid_file(grid.preset, grid.scenario):
            raise InputError(
                f"'{place}/{name}' says that it is '{grid_file(grid.preset, grid.scenario)[:200]}'; give it that name, "
                "or remove it."
            )
        grid.per_task[:] = per_task.tolist()
        return grid


def _check(document: Mapping[str, Any]) -> None:
    """Check every field of a grid's file; shapes are checked afterwards."""
    numbers, counts = partial(listed, check=number), partial(listed, check=whole)
    record(
        document,
        {
            "preset": plain_name,
            "encoder": record,
            "scenario": scenario_name,
            "seed": whole,
            "device": text,
            "ratios": numbers,
            "radii": counts,
            "minimum": whole,
            "members": partial(listed, check=counts),
            "per_task": partial(listed, check=partial(listed, check=partial(listed, check=maybe(number)))),
            "tasks": partial(listed, check=text),
            "settings": record,
            "data": partial(listed, check=text),
            "environment": record,
            "seconds": number,
        },
    )
    if not all(document[axis] for axis in ("ratios", "radii", "tasks")):
        raise ValueError("it has no values")


@dataclass(frozen=True)
class GridResult:
    """The grids of several scenarios, made alike: same preset, settings, encoder, ratios, radii and seed."""

    parts: tuple[ScenarioGrid, ...]

    @property
    def preset(self) -> str:
        """The preset it started from."""
        return self.parts[0].preset

    @property
    def encoder(self) -> dict[str, Any]:
        """The description of the encoder."""
        return self.parts[0].encoder

    @property
    def ratios(self) -> tuple[float, ...]:
        """The coreset ratios, ascending: the rows."""
        return tuple(self.parts[0].ratios)

    @property
    def radii(self) -> tuple[int, ...]:
        """The radii, ascending: the columns."""
        return tuple(self.parts[0].radii)

    @property
    def scenarios(self) -> dict[str, Floats]:
        """By scenario, the image AUROC (ratios, radii) of the final model, averaged over its tasks."""
        return {part.scenario: part.auroc for part in self.parts}

    @property
    def mean(self) -> Floats:
        """(ratios, radii): the mean over the scenarios, each of the same weight; what the paper's table shows."""
        mean: Floats = np.stack(list(self.scenarios.values())).mean(axis=0)
        return mean


def common(made_with: Mapping[str, Any]) -> dict[str, Any]:
    """Of a grid's fields, as they are in its file, those in which two scenarios must agree to be averaged."""
    shared = {key: made_with[key] for key in _COMMON} | {"weights": made_with["encoder"].get("weights_sha256")}
    document: dict[str, Any] = json.loads(json.dumps(shared))
    return document


def grid_file(preset: str, scenario: str) -> str:
    """The name of a scenario's file.

    >>> grid_file("paper", "folder:/photos/line 3")
    'grid-paper-folder-line 3.json'
    """
    return f"grid-{preset}-{cell_folder('', scenario, 0).partition('/')[0]}.json"


def load_grids(folders: Sequence[str]) -> list[GridResult]:
    """All grids below the given folders (or fsspec addresses), those that were made alike together.

    :raises InputError: a damaged file, or one scenario twice with different data.
    """
    alike: dict[str, dict[str, ScenarioGrid]] = {}
    for folder in folders:
        place = open_place(folder)
        for name in result_files(place):
            if not is_grid(name):
                continue
            grid = ScenarioGrid.load(place, name)
            group = alike.setdefault(json.dumps(grid.common(), sort_keys=True), {})
            if group.setdefault(grid.scenario, grid).data != grid.data:
                raise InputError(
                    f"There are two grids of '{grid.scenario}' that differ only in their images, one of them in "
                    f"'{place}/{name}'; leave one of the folders out."
                )
    return [GridResult(tuple(group.values())) for group in alike.values()]
