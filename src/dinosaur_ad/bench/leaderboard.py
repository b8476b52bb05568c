"""All results as one JSON document: a row for each method, an entry for each scenario, every number over seeds.

``leaderboard.schema.json`` beside this file is its JSON schema. The page of the leaderboard is made from the document
and from nothing else (:mod:`~dinosaur_ad.bench.report.leaderboard_page`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from dinosaur_ad import __version__
from dinosaur_ad.bench.effort import chosen_on, row_label, training_of
from dinosaur_ad.bench.metrics import fm_paper, fm_std, seed_spread
from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.numbers import Number
from dinosaur_ad.bench.report.report_rows import paper_scenario, rows_of
from dinosaur_ad.bench.report.row_groups import CellGroup, group_cells, methods_of, scenarios_of
from dinosaur_ad.bench.results import CellResult, find_results, without_nan
from dinosaur_ad.bench.submitted_row import origin
from dinosaur_ad.bench.verify import verify
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import list_methods
from dinosaur_ad.methods.method_registry import DEFAULT_VARIANT

FORMAT, KIND = 1, "dinosaur-ad leaderboard"
DOCUMENT, SCHEMA, PAGE = "leaderboard.json", "leaderboard.schema.json", "index.html"

MEASURES: Mapping[str, Number] = {
    "image_auroc": numbers.auroc,
    "pixel_auroc": numbers.pixel("auroc"),
    "aupro": numbers.pixel("aupro"),
    "forgetting_paper": lambda cell: fm_paper(cell.auroc),
    "forgetting_std": lambda cell: fm_std(cell.auroc),
    "accuracy": numbers.accuracy,
    "recall": numbers.recall,
    "false_alarms": numbers.false_alarms,
    "own_recall": numbers.own_recall,
    "own_false_alarms": numbers.own_false_alarms,
    "routing": numbers.routing,
    "storage_mib": numbers.storage_mib,
    "learn_seconds": numbers.learn_seconds,
    "score_ms": numbers.score_ms,
}
"""The numbers of an entry; docs/metrics.md defines them."""


def leaderboard(folders: Sequence[str]) -> dict[str, Any]:
    """The document of all results below ``folders`` (or addresses) and in submitted rows.

    :raises InputError: a number does not follow from its scores, or results were not made alike.
    """
    found = verify(folders)
    wrong = [each.where for each in found.checked if not each.equal] + list(found.unreadable)
    if wrong:
        raise InputError(
            f"Not all of this can be shown, because it is damaged or contradicts its own scores ({wrong[0]}); "
            "dinosaur bench verify names all of it."
        )
    groups = group_cells(find_results(folders)[0])
    if not groups:
        raise InputError("There are no finished cells in these folders; make some with: dinosaur bench run.")
    return {
        "$schema": SCHEMA,
        "format": FORMAT,
        "kind": KIND,
        "made_with": f"dinosaur-ad {__version__}",
        "scenarios": [_scenario(groups, name) for name in scenarios_of(groups)],
        "rows": [_row(list(own.values())) for method in methods_of(groups) for own in rows_of(method, groups)],
        "paper": _paper(scenarios_of(groups)),
    }


def schema() -> str:
    """The JSON schema of the document."""
    return files("dinosaur_ad.bench").joinpath(SCHEMA).read_text("utf-8")


def _scenario(groups: Sequence[CellGroup], name: str) -> dict[str, Any]:
    first = next(group.first for group in groups if group.scenario == name)
    key = paper_scenario(name)
    return {
        "name": name,
        "description": str(first.scenario_info.get("description", "")),
        "licence": str(first.scenario_info.get("licence", "")),
        "tasks": [
            {each: task[each] for each in ("name", "train", "test_normal", "test_anomalous")} for task in first.tasks
        ],
        "tasks_in_paper": None if key is None else paper().scenarios[key].tasks,
    }


def _row(own: Sequence[CellGroup]) -> dict[str, Any]:
    """One method in one form: what ran part of its schedule on one scenario and all of it on another is two rows."""
    method, scenarios = own[0].method, {group.scenario for group in own}
    spec = list_methods().get(method.partition(":")[0])
    return {
        "method": method,
        "label": row_label(own[0].first),
        "summary": own[0].first.summary,
        "control": spec is not None and spec.control,
        "chosen_on": [name for name in chosen_on(method) if name in scenarios],
        "entries": [_entry(group) for group in own],
    }


def _entry(group: CellGroup) -> dict[str, Any]:
    """One method on one scenario."""
    first, base, variant = group.first, *group.method.partition(":")[::2]
    spec = list_methods().get(base)
    training = training_of(first, None if spec is None else spec.variants.get(variant or DEFAULT_VARIANT))
    made_by = origin(group.cells)
    entry = {
        "scenario": group.scenario,
        "seeds": list(group.seeds),
        "encoder": str(first.info.get("description") or first.info.get("encoder") or "not recorded"),
        "weights_sha256": str(first.info.get("weights_sha256") or ""),
        "parameters": first.parameters,
        "settings": first.settings,
        "training": None
        if training is None
        else {"steps": list(training.steps), "batch": training.batch, "share": training.share, "words": str(training)},
        **{key: made_by[key] for key in ("exact", "revisions", "package_sha256", "method_sha256")},
        "published": all(cell.published for cell in group.cells),
        "measures": {name: _measured(group.cells, number) for name, number in MEASURES.items()},
        "image_auroc_by_task": {
            task["name"]: seed_spread([float(cell.auroc[-1, index]) for cell in group.cells])[0]
            for index, task in enumerate(first.tasks)
        },
    }
    document: dict[str, Any] = without_nan(entry)
    return document


def _measured(cells: Sequence[CellResult], number: Number) -> dict[str, Any]:
    values = [number(cell) for cell in cells]
    mean, spread = seed_spread(values)
    return {"mean": mean, "spread": spread, "by_seed": values}


def _paper(scenarios: Sequence[str]) -> list[dict[str, Any]]:
    """The paper's image AUROC of its methods on those of the scenarios that it has."""
    printed = {name: paper().images[key] for name in scenarios if (key := paper_scenario(name)) is not None}
    return [
        {
            "key": key,
            "method": name,
            "image_auroc": {scenario: rows[key].auroc for scenario, rows in printed.items() if _has(rows[key].auroc)},
        }
        for key, name in paper().methods.items()
        if printed
    ]


def _has(value: float) -> bool:
    return not math.isnan(value)
