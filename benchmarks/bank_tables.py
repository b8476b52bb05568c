"""The stored result of :mod:`benchmarks.bank_bytes` as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.measure import Section, Table, Target, at_most

GROUPS = {
    "MTD": ("mtd",),
    "MTD, worst light": ("mtd-color-10",),
    "MVTec-AD": ("bottle", "cable", "grid", "screw", "transistor"),
}
BUDGET, LOSS = 2_000_000, 0.003

Row = dict[str, Any]


def section(document: dict[str, Any]) -> Section:
    """All tables, and whether the target is met."""
    rows = document["rows"]
    tables = [
        Table("Mean image AUROC of the default bank (20 % of the images, float32)", *_baseline(rows)),
        Table("Members and precision alone: change of AUROC", *_plain(rows)),
        Table("What a budget chooses: change of AUROC", *_budgets(rows)),
        Table("Other ways to spend 2 MB on an int8 bank: change of AUROC", *_alternatives(rows)),
        Table(
            "Thresholds calibrated for the chosen bank, 2.5 % false alarms asked for, seed 0: false alarms / recall",
            *_thresholds(rows),
        ),
    ]
    if any(row["what"] == "halves" for row in rows):
        tables.append(
            Table("Learned from half of the images, updated with the other half: AUROC, seed 0", *_halves(rows))
        )
    if "timings" in document:
        tables.append(Table("One image against one bank of MTD, side by side", *_timings(document["timings"])))
    return Section("Bytes of a bank", tables, _targets(rows))


def _targets(rows: list[Row]) -> list[Target]:
    chosen = [row for row in rows if row.get("budget") == BUDGET]
    losses = [at_most(f"{group}: AUROC lost with 2 MB a task", -_change(rows, chosen, group), LOSS) for group in GROUPS]
    return [at_most("largest task, MB", max(row["bytes"] for row in chosen) / 1e6, BUDGET / 1e6), *losses]


def _baseline(rows: list[Row]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    whole = _whole(rows)
    values = [f"{_mean(whole[task] for task in names):.4f}" for names in GROUPS.values()]
    return ("", *GROUPS), [("mean over seeds and tasks", *values)]


def _plain(rows: list[Row]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """A line for each precision and number of members; where a task has fewer, all it has."""
    plain = [row for row in rows if row["what"] == "plain"]
    counts = sorted({row["members"] for row in plain if row["task"] == "mtd"})

    def at(row: Row, precision: str, count: int) -> bool:
        most = max(each["members"] for each in plain if each["task"] == row["task"])
        return bool(row["precision"] == precision and row["members"] == min(count, most))

    lines = []
    for precision in ("float32", "float16", "int8"):
        for count in reversed(counts):
            chosen = [row for row in plain if at(row, precision, count)]
            lines.append((precision, count, _megabytes(chosen), *_changes(rows, chosen)))
    return ("precision", "members at most", "MB, MTD", *GROUPS), lines


def _budgets(rows: list[Row]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    lines: list[tuple[object, ...]] = []
    for budget in sorted({row["budget"] for row in rows if "budget" in row}, reverse=True):
        chosen = [row for row in rows if row.get("budget") == budget]
        forms = [_form(next(row for row in chosen if row["task"] == task)) for task in ("mtd", "screw", "bottle")]
        lines.append((f"{budget / 1e6:g} MB", *forms, *_changes(rows, chosen)))
    return ("budget", "MTD keeps", "screw keeps", "bottle keeps", *GROUPS), lines


def _alternatives(rows: list[Row]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    lines: list[tuple[object, ...]] = []
    spent = [row for row in rows if row["what"] == "2 MB"]
    for channels in sorted({row["channels"] for row in spent}, reverse=True):
        chosen = [row for row in spent if row["channels"] == channels]
        members = next(row["members"] for row in chosen if row["task"] == "mtd")
        lines.append((channels, members, *_changes(rows, chosen)))
    return ("channels", "members, MTD", *GROUPS), lines


def _thresholds(rows: list[Row]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    lines: list[tuple[object, ...]] = []
    whole = {row["task"]: row for row in rows if row["what"] == "whole"}
    budgets = sorted({row["budget"] for row in rows if "recall" in row and "budget" in row}, reverse=True)
    for budget in [*([None] if whole else []), *budgets]:
        limited = {row["task"]: row for row in rows if row.get("budget") == budget and "recall" in row}
        judged = limited if budget else whole

        def rates(names: Iterable[str], judged: dict[str, Row] = judged) -> str:
            alarms, recall = (_mean([judged[name][key] for name in names]) for key in ("false_alarms", "recall"))
            return f"{100 * alarms:.1f} % / {100 * recall:.0f} %"

        name = f"{budget / 1e6:g} MB" if budget else "none: the default bank"
        lines.append((name, *(rates(list(names)) for names in GROUPS.values())))
    return ("budget", *GROUPS), lines


def _halves(rows: list[Row]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """At once against in halves, each as the default preset keeps it and within 2 MB."""
    most = {task: max(r["members"] for r in rows if r["task"] == task) for names in GROUPS.values() for task in names}

    def whole(row: Row) -> bool:
        return bool(row["what"] == "plain" and row["precision"] == "float16" and row["members"] == most[row["task"]])

    cases = {
        "default, at once": [row for row in rows if whole(row) and row["seed"] == 0],
        "default, in halves": [row for row in rows if row["what"] == "halves" and row["limit"] is None],
        "2 MB, at once": [row for row in rows if row.get("budget") == BUDGET and row["seed"] == 0],
        "2 MB, in halves": [row for row in rows if row["what"] == "halves" and row["limit"] == BUDGET],
    }
    lines: list[tuple[object, ...]] = [
        (name, *(f"{_mean(row['auroc'] for row in case if row['task'] in names):.4f}" for names in GROUPS.values()))
        for name, case in cases.items()
    ]
    return ("", *GROUPS), lines


def _timings(timings: list[Row]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    lines: list[tuple[object, ...]] = [
        (
            row["bank"],
            f"{row['members']} × {row['channels']}",
            round(row["memory_bytes"] / 1e6, 1),
            row["ms_median"],
            row["ms_fastest"],
        )
        for row in timings
    ]
    return ("bank", "members × channels", "MB in memory", "ms, median", "ms, fastest"), lines


# --- losses ---


def _whole(rows: list[Row]) -> dict[str, float]:
    """By task, the AUROC of the whole float32 bank, mean over the seeds."""
    plain = [row for row in rows if row["what"] == "plain" and row["precision"] == "float32"]
    most = {row["task"]: row["members"] for row in sorted(plain, key=lambda row: int(row["members"]))}
    return {task: _mean(r["auroc"] for r in plain if (r["task"], r["members"]) == (task, most[task])) for task in most}


def _changes(rows: list[Row], chosen: list[Row]) -> list[str]:
    return [f"{_change(rows, chosen, group):+.4f}" for group in GROUPS]


def _change(rows: list[Row], chosen: list[Row], group: str) -> float:
    return _mean(changes_by_task(rows, chosen, group))


def changes_by_task(rows: list[Row], chosen: list[Row], group: str) -> list[float]:
    """For each task of a group the change of AUROC from the whole float32 bank, both means over the seeds."""
    whole = _whole(rows)
    return [_mean(row["auroc"] for row in chosen if row["task"] == task) - whole[task] for task in GROUPS[group]]


def _form(row: Row) -> str:
    return f"{row['members']} × {row['channels']} {row['precision']}"


def _megabytes(chosen: list[Row]) -> str:
    return f"{next(row['bytes'] for row in chosen if row['task'] == 'mtd') / 1e6:.2f}"


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
