"""What the paper's tables leave out: other measures of forgetting, routing, thresholds, kinds of defects, cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from dinosaur_ad.bench.metrics import seed_spread
from dinosaur_ad.bench.paper import Device, paper
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.figures import Figure, figure_table, number
from dinosaur_ad.bench.report.numbers import by_kind
from dinosaur_ad.bench.report.report_rows import block_title, seed_note
from dinosaur_ad.bench.report.row_groups import Group, methods_of, scenarios_of
from dinosaur_ad.bench.report.table import Block, Cell, Column, Entry, Note, Table, figure, finish, words
from dinosaur_ad.bench.results import TaskScores

_ALL = "all kinds"
_MOST_KINDS = 12
"""Scenarios with more kinds of anomaly (MVTec-AD has dozens) would be a table nobody reads."""


def more_tables(groups: Sequence[Group]) -> list[Table]:
    """Forgetting, routing and thresholds, kinds, cost; nothing without groups."""
    if not groups:
        return []
    tables = (forgetting_table(groups), thresholds_table(groups), kinds_table(groups), cost_table(groups))
    return [table for table in tables if table.blocks]


def forgetting_table(groups: Sequence[Group]) -> Table:
    """Five readings of one matrix."""
    columns = [number("AUROC", numbers.auroc)]
    columns += [number(name, measure) for name, measure in numbers.FORGETTING.items()]
    return figure_table(
        "forgetting",
        "Forgetting, by every definition",
        "All from the same T × T matrix of image AUROCs. FM: what was lost, from the best value of any earlier time "
        "(paper), since the task was learned (std), or at the moment it was learned (diagonal); BWT is the last "
        "with the other sign. FWT: how far above chance a task is before it is learned. Little forgetting means "
        "little at an AUROC of 0.5.",
        groups,
        columns,
    )


def thresholds_table(groups: Sequence[Group]) -> Table:
    """What routing and thresholds cost, and how many scores were no numbers."""
    columns = (
        number("routed", numbers.auroc, "AUROC"),
        number("task given", numbers.oracle_auroc, "AUROC"),
        number("routed right", numbers.routing),
        number("false alarms", numbers.false_alarms, "paper's threshold"),
        number("recall", numbers.recall, "paper's threshold"),
        number("precision", numbers.precision, "paper's threshold"),
        number("false alarms", numbers.own_false_alarms, "own threshold"),
        number("recall", numbers.own_recall, "own threshold"),
        number("precision", numbers.own_precision, "own threshold"),
        number("ties", numbers.ties),
        Figure("NaN", lambda group: words(str(int(sum(numbers.nan_scores(cell) for cell in group.cells))))),
    )
    return figure_table(
        "thresholds",
        "Routing and thresholds",
        "After the last task, averaged over tasks. The paper's threshold is the 97.5th percentile of the training "
        "scores of the task an image really belongs to, which a user would not know; a method's own threshold is the "
        "one it would use itself. Ties: pairs of a normal and an anomalous image with the same score. NaN: scores "
        "that were no numbers, in the whole evaluation, all seeds; they raise no alarm.",
        groups,
        columns,
        extra=[Note("Precision is undefined, and a dash, where some task had no alarm at all.")],
    )


def kinds_table(groups: Sequence[Group]) -> Table:
    """The AUROC of every kind of anomaly, methods side by side."""
    methods = methods_of(groups)
    blocks, left_out = [], []
    for scenario in scenarios_of(groups):
        own = [group for group in groups if group.scenario == scenario]
        kinds = sorted({kind for group in own for task in group.first.final for kind in _anomalous_kinds(task)})
        if len(kinds) > _MOST_KINDS:
            left_out.append(f"{scenario} ({len(kinds)} kinds)")
            continue
        blocks.append(Block(block_title(own), tuple(_kind_rows(kinds, own, methods))))
    notes = [seed_note(groups)]
    if left_out:
        notes.append(Note(f"Left out because nobody would read them: {', '.join(left_out)}."))
    return Table(
        "kinds",
        "Kinds of anomaly",
        "Image AUROC of each kind against the normal images of its task, after the last task, averaged over the "
        "tasks that have the kind; the last line of a scenario is all kinds pooled. Best of a line in bold.",
        (Column("Kind", words=True), *(Column(method) for method in methods)),
        tuple(blocks),
        tuple(notes),
    )


def cost_table(groups: Sequence[Group]) -> Table:
    """Time, memory and size, beside what the paper measured on its devices."""
    columns = (
        number("learn, s", numbers.learn_seconds, digits=2, spread=False),
        number("score, ms", numbers.score_ms, digits=2, spread=False),
        number("memory, MiB", numbers.peak("peak_memory_bytes"), "peak", digits=0, spread=False),
        number("device, MiB", numbers.peak("peak_device_bytes"), "peak", digits=0, spread=False),
        number("all, M", lambda cell: cell.parameters["total"] / 1e6, "parameters", digits=2, spread=False),
        number("trainable, M", lambda cell: cell.parameters["trainable"] / 1e6, "parameters", digits=2, spread=False),
        Figure("all, M", lambda group: figure(_printed_size(group), digits=1), "paper"),
        *(Figure(f"{device.name}, ms", partial(_printed_ms, device), "paper") for device in paper().devices.values()),
        Figure("run on", lambda group: words(_hardware(group)), words=True),
    )
    return figure_table(
        "cost",
        "Cost",
        "As the runner measured it: seconds to learn a task, milliseconds to score an image, both on average. The "
        "paper's milliseconds are from other machines and other code.",
        groups,
        columns,
        extra=[
            Note(
                "What evaluating cost, not what an inspection takes: features that were encoded before are read from "
                "the cache, what a bank has answered about an image is not asked again, and cells may have shared "
                "their machine with others. Memory is that of the whole process."
            )
        ],
    )


def _kind_rows(kinds: Sequence[str], groups: Sequence[Group], methods: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    """A line for every kind and one for all of them pooled; methods that did not run stay empty."""
    found = {group.method: [by_kind(cell) | {_ALL: numbers.auroc(cell)} for cell in group.cells] for group in groups}
    for kind in (*kinds, _ALL):
        entries = []
        for method in methods:
            values = [of_seed.get(kind, math.nan) for of_seed in found.get(method, ())]
            entries.append([figure(*seed_spread(values))])
        yield Cell(kind.replace("_", " ")), *(cell for (cell,) in finish(entries, {0: "higher"}))


def _anomalous_kinds(task: TaskScores) -> set[str]:
    return {kind for kind, label in zip(task.kinds, task.labels, strict=True) if label}


def _printed_size(group: Group) -> float:
    method = paper().method_of(group.method)
    return math.nan if method is None else paper().sizes[method].parameters


def _printed_ms(device: Device, group: Group) -> Entry:
    method = paper().method_of(group.method)
    if method is None:
        return figure(math.nan)
    latency = device.latency[method]
    return words("out of memory") if math.isnan(latency.ms) else figure(latency.ms, latency.std, digits=1)


def _hardware(group: Group) -> str:
    """The devices that made the group's cells, each once."""
    found: dict[str, None] = {}
    for cell in group.cells:
        for machine in cell.environments:
            device = str(machine.get("device", "cpu"))
            processor = f"{machine.get('processor', 'processor not recorded')}, {machine.get('cores', '?')} cores"
            found.setdefault(device if device.startswith("cuda") else processor)
    return "; ".join(found) or "not recorded"
