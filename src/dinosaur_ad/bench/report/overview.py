"""Every method on every scenario in one small table, for those who read only one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.numbers import measure
from dinosaur_ad.bench.report.report_rows import Marks, data_notes, paper_scenario, seed_note
from dinosaur_ad.bench.report.row_groups import Group, methods_of, scenarios_of
from dinosaur_ad.bench.report.table import Better, Block, Column, Entry, Note, Table, figure, finish, words


def overview_table(groups: Sequence[Group]) -> Table:
    """Mean image AUROC of each measured method, and below it what the paper prints for the same method."""
    marks, scenarios = Marks(), scenarios_of(groups)
    measured = [_measured(groups, method, scenarios, marks) for method in methods_of(groups)]
    bold: dict[int, Better] = dict.fromkeys(range(1, 1 + len(scenarios)), "higher")
    blocks = [Block("", finish(measured, bold))]
    printed = [_printed(key, scenarios) for key in _papers_methods(groups)]
    if printed and any(not math.isnan(entry.value) for row in printed for entry in row):
        blocks.append(Block("the paper's own numbers, on its encoder and all its tasks", finish(printed, {})))
    return Table(
        "overview",
        "At a glance",
        "Image AUROC after the last task, averaged over tasks; best of a column in bold.",
        (Column("Method", words=True), *(Column(scenario) for scenario in scenarios)),
        tuple(blocks),
        (*marks.notes(), *_missing_seeds(groups), *data_notes(groups), seed_note(groups)),
    )


def _measured(groups: Sequence[Group], method: str, scenarios: Sequence[str], marks: Marks) -> list[Entry]:
    own = {group.scenario: group for group in groups if group.method == method}
    entries = [marks.name(next(iter(own.values())))]
    for scenario in scenarios:
        over_seeds = measure(own[scenario], numbers.auroc) if scenario in own else None
        entries.append(figure(math.nan) if over_seeds is None else figure(over_seeds.mean, over_seeds.spread))
    return entries


def _papers_methods(groups: Sequence[Group]) -> list[str]:
    """The paper's methods that were measured here, by key, in its order."""
    known = {paper().method_of(group.method) for group in groups}
    return [key for key in paper().methods if key in known]


def _printed(method: str, scenarios: Sequence[str]) -> list[Entry]:
    keys = [paper_scenario(scenario) for scenario in scenarios]
    values = [math.nan if key is None else paper().images[key][method].auroc for key in keys]
    return [words(paper().methods[method]), *(figure(value) for value in values)]


def _missing_seeds(groups: Sequence[Group]) -> list[Note]:
    """Which numbers rest on fewer seeds than others: no spread is no certainty."""
    most = max(len(group.cells) for group in groups)
    scenarios: dict[tuple[int, str], list[str]] = {}
    for group in groups:
        if len(group.cells) < most:
            scenarios.setdefault((len(group.cells), group.method), []).append(group.scenario)
    together: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for (count, method), places in scenarios.items():
        together.setdefault((count, tuple(places)), []).append(method)
    told = [
        f"{count} for {', '.join(methods)} on {', '.join(places)}"
        for (count, places), methods in sorted(together.items())
    ]
    return [Note(f"Fewer than {most} seeds: {'; '.join(told)}.")] if told else []
