"""What a method wrote down while it trained, task by task, as tables.

Records are shown whatever their fields are called, so that a new method needs no code here. A list goes on over epochs;
``x_before`` is what ``x`` was before the first of them; ``first_x`` and ``last_x`` belong together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dinosaur_ad.bench.provenance_runs import Run
from dinosaur_ad.bench.report.render import plain, to_markdown
from dinosaur_ad.bench.report.row_groups import short_names
from dinosaur_ad.bench.report.table import DASH, Column, Table, figure
from dinosaur_ad.bench.report.table import TableBlock as Block
from dinosaur_ad.bench.report.table import TableCell as Cell

MOMENTS = (1, 3, 10, 30, 100)
"""After which epochs a number is shown, and after the last."""

# What the fields of a method's records mean, for its own variants of loss and network.
_MEANING = {
    "dne": "loss: cross-entropy of the two-way head. spread: how far the embeddings of up to 64 training images are "
    "apart (standard deviation, mean of the channels); size: their root mean square. tied and nonfinite scores: "
    "shares of the scores of the training images.",
    "iuf": "loss, and its parts before they are weighted: reconstruction, discrimination (cross-entropy of the task), "
    "compression (L_svd). variety: how much reconstructions differ between images, as a share of how much what they "
    "reconstruct does; at 0 all images get the same one. Means over an epoch.",
    "ucad": "loss: of the prompt, by the variant's own contrast between regions. regions an image: what the mask "
    "generator found; an image of one region teaches nothing about different ones.",
    "efficientad": "loss: all its parts. The mean maps are those of the images just learned from; the score adds both "
    "maps half and half, unless the variant normalises them first.",
}


def training_tables(name: str, runs: Sequence[Run]) -> list[str]:
    """A heading, what the numbers mean, and a table of the tasks of each run that has records; Markdown."""
    recorded = [run for run in runs if run.records]
    if not recorded:
        return []
    meaning = plain(_MEANING.get(name, "The columns are as the method names them."))
    tables = ["##" + to_markdown(_by_task(run)).strip() for run in recorded]
    return ["### Training, task by task", f"Of the first seed of each run. {meaning}", *tables]


def _by_task(run: Run) -> Table:
    """What each task's training was like, beside the AUROC it had then and has at the end."""
    cell, records = run.group.first, run.records
    noted = {task: dict(columns(record)) for task, record in records.items()}
    names = list(dict.fromkeys(column for cells in noted.values() for column in cells))
    rows = []
    for index, short in enumerate(short_names([task["name"] for task in cell.tasks])):
        own = noted.get(cell.tasks[index]["name"], {})
        aurocs = [figure(cell.auroc[row, index]).cell for row in (index, -1)]
        rows.append((Cell(short), *aurocs, *(Cell(own.get(name, DASH)) for name in names)))
    head = (Column("Task", words=True), Column("AUROC just learned"), Column("at the end"))
    return Table("tasks", run.title, f"Seed {cell.seed}.", (*head, *map(Column, names)), (Block("", tuple(rows)),))


def columns(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A record as named cells; what goes on over epochs stands in one.

    >>> dict(columns({"loss": [0.7, 0.2, 0.1], "spread_before": 1.0, "spread": [0.5, 0.3, 0.25], "images": 8}))
    {'loss: epoch 1 → 3': '0.7 → 0.1', 'spread: before → 1 → 3': '1 → 0.5 → 0.25', 'images': '8'}
    >>> dict(columns({"epochs": 30, "first_epoch": {"loss": 2.0}, "last_epoch": {"loss": None}}))
    {'loss: first → last epoch': '2 → not finite'}
    """
    for key, value in record.items():
        last = f"last_{key.removeprefix('first_')}"
        if isinstance(value, list):
            yield _over_epochs(key, value, record)
        elif key.startswith("first_") and last in record:
            yield from _first_and_last(key.removeprefix("first_"), value, record[last])
        elif not _told_elsewhere(key, record):
            yield key.replace("_", " "), short_number(value)


def _over_epochs(key: str, values: Sequence[Any], record: Mapping[str, Any]) -> tuple[str, str]:
    moments = [moment for moment in MOMENTS if moment < len(values)] + [len(values)] * bool(values)
    names, told = [str(moment) for moment in moments], [values[moment - 1] for moment in moments]
    if f"{key}_before" in record:
        names, told = ["before", *names], [record[f"{key}_before"], *told]
    elif names:
        names[0] = f"epoch {names[0]}"
    return f"{key.replace('_', ' ')}: {_steps(names)}", _steps(map(short_number, told))


def _first_and_last(key: str, first: Any, last: Any) -> Iterator[tuple[str, str]]:
    """One pair, or one for each part where both are records themselves."""
    if isinstance(first, Mapping) and isinstance(last, Mapping):
        for part in first:
            yield from _first_and_last(part, first[part], last.get(part))
    else:
        yield f"{key.replace('_', ' ')}: first → last epoch", _steps(map(short_number, (first, last)))


def _told_elsewhere(key: str, record: Mapping[str, Any]) -> bool:
    """Whether a field stands in the column of another one, or beside the table."""
    before = key.endswith("_before") and key.removesuffix("_before") in record
    last = key.startswith("last_") and f"first_{key.removeprefix('last_')}" in record
    return key in ("task", "epochs") or before or last


def _steps(texts: Iterable[str]) -> str:
    return " → ".join(texts)


def short_number(value: Any) -> str:
    """A number in three digits; None is one that JSON could not hold.

    >>> short_number(0.000012345), short_number(-0.5), short_number(12), short_number(None), short_number("grey")
    ('1.23e−05', '−0.5', '12', 'not finite', 'grey')
    """
    if value is None:
        return "not finite"
    if isinstance(value, float):
        return f"{value:.3g}".replace("-", "−")
    return str(value)
