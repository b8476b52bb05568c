"""Charts as SVG, drawn on the server: scores over time, and parts a day. Colours come from the style sheet by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from markupsafe import Markup

from dinosaur_ad.station.web.catalogue import Catalogue, key_of
from dinosaur_ad.station.web.pages_shown import score_ratio

WIDTH, HEIGHT = 960, 300
DAYS_WIDTH = 560
"""Of the chart of days, which has half the place: its letters are as large as those of the other."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 14, 30
HIGHEST = 3.0
"""Scores are drawn up to so many thresholds; higher ones stand at the edge."""
EVERY_DAY = 2
"""Days that have one label, so that the labels stand apart."""
STACK = ("normal", "anomalous", "unknown", "not ready")


@dataclass(frozen=True)
class ChartPoint:
    """A part in the chart of scores."""

    id: int
    taken: datetime
    score: float | None
    threshold: float | None
    verdict: str
    answer: str | None


def score_chart(points: Sequence[ChartPoint], text: Catalogue, marks: Sequence[datetime] = ()) -> Markup:
    """Scores over time in units of the threshold of their time; ``marks`` are moments of drift warnings."""
    shown = [(point, ratio) for point in points if (ratio := score_ratio(point.score, point.threshold)) is not None]
    if not shown:
        return Markup("")
    first, last = shown[0][0].taken, shown[-1][0].taken
    span = max((last - first).total_seconds(), 1.0)

    def x(moment: datetime) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * min(1.0, max(0.0, (moment - first).total_seconds() / span))

    def y(ratio: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * min(max(ratio, 0.0), HIGHEST) / HIGHEST

    parts = [_grid_line(y(value), text.number(value, 1), value == 1.0) for value in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)]
    parts += [_moment(x(moment), moment, span) for moment in _moments(first, last)]
    parts += [
        Markup('<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>').format(
            x(mark), _TOP, HEIGHT - _BOTTOM
        )
        for mark in marks
        if first <= mark <= last
    ]
    parts += [_dot(x(point.taken), y(ratio), point, ratio, text) for point, ratio in shown]
    return _svg(Markup("").join(parts), text("trends.scores_chart", count=len(shown)))


def _dot(x: float, y: float, point: ChartPoint, ratio: float, text: Catalogue) -> Markup:
    """The verdicts differ in form too: a dot, a cross, a diamond for unknown, a square for not ready."""
    title = f"{point.id}: {text('verdict.' + key_of(point.verdict))}, {text.number(ratio, 2)}"
    kind = key_of(point.verdict)
    if point.verdict == "normal":
        form = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="2.6"/>').format(x, y)
    elif point.verdict == "anomalous":
        form = Markup('<path d="M{:.1f} {:.1f}l8 8m0 -8l-8 8"/>').format(x - 4, y - 4)
    elif point.verdict == "unknown":
        form = Markup('<path d="M{:.1f} {:.1f}l5 5l-5 5l-5 -5z"/>').format(x, y - 5)
    else:
        form = Markup('<path d="M{:.1f} {:.1f}h8v8h-8z"/>').format(x - 4, y - 4)
    answered = Markup('<circle class="answered" cx="{:.1f}" cy="{:.1f}" r="7"/>').format(x, y) if point.answer else ""
    return Markup('<g class="point {}"><title>{}</title>{}{}</g>').format(kind, title, form, answered)


def day_chart(days: Sequence[tuple[str, Mapping[str, int]]], text: Catalogue) -> Markup:
    """Parts a day, the verdicts on top of each other."""
    most = max((sum(counts.values()) for _, counts in days), default=0)
    if not most:
        return Markup("")
    room, step = HEIGHT - _TOP - _BOTTOM, (DAYS_WIDTH - _LEFT - _RIGHT) / len(days)
    parts = [
        _grid_line(HEIGHT - _BOTTOM - room * share, text.number(most * share, 0), False, DAYS_WIDTH)
        for share in (0.0, 0.5, 1.0)
    ]
    for place, (day, counts) in enumerate(days):
        left, bottom = _LEFT + step * place, float(HEIGHT - _BOTTOM)
        for verdict in STACK:
            tall = room * counts.get(verdict, 0) / most
            bottom -= tall
            if tall:
                bar = (
                    '<rect class="bar {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>'
                )
                said = f"{day}: {text('verdict.' + key_of(verdict))} {counts[verdict]}"
                parts.append(Markup(bar).format(key_of(verdict), left + step * 0.14, bottom, step * 0.72, tall, said))
        if (len(days) - 1 - place) % EVERY_DAY == 0:
            label = '<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>'
            parts.append(Markup(label).format(left + step / 2, HEIGHT - 10, day))
    return _svg(Markup("").join(parts), text("trends.days_chart"), DAYS_WIDTH)


def _svg(body: Markup, title: str, width: int = WIDTH) -> Markup:
    kind = "chart" if width == WIDTH else "chart narrow-chart"
    start = Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(kind, width, HEIGHT, title)
    return start + body + Markup("</svg>")


def _grid_line(y: float, label: str, threshold: bool, width: int = WIDTH) -> Markup:
    kind = "threshold" if threshold else "rule"
    line = Markup('<line class="{}" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
        kind, _LEFT, width - _RIGHT, y, y
    )
    place = '<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
    return line + Markup(place).format(_LEFT - 8, y + 4, label)


def _moments(first: datetime, last: datetime, count: int = 6) -> list[datetime]:
    step = (last - first) / count
    return [first + step * n for n in range(1, count)] if step > timedelta(0) else [first]


def _moment(x: float, moment: datetime, span: float) -> Markup:
    local = moment.astimezone()
    clock = f"{local:%H:%M:%S}" if span < 600 else f"{local:%H:%M}"
    label = clock if span < 2 * 86400 else f"{local.day}.{local.month}."
    return Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(x, HEIGHT - 10, label)


def per_day(totals: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """Counts of single days from counts since the beginning of each, the oldest first.

    >>> per_day([{"normal": 5}, {"normal": 3}, {"normal": 1}])
    [{'normal': 2}, {'normal': 2}, {'normal': 1}]
    """
    following = [*totals, {}]
    return [{name: one[name] - after.get(name, 0) for name in one} for one, after in pairwise(following)]
