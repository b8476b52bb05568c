"""Plots as markup: a matrix as a coloured table, scores as a histogram with one or two sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.page.html import Html, element, join, text

Counts = NDArray[np.int_]

# What AUROC means at its ends: a coin toss and a perfect ranking. Fixed, so that two matrices can be compared.
COIN_TOSS, PERFECT = 0.5, 1.0
_WIDTH, _HEIGHT, _SIDE = 330, 150, 12


def matrix_table(
    rows: Sequence[str], columns: Sequence[str], matrix: Sequence[Sequence[float | None]], corner: str
) -> Html:
    """AUROCs as a table, coloured on the fixed scale from 0.5 to 1; None stays empty.

    >>> "0.950" in matrix_table(["after a"], ["a"], [[0.95]], corner="")
    True
    """
    head = element(
        "tr", element("th", corner, class_="corner"), *(element("th", name, scope="col") for name in columns)
    )
    lines = [
        element("tr", element("th", name, scope="row"), *(_matrix_cell(value) for value in values))
        for name, values in zip(rows, matrix, strict=True)
    ]
    body = element("table", element("thead", head), element("tbody", *lines), class_="matrix")
    return element("div", body, class_="scroll")


def matrix_scale() -> Html:
    """The colours of :func:`matrix_table`, to read it by."""
    steps = (element("i", style=f"--v:{step / 10:.1f}") for step in range(11))
    return element("p", "0.5 coin toss ", element("span", *steps, class_="scale"), " 1.0 perfect", class_="key")


def strength(value: float) -> float:
    """An AUROC on the fixed colour scale: 0 at a coin toss or worse, 1 at perfect.

    >>> strength(0.75), strength(0.3)
    (0.5, 0.0)
    """
    return min(1.0, max(0.0, (value - COIN_TOSS) / (PERFECT - COIN_TOSS)))


def _matrix_cell(value: float | None) -> Html:
    if value is None:
        return element("td", class_="empty")
    share = strength(value)
    return element("td", f"{value:.3f}", style=f"--v:{share:.3f}", class_="strong" if share > 0.5 else "weak")


def histogram(
    title: str, above: Mapping[str, Sequence[float]], below: Mapping[str, Sequence[float]], reach: tuple[float, float]
) -> Html:
    """Scores in units of the threshold as an SVG: bars above and below an axis, each series by its style class.

    Series on the same side are stacked. ``reach`` is the range of the axis; values beyond it count at its end, and
    plots with the same one can be read under each other.
    """
    step = (reach[1] - reach[0]) / 36
    edges = 1 + step * np.arange(np.floor((reach[0] - 1) / step), np.ceil((reach[1] - 1) / step) + 1)
    reach = (float(edges[0]), float(edges[-1]))  # the threshold is the edge of a bar
    sides = [
        {name: np.histogram(np.clip(values, *reach), edges)[0] for name, values in side.items()}
        for side in (above, below)
    ]
    tallest = max(1, *(int(sum(side.values(), np.zeros(len(edges) - 1, int)).max()) for side in sides))
    middle, room = (_HEIGHT / 2 + 4, _HEIGHT / 2 - 22) if below else (_HEIGHT - 20, _HEIGHT - 46)
    x = [_SIDE + (_WIDTH - 2 * _SIDE) * (edge - reach[0]) / (reach[1] - reach[0]) for edge in edges]
    bars = [
        bar for up, side in zip((True, False), sides, strict=True) for bar in _bars(side, up, x, middle, room / tallest)
    ]
    at = _SIDE + (_WIDTH - 2 * _SIDE) * (1 - reach[0]) / (reach[1] - reach[0])
    counts = " and ".join(f"{len(values)} {name}" for side in (above, below) for name, values in side.items())
    summary = f"{title}: {counts} images by score"
    return Html(
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text(summary)}">'
        f'<text class="name" x="{_SIDE}" y="14">{text(title)}</text>'
        f'{join(Html(bar) for bar in bars)}<line class="axis" x1="{_SIDE}" x2="{_WIDTH - _SIDE}" '
        f'y1="{middle:.1f}" y2="{middle:.1f}"/>{_ticks(reach, middle)}'
        f'<line class="threshold" x1="{at:.1f}" x2="{at:.1f}" y1="20" y2="{_HEIGHT - 14}"/></svg>'
    )


def _bars(side: Mapping[str, Counts], up: bool, x: Sequence[float], middle: float, scale: float) -> Iterator[str]:
    height = np.zeros(len(x) - 1)
    for name, counts in side.items():
        for at in np.flatnonzero(counts).tolist():
            tall = counts[at] * scale
            top = middle - height[at] - tall if up else middle + height[at]
            height[at] += tall
            yield (
                f'<rect class="{text(name)}" x="{x[at] + 0.5:.1f}" y="{top:.1f}" '
                f'width="{x[at + 1] - x[at] - 1:.1f}" height="{tall:.1f}"/>'
            )


def _ticks(reach: tuple[float, float], middle: float) -> Html:
    """Small marks at every half of the threshold, labelled at the bottom."""
    marks = []
    for half in range(int(np.ceil(reach[0] * 2)), int(reach[1] * 2) + 1):
        x = _SIDE + (_WIDTH - 2 * _SIDE) * (half / 2 - reach[0]) / (reach[1] - reach[0])
        marks.append(
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{middle - 3:.1f}" y2="{middle + 3:.1f}"/>'
            f'<text class="tick" x="{x:.1f}" y="{_HEIGHT - 3}" text-anchor="middle">{half / 2:g}×</text>'
        )
    return Html("".join(marks))
