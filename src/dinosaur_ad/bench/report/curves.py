"""Charts: the T x T matrix, AUROC over the sequence, ROC curves, AUROC against cost; on fixed scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.page.charts import strength
from dinosaur_ad.page.html import Html, element, join, text

_WIDTH, _HEIGHT = 480, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 12, 12, 34
COLOURS = 6
"""How many line colours the style sheet has; more lines begin again with the first, dashed, then dotted."""


@dataclass(frozen=True)
class Line:
    """A line, or dots, of a chart: points (x, y), a name (without one it is not in the key), and a style class."""

    points: Sequence[tuple[float, float]]
    name: str = ""
    style: str = "faint"


def coloured(index: int) -> str:
    """The style of the line with that number.

    >>> coloured(0), coloured(7), coloured(14)
    ('line c0', 'line c1 dashed', 'line c2 dotted')
    """
    return f"line c{index % COLOURS}{('', ' dashed', ' dotted')[index // COLOURS % 3]}"


def heat_map(names: Sequence[str], matrix_TT: NDArray[np.float64]) -> Html:
    """The matrix as a table coloured from 0.5 to 1; tasks that were not learned yet are set in italics.

    >>> heat_map(["a", "b"], np.array([[0.9, 0.6], [0.9, 0.95]])).count('class="ahead')
    1
    """
    head = element("tr", element("th", "after \\ on", class_="corner"), *(element("th", name) for name in names))
    rows = [
        element("tr", element("th", name, scope="row"), *(_heat_cell(value, j > t) for j, value in enumerate(row)))
        for t, (name, row) in enumerate(zip(names, matrix_TT.tolist(), strict=True))
    ]
    body = element("table", element("thead", head), element("tbody", *rows), class_="matrix dense")
    return element("div", body, class_="scroll")


def _heat_cell(value: float, ahead: bool) -> Html:
    when = "ahead " if ahead else ""
    if math.isnan(value):
        return element("td", "–", class_=f"{when}empty")
    share = strength(value)
    shade = "strong" if share > 0.5 else "weak"
    return element("td", f"{value:.3f}", style=f"--v:{share:.2f}", class_=when + shade)


def sequence_mean(matrix_TT: NDArray[np.float64]) -> list[tuple[float, float]]:
    """The mean over the tasks learned so far, after every task: (tasks learned, AUROC).

    >>> sequence_mean(np.array([[0.9, 0.5], [0.7, 0.8]]))
    [(1, 0.9), (2, 0.75)]
    """
    return [(t + 1, float(np.round(row[: t + 1].mean(), 12))) for t, row in enumerate(matrix_TT)]


def sequence_chart(lines: Sequence[Line], count: int, label: str) -> Html:
    """AUROC against the number of tasks learned, from 0.5 (lower where a line is) to 1."""
    lowest = min((y for line in lines for _, y in line.points if not math.isnan(y)), default=0.5)
    low = min(0.5, math.floor(lowest * 10) / 10)
    ticks = [(tick / 10, f"{tick / 10:g}") for tick in range(round(low * 10), 11)]
    steps = [(step, str(step)) for step in range(1, count + 1)]
    return _chart(lines, (1, max(count, 2)), (low, 1.0), steps, ticks, "tasks learned", label)


def roc_chart(lines: Sequence[Line], label: str) -> Html:
    """Recall against the rate of false alarms; the diagonal is a coin toss."""
    ticks = [(tick / 4, f"{tick / 4:g}") for tick in range(5)]
    chance = Line([(0, 0), (1, 1)], style="chance")
    return _chart([chance, *lines], (0, 1), (0, 1), ticks, ticks, "false alarms", label)


def scatter_chart(dots: Sequence[Line], x_name: str, label: str, *, log: bool = False) -> Html:
    """AUROC (from 0.5, or lower where a dot is, to 1) against another number; ``log`` spaces that one by powers of 10.

    Without ``log`` both axes are AUROCs and the diagonal is drawn.
    """
    points = [point for dot in dots for point in dot.points]
    low = min(
        [0.5, *(math.floor(y * 10) / 10 for x, y in points), *(math.floor(x * 10) / 10 for x, _ in points if not log)]
    )
    ticks = [(tick / 10, f"{tick / 10:g}") for tick in range(round(low * 10), 11)]
    if not log:
        diagonal = Line([(low, low), (1, 1)], style="chance")
        return _chart([diagonal, *dots], (low, 1.0), (low, 1.0), ticks, ticks, x_name, label)
    powers = [math.log10(x) for x, _ in points]
    first, last = math.floor(min(powers)), max(math.ceil(max(powers)), math.floor(min(powers)) + 1)
    steps = [(power, f"{10.0**power:g}") for power in range(first, last + 1)]
    scaled = [Line([(math.log10(x), y) for x, y in dot.points], dot.name, dot.style) for dot in dots]
    return _chart(scaled, (first, last), (low, 1.0), steps, ticks, x_name, label)


def dotted(index: int) -> str:
    """The style of the dots with that number: filled, then hollow.

    >>> dotted(1), dotted(7)
    ('dot c1', 'dot c1 hollow')
    """
    return f"dot c{index % COLOURS}{' hollow' if index >= COLOURS else ''}"


def key(lines: Sequence[Line]) -> Html:
    """Which line is which."""
    named = [line for line in lines if line.name]
    return element("p", *(element("span", _sample(line), line.name) for line in named), class_="key lines")


def _sample(line: Line) -> Html:
    if line.style.startswith("dot"):
        mark = f'<circle class="{text(line.style)}" cx="12" cy="4" r="3.5"/>'
        return Html(f'<svg viewBox="0 0 24 8" class="sample">{mark}</svg>')
    return Html(f'<svg viewBox="0 0 24 8" class="sample"><path class="{text(line.style)}" d="M0 4h24"/></svg>')


def _chart(
    lines: Sequence[Line],
    x_reach: tuple[float, float],
    y_reach: tuple[float, float],
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    x_name: str,
    label: str,
) -> Html:
    def x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (value - x_reach[0]) / (x_reach[1] - x_reach[0])

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (value - y_reach[0]) / (y_reach[1] - y_reach[0])

    marks = [
        f'<path class="grid" d="M{_LEFT} {y(at):.1f}H{_WIDTH - _RIGHT}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="{y(at) + 3.5:.1f}" text-anchor="end">{text(name)}</text>'
        for at, name in y_ticks
    ]
    marks += [
        f'<text class="tick" x="{x(at):.1f}" y="{_HEIGHT - _BOTTOM + 14}" text-anchor="middle">{text(name)}</text>'
        for at, name in x_ticks
    ]
    drawn = []
    for line in lines:
        points = [(x(a), y(b)) for a, b in line.points if not math.isnan(b)]
        title = f"<title>{text(line.name)}</title>" if line.name else ""
        if line.style.startswith("dot"):
            circles = (f'<circle cx="{a:.1f}" cy="{b:.1f}" r="5">{title}</circle>' for a, b in points)
            drawn.append(f'<g class="{text(line.style)}">{"".join(circles)}</g>')
        elif points:
            drawn.append(f'<path class="{text(line.style)}" d="{_path(points)}">{title}</path>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    return Html(
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" class="chart" role="img" aria-label="{text(label)}">'
        f"{join(map(Html, marks))}{join(map(Html, drawn))}"
        f'<text class="tick" x="{middle:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">{text(x_name)}</text></svg>'
    )


def _path(points: Sequence[tuple[float, float]]) -> str:
    if len(points) == 1:  # a lone point would be invisible
        (x, y), radius = points[0], 3
        return f"M{x - radius:.1f} {y:.1f}h{2 * radius}"
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
