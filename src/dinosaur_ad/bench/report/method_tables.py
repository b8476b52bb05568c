"""What the paper's tables leave out: definitions of forgetting, routing and thresholds, cost, and what is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dinosaur_ad.bench.effort import row_label
from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.numbers import Number, measure
from dinosaur_ad.bench.report.report_rows import block_title, paper_scenario, seed_note
from dinosaur_ad.bench.report.row_groups import CellGroup, methods_of, scenarios_of
from dinosaur_ad.bench.report.table import DASH, Column, Entry, Note, Table, TableBlock, figure, finish, words
from dinosaur_ad.bench.results import FailedCell
from dinosaur_ad.bench.storage import storage_rows


@dataclass(frozen=True)
class Figure:
    """A column: its header, and what each row has in it."""

    name: str
    entry: Callable[[CellGroup], Entry]
    group: str = ""
    words: bool = False


def number(name: str, of_cell: Number, group: str = "", digits: int = 3, *, spread: bool = True) -> Figure:
    """A column of numbers averaged over seeds, with their standard deviation unless ``spread`` is off."""

    def entry(row: CellGroup) -> Entry:
        over_seeds = measure(row, of_cell)
        return figure(over_seeds.mean, over_seeds.spread if spread else math.nan, digits)

    return Figure(name, entry, group)


def figure_table(
    key: str, title: str, lead: str, groups: Sequence[CellGroup], figures: Sequence[Figure], extra: Sequence[Note] = ()
) -> Table:
    """The table of these columns: a block for each scenario, a row for each method; ``extra`` are notes of its own."""
    columns = [Column("Method", words=True), *(Column(each.name, each.group, each.words) for each in figures)]
    blocks = []
    for scenario in scenarios_of(groups):
        own = [group for group in groups if group.scenario == scenario]
        rows = [[words(row_label(group.first)), *(each.entry(group) for each in figures)] for group in own]
        blocks.append(TableBlock(block_title(own), finish(rows, {})))
    return Table(key, title, lead, tuple(columns), tuple(blocks), (*extra, seed_note(groups)))


def forgetting_table(groups: Sequence[CellGroup]) -> Table:
    """Several measures of forgetting, all from one matrix."""
    shown = ("FM paper", "FM std", "BWT", "FWT")
    return figure_table(
        "forgetting",
        "Forgetting",
        "All from the same T × T matrix of image AUROCs. FM: what was lost, from the best value of any earlier time "
        "(paper) or since the task was learned (std); BWT: the change since the moment a task was learned; FWT: how "
        "far above chance a task is before it is learned. Little forgetting means little at an AUROC of 0.5.",
        groups,
        [number("AUROC", numbers.auroc), *(number(name, numbers.FORGETTING[name]) for name in shown)],
    )


def thresholds_table(groups: Sequence[CellGroup]) -> Table:
    """What choosing the task costs, and what the thresholds do."""
    columns = (
        number("task chosen", numbers.auroc, "AUROC"),
        number("task given", numbers.oracle_auroc, "AUROC"),
        number("chosen right", numbers.routing),
        number("false alarms", numbers.false_alarms, "paper's threshold"),
        number("recall", numbers.recall, "paper's threshold"),
        number("false alarms", numbers.own_false_alarms, "own threshold"),
        number("recall", numbers.own_recall, "own threshold"),
        number("ties", numbers.ties),
    )
    return figure_table(
        "thresholds",
        "Routing and thresholds",
        "After the last task, averaged over tasks. The paper's threshold is the 97.5th percentile of the training "
        "scores of the true task, which a user does not know; a method's own threshold is the one it would use itself. "
        "Ties: pairs of a normal and an anomalous image with equal scores.",
        groups,
        columns,
    )


def cost_table(groups: Sequence[CellGroup]) -> Table:
    """Time, memory, size and storage, beside what the paper prints."""
    columns = (
        number("learn, s", numbers.learn_seconds, digits=2, spread=False),
        number("score, ms", numbers.score_ms, digits=2, spread=False),
        number("memory, MiB", numbers.peak("peak_memory_bytes"), "peak", digits=0, spread=False),
        number("device, MiB", numbers.peak("peak_device_bytes"), "peak", digits=0, spread=False),
        number("all, M", lambda cell: cell.parameters["total"] / 1e6, "parameters", digits=2, spread=False),
        number("trainable, M", lambda cell: cell.parameters["trainable"] / 1e6, "parameters", digits=2, spread=False),
        number("MiB a task", numbers.storage_mib_a_task, "storage", digits=2, spread=False),
        number("MiB in all", numbers.storage_mib, "storage", digits=1, spread=False),
        Figure("parameters, M", lambda group: figure(_printed_size(group), digits=1), "paper"),
        Figure("MB in all", lambda group: figure(_printed_storage(group), digits=1), "paper"),
        Figure("run on", lambda group: words(_hardware(group)), words=True),
    )
    return figure_table(
        "cost",
        "Cost and storage",
        "As the runner measured it: seconds to learn a task and milliseconds to score an image, on average; storage is "
        "what is kept for all tasks beyond pretrained weights. dinosaur bench storage has the paper's storage formula.",
        groups,
        columns,
        extra=[
            Note(
                "Times include cached features and cells that shared a machine: they are no speeds. Memory is that of "
                "the whole process. Another encoder keeps another amount."
            )
        ],
    )


def missing_table(groups: Sequence[CellGroup], failed: Sequence[FailedCell] = ()) -> Table:
    """For each scenario: which methods did not run, which have fewer seeds than others, what failed, NaN scores."""
    most = max(len(group.cells) for group in groups)
    measured = methods_of(groups)
    known = {paper().method_of(method) for method in measured}
    absent = [name for key, name in paper().methods.items() if key not in known]
    rows = []
    for scenario in dict.fromkeys([*scenarios_of(groups), *(cell.scenario for cell in failed)]):
        own = [group for group in groups if group.scenario == scenario]
        ran = {group.method for group in own}
        fewer = [
            f"{count}: {', '.join(names)}"
            for count in range(1, most)
            if (names := [group.method for group in own if len(group.cells) == count])
        ]
        broken = [f"{cell.method} seed {cell.seed}" for cell in failed if cell.scenario == scenario]
        nan = {group.method: int(sum(numbers.nan_scores(cell) for cell in group.cells)) for group in own}
        lists = (
            [", ".join(method for method in measured if method not in ran)],
            fewer,
            broken,
            [f"{method} {count}" for method, count in nan.items() if count],
        )
        rows.append([words(scenario), words(_task_words(own)), *(words("; ".join(each) or DASH) for each in lists)])
    headers = ("Scenario", "tasks", "not run", f"fewer than {most} seeds", "failed", "NaN scores")
    return Table(
        "missing",
        "What is missing",
        "Of the methods in this report. A number that rests on one seed has no spread to show, which is no certainty.",
        tuple(Column(name, words=True) for name in headers),
        (TableBlock("", finish(rows, {})),),
        (Note(f"Methods of the paper that were not run at all: {', '.join(absent)}."),) if absent else (),
    )


def _task_words(own: Sequence[CellGroup]) -> str:
    if not own:
        return DASH
    count, key = len(own[0].first.tasks), paper_scenario(own[0].scenario)
    return str(count) if key is None else f"{count} of the paper's {paper().scenarios[key].tasks}"


def _printed_size(group: CellGroup) -> float:
    method = paper().method_of(group.method)
    return math.nan if method is None else paper().sizes[method].parameters


def _printed_storage(group: CellGroup) -> float:
    """The paper prints what all tasks keep for DINOSaur only; all drifts of MTD share one number."""
    if paper().method_of(group.method) != "dinosaur":
        return math.nan
    key = "mtd" if group.scenario.startswith("mtd-") else group.scenario
    return next((row.printed_total for row in storage_rows() if row.key == key), math.nan)


def _hardware(group: CellGroup) -> str:
    """The devices that made the cells of the group, each once."""
    found: dict[str, None] = {}
    for cell in group.cells:
        for machine in cell.environments:
            device = str(machine.get("device", "cpu"))
            processor = f"{machine.get('processor', 'processor not recorded')}, {machine.get('cores', '?')} cores"
            found.setdefault(device if device.startswith("cuda") else processor)
    return "; ".join(found) or "not recorded"
