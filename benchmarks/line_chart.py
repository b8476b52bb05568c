"""Small line charts as SVG: panels side by side, each with its own scale from zero."""

from __future__ import annotations

import math
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300, 210, 44, 12, 30, 40
FEW = 12
"""Up to so many points of a line are marked."""
COLOURS = ("#06c", "#c60", "#0a5", "#999")

Points = list[tuple[float, float]]


class Panel(NamedTuple):
    """A heading, the points of each named line, and where the vertical scale ends (None: at the largest value)."""

    title: str
    lines: dict[str, Points]
    top: float | None = None
    bottom: float = 0.0


def line_charts(title: str, panels: list[Panel], axis: str) -> str:
    """The drawing; all panels have the same horizontal scale, which is called ``axis``. One without points is left out.

    >>> line_charts("Two", [Panel("up", {"a": [(0, 1), (10, 2)]})], "pictures").startswith("<svg")
    True
    """
    panels = [panel for panel in panels if any(panel.lines.values())]
    furthest = max(x for panel in panels for points in panel.lines.values() for x, _ in points)
    drawn = [_panel(panel, furthest, axis, WIDTH * n) for n, panel in enumerate(panels)]
    style = "text{font:11px sans-serif;fill:#444}path{fill:none}.grid{stroke:#ddd}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(panels)} {HEIGHT}" role="img">'
        f"<style>{style}</style><title>{escape(title)}</title>"
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(drawn)}</svg>'
    )


def _panel(panel: Panel, furthest: float, axis: str, shift: int) -> str:
    values = [y for points in panel.lines.values() for _, y in points]
    step = _step((panel.top or max(values) or 1.0) - panel.bottom)
    steps = math.ceil(((panel.top or max(values) or 1.0) - panel.bottom) / step - 1e-9)
    highest = panel.bottom + step * steps

    def place(x: float, y: float) -> tuple[float, float]:
        across = (WIDTH - LEFT - RIGHT) * x / furthest
        up = (HEIGHT - TOP - BOTTOM) * (y - panel.bottom) / (highest - panel.bottom)
        return LEFT + across, HEIGHT - BOTTOM - min(max(up, 0), HEIGHT - TOP - BOTTOM)

    parts = [f'<text x="{LEFT}" y="16" font-weight="bold">{escape(panel.title)}</text>']
    for n in range(steps + 1):
        value = panel.bottom + n * step
        _, y = place(0, value)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    across = _step(furthest)
    for n in range(int(furthest / across + 1e-9) + 1):
        x, y = place(n * across, panel.bottom)
        parts.append(f'<text x="{x:.1f}" y="{y + 15:.1f}" text-anchor="middle">{n * across:g}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end">{escape(axis)}</text>')
    key = list[str]()
    for n, (name, points) in enumerate(panel.lines.items()):
        colour = COLOURS[n % len(COLOURS)]
        spots = [place(*point) for point in points]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)
        if len(spots) <= FEW:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in spots]
        parts.append(f'<path d="M{path}" stroke="{colour}" stroke-width="1.5"/>')
        key.append(f'<tspan dx="{8 if key else 0}" style="fill:{colour}">{escape(name)}</tspan>')
    # Below the axis, where no line runs through it.
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 8}">{"".join(key)}</text>')
    return f'<g transform="translate({shift} 0)">{"".join(parts)}</g>'


def _step(span: float) -> float:
    """A round distance between marks, about four or five to a scale."""
    rough = span / 4
    power = 10.0 ** math.floor(math.log10(rough))
    return min((factor * power for factor in (1, 2, 2.5, 5, 10)), key=lambda each: abs(each - rough))
