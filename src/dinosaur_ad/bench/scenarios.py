"""The scenarios that can be run by name, and whether their data is here.

A scenario of real images looks for its dataset in a data folder (``--data``, or ``DINOSAUR_DATA``), under any of the
names its archive unpacks to. Adding one is an entry in :data:`_SPECS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from dinosaur_ad.bench.public_datasets import DATASETS, Dataset
from dinosaur_ad.datasets import (
    Scenario,
    btad_scenario,
    loco_scenario,
    mpdd_scenario,
    mtd_scenario,
    mvtec_ad2_scenario,
    mvtec_scenario,
    real_iad_scenario,
    visa_scenario,
)
from dinosaur_ad.datasets.drawn_drift import DriftKind
from dinosaur_ad.datasets.mtd import MtdDrift
from dinosaur_ad.datasets.synthetic import synthetic_drift_scenario, synthetic_scenario
from dinosaur_ad.errors import InputError

__all__ = [
    "DataStatus",
    "Dataset",
    "ScenarioLine",
    "ScenarioSpec",
    "data_status",
    "describe_table",
    "list_scenarios",
    "open_scenario",
    "what_is_partial",
]

FOLDER_PREFIX = "folder:"
DATA_VARIABLE = "DINOSAUR_DATA"
ONE_CATEGORY = "bottle"
ONE_CATEGORY_SCENARIO = f"mvtec-ad-{ONE_CATEGORY}"


@dataclass(frozen=True)
class ScenarioSpec:
    """One entry: what it is, what it needs, and how to build it from (the dataset's folder, seed)."""

    name: str
    summary: str
    dataset: Dataset | None
    build: Callable[[Path | None, int], Scenario]
    tasks: int
    """How many tasks it has when its dataset is whole."""


@dataclass(frozen=True)
class DataStatus:
    """Whether a scenario's data is here, and how many ``tasks`` that gives.

    ``partial`` means that it runs, on fewer tasks than it should have; data that cannot be run is ``missing``.
    """

    state: Literal["ready", "partial", "missing", "built in"]
    detail: str
    tasks: int = 0


class ScenarioLine(NamedTuple):
    """One line of what ``dinosaur bench list`` shows; ``tasks`` reads like ``10`` or ``5 of 15``."""

    name: str
    tasks: str
    state: str
    detail: str
    summary: str


def list_scenarios() -> dict[str, ScenarioSpec]:
    """All scenarios by name. Besides these, ``folder:PATH`` is any folder of categories in the MVTec-AD layout."""
    return dict(_SPECS)


def open_scenario(name: str, data: Path | None = None, seed: int = 0) -> Scenario:
    """The scenario called ``name``; its ``name`` field is the same.

    :param data: the folder that holds the datasets; without it, the one ``DINOSAUR_DATA`` names.
    :param seed: decides the draws of drift and of synthetic products, never the split of a dataset.
    :raises InputError: an unknown name, or data that is missing or incomplete; the sentence says what to do.

    >>> [task.name for task in open_scenario("synthetic-tiny").tasks]
    ['fabric', 'gear']
    """
    if name.startswith(FOLDER_PREFIX):
        return replace(_own_categories(name), name=name)
    spec = _get(name)
    folder = None if spec.dataset is None else _require(spec.dataset, data, name)
    return replace(spec.build(folder, seed), name=name)


def data_status(name: str, data: Path | None = None) -> DataStatus:
    """Whether the scenario called ``name`` can be run; reads folders, not images.

    >>> data_status("synthetic").state
    'built in'
    """
    if name.startswith(FOLDER_PREFIX):
        return _try(partial(_own_categories, name), None)
    spec = _get(name)
    if spec.dataset is None:
        return DataStatus("built in", "needs no data", spec.tasks)
    folder = _find(spec.dataset, data)
    if folder is None:
        return DataStatus("missing", _missing(spec.dataset, data))
    return _try(partial(spec.build, folder, 0), folder, spec.tasks)


def what_is_partial(scenario: Scenario, data: Path | None = None) -> str | None:
    """Which categories an opened scenario has, if its dataset should have more; None if it is whole."""
    spec = _SPECS.get(scenario.name)
    if spec is None or spec.dataset is None or len(scenario.tasks) >= spec.tasks:
        return None
    return _present(scenario, _find(spec.dataset, data), spec.tasks)


def describe_table(data: Path | None = None) -> list[ScenarioLine]:
    """A row for each scenario, for people; scenarios on one dataset share its state."""
    states: dict[str, DataStatus] = {}
    rows = []
    for spec in _SPECS.values():
        shared = spec.name if spec.dataset is None else f"{spec.dataset.name}, {spec.tasks}"
        status = states[shared] = states.get(shared) or data_status(spec.name, data)
        tasks = f"{status.tasks} of {spec.tasks}" if status.state == "partial" else str(spec.tasks)
        rows.append(ScenarioLine(spec.name, tasks, status.state, status.detail, spec.summary))
    return rows


def _get(name: str) -> ScenarioSpec:
    if name not in _SPECS:
        raise InputError(f"There is no scenario '{name}'; choose from: {', '.join(_SPECS)}, {FOLDER_PREFIX}PATH.")
    return _SPECS[name]


# Where the data is


def _data_folder(data: Path | None) -> Path | None:
    named = os.environ.get(DATA_VARIABLE)
    return data or (Path(named) if named else None)


def _find(dataset: Dataset, data: Path | None) -> Path | None:
    """The dataset's folder in the data folder, or the data folder itself when that is the dataset."""
    root = _data_folder(data)
    if root is None:
        return None
    candidates = [root / name for name in dataset.folders]
    if root.name in dataset.folders:
        candidates.insert(0, root)
    return next((folder for folder in candidates if folder.is_dir()), None)


def _require(dataset: Dataset, data: Path | None, name: str) -> Path:
    folder = _find(dataset, data)
    if folder is None:
        raise InputError(f"'{name}' cannot be run: {_missing(dataset, data)}.")
    return folder


def _missing(dataset: Dataset, data: Path | None) -> str:
    root, (ours, *others) = _data_folder(data), dataset.folders
    names = f"folder '{ours}' (nor {', '.join(others)})"
    if root is None:
        looked = f"no data folder was given to look for '{ours}' in"
    else:
        looked = f"'{root}' has no {names}" if root.is_dir() else f"the data folder '{root}' does not exist"
    checksum = "; SHA-256 of {}: {:.16}...".format(*dataset.archive) if dataset.archive else ""
    return (
        f"{looked}; download {dataset.name} from {dataset.url} ({dataset.size}; licence: {dataset.licence}{checksum}), "
        f"{dataset.how}, and pass the folder that holds it with --data or {DATA_VARIABLE}"
    )


def _try(build: Callable[[], Scenario], folder: Path | None, expected: int = 0) -> DataStatus:
    try:
        scenario = build()
    except InputError as error:
        return DataStatus("missing", str(error).rstrip("."))
    count = len(scenario.tasks)
    if count < expected:
        return DataStatus("partial", _present(scenario, folder, expected), count)
    return DataStatus("ready", f"{count} tasks{_in(folder)}", count)


def _present(scenario: Scenario, folder: Path | None, expected: int) -> str:
    names = ", ".join(task.name for task in scenario.tasks)
    return f"{len(scenario.tasks)} of {expected} categories{_in(folder)}: {names}"


def _in(folder: Path | None) -> str:
    return "" if folder is None else f" in '{folder}'"


# How each is built


def _own_categories(name: str) -> Scenario:
    path = name.removeprefix(FOLDER_PREFIX)
    if not path:
        raise InputError("'folder:' names no folder; write folder:PATH, such as folder:photos/line-3.")
    return mvtec_scenario(Path(path).expanduser())


def _products(name: str, summary: str, read: Callable[[Path], Scenario]) -> ScenarioSpec:
    """A task for each category of the dataset of that name."""
    dataset = DATASETS[name]
    return ScenarioSpec(name, summary, dataset, partial(_official, read, dataset), len(dataset.categories))


def _official(read: Callable[[Path], Scenario], dataset: Dataset, folder: Path | None, seed: int) -> Scenario:
    """The dataset's own categories and no others, so that the name says what was measured."""
    assert folder is not None
    scenario = read(folder)
    tasks = tuple(task for task in scenario.tasks if task.name in dataset.categories)
    if not tasks:
        raise InputError(
            f"'{folder}' holds none of the categories of {dataset.name} ({', '.join(dataset.categories)}); "
            f"for your own categories write folder:{folder}."
        )
    return replace(scenario, tasks=tasks)


def _one_category(folder: Path | None, seed: int) -> Scenario:
    """The first category of MVTec-AD alone."""
    assert folder is not None
    scenario = _official(mvtec_scenario, DATASETS["mvtec-ad"], folder, seed)
    tasks = tuple(task for task in scenario.tasks if task.name == ONE_CATEGORY)
    if not tasks:
        raise InputError(f"'{folder}' holds no category {ONE_CATEGORY}; unpack it there.")
    return replace(scenario, tasks=tasks, description=f"MVTec-AD, {ONE_CATEGORY} alone.")


def _mtd(drift: MtdDrift, folder: Path | None, seed: int) -> Scenario:
    assert folder is not None
    return mtd_scenario(folder, drift, seed)


def _synthetic(folder: Path | None, seed: int) -> Scenario:
    return synthetic_scenario(seed)


def _synthetic_tiny(folder: Path | None, seed: int) -> Scenario:
    return synthetic_scenario(seed, train=8, test_normal=4, test_per_kind=1, size=96, products=["fabric", "gear"])


def _synthetic_drift(drift: DriftKind, folder: Path | None, seed: int) -> Scenario:
    return synthetic_drift_scenario(drift, seed)


def _specs() -> Sequence[ScenarioSpec]:
    mtd = DATASETS["mtd"]
    literal = "the same with the scale as printed (a factor of 0.01 to 0.10): hardly anything is left to see"
    return (
        _products("mvtec-ad", "15 products in alphabetical order", mvtec_scenario),
        ScenarioSpec(
            ONE_CATEGORY_SCENARIO,
            "its first product alone, to compare with what a method's own authors print",
            DATASETS["mvtec-ad"],
            _one_category,
            1,
        ),
        _products("mvtec-loco", "5 products, logical and structural defects", loco_scenario),
        ScenarioSpec("mtd-color", "magnetic tiles, light drifts over 10 tasks", mtd, partial(_mtd, "color"), 10),
        ScenarioSpec("mtd-blur", "magnetic tiles, focus drifts over 10 tasks", mtd, partial(_mtd, "blur"), 10),
        ScenarioSpec("mtd-geo", "magnetic tiles, camera drifts over 10 tasks", mtd, partial(_mtd, "geo"), 10),
        ScenarioSpec("mtd-geo-literal", literal, mtd, partial(_mtd, "geo-literal"), 10),
        _products("visa", "12 products, many parts in one picture among them", visa_scenario),
        _products("mpdd", "6 painted metal parts, light and place vary", mpdd_scenario),
        _products("real-iad", "30 products, five views of each part", real_iad_scenario),
        _products("mvtec-ad-2", "8 products, its public test images", mvtec_ad2_scenario),
        _products("btad", "3 industrial products", btad_scenario),
        ScenarioSpec("synthetic", "5 procedural products", None, _synthetic, 5),
        ScenarioSpec("synthetic-color", "procedural fabric, light drifts", None, partial(_synthetic_drift, "color"), 4),
        ScenarioSpec("synthetic-blur", "procedural fabric, focus drifts", None, partial(_synthetic_drift, "blur"), 4),
        ScenarioSpec("synthetic-geo", "procedural fabric, camera drifts", None, partial(_synthetic_drift, "geo"), 4),
        ScenarioSpec("synthetic-tiny", "2 procedural products, few small images; for tests", None, _synthetic_tiny, 2),
    )


_SPECS = {spec.name: spec for spec in _specs()}
