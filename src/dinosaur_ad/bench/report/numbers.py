"""From stored results to the numbers in the tables; all are computed from stored matrices and scores.

A number of a cell is a function of its matrices and scores; one of a :class:`CellGroup` is its mean over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bench.metrics import (
    Confusion,
    auroc_by_kind,
    bootstrap_mean_auroc,
    bwt,
    confusion,
    final_average,
    fm_diagonal,
    fm_paper,
    fm_std,
    fwt,
    ranked_auroc,
    seed_spread,
)
from dinosaur_ad.bench.report.row_groups import CellGroup
from dinosaur_ad.bench.results import CellResult

Number = Callable[[CellResult], float]
MIB = 2**20


@dataclass(frozen=True)
class SeedMean:
    """A number over seeds: ``spread`` is its standard deviation, NaN with one seed."""

    mean: float
    spread: float


def measure(group: CellGroup, number: Number) -> SeedMean:
    """The mean of a number over the group's seeds, and its spread."""
    return SeedMean(*seed_spread([number(cell) for cell in group.cells]))


RESAMPLES = 1000
"""Draws of the test images for an interval."""


def auroc_interval(group: CellGroup) -> tuple[float, float]:
    """The 95 % bootstrap interval of the final image AUROC over test images; each bound averaged over the seeds.

    Averaging bounds, and not pooling seeds as if each had its own images, keeps the interval from shrinking with every
    seed added.
    """
    bounds = []
    for cell in group.cells:
        tasks = [(task.scores, task.labels) for task in cell.final]
        interval = bootstrap_mean_auroc(tasks, paired=bool(cell.scenario_info.get("same_images")), resamples=RESAMPLES)
        bounds.append((interval.low, interval.high))
    low, high = np.mean(bounds, axis=0)
    return float(low), float(high)


def auroc(cell: CellResult) -> float:
    """The image AUROC after the last task, averaged over tasks."""
    return final_average(cell.auroc)


def accuracy(cell: CellResult) -> float:
    """Accuracy at the paper's threshold, averaged over tasks."""
    return _over_tasks(cell, lambda judged: judged.accuracy)


def recall(cell: CellResult) -> float:
    """Recall at the paper's threshold, averaged over tasks."""
    return _over_tasks(cell, lambda judged: judged.recall)


def precision(cell: CellResult) -> float:
    """Precision at the paper's threshold, averaged over tasks."""
    return _over_tasks(cell, lambda judged: judged.precision)


def false_alarms(cell: CellResult) -> float:
    """False-alarm rate at the paper's threshold, averaged over tasks."""
    return _over_tasks(cell, lambda judged: judged.false_alarm_rate)


def own_recall(cell: CellResult) -> float:
    """Recall at the threshold the method itself would use, not knowing the task; NaN when it has none."""
    return _over_tasks(cell, lambda judged: judged.recall, own=True)


def own_precision(cell: CellResult) -> float:
    """Precision at the threshold the method itself would use."""
    return _over_tasks(cell, lambda judged: judged.precision, own=True)


def own_false_alarms(cell: CellResult) -> float:
    """False-alarm rate at the threshold the method itself would use."""
    return _over_tasks(cell, lambda judged: judged.false_alarm_rate, own=True)


FORGETTING: dict[str, Number] = {
    "FM paper": lambda cell: fm_paper(cell.auroc),
    "FM std": lambda cell: fm_std(cell.auroc),
    "FM diagonal": lambda cell: fm_diagonal(cell.auroc),
    "BWT": lambda cell: bwt(cell.auroc),
    "FWT": lambda cell: fwt(cell.auroc),
}


def forgetting(cell: CellResult) -> float:
    """The paper's forgetting measure."""
    return fm_paper(cell.auroc)


def routing(cell: CellResult) -> float:
    """The share of test images taken for the right task at the end, averaged over tasks."""
    return math.nan if cell.routing is None else final_average(cell.routing)


def oracle_auroc(cell: CellResult) -> float:
    """The image AUROC at the end if the method is told the task."""
    return math.nan if cell.oracle_auroc is None else final_average(cell.oracle_auroc)


def nan_scores(cell: CellResult) -> float:
    """How many scores were NaN in the whole evaluation."""
    return float(cell.nan_scores.sum())


def ties(cell: CellResult) -> float:
    """The share of (normal, anomalous) pairs with equal scores at the end, averaged over tasks."""
    return fmean(ranked_auroc(task.scores, task.labels).ties for task in cell.final)


def pixel(key: str) -> Number:
    """The mean over tasks of one of the pixel metrics; NaN without maps, or where any task has none."""

    def number(cell: CellResult) -> float:
        if not cell.pixel:
            return math.nan
        values = [task.get(key) for task in cell.pixel]
        return fmean(math.nan if value is None else value for value in values)

    return number


def by_kind(cell: CellResult) -> dict[str, float]:
    """The AUROC of every kind of anomaly against the normals of its task, averaged over the tasks that have it."""
    found: dict[str, list[float]] = {}
    for task in cell.final:
        for kind, value in auroc_by_kind(task.scores, task.labels, task.kinds).items():
            found.setdefault(kind, []).append(value)
    return {kind: fmean(found[kind]) for kind in sorted(found)}


def alarm_thresholds(cell: CellResult, index: int) -> NDArray[np.float64]:
    """Above which score each of a task's N test images raises an alarm, (N,): what charts and pictures are scaled by.

    The method's own thresholds where it has any. The paper's come from training scores, which are near zero for a
    method that keeps its training images in memory.
    """
    task = cell.final[index]
    thresholds = cell.thresholds[-1, index] if task.own_thresholds is None else task.own_thresholds
    return np.broadcast_to(np.asarray(thresholds, np.float64), task.scores.shape)


def threshold_words(cell: CellResult) -> str:
    """Which threshold :func:`alarm_thresholds` gives."""
    own = all(task.own_thresholds is not None for task in cell.final)
    return "the threshold the method itself would use" if own else "the paper's threshold"


def learn_seconds(cell: CellResult) -> float:
    """Seconds to learn a task, on average."""
    return fmean(row["learn_seconds"] for row in cell.rows)


def score_ms(cell: CellResult) -> float:
    """Milliseconds to score an image, on average over the whole evaluation."""
    images = sum(row["images_scored"] for row in cell.rows)
    return 1000 * sum(row["score_seconds"] for row in cell.rows) / images if images else math.nan


def peak(key: str) -> Number:
    """The highest of a memory figure in MiB; NaN where it was not measured."""

    def number(cell: CellResult) -> float:
        values = [row[key] for row in cell.rows if row.get(key) is not None]
        return max(values) / MIB if values else math.nan

    return number


def storage_mib(cell: CellResult) -> float:
    """What has to be kept after the last task, in MiB."""
    return float(cell.rows[-1]["storage_bytes"]) / MIB


def storage_mib_a_task(cell: CellResult) -> float:
    """The same for a task."""
    return storage_mib(cell) / len(cell.tasks)


def _over_tasks(cell: CellResult, rate: Callable[[Confusion], float], *, own: bool = False) -> float:
    values = []
    for index, task in enumerate(cell.final):
        thresholds = task.own_thresholds if own else cell.thresholds[-1, index]
        if thresholds is None:
            return math.nan
        values.append(rate(confusion(task.scores, task.labels, thresholds)))
    return fmean(values)
