"""The figures about small banks: the page shows what is stored, and what is stored keeps what was promised."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = "python -m benchmarks.bank_bytes --show"


def test_the_page_shows_what_the_command_prints() -> None:
    printed = subprocess.run(
        [sys.executable, *COMMAND.split()[1:]], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    shown = (ROOT / "docs" / "banks.md").read_text().partition(f"<!-- begin: {COMMAND} -->\n")[2]
    assert shown.partition("\n<!-- end -->")[0].strip() == printed.strip()


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
