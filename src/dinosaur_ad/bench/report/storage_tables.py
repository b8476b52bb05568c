"""What has to be kept: the paper's table with its own formula beside it, and what methods kept here."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.figures import Figure, figure_table, number
from dinosaur_ad.bench.report.row_groups import Group
from dinosaur_ad.bench.report.table import Block, Column, Entry, Note, Table, figure, finish, words
from dinosaur_ad.bench.storage import StorageRow, storage_findings, storage_rows


def storage_tables(groups: Sequence[Group]) -> list[Table]:
    """The paper's table, corrected; then the measured one, if anything was measured."""
    return [printed_table(), *([measured_table(groups)] if groups else [])]


def printed_table() -> Table:
    """The paper's storage table, what its formula gives, and what the default preset would keep."""
    columns = (
        Column("Dataset", words=True),
        Column("tasks"),
        Column("images", "paper"),
        Column("members", "paper"),
        Column("MB in all", "paper"),
        Column("images", "paper's formula"),
        Column("members", "paper's formula"),
        Column("MiB in all", "paper's formula"),
        Column("members", "default preset"),
        Column("MiB in all", "default preset"),
    )
    rows = [
        [
            words(row.name),
            words(str(row.tasks)),
            words(row.printed_images),
            words(row.printed_members),
            figure(row.printed_total, digits=1),
            words(_range(row.images)),
            words(_range(row.members)),
            figure(row.total_mib, digits=1),
            words(_range(row.default_members)),
            figure(row.default_total_mib, digits=1),
        ]
        for row in storage_rows()
    ]
    return Table(
        "storage",
        "Storage, as printed and as computed",
        "Training images a task, patches kept at each place, and the sum over all tasks: as the paper prints it for "
        "DINOSaur, by its own formula for the images the datasets really have, and for the default preset here.",
        columns,
        (Block("", finish(rows, {})),),
        tuple(Note(finding) for finding in storage_findings()),
    )


def measured_table(groups: Sequence[Group]) -> Table:
    """What the methods kept in the runs of this report."""
    columns = (
        number("MiB a task", numbers.storage_mib_a_task, "measured", digits=2, spread=False),
        number("MiB in all", numbers.storage_mib, "measured", digits=1, spread=False),
        Figure("MB a task", _printed_a_task, "paper"),
        Figure("MB in all", _printed_in_all, "paper"),
        Figure("MiB a task", _formula_a_task, "paper's formula"),
        Figure("MiB in all", _formula_in_all, "paper's formula"),
    )
    return figure_table(
        "storage-measured",
        "Storage, measured",
        "What a method kept for the tasks it learned, beyond its pretrained weights, beside what the paper prints and "
        "what its formula gives for all of its tasks.",
        groups,
        columns,
        extra=[Note("Another encoder has another grid and width, and so keeps another amount.")],
    )


def _printed_a_task(group: Group) -> Entry:
    """The paper gives storage a task for MVTec-AD only."""
    method = paper().method_of(group.method)
    if method is None or group.scenario != "mvtec-ad":
        return figure(math.nan)
    return figure(paper().sizes[method].storage, digits=1)


def _printed_in_all(group: Group) -> Entry:
    row = _row(group)
    return figure(math.nan if row is None else row.printed_total, digits=1)


def _formula_a_task(group: Group) -> Entry:
    row = _row(group)
    return figure(math.nan if row is None else row.mib_a_task, digits=2)


def _formula_in_all(group: Group) -> Entry:
    row = _row(group)
    return figure(math.nan if row is None else row.total_mib, digits=1)


def _row(group: Group) -> StorageRow | None:
    """The paper's row for a scenario, which is about DINOSaur only; all drifts of MTD share one."""
    if paper().method_of(group.method) != "dinosaur":
        return None
    key = "mtd" if group.scenario.startswith("mtd-") else group.scenario
    return next((row for row in storage_rows() if row.key == key), None)


def _range(bounds: tuple[int, int]) -> str:
    low, high = bounds
    return str(low) if low == high else f"{low}–{high}"
