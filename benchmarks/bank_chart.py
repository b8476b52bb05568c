"""The curve of :mod:`benchmarks.bank_bytes` as a drawing: change of AUROC against megabytes a task."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.bank_tables import GROUPS, changes_by_task

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360, 250, 46, 10, 30, 34
LOWEST, HIGHEST, SMALLEST, LARGEST = -0.14, 0.01, 0.2, 40.0
LINES = {"float32": "#999", "float16": "#c60", "int8": "#06c", "a budget": "#0a5"}

Row = dict[str, Any]
Points = list[tuple[float, float]]


def svg(document: dict[str, Any]) -> str:
    """Two panels side by side, the tiles and the products, on the same scales."""
    panels = [_panel(document["rows"], group, WIDTH * n) for n, group in enumerate(("MTD", "MVTec-AD"))]
    style = "text{font:11px sans-serif;fill:#444}path{fill:none}.grid{stroke:#ddd}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" role="img">'
        f"<style>{style}</style><title>Change of image AUROC against the bytes of a bank</title>"
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(panels)}</svg>\n'
    )


def _panel(rows: list[Row], group: str, shift: int) -> str:
    marks = [_level(value) for value in (-0.12, -0.09, -0.06, -0.03, 0.0)]
    marks += [_size(value) for value in (0.25, 0.5, 1, 2, 4, 8, 16, 32)]
    drawn = [_line(_points(rows, name, group), colour, name, n) for n, (name, colour) in enumerate(LINES.items())]
    head = f'<text x="{LEFT}" y="16" font-weight="bold">{group}: change of AUROC, MB a task</text>'
    return f'<g transform="translate({shift} 0)">{head}{"".join(marks)}{"".join(drawn)}</g>'


def _points(rows: list[Row], name: str, group: str) -> Points:
    """Mean megabytes and mean change of a group's tasks, for each bank that was compared."""
    if name == "a budget":
        chosen = {
            key: [r for r in rows if r.get("budget") == key] for key in {r["budget"] for r in rows if "budget" in r}
        }
    else:
        plain = [row for row in rows if row["what"] == "plain" and row["precision"] == name]
        most = {row["task"]: max(r["members"] for r in plain if r["task"] == row["task"]) for row in plain}
        counts = {row["members"] for row in plain if row["task"] == "mtd"}
        chosen = {n: [row for row in plain if row["members"] == min(n, most[row["task"]])] for n in counts}
    points = [
        (_mean(_of(group, each, "bytes")) / 1e6, _mean(changes_by_task(rows, each, group))) for each in chosen.values()
    ]
    return sorted(points)


def _of(group: str, rows: list[Row], key: str) -> Iterable[float]:
    return (float(row[key]) for row in rows if row["task"] in GROUPS[group])


def _line(points: Points, colour: str, name: str, number: int) -> str:
    path = "M" + "L".join(f"{_x(size):.1f} {_y(change):.1f}" for size, change in points)
    dots = "".join(f'<circle cx="{_x(a):.1f}" cy="{_y(b):.1f}" r="2.5" fill="{colour}"/>' for a, b in points)
    key_y = HEIGHT - BOTTOM - 14 * (len(LINES) - number)
    key = f'<text x="{WIDTH - RIGHT}" y="{key_y}" text-anchor="end" style="fill:{colour}">{name}</text>'
    return f'<path d="{path}" stroke="{colour}" stroke-width="1.5"/>{dots}{key}'


def _level(value: float) -> str:
    y = _y(value)
    text = f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:+.2f}</text>'
    return f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>{text}'


def _size(value: float) -> str:
    return f'<text x="{_x(value):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:g}</text>'


def _x(megabytes: float) -> float:
    share = math.log(megabytes / SMALLEST) / math.log(LARGEST / SMALLEST)
    return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, share))


def _y(change: float) -> float:
    share = (change - LOWEST) / (HIGHEST - LOWEST)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(1.0, max(0.0, share))


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
