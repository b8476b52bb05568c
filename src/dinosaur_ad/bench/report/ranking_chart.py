"""One number of many methods as an SVG: a line for each, the highest first, with its spread and the paper's number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dinosaur_ad.page.html import Html, text

_WIDTH, _LINE, _RIGHT, _TOP, _BOTTOM = 420, 18, 44, 6, 22
_LETTER, _LEAST_LEFT, _LONGEST_NAME = 6.0, 110, 40
CHANCE = 0.5


class RankedRow(NamedTuple):
    """A method's AUROC, its spread over seeds, the paper's AUROC (None: unknown), and a style class for its colour."""

    name: str
    value: float
    spread: float | None
    paper: float | None
    style: str


def ranking_chart(ranked: Sequence[RankedRow], label: str) -> Html:
    """AUROCs from 0.5, or lower where one is, to 1.

    >>> chart = ranking_chart([RankedRow("a", 0.8, None, None, "c0"), RankedRow("b", 0.9, 0.01, 0.95, "c1")], "x")
    >>> chart.index(">b<") < chart.index(">a<"), chart.count("<circle"), chart.count('class="printed"')
    (True, 2, 1)
    """
    values = [value for each in ranked for value in (each.value, each.paper) if value is not None]
    low = min(CHANCE, math.floor(min(values) * 10) / 10)
    height = _TOP + _LINE * len(ranked) + _BOTTOM
    left = max(_LEAST_LEFT, round(_LETTER * max(len(_shown(each.name)) for each in ranked)) + 14)
    room = _WIDTH - left - _RIGHT

    def x(value: float) -> float:
        return left + room * (min(max(value, low), 1.0) - low) / (1 - low)

    floor = height - _BOTTOM + 2
    marks = [
        f'<path class="grid" d="M{x(tick / 10):.1f} {_TOP}V{floor}"/>'
        f'<text class="tick" x="{x(tick / 10):.1f}" y="{floor + 14}" text-anchor="middle">{tick / 10:g}</text>'
        for tick in range(round(low * 10), 11)
    ]
    marks.append(f'<path class="chance" d="M{x(CHANCE):.1f} {_TOP}V{floor}"/>')
    for line, each in enumerate(sorted(ranked, key=lambda each: -each.value)):
        marks.append(_line(each, left, _TOP + _LINE * line + _LINE / 2, x))
    return Html(
        f'<svg viewBox="0 0 {_WIDTH} {height}" class="chart rank" role="img" aria-label="AUROC on {text(label)}">'
        f"{''.join(marks)}</svg>"
    )


def _shown(name: str) -> str:
    """A name that leaves room for the chart; the whole one stands in the title of its line."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _line(each: RankedRow, left: int, y: float, x: Callable[[float], float]) -> str:
    at, spread = x(each.value), each.spread or 0.0
    low, high = x(each.value - spread), x(each.value + spread)
    style = text(each.style)
    said = f"{each.name}: {each.value:.3f}" + (f" ± {spread:.3f}" if each.spread is not None else "")
    printed = ""
    if each.paper is not None:
        middle = x(each.paper)
        said += f"; the paper: {each.paper:.3f}"
        printed = f'<path class="printed" d="M{middle - 4:.1f} {y:.1f}l4 -4l4 4l-4 4z"/>'
    return (
        f'<g><title>{text(said)}</title><text class="who" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">'
        f'{text(_shown(each.name))}</text><path class="stem {style}" d="M{left} {y:.1f}H{at:.1f}"/>'
        f'<path class="spread {style}" d="M{low:.1f} {y:.1f}H{high:.1f}"/>{printed}'
        f'<circle class="dot {style}" cx="{at:.1f}" cy="{y:.1f}" r="4"/>'
        f'<text class="value" x="{_WIDTH - _RIGHT + 8}" y="{y + 4:.1f}">{each.value:.3f}</text></g>'
    )
