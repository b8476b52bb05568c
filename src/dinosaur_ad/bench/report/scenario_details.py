"""The part of the page about one scenario: the matrix, curves, score histograms and pictures of every method."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dinosaur_ad.bench.effort import row_label
from dinosaur_ad.bench.metrics import roc_curve
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.curves import Line, coloured, heat_map, key, roc_chart, sequence_chart, sequence_mean
from dinosaur_ad.bench.report.example_images import gallery, some_tasks, spread_evenly
from dinosaur_ad.bench.report.numbers import measure
from dinosaur_ad.bench.report.report_rows import block_title
from dinosaur_ad.bench.report.row_groups import CellGroup, short_names
from dinosaur_ad.bench.report.table import figure
from dinosaur_ad.bench.results import CellResult
from dinosaur_ad.page.charts import histogram, matrix_scale
from dinosaur_ad.page.html import Html, element, join, section, table

_ROC_POINTS = 60


def scenario_section(groups: Sequence[CellGroup], data: Path | None, *, unfold: bool) -> Html:
    """All that can be seen of one scenario; ``groups`` are its methods, ``unfold`` shows their charts at once."""
    seeds = sorted({group.first.seed for group in groups})
    return section(
        block_title(groups),
        f"Charts show one seed ({', '.join(map(str, seeds))}); the tables above average all of them.",
        *(_details(group, data, unfold=unfold) for group in groups),
    )


def _details(group: CellGroup, data: Path | None, *, unfold: bool) -> Html:
    over_seeds = measure(group, numbers.auroc)
    cell = group.first
    shown = f"image AUROC {figure(over_seeds.mean, over_seeds.spread).cell.text}, charts of seed {cell.seed}"
    return element(
        "details",
        element("summary", row_label(group.first), element("small", shown)),
        *_matrix(cell),
        *_curves(cell),
        *_distributions(cell),
        element("h3", "Where it looks"),
        gallery(cell, data),
        *_provenance(group),
        open="open" if unfold else None,
    )


def _part(title: str, lead: object, *content: object) -> Iterator[Html]:
    yield element("h3", title)
    yield element("p", lead, class_="lead")
    yield from (join([part]) for part in content)


def _matrix(cell: CellResult) -> Iterator[Html]:
    names = short_names([task["name"] for task in cell.tasks])
    return _part(
        "Every task after every task",
        "Image AUROC. A row is the state after one more task was learned, a column the task it was tested on; pale "
        "and in italics where that task was still to come. Read a column downwards to see forgetting.",
        heat_map(names, cell.auroc),
        matrix_scale(),
    )


def _curves(cell: CellResult) -> Iterator[Html]:
    names = short_names([task["name"] for task in cell.tasks])
    count = len(names)
    each = [Line([(t + 1, cell.auroc[t, j]) for t in range(j, count)], f"task {names[j]}") for j in range(count)]
    mean = Line(sequence_mean(cell.auroc), "mean", "mean")
    curves = [
        Line(list(zip(*roc_curve(task.scores, task.labels, _ROC_POINTS), strict=True)), name, coloured(index))
        for index, (name, task) in enumerate(zip(names, cell.final, strict=True))
    ]
    yield element(
        "div",
        element(
            "div",
            *_part("Over the sequence", "AUROC since each task was learned (thin), and the mean (thick)."),
            sequence_chart([*each, mean], count, "AUROC of every task by tasks learned"),
        ),
        element(
            "div",
            *_part("ROC curves", "Recall against false alarms after the last task, one line a task."),
            roc_chart(curves, "ROC curves of all tasks"),
            key(curves),
        ),
        class_="charts",
    )


def _distributions(cell: CellResult) -> Iterator[Html]:
    """Scores in units of their threshold; a threshold that is no positive number gives no unit."""
    scored = []
    for index in spread_evenly(len(cell.tasks)):
        task, threshold_N = cell.final[index], numbers.alarm_thresholds(cell, index)
        known = ~np.isnan(task.scores) & np.isfinite(threshold_N) & (threshold_N > 0)
        if known.any():
            relative = task.scores[known].astype(np.float64) / threshold_N[known]
            scored.append((cell.tasks[index]["name"], task.labels[known], relative))
    if not scored:
        yield from _part("Scores", "No task has a positive threshold, so scores cannot be shown in units of it.")
        return
    everything = np.concatenate([relative for _, _, relative in scored])
    reach = (max(0.0, min(0.5, everything.min())), max(2.0, min(everything.max(), 4.0)))
    plots = [
        histogram(name, {"normal": relative[labels == 0]}, {"anomalous": relative[labels == 1]}, reach)
        for name, labels, relative in scored
    ]
    words = (
        f"After the last task, in units of {numbers.threshold_words(cell)} (dashed): ",
        element("span", "normal", class_="normal"),
        " above the line, ",
        element("span", "anomalous", class_="anomalous"),
        " below it; what lies beyond the axis is at its end.",
        some_tasks(cell),
    )
    yield from _part("Scores", join(words), element("div", *plots, class_="plots"))


def _provenance(group: CellGroup) -> Iterator[Html]:
    cell = group.first
    settings = {name: value for name, value in cell.settings.items() if value is not None}
    facts = {"seeds": ", ".join(map(str, group.seeds)), "settings": settings, **cell.info}
    for number, machine in enumerate(cell.environments, start=1):
        suffix = "" if len(cell.environments) == 1 else f" {number}"
        facts |= {f"{name}{suffix}": value for name, value in machine.items()}
    facts |= {f"task {task['name']}": _task_words(task) for task in cell.tasks}
    rows = [(name.replace("_", " "), _plain(value)) for name, value in facts.items()]
    yield from _part(
        "What made this",
        "Everything that decides the numbers.",
        element("div", table(("", ""), rows), class_="facts"),
    )


def _task_words(task: dict[str, Any]) -> str:
    held_out = f", {task['held_out']} held out" if task["held_out"] else ""
    return (
        f"{task['train']} to train on{held_out}, {task['test_normal']} normal and {task['test_anomalous']} anomalous "
        f"to test; checksum {task['checksum']}"
    )


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {entry}" for name, entry in value.items())
    return value if isinstance(value, str) else json.dumps(value)
