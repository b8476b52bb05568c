"""How long a stored result was trained, which share of its variant's own schedule that is, and what its row is called.

A row may bear its variant's name alone only if it ran that variant's schedule. Otherwise its number of epochs is part
of its name: ``dne:original-30ep``. One called `original` must also have its authors' network and reproduce their figure
(:mod:`~dinosaur_ad.bench.published_figures`), or its name says what is missing: ``ucad:original-other-network``.
Everything is computed from the stored result and the settings of the variant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dinosaur_ad._text import percent
from dinosaur_ad.bench.published_figures import what_is_not_original
from dinosaur_ad.bench.results import CellResult
from dinosaur_ad.methods import Config, list_methods
from dinosaur_ad.methods.method_registry import DEFAULT_VARIANT

NOT_TRAINED = "none"


@dataclass(frozen=True)
class Training:
    """How long a method was trained for a task: optimiser steps (fewest and most over the tasks) of ``batch`` images.

    ``share`` is the steps' share of those of the variant's own schedule, None where that is not known;
    ``usual_batch`` are the images of its steps.
    """

    steps: tuple[int, int]
    batch: int | None
    share: float | None
    usual_batch: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether these are the epochs and batches of the variant's own schedule; True where that is not known."""
        same = self.share is None or math.isclose(self.share, 1)
        return same and (self.usual_batch is None or self.usual_batch == self.batch)

    def __str__(self) -> str:
        low, high = self.steps
        steps = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        whole = self.share is None or math.isclose(self.share, 1)
        share = "" if whole else f", {in_percent(self.share or 0)} of its schedule"
        return f"{steps} of {self.batch or '?'} image{'s' * (self.batch != 1)}{share}"


def training_of(cell: CellResult, config: Config | None, tasks: int | None = None) -> Training | None:
    """The training that a result records, None if there was none; ``config`` are the settings of its variant.

    ``tasks`` is how many tasks it is asked of, from the first one; None for all.
    """
    settings, records = cell.settings, _records(cell)
    made, usual = [], []
    for task in cell.tasks[:tasks]:
        record = records.get(str(task["name"]), {})
        losses = record.get("loss")
        epochs = _count(record.get("epochs")) or (len(losses) if isinstance(losses, list) else 0)
        images = _count(record.get("images")) or task["train"]
        if epochs:
            made.append(_steps(settings | {"epochs": epochs}, images))
            usual.append(_steps(config.identity(), images) if config else 0)
    if not made:
        return None
    share = sum(made) / sum(usual) if all(usual) else None
    batch = _count(settings.get("batch")) or None
    return Training(
        (min(made), max(made)), batch, share, _count(config.identity().get("batch")) or None if config else None
    )


def _steps(settings: Mapping[str, Any], images: int) -> int:
    """Steps of a training on so many images, 0 if it cannot be told; a setting ``steps`` is the upper limit."""
    steps = _count(settings.get("epochs")) * math.ceil(images / (_count(settings.get("batch")) or images or 1))
    return min(steps, _count(settings.get("steps")) or steps)


def _count(value: Any) -> int:
    """A positive whole number of a stored result, which may hold anything; 0 for everything else."""
    return value if isinstance(value, int) and value > 0 else 0


def _records(cell: CellResult) -> dict[str, Mapping[str, Any]]:
    """What a method that trains recorded of each task, by the task's name.

    It is in ``info`` under ``tasks`` or ``training``: records by task, or a list of records that name their task.
    """
    noted = cell.info.get("tasks") or cell.info.get("training")
    if isinstance(noted, Mapping):
        return {str(task): record for task, record in noted.items() if isinstance(record, Mapping)}
    entries = noted if isinstance(noted, (list, tuple)) else ()
    return {str(record["task"]): record for record in entries if isinstance(record, Mapping) and "task" in record}


def config_of(method: str) -> Config | None:
    """The settings of a registered method's variant; None of one that is not registered here, or not any more."""
    name, _, variant = method.partition(":")
    spec = list_methods().get(name)
    return None if spec is None else spec.variants.get(variant or DEFAULT_VARIANT)


def chosen_on(method: str) -> tuple[str, ...]:
    """The scenarios whose test images a variant's settings were chosen on, as the method's own folder says.

    >>> "mvtec-ad" in chosen_on("dinosaur"), chosen_on("dinosaur:paper"), chosen_on("unheard-of")
    (True, (), ())
    """
    name, _, variant = method.partition(":")
    spec = list_methods().get(name)
    return () if spec is None else tuple(spec.chosen_on.get(variant or DEFAULT_VARIANT, ()))


def formerly(config: Config) -> dict[str, Any]:
    """The values of settings that results stored before these existed were made with.

    A field says it with ``field(metadata={"formerly": VALUE})``.
    """
    return {entry.name: entry.metadata["formerly"] for entry in fields(config) if "formerly" in entry.metadata}


def row_label(cell: CellResult) -> str:
    """The method as tables name it: with its number of epochs unless it ran the schedule of its variant, and called
    `original` only if it is."""
    config = config_of(cell.method)
    training = training_of(cell, config)
    if config is None or training is None or training.is_whole:
        missing = what_is_not_original(cell.method, cell.settings.get("backbone"))
        return f"{cell.method}-{missing}" if missing else cell.method
    epochs, steps = _count(cell.settings.get("epochs")), _count(cell.settings.get("steps"))
    limited = steps and steps != config.identity().get("steps")  # where both are given, the steps end the training
    what = f"{epochs}ep" if epochs and not limited else f"{training.steps[1]}steps"
    return f"{cell.method}-{what}" if ":" in cell.method else f"{cell.method} ({what})"


def training_words(cells: Iterable[CellResult]) -> str:
    """Steps, batch and share of some cells of one method, such as those of all its scenarios.

    Batches or shares that differ are given as a range.
    """
    found = [each for cell in cells if (each := training_of(cell, config_of(cell.method))) is not None]
    if not found:
        return NOT_TRAINED
    steps = min(each.steps[0] for each in found), max(each.steps[1] for each in found)
    batches = sorted({each.batch for each in found if each.batch})
    shares = [each.share for each in found if each.share is not None]
    words = f"{from_to(f'{steps[0]:,}', f'{steps[1]:,}')} steps of {' or '.join(map(str, batches)) or '?'}"
    if not shares:
        return words
    return f"{words}, {from_to(in_percent(min(shares)), in_percent(max(shares)))} of its schedule"


def in_percent(share: float) -> str:
    """A share of a schedule, below 10 % with one decimal.

    >>> in_percent(1.0), in_percent(0.1), in_percent(0.0069)
    ('100 %', '10 %', '0.7 %')
    """
    return percent(share, 0 if share >= 0.0995 else 1)


def from_to(low: str, high: str) -> str:
    """A range in words, or its one value; a unit is said once.

    >>> from_to("540", "1,110"), from_to("1.4 %", "10 %"), from_to("10 %", "10 %")
    ('540 to 1,110', '1.4 to 10 %', '10 %')
    """
    return low if low == high else f"{low.removesuffix(' %')} to {high}"
