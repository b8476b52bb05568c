"""Why a method fails where it fails: what its runs measured, in sentences by rule and in tables.

Nothing here is an opinion about a method: every sentence compares stored numbers with a limit that is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from dinosaur_ad.bench.metrics import fm_diagonal
from dinosaur_ad.bench.provenance_runs import Run
from dinosaur_ad.bench.provenance_training import short_number, training_tables
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.numbers import Number, measure
from dinosaur_ad.bench.report.render import plain, to_markdown
from dinosaur_ad.bench.report.shortcuts import CONTROL, Controls, likeness
from dinosaur_ad.bench.report.table import DASH, Column, Entry, Table, figure, finish, words
from dinosaur_ad.bench.report.table import TableBlock as Block
from dinosaur_ad.bench.results import CellResult

CHANCE, LOST, TIED, ALARMS, LIGHT = 0.6, 0.02, 0.01, 0.10, 0.5


def causes_section(name: str, runs: Sequence[Run], light: Controls) -> str:
    """As Markdown: sentences by rule, a table of all runs, and one of the tasks of each run that recorded training.

    ``light`` are the cells of the control that measures brightness.
    """
    parts = ["## Where it fails, and what was measured there", "\n".join(_findings(name, runs, light))]
    parts.append("#" + to_markdown(_overall(runs)).strip())
    return "\n\n".join([*parts, *training_tables(name, runs)]) + "\n"


# --- sentences ---


def _findings(name: str, runs: Sequence[Run], light: Controls) -> Iterator[str]:
    """A line for every run with something to say."""
    yield (
        f"Said by rule, of means over seeds. Named are an AUROC below {CHANCE} right after learning, losses from "
        f"{LOST}, tied pairs from {TIED:.0%}, false alarms from {ALARMS:.0%}, and scores that follow the brightness of "
        f"the images with a rank correlation from {LIGHT} on average; what training recorded, and that correlation, is "
        "the median of the tasks of the first seed."
    )
    yield ""
    for run in runs:
        said = [*_from_scores(run), *_from_light(run, light), *_from_records(name, run)]
        yield f"- {plain(run.title)}: {'; '.join(said) or 'none of these'}."


def _from_scores(run: Run) -> Iterator[str]:
    def mean(number: Number) -> float:
        return measure(run.group, number).mean

    end, learned = mean(numbers.auroc), mean(just_learned)
    lost = mean(lambda cell: fm_diagonal(cell.auroc))
    if learned < CHANCE:
        rest = "" if lost >= LOST else ": it was not forgotten later, it was not learned"
        yield f"an AUROC of {learned:.3f} already when a task has just been learned{rest}"
    if lost >= LOST:
        yield f"{lost:.3f} lost between learning a task and the end"
    told = mean(numbers.oracle_auroc)
    if told - end >= LOST:
        yield f"{told - end:.3f} lost by choosing the task ({mean(numbers.routing):.0%} of the images go to theirs)"
    if (tied := mean(numbers.ties)) >= TIED:
        yield f"{tied:.0%} of the pairs of a normal and an anomalous image tie"
    if (absent := sum(numbers.nan_scores(cell) for cell in run.group.cells)) > 0:
        yield f"{absent:.0f} scores were no numbers"
    if (alarms := mean(numbers.false_alarms)) >= ALARMS:
        yield f"{alarms:.0%} false alarms at the paper's threshold, which is meant to give 2.5%"


def _from_light(run: Run, light: Controls) -> Iterator[str]:
    like = likeness(run.group.first, light)
    if like is not None and like.mean >= LIGHT and run.group.method != CONTROL:
        yield from _if_finite(like.defined, "its scores follow the brightness of the images: rank correlation {}")


def _from_records(name: str, run: Run) -> Iterator[str]:
    """What is telling in the records of the methods that are here."""
    records = run.records
    if name == "dne":
        kept = [_ratio(_last(each.get("spread")), _number(each.get("spread_before"))) for each in records.values()]
        yield from _if_finite(kept, "training leaves the embeddings {} of the spread they had before it")
        tied = [_number(each.get("tied_scores")) for each in records.values()]
        yield from _if_finite(tied, "a share of {} of the training scores tie")
    elif name == "iuf":
        ends = [each.get("last_epoch") for each in records.values()]
        variety = [_number(end.get("variety")) for end in ends if isinstance(end, Mapping)]
        yield from _if_finite(
            variety, "between images, reconstructions of the last epoch differ by {} of what the reconstructed does"
        )
    elif name == "ucad":
        moved = [
            _difference(*(_number(each.get(key)) for key in ("last_loss", "first_loss"))) for each in records.values()
        ]
        yield from _if_finite(moved, "training moves the prompt's loss by {}")
    elif name == "efficientad":
        maps = ("mean_map_teacher_student", "mean_map_autoencoder_student")
        ratio = [_ratio(*(_number(each.get(key)) for key in maps)) for each in records.values()]
        yield from _if_finite(ratio, "the map of the teacher is {} times that of the autoencoder")


def _if_finite(values: Sequence[float | None], sentence: str) -> Iterator[str]:
    """The sentence with the median of the tasks and their range; nothing where no task has the number."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if finite:
        low, middle, high = map(short_number, (min(finite), median(finite), max(finite)))
        yield sentence.format(middle if low == high else f"{middle} (tasks: {low} to {high})")


def _number(value: Any) -> float | None:
    """A number of a record, which may hold anything."""
    return value if isinstance(value, (int, float)) else None


def _last(values: Any) -> float | None:
    return _number(values[-1]) if isinstance(values, list) and values else None


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or not under else over / under


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


# --- all runs ---


def just_learned(cell: CellResult) -> float:
    """The image AUROC of each task at the moment it was learned, averaged over tasks."""
    return float(np.diagonal(cell.auroc).mean())


_COLUMNS: dict[str, Number] = {
    "AUROC just learned": just_learned,
    "at the end": numbers.auroc,
    "task given": numbers.oracle_auroc,
    "routed right": numbers.routing,
    "false alarms": numbers.false_alarms,
    "recall": numbers.recall,
    "own false alarms": numbers.own_false_alarms,
    "own recall": numbers.own_recall,
    "ties": numbers.ties,
}


def _overall(runs: Sequence[Run]) -> Table:
    rows: list[list[Entry]] = []
    for run in runs:
        measured = [measure(run.group, number) for number in _COLUMNS.values()]
        absent = sum(numbers.nan_scores(cell) for cell in run.group.cells)
        rows.append(
            [words(run.title), *(figure(each.mean) for each in measured), words(f"{absent:.0f}"), words(_weakest(run))]
        )
    return Table(
        "causes",
        "Learning, forgetting, routing and thresholds",
        "Means over tasks and seeds. False alarms and recall at the paper's threshold, which knows the task, and at "
        "the method's own, which does not. Ties: pairs of a normal and an anomalous image with equal scores. The "
        "weakest task is that of the first seed at the end.",
        (
            Column("Run", words=True),
            *(Column(name) for name in _COLUMNS),
            Column("NaN"),
            Column("weakest task", words=True),
        ),
        (Block("", finish(rows, {})),),
    )


def _weakest(run: Run) -> str:
    last_T = run.group.first.auroc[-1]
    if np.isnan(last_T).all():
        return DASH
    index = int(np.nanargmin(last_T))
    return f"{run.group.first.tasks[index]['name']} {last_T[index]:.3f}"
