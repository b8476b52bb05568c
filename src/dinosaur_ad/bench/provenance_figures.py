"""What a method reaches: measured here, and printed in the paper."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.provenance_runs import Run, epochs_of
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.numbers import Number, measure
from dinosaur_ad.bench.report.render import to_markdown
from dinosaur_ad.bench.report.report_rows import data_notes, paper_scenario
from dinosaur_ad.bench.report.row_groups import CellGroup as Group
from dinosaur_ad.bench.report.table import MEASURED, Column, Entry, Note, Table, figure, finish, words
from dinosaur_ad.bench.report.table import TableBlock as Block


def paper_section(name: str) -> str:
    """What the paper prints for the method, protocol by protocol, as Markdown; nothing where it has no such method."""
    key = paper().method_of(name)
    if key is None:
        return ""
    rows = []
    for scenario, entry in paper().scenarios.items():
        images, pixels = paper().images[scenario][key], paper().pixels[scenario][key]
        values = (images.auroc, pixels.pixel, images.accuracy, images.recall, images.fm)
        rows.append([words(entry.name), words(str(entry.tasks)), *map(figure, values)])
    training, title = paper().training[key], paper().methods[key]
    epochs = f"{training.epochs} epoch{'s' * (training.epochs != 1)} a task"
    table = Table(
        "paper",
        "In the paper",
        f"As printed there for {title}: {training.backbone}, {epochs}, {_replay_words(training.replay)}.",
        (
            Column("Protocol", words=True),
            *map(Column, ("tasks", "image AUROC", "pixel AUROC", "accuracy", "recall", "FM")),
        ),
        (Block("", finish(rows, {})),),
    )
    return to_markdown(table)


def figures_section(runs: Sequence[Run]) -> str:
    """Every run beside the paper's row of the same method and scenario, as Markdown."""
    groups, marks = [run.group for run in runs], _Marks()
    rows = [list(_row(run, marks)) for run in runs]
    table = Table(
        "figures",
        "Measured here",
        "After the last task, averaged over tasks; no image comes with the name of its task. Beside it, the paper's.",
        (
            *(Column(name, words=True) for name in ("Scenario", "Method", "set by hand")),
            *map(Column, ("tasks", "epochs a task", "seeds")),
            *(Column(name, group) for group in ("image AUROC", "pixel AUROC", "FM") for name in (MEASURED, "paper")),
            Column("FM std"),
        ),
        (Block("", finish(rows, {})),),
        (*marks.notes(), *data_notes(groups), *_notes(groups)),
    )
    return to_markdown(table)


@dataclass
class _Marks:
    """Numbers the notes that say what made the scores; variants that were made with the same share one."""

    texts: dict[str, str] = field(default_factory=dict)

    def name(self, run: Run) -> Entry:
        """The method's name with the number of its note."""
        text = "; ".join(_made_with(run.group.first.info))
        return words(run.group.method, self.texts.setdefault(text, str(len(self.texts) + 1)))

    def notes(self) -> list[Note]:
        """The notes, in the order of their numbers."""
        return [Note(f"{text}.", mark) for text, mark in self.texts.items()]


def _made_with(info: Mapping[str, Any]) -> Iterator[str]:
    """Network and weights, and whatever stands for something else, in the words of the result."""
    yield str(info.get("description") or info.get("encoder") or "encoder not recorded").rstrip(".")
    for key, label in {"substitute": "", "regions": "regions: ", "penalty": "penalty: "}.items():
        if info.get(key) not in (None, "", "none"):
            yield f"{label}{info[key]}"


def _row(run: Run, marks: _Marks) -> Iterator[Entry]:
    group = run.group
    yield words(group.scenario)
    yield marks.name(run)
    yield words(run.changed or "nothing")
    yield words(task_count(group))
    yield words(epochs_of(group.first) or "not trained")
    yield words(", ".join(map(str, group.seeds)))
    measured = (numbers.auroc, numbers.pixel("auroc"), numbers.forgetting)
    for number, theirs in zip(measured, printed(group.method, group.scenario), strict=True):
        yield from (over_seeds(group, number), figure(theirs))
    yield over_seeds(group, numbers.FORGETTING["FM std"])


def task_count(group: Group) -> str:
    """How many, and of how many in the paper where it has more."""
    count, key = len(group.first.tasks), paper_scenario(group.scenario)
    return (
        str(count)
        if key is None or paper().scenarios[key].tasks == count
        else f"{count} of {paper().scenarios[key].tasks}"
    )


def over_seeds(group: Group, number: Number) -> Entry:
    """A number averaged over the seeds, with its spread."""
    measured = measure(group, number)
    return figure(measured.mean, measured.spread)


def printed(method: str, scenario: str) -> tuple[float, float, float]:
    """The paper's image AUROC, pixel AUROC and forgetting; NaN where it has none.

    >>> printed("ucad:original", "mvtec-ad")
    (0.798, 0.822, 0.0)
    """
    key, protocol = paper().method_of(method), paper_scenario(scenario)
    if key is None or protocol is None:
        return math.nan, math.nan, math.nan
    images = paper().images[protocol][key]
    return images.auroc, paper().pixels[protocol][key].pixel, images.fm


def _replay_words(images: int) -> str:
    return f"{images} images replayed" if images else "nothing replayed"


def _notes(groups: Sequence[Group]) -> Iterator[Note]:
    yield Note(
        "FM is the paper's forgetting measure, FM std counts only from when a task was learned; both mean little at "
        "an AUROC near 0.5."
    )
    if any(len(group.seeds) > 1 for group in groups):
        yield Note("Where there are several seeds: mean ± standard deviation over them.")
    if any(len(group.seeds) == 1 for group in groups):
        yield Note("Where there is one seed, there is no spread to show, which is no certainty.")
