"""The stored runs of one method as its page shows them, and what each wrote down about its own training.

Unlike the report, which averages and so wants runs that were made alike, the page puts runs with other settings (fewer
epochs, another encoder, fewer categories) side by side and says in what they differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dinosaur_ad.bench.report.row_groups import CONTINUOUS, DISCRETE, group_cells
from dinosaur_ad.bench.report.row_groups import CellGroup as Group
from dinosaur_ad.bench.results import CellResult
from dinosaur_ad.methods import MethodSpec
from dinosaur_ad.methods.method_registry import DEFAULT_VARIANT

# What makes a run another one although its settings are the same: which weights it had, and at which precision.
_MADE_WITH = ("description", "encoder", "weights_sha256", "precision", "regions", "penalty")
_DATA = ("name", "train", "held_out", "test_normal", "test_anomalous")


@dataclass(frozen=True)
class Run:
    """The seeds of one variant on one scenario, alike in all settings; ``changed`` are those set by hand.

    ``part`` says how many tasks it learned and for how many epochs, where other runs of the scenario learned others.
    """

    group: Group
    changed: str
    part: str

    @property
    def title(self) -> str:
        """In words, such as ``dne on mtd-color (epochs=30)``."""
        added = "; ".join(filter(None, (self.changed, self.part)))
        return f"{self.group.method} on {self.group.scenario}{f' ({added})' if added else ''}"

    @property
    def records(self) -> dict[str, Mapping[str, Any]]:
        """What the first seed wrote down about each task."""
        return task_records(self.group.first)


def runs_of(spec: MethodSpec, results: Iterable[CellResult]) -> list[Run]:
    """The runs of a method among all results, in the paper's order of scenarios.

    :raises InputError: the same cell was found twice with different scores.
    """
    alike: dict[str, list[CellResult]] = {}
    for cell in results:
        if cell.method.partition(":")[0] == spec.name:
            alike.setdefault(_setup(cell), []).append(cell)
    groups = [group for cells in alike.values() for group in group_cells(cells)]
    runs = [Run(group, _changed(spec, group.first), _part(group, groups)) for group in groups]
    scenarios, variants = (*DISCRETE, *CONTINUOUS), tuple(spec.variants)
    return sorted(
        runs,
        key=lambda run: (
            _place(scenarios, run.group.scenario),
            run.group.scenario,
            _place(variants, variant_of(run.group.first)),
            run.changed,
        ),
    )


def variant_of(cell: CellResult) -> str:
    """The variant that a cell was run with."""
    return cell.method.partition(":")[2] or DEFAULT_VARIANT


def task_records(cell: CellResult) -> dict[str, Mapping[str, Any]]:
    """What a method wrote down about training each task, by the task's name; nothing from one that does not train.

    Methods keep it in their ``info`` under ``tasks`` or ``training``: records by task, or records that name theirs.
    """
    noted = cell.info.get("tasks") or cell.info.get("training")
    if isinstance(noted, Mapping):
        return {str(task): record for task, record in noted.items() if isinstance(record, Mapping)}
    entries = noted if isinstance(noted, (list, tuple)) else ()
    return {str(record["task"]): record for record in entries if isinstance(record, Mapping) and "task" in record}


def epochs_of(cell: CellResult) -> str:
    """How many epochs a task was trained for, as a range where tasks differ; empty where nothing is trained."""
    counts = []
    for record in task_records(cell).values():
        if isinstance(record.get("epochs"), int):
            counts.append(record["epochs"])
        elif isinstance(record.get("loss"), list):
            counts.append(len(record["loss"]))
    if not counts:
        return ""
    return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)}–{max(counts)}"


def shown(value: Any) -> str:
    """A setting as the command line takes it.

    >>> shown(True), shown(None), shown((5, 8)), shown(7.5e-4), shown("vit-base")
    ('true', 'none', '5+8', '0.00075', 'vit-base')
    """
    if isinstance(value, (list, tuple)):
        return "+".join(map(shown, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _setup(cell: CellResult) -> str:
    info = {key: cell.info.get(key) for key in _MADE_WITH}
    data = [[task[key] for key in _DATA] for task in cell.tasks]
    return json.dumps([cell.method, cell.scenario, cell.settings, info, data], sort_keys=True, default=str)


def _changed(spec: MethodSpec, cell: CellResult) -> str:
    """The settings that are not those of the variant; a setting that came later than the result is not known of it."""
    variant = variant_of(cell)
    if variant not in spec.variants:
        return "a variant that there is no more"
    usual = json.loads(json.dumps(spec.variants[variant].identity()))
    stored = json.loads(json.dumps(cell.settings))
    differ = {key: value for key, value in stored.items() if key not in usual or usual[key] != value}
    return ", ".join(f"{key}={shown(value)}" for key, value in differ.items())


def _part(group: Group, groups: Sequence[Group]) -> str:
    """How long a run is, unless all runs of its scenario learned as many tasks."""
    counts = {len(other.first.tasks) for other in groups if other.scenario == group.scenario}
    if len(counts) == 1:
        return ""
    epochs = epochs_of(group.first)
    count = len(group.first.tasks)
    return f"{count} task{'s' * (count != 1)}{f' of {epochs} epochs' if epochs else ''}"


def _place(known: Sequence[str], name: str) -> int:
    return known.index(name) if name in known else len(known)
