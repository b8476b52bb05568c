"""The stored figures about small banks keep what the documentation promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "tasks",
    [("mtd",), ("mtd-color-10",), ("bottle", "cable", "grid", "screw", "transistor")],
    ids=["tiles", "tiles in the worst light", "products"],
)
def test_two_megabytes_a_task_lose_no_more_than_three_thousandths(tasks: tuple[str, ...]) -> None:
    rows = json.loads((ROOT / "results" / "edge" / "bank-bytes.json").read_text())["rows"]
    whole, small = [], []
    for task in tasks:
        own = [row for row in rows if row["task"] == task]
        plain = [row for row in own if row["what"] == "plain" and row["precision"] == "float32"]
        most = max(row["members"] for row in plain)
        whole.append([row["auroc"] for row in plain if row["members"] == most])
        chosen = [row for row in own if row.get("budget") == 2_000_000]
        assert max(row["bytes"] for row in chosen) <= 2_000_000
        small.append([row["auroc"] for row in chosen])
        assert len(whole[-1]) == len(small[-1]) >= 3
    assert _mean(whole) - _mean(small) <= 0.003


def _mean(values: list[list[float]]) -> float:
    return sum(sum(each) / len(each) for each in values) / len(values)
