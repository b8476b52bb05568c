"""Tables whose rows are methods in blocks of scenarios and whose columns are given as functions of a group."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dinosaur_ad.bench.report.numbers import Number, measure
from dinosaur_ad.bench.report.report_rows import Marks, block_title, seed_note
from dinosaur_ad.bench.report.row_groups import Group, scenarios_of
from dinosaur_ad.bench.report.table import Block, Column, Entry, Note, Table, figure, finish


@dataclass(frozen=True)
class Figure:
    """A column: how it is called, and what stands in it."""

    name: str
    entry: Callable[[Group], Entry]
    group: str = ""
    words: bool = False


def number(name: str, of_cell: Number, group: str = "", digits: int = 3, *, spread: bool = True) -> Figure:
    """A column of numbers averaged over seeds, with their spread unless that would say nothing."""

    def entry(row: Group) -> Entry:
        over_seeds = measure(row, of_cell)
        return figure(over_seeds.mean, over_seeds.spread if spread else math.nan, digits)

    return Figure(name, entry, group)


def figure_table(
    key: str, title: str, lead: str, groups: Sequence[Group], figures: Sequence[Figure], extra: Sequence[Note] = ()
) -> Table:
    """The table of these columns: a block a scenario, a row a method; ``extra`` are notes of its own."""
    marks = Marks()
    columns = [Column("Method", words=True), *(Column(each.name, each.group, each.words) for each in figures)]
    blocks = []
    for scenario in scenarios_of(groups):
        own = [group for group in groups if group.scenario == scenario]
        rows = [[marks.name(group), *(each.entry(group) for each in figures)] for group in own]
        blocks.append(Block(block_title(own), finish(rows, {})))
    notes = (*marks.notes(), *extra, seed_note(groups))
    return Table(key, title, lead, tuple(columns), tuple(blocks), notes)
