"""Which images a scenario has: the checksums of the tasks of this project's published results.

``published_data.json`` holds them by scenario, seed and task, so that a stranger's row can be compared without the
datasets; ``scripts/published_data.py`` writes it from stored results. Synthetic images are drawn by the program itself,
so theirs are computed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bench.lessons import task_checksum
from dinosaur_ad.bench.report.row_groups import is_fixed
from dinosaur_ad.bench.results import CellResult
from dinosaur_ad.bench.scenarios import list_scenarios, open_scenario

FILE = "published_data.json"
ANY_SEED = "any"
"""In the place of a seed, where every seed has the same images."""


class TaskData(NamedTuple):
    """The checksum of a task's images, and the SHA-256 of the labels of its test images in their order."""

    images: str
    labels: str


def collect(cells: Iterable[CellResult]) -> dict[str, dict[str, dict[str, TaskData]]]:
    """The data of stored results by scenario, seed and task."""
    found: dict[str, dict[str, dict[str, TaskData]]] = {}
    for cell in cells:
        tasks = found.setdefault(cell.scenario, {}).setdefault(_seed(cell), {})
        for task, final in zip(cell.tasks, cell.final, strict=True):
            tasks[task["name"]] = TaskData(task["checksum"], labels_sha256(final.labels))
    return found


def known_data(scenario: str, seed: int) -> dict[str, TaskData]:
    """The data of a scenario by task, as far as it is known here.

    >>> sorted(known_data("synthetic-tiny", 0)), len(known_data("mtd-color", 0)), known_data("folder:photos", 0)
    (['fabric', 'gear'], 10, {})
    """
    spec = list_scenarios().get(scenario)
    if spec is not None and spec.dataset is None:
        return {
            task.name: TaskData(
                task_checksum(task), labels_sha256(np.asarray([sample.label for sample in task.test], np.int8))
            )
            for task in open_scenario(scenario, seed=seed).tasks
        }
    seeds = _published().get(scenario, {})
    return {name: TaskData(*data) for name, data in seeds.get(ANY_SEED, seeds.get(str(seed), {})).items()}


def labels_sha256(labels: NDArray[np.integer]) -> str:
    """The SHA-256 of N labels, a byte each."""
    return hashlib.sha256(labels.astype(np.int8).tobytes()).hexdigest()


def data_faults(cell: CellResult) -> Iterator[str]:
    """What of a cell's images and labels differs from the published data; unknown tasks are passed over."""
    known = known_data(cell.scenario, cell.seed)
    for task, final in zip(cell.tasks, cell.final, strict=True):
        data = known.get(task["name"])
        if data is None:
            continue
        if task["checksum"] != data.images:
            yield f"the images of {task['name']} are not the published ones"
        elif labels_sha256(final.labels) != data.labels:
            yield f"the labels of {task['name']} are not the published ones"


def unknown_tasks(cell: CellResult) -> int:
    """How many tasks of a cell have no published data to compare with."""
    known = known_data(cell.scenario, cell.seed)
    return sum(task["name"] not in known for task in cell.tasks)


@cache
def _published() -> dict[str, dict[str, dict[str, list[str]]]]:
    document: dict[str, dict[str, dict[str, list[str]]]] = json.loads(
        files("dinosaur_ad.bench").joinpath(FILE).read_text("utf-8")
    )
    return document


def _seed(cell: CellResult) -> str:
    return ANY_SEED if is_fixed(cell.scenario) else str(cell.seed)
