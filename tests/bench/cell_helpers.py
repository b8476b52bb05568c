"""Small cells for tests of the runner, and what must be equal when two runs are."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dinosaur_ad.bench.cell import CellSpec
from dinosaur_ad.bench.places import open_place
from dinosaur_ad.bench.results import CellResult
from dinosaur_ad.bench.runner import RunOptions, plan

TINY_SETTINGS = {"encoder": "tiny-dinov2", "layers": "0+1", "size": "70"}
SCENARIO = "synthetic-tiny"

# A method in a file of its own, as a user would write one; what it does is in the hands of the test.
PLUGIN = """
import json, os, signal
from dataclasses import dataclass
from pathlib import Path
import numpy as np
from dinosaur_ad.methods import Config, Method, Parameters, Scores, register

@dataclass(frozen=True)
class FragileConfig(Config):
    marker: str = ""
    trouble: str = "none"

@register("fragile", variants={"default": FragileConfig()}, summary="brightness, until something happens")
class Fragile(Method):
    has_maps = False

    def __init__(self, config, workbench):
        super().__init__(config, workbench)
        self.levels = []

    def learn(self, lesson):
        if self.config.trouble == "raise" and self.levels:
            raise RuntimeError("the second task is too much")
        if self.config.trouble == "kill" and self.levels and not Path(self.config.marker).exists():
            Path(self.config.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.levels.append(float(np.mean([photo.pixels().mean() for photo in lesson.train])))

    def score(self, photos, task=None):
        level = np.asarray([photo.pixels().mean() for photo in photos])
        return Scores(np.abs(level[:, None] - np.asarray(self.levels)).min(axis=1).astype(np.float32))

    def save(self, folder):
        (folder / "levels.json").write_text(json.dumps(self.levels))

    def load(self, folder):
        self.levels = json.loads((folder / "levels.json").read_text())

    def storage_bytes(self):
        return 8 * len(self.levels)

    def parameters(self):
        return Parameters(1, 0)

    def info(self):
        return {"description": "mean brightness", "weights_sha256": "0" * 64}
"""


def tiny_cells(
    methods: tuple[str, ...] = ("dinosaur",), seeds: tuple[int, ...] = (0,), **settings: str
) -> list[CellSpec]:
    """Cells that take a second."""
    return plan(methods, [SCENARIO], seeds, settings={**TINY_SETTINGS, **settings})


def around(folder: Path, **changes: Any) -> RunOptions:
    """A results folder with a cache of its own beside it."""
    return replace(RunOptions(str(folder / "results"), cache=folder / "cache", cache_limit=10**8), **changes)


def result_of(where: RunOptions, cell: CellSpec) -> CellResult:
    """The stored result of a cell."""
    return CellResult.load(open_place(where.out).below(cell.folder))


def assert_equal(one: CellResult, other: CellResult) -> None:
    """Everything but what a clock and a machine say."""
    for key in ("method", "scenario", "seed", "settings", "parameters", "scenario_info", "tasks", "pixel"):
        assert json.dumps(getattr(one, key)) == json.dumps(getattr(other, key)), key
    for key in ("auroc", "nan_scores", "thresholds", "oracle_auroc", "routing"):
        np.testing.assert_array_equal(getattr(one, key), getattr(other, key), err_msg=key)
    timeless = ("task", "images_scored", "storage_bytes")
    assert [[row[key] for key in timeless] for row in one.rows] == [
        [row[key] for key in timeless] for row in other.rows
    ]
    for mine, theirs in zip(one.final, other.final, strict=True):
        assert (mine.kinds, mine.names) == (theirs.kinds, theirs.names)
        for key in ("labels", "scores", "oracle", "routes", "own_thresholds", "history", "maps"):
            np.testing.assert_array_equal(getattr(mine, key), getattr(theirs, key), err_msg=key)


class Log:
    """What a run said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)

    def __contains__(self, part: str) -> bool:
        return any(part in line for line in self.lines)


Say = Callable[[str], None]
