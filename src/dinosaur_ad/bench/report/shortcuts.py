"""How far light explains a score: every method beside the control that measures nothing but brightness.

The control's scores are those of ``photometer:signed`` in the same scenario and with the same seed, so it has to be
among the results; without it there is no such table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dinosaur_ad.bench.effort import row_label
from dinosaur_ad.bench.metrics import EqualLight, equal_light_auroc, rank_correlation
from dinosaur_ad.bench.metrics.equal_light import FEWEST, NEAR
from dinosaur_ad.bench.report.numbers import auroc
from dinosaur_ad.bench.report.report_rows import block_title
from dinosaur_ad.bench.report.row_groups import CellGroup, scenarios_of
from dinosaur_ad.bench.report.table import Column, Entry, Note, Table, TableBlock, figure, finish, words
from dinosaur_ad.bench.results import CellResult

CONTROL = "photometer:signed"
# An AUROC this far from chance is named.
TOLD_APART = 0.9

Controls = Mapping[tuple[str, int], CellResult]


@dataclass(frozen=True)
class Likeness:
    """Rank correlations of a cell's scores with the brightness of the images: one a task, NaN where all scores tie."""

    tasks: tuple[str, ...]
    rho: tuple[float, ...]
    equal: tuple[EqualLight, ...] = ()
    """The AUROC of each task among images of equal brightness."""

    @property
    def defined(self) -> list[float]:
        """The absolute correlations of the tasks that have one."""
        return [abs(value) for value in self.rho if not math.isnan(value)]

    @property
    def mean(self) -> float:
        """The mean strength; NaN where no task has one."""
        return sum(self.defined) / len(self.defined) if self.defined else math.nan

    @property
    def equal_auroc(self) -> float:
        """The mean AUROC among images of equal brightness, over the tasks that have one."""
        found = [each.auroc for each in self.equal if not math.isnan(each.auroc)]
        return sum(found) / len(found) if found else math.nan

    @property
    def strongest(self) -> str:
        """The task with the strongest correlation, in words."""
        if not self.defined:
            return "all scores tie"
        index = int(np.nanargmax(np.abs(self.rho)))
        return f"{self.tasks[index]} {'−' if self.rho[index] < 0 else '+'}{abs(self.rho[index]):.2f}"


def controls(cells: Iterable[CellResult]) -> Controls:
    """The control's cells, by scenario and seed."""
    return {(cell.scenario, cell.seed): cell for cell in cells if cell.method == CONTROL}


def likeness(cell: CellResult, found: Controls) -> Likeness | None:
    """How far a cell's final scores follow the light; None unless the control saw the same images of every task."""
    control = found.get((cell.scenario, cell.seed))
    if control is None:
        return None
    light = {task["checksum"]: its.scores for task, its in zip(control.tasks, control.final, strict=True)}
    if not light.keys() >= {task["checksum"] for task in cell.tasks}:
        return None
    pairs = [(own, light[task["checksum"]]) for task, own in zip(cell.tasks, cell.final, strict=True)]
    return Likeness(
        tuple(str(task["name"]) for task in cell.tasks),
        tuple(rank_correlation(own.scores, its) for own, its in pairs),
        tuple(equal_light_auroc(own.scores, own.labels, its) for own, its in pairs),
    )


def shortcut_tables(groups: Sequence[CellGroup]) -> list[Table]:
    """The table, if some scenario has the control and something beside it."""
    found = controls(cell for group in groups for cell in group.cells)
    blocks, notes = [], []
    for scenario in scenarios_of(groups):
        own = [group for group in groups if group.scenario == scenario]
        likes = {group.method: like for group in own if (like := likeness(group.first, found)) is not None}
        if likes.keys() - {CONTROL}:
            rows = [_row(group, likes[group.method], found) for group in own if group.method in likes]
            blocks.append(TableBlock(block_title(own), finish(rows, {})))
            notes += _told_apart(next(cell for (name, _), cell in sorted(found.items()) if name == scenario))
            notes += _compared(scenario, next(iter(likes.values())))
            if left_out := [group.method for group in own if group.method not in likes]:
                notes.append(Note(f"{scenario}: {CONTROL} did not run with the seed of {', '.join(left_out)}."))
    if not blocks:
        return []
    return [
        Table(
            "shortcuts",
            "Is it the light?",
            f"Spearman's rank correlation between a method's scores and the mean brightness of the test images "
            f"({CONTROL}) after the last task, lowest seed: the mean of its absolute value over tasks, and the task "
            "where it is strongest. Near 1, and with an AUROC like the control's, the scores hold little but "
            "brightness. Some correlation is no fault where defects are bright or dark. The second AUROC leaves out "
            f"the tasks that brightness alone separates (AUROC of at least {TOLD_APART:g} either way). The third "
            f"compares each anomalous image only with normal ones of equal brightness: up to {NEAR} next darker and as "
            "many next brighter ones, none if it is darker or brighter than all of them; scores that hold brightness "
            f"alone have 0.5 there. A task with fewer than {FEWEST} comparable anomalous images is left out of it.",
            (
                Column("Method", words=True),
                Column("all tasks", "image AUROC"),
                Column("without those", "image AUROC"),
                Column("equal brightness", "image AUROC"),
                Column("mean correlation"),
                Column("strongest in", words=True),
            ),
            tuple(blocks),
            tuple(notes),
        )
    ]


def _row(group: CellGroup, like: Likeness, found: Controls) -> list[Entry]:
    cell = group.first
    separated = separated_tasks(found[cell.scenario, cell.seed])
    kept = [index for index, task in enumerate(cell.tasks) if task["name"] not in separated]
    without = float(cell.auroc[-1][kept].mean()) if kept else math.nan
    numbers = auroc(cell), without, like.equal_auroc, like.mean
    return [words(row_label(cell)), *map(figure, numbers), words(like.strongest)]


def separated_tasks(control: CellResult) -> dict[str, float]:
    """The tasks whose normal and anomalous test images brightness alone separates, with its AUROC."""
    pairs = zip(control.tasks, control.auroc[-1].tolist(), strict=True)
    return {str(task["name"]): value for task, value in pairs if max(value, 1 - value) >= TOLD_APART}


def _compared(scenario: str, like: Likeness) -> list[Note]:
    """How many anomalous images have normal ones of equal brightness; the same for all methods of a scenario."""
    compared, anomalous = (sum(getattr(each, name) for each in like.equal) for name in ("compared", "anomalous"))
    left_out = [name for name, each in zip(like.tasks, like.equal, strict=True) if math.isnan(each.auroc)]
    without = f"; without {', '.join(left_out)}, where fewer than {FEWEST} are" if left_out else ""
    return [
        Note(f"{scenario}: {compared} of {anomalous} anomalous images are comparable at equal brightness{without}.")
    ]


def _told_apart(control: CellResult) -> list[Note]:
    """The note that names those tasks, if there are any."""
    named = [f"{name} {value:.3f}" for name, value in separated_tasks(control).items()]
    if not named:
        return []
    return [
        Note(
            f"{control.scenario}: brightness alone separates normal from anomalous test images in "
            f"{', '.join(named)} (its AUROC; above 0.5, anomalous ones are brighter)."
        )
    ]
