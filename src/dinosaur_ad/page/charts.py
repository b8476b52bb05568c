"""Plots as markup: a matrix as a coloured table, scores as a mirrored histogram."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dinosaur_ad.page.html import Html, element, join, text

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


def histogram(title: str, normal: Sequence[float], anomalous: Sequence[float], reach: tuple[float, float]) -> Html:
    """Scores in units of the threshold as an SVG: normal images above the axis, anomalous ones below it.

    ``reach`` is the range of the axis; plots with the same one can be read under each other.
    """
    edges = np.linspace(*reach, 37)
    counts = [np.histogram(np.clip(values, *reach), edges)[0] for values in (normal, anomalous)]
    tallest = max(1, *(int(count.max()) for count in counts))
    middle, scale = _HEIGHT / 2 + 4, (_HEIGHT / 2 - 22) / tallest
    x = [_SIDE + (_WIDTH - 2 * _SIDE) * (edge - reach[0]) / (reach[1] - reach[0]) for edge in edges]
    bars = [
        f'<rect class="{name}" x="{left + 0.5:.1f}" y="{middle - count * scale if up else middle:.1f}" '
        f'width="{right - left - 1:.1f}" height="{count * scale:.1f}"/>'
        for name, up, row in (("normal", True, counts[0]), ("anomalous", False, counts[1]))
        for left, right, count in zip(x, x[1:], row, strict=False)
        if count
    ]
    at = _SIDE + (_WIDTH - 2 * _SIDE) * (1 - reach[0]) / (reach[1] - reach[0])
    summary = f"{title}: {len(normal)} normal and {len(anomalous)} anomalous images by score"
    return Html(
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text(summary)}">'
        f'<text class="name" x="{_SIDE}" y="14">{text(title)}</text>'
        f'{join(Html(bar) for bar in bars)}<line class="axis" x1="{_SIDE}" x2="{_WIDTH - _SIDE}" '
        f'y1="{middle:.1f}" y2="{middle:.1f}"/>{_ticks(reach, middle)}'
        f'<line class="threshold" x1="{at:.1f}" x2="{at:.1f}" y1="20" y2="{_HEIGHT - 14}"/></svg>'
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
