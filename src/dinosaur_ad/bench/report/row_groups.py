"""Cells grouped for averaging: one method on one scenario, with equal settings and data for every seed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dinosaur_ad.bench.effort import config_of, formerly
from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.results import CellResult
from dinosaur_ad.errors import InputError

# The order of the paper's tables; both readings of geometric drift stand side by side.
DISCRETE = ("mvtec-ad", "mvtec-loco")
CONTINUOUS = ("mtd-color", "mtd-geo", "mtd-geo-literal", "mtd-blur")
_IDENTITY = ("description", "encoder", "weights_sha256", "fingerprint", "precision", "preset")
_COUNTS = ("name", "train", "held_out", "test_normal", "test_anomalous")


@dataclass(frozen=True)
class CellGroup:
    """The cells of one method on one scenario, by seed."""

    method: str
    scenario: str
    cells: tuple[CellResult, ...]

    @property
    def first(self) -> CellResult:
        """The cell that charts show: the one of the lowest seed."""
        return self.cells[0]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, ascending."""
        return tuple(cell.seed for cell in self.cells)


def group_cells(results: Iterable[CellResult]) -> list[CellGroup]:
    """The results by scenario and method, in the order of the paper.

    A cell given twice counts once.

    :raises InputError: cells that would be averaged, or stand in one table, were not made alike.
    """
    found: dict[tuple[str, str], dict[int, CellResult]] = {}
    for cell in results:
        seeds = found.setdefault((cell.scenario, cell.method), {})
        seeds[cell.seed] = _one_of(seeds[cell.seed], cell) if cell.seed in seeds else cell
    groups = [
        CellGroup(method, scenario, tuple(seeds[seed] for seed in sorted(seeds)))
        for (scenario, method), seeds in found.items()
    ]
    for group in groups:
        for other in group.cells[1:]:
            _refuse_other_setup(group.first, other)
            _refuse_other_data(group.first, other)
    groups.sort(key=lambda group: (*_scenario_order(group.scenario), *_method_order(group.method)))
    for scenario in scenarios_of(groups):
        _refuse_unlike_data([group for group in groups if group.scenario == scenario])
    return groups


def scenarios_of(groups: Iterable[CellGroup]) -> list[str]:
    """The scenarios there are, each once, in the order of the groups."""
    return list(dict.fromkeys(group.scenario for group in groups))


def methods_of(groups: Iterable[CellGroup]) -> list[str]:
    """The methods there are, each once, in the paper's order."""
    return sorted({group.method for group in groups}, key=_method_order)


def main_methods(groups: Iterable[CellGroup]) -> list[str]:
    """One method of each family: the one without a variant in its name, or the first variant that was measured.

    The family of ``patchcore:vit`` is ``patchcore``.
    """
    found: dict[str, str] = {}
    for method in methods_of(groups):
        family = method.partition(":")[0]
        if method == family or family not in found:
            found[family] = method
    return list(found.values())


def _one_of(one: CellResult, other: CellResult) -> CellResult:
    """The same cell found twice: the one that holds more; refused if their numbers differ."""
    _refuse_other_setup(one, other)
    _refuse_other_data(one, other)
    same = np.array_equal(one.auroc, other.auroc, equal_nan=True) and all(
        np.array_equal(a.scores, b.scores, equal_nan=True) for a, b in zip(one.final, other.final, strict=True)
    )
    if not same:
        raise InputError(
            f"{one.name} was found twice with different scores; name only the folder with the result you mean."
        )
    return other if _has_maps(other) and not _has_maps(one) else one


def _refuse_other_setup(one: CellResult, other: CellResult) -> None:
    """Settings, encoder, weights and precision must be the same."""
    left, right = _setup(one), _setup(other)
    for key in sorted(left.keys() | right.keys()):
        if left.get(key) != right.get(key):
            raise InputError(
                f"{one.method} on {one.scenario} was run with {key} {left.get(key)!r} (seed {one.seed}) and with "
                f"{right.get(key)!r} (seed {other.seed}); name only folders of one configuration."
            )


def _setup(cell: CellResult) -> dict[str, Any]:
    config = config_of(cell.method)
    # Results from before a setting existed were made with a value that its field names.
    settings = ({} if config is None else formerly(config)) | cell.settings
    setup = settings | {f"{key} (of its info)": cell.info.get(key) for key in _IDENTITY}
    as_stored: dict[str, Any] = json.loads(json.dumps(setup))  # a tuple that was never stored equals its list
    return as_stored


def _refuse_other_data(one: CellResult, other: CellResult) -> None:
    """The tasks and their sizes must be the same, and the images too where the seed does not draw them."""
    keys = (*_COUNTS, "checksum") if one.seed == other.seed or is_fixed(one.scenario) else _COUNTS
    left, right = ([[task[key] for key in keys] for task in cell.tasks] for cell in (one, other))
    if left != right:
        pair = [f"{cell.method} (seed {cell.seed}, {_data_words(cell)})" for cell in (one, other)]
        raise InputError(
            f"{one.scenario} was run on different images by {pair[0]} and {pair[1]}; "
            "name only folders of results on the same data."
        )


def _refuse_unlike_data(groups: Sequence[CellGroup]) -> None:
    """Rows of one table must be about the same images."""
    by_seed: dict[int, CellResult] = {}
    for group in groups:
        for cell in group.cells:
            _refuse_other_data(by_seed.setdefault(cell.seed, cell), cell)
        _refuse_other_data(groups[0].first, group.first)


def is_fixed(scenario: str) -> bool:
    """Whether every seed sees the same pixels: drift and synthetic products are drawn from the seed."""
    return not scenario.startswith(("mtd-", "synthetic"))


def _data_words(cell: CellResult) -> str:
    images = sum(task["test_normal"] + task["test_anomalous"] for task in cell.tasks)
    return f"{len(cell.tasks)} tasks, {images} test images, checksum {str(cell.tasks[0]['checksum'])[:12]}"


def _has_maps(cell: CellResult) -> bool:
    return any(task.maps is not None for task in cell.final)


def _scenario_order(scenario: str) -> tuple[int, str]:
    known = (*DISCRETE, *CONTINUOUS)
    return (known.index(scenario) if scenario in known else len(known)), scenario


def _method_order(method: str) -> tuple[int, str]:
    keys = list(paper().methods)
    key = paper().method_of(method)
    return (len(keys) if key is None else keys.index(key)), method


def short_names(names: Sequence[str]) -> list[str]:
    """Task names without what they all begin with, for narrow columns.

    >>> short_names(["mtd-color-01", "mtd-color-02"]), short_names(["bottle", "cable"]), short_names(["grid"])
    (['01', '02'], ['bottle', 'cable'], ['grid'])
    """
    if len(names) < 2:
        return list(names)
    common = 0
    while all(name[: common + 1] == names[0][: common + 1] for name in names) and common < min(map(len, names)) - 1:
        common += 1
    head = re.match(r".*[-_ ]", names[0][:common])
    return [name[head.end() :] for name in names] if head else list(names)
