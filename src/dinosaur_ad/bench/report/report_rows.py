"""What every table of methods shares: which rows there are, which notes they need, what a block is called."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dinosaur_ad.bench.effort import chosen_on, row_label
from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.report.row_groups import CellGroup
from dinosaur_ad.bench.report.table import Entry, Note, words

LITERAL = "mtd-geo-literal"
TRAINING_NOTE = (
    "Training: optimiser steps a task, images a step, and their share of the variant's own schedule (300 epochs in the "
    "paper's, its authors' in “original”). A row that ran another schedule has its epochs in its name (“30ep”)."
)
TRAINING = "Training"


@dataclass
class Marks:
    """Numbered notes that name the encoder and weights of each method; methods with the same ones share a note.

    One more note names the rows whose settings were chosen on the test images of the table.
    """

    methods: dict[str, list[str]] = field(default_factory=dict)
    chosen: dict[str, list[str]] = field(default_factory=dict)

    def name(self, group: CellGroup) -> Entry:
        """The method's name with the number of its note."""
        return words(row_label(group.first), self.number(group))

    def number(self, group: CellGroup) -> str:
        """The number of the note on a group's encoder and weights."""
        about = str(group.first.info.get("description") or group.first.info.get("encoder") or "encoder not recorded")
        label = row_label(group.first)
        _note_once(self.methods.setdefault(about, []), label)
        if group.scenario in chosen_on(group.method):
            _note_once(self.chosen.setdefault(label, []), group.scenario)
        return str(list(self.methods).index(about) + 1)

    def notes(self) -> list[Note]:
        """The notes, in the order of their numbers, and what the column of training means."""
        encoders = [
            Note(f"{', '.join(names)}: {about}.", str(number))
            for number, (about, names) in enumerate(self.methods.items(), start=1)
        ]
        chosen = [Note(chosen_words(self.chosen))] if self.chosen else []
        return [*encoders, *chosen, Note(TRAINING_NOTE)]


def _note_once(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)


def chosen_words(chosen: Mapping[str, Sequence[str]]) -> str:
    """Which rows are optimistic where, because their settings were chosen on the images they are tested on.

    >>> chosen_words({"a": ["x", "y"], "b": ["x"], "c": ["x"]})
    'Settings were chosen on these test images, so the rows are optimistic there: a (x, y); b, c (x).'
    """
    rows: dict[tuple[str, ...], list[str]] = {}
    for row, scenarios in chosen.items():
        rows.setdefault(tuple(scenarios), []).append(row)
    where = "; ".join(f"{', '.join(names)} ({', '.join(scenarios)})" for scenarios, names in rows.items())
    return f"Settings were chosen on these test images, so the rows are optimistic there: {where}."


def rows_of(method: str, groups: Iterable[CellGroup]) -> list[dict[str, CellGroup]]:
    """A method's groups by scenario, one row for each form that it has by name: what ran half a schedule says so."""
    rows: dict[str, dict[str, CellGroup]] = {}
    for group in groups:
        if group.method == method:
            rows.setdefault(row_label(group.first), {})[group.scenario] = group
    return list(rows.values())


def paper_scenario(scenario: str) -> str | None:
    """The paper's protocol that a scenario is compared with; both readings of geometric drift have the same.

    >>> paper_scenario("mtd-geo-literal"), paper_scenario("synthetic")
    ('mtd-geo', None)
    """
    key = "mtd-geo" if scenario == LITERAL else scenario
    return key if key in paper().scenarios else None


def in_paper_order(groups: Sequence[CellGroup]) -> list[CellGroup | str]:
    """The rows of a block: the groups, and between them the paper's methods (by key) that were not measured."""
    rows: list[CellGroup | str] = []
    for key in paper().methods:
        own = [group for group in groups if paper().method_of(group.method) == key]
        rows += own or [key]
    return rows + [group for group in groups if paper().method_of(group.method) is None]


def block_title(groups: Sequence[CellGroup], *, compared: bool = False) -> str:
    """The scenario, and whether it is as large as the paper's; ``compared`` if the table has differences from it."""
    first = groups[0].first
    key = paper_scenario(first.scenario)
    if key is None:
        return f"{first.scenario} ({_tasks(len(first.tasks))})"
    entry = paper().scenarios[key]
    title = f"{entry.name}{' as printed' if first.scenario == LITERAL else ''} ({first.scenario})"
    if len(first.tasks) == entry.tasks:
        return f"{title}, {_tasks(entry.tasks)}"
    partly = f"{title}, {len(first.tasks)} of the paper's {entry.tasks} tasks"
    return f"{partly}: differences are not like for like" if compared else partly


def geometry_note(groups: Iterable[CellGroup]) -> list[Note]:
    """Which of the two geometric drifts the paper's numbers belong to, where either was run."""
    return [Note(text) for text in geometry_words({group.scenario for group in groups})]


def geometry_words(scenarios: Collection[str]) -> list[str]:
    """The same of scenarios by name."""
    if not {"mtd-geo", LITERAL}.intersection(scenarios):
        return []
    return [
        "The paper's geometric numbers belong to mtd-geo-literal: its scale of 0.01 to 0.10, used as a factor, "
        "shrinks the tile to a few pixels. mtd-geo uses 1 + scale, so its difference from the paper is expected."
    ]


def seed_note(groups: Iterable[CellGroup]) -> Note:
    """How several seeds became one number."""
    seeds = sorted({seed for group in groups for seed in group.seeds})
    if len(seeds) == 1:
        return Note(f"One seed ({seeds[0]}), so there is no spread to show.")
    return Note(f"Seeds {', '.join(map(str, seeds))}: mean ± standard deviation over the seeds of a row.")


def _tasks(count: int) -> str:
    return f"{count} task{'s' * (count != 1)}"
