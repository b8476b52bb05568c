"""The page Trends: scores over time, parts a day, answers, warnings of drift; each chart has a table beside."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dinosaur_ad.station.web.access import Viewer
from dinosaur_ad.station.web.chart_svg import ChartPoint, day_chart, per_day, score_chart
from dinosaur_ad.station.web.pages_frame import ANSWERS, PageRoute, drift_warnings, render, station_of, words
from dinosaur_ad.station.web.pages_shown import score_ratio

router = APIRouter(route_class=PageRoute, include_in_schema=False)

PERIODS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30)}
MOST_POINTS = 1500
DAYS = 14


@router.get("/trends")
def trends_page(request: Request, person: Viewer, task: str = "", period: str = "day") -> Response:
    """The page Trends."""
    station, text = station_of(request), words(request, person)
    history = station.history
    products = [record.name for record in station.detector.tasks()]
    chosen = period if period in PERIODS else "day"
    since = (datetime.now(UTC) - PERIODS[chosen]).isoformat(timespec="microseconds")
    points = [_point(each) for each in history.scores(task or None, since, MOST_POINTS)]
    warnings = [each for each in drift_warnings(history, open_only=False) if not task or each.task in (None, task)]
    days = daily_counts(history, task or None)
    feedback = [each for each in history.feedback(limit=500) if not task or each.part.task == task]
    return render(
        request,
        person,
        "trends.html",
        page="trends",
        task=task,
        period=chosen,
        periods=list(PERIODS),
        products=products,
        chart=score_chart(points, text, [datetime.fromisoformat(each.raised) for each in warnings]),
        count=len(points),
        table=summary(points),
        day_chart=day_chart([(f"{day.day}.{day.month}.", counts) for day, counts in days], text),
        days=[(day.isoformat(), counts) for day, counts in days if sum(counts.values())][::-1],
        warnings=warnings,
        said=Counter(each.answer for each in feedback),
        states=Counter(each.state for each in feedback),
        answer_names=ANSWERS,
    )


def _point(point: Any) -> ChartPoint:
    taken = datetime.fromisoformat(point.taken)
    return ChartPoint(point.id, taken, point.score, point.threshold, point.verdict, point.answer)


def daily_counts(history: Any, task: str | None) -> list[tuple[Any, dict[str, int]]]:
    """How many parts of each verdict there were on each of the last days, the oldest first."""
    midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    begins = [midnight - timedelta(days=back) for back in range(DAYS - 1, -1, -1)]
    totals = [_counts(history, begin, task) for begin in begins]
    return list(zip((begin.date() for begin in begins), per_day(totals), strict=True))


def _counts(history: Any, since: datetime, task: str | None) -> dict[str, int]:
    moment = since.astimezone(UTC).isoformat(timespec="microseconds")
    if task is None:
        return dict(history.counts(moment))
    found = dict.fromkeys(("normal", "anomalous", "unknown", "not ready"), 0)
    return found | dict(history.counts_by_task(moment).get(task, {}))


def summary(points: list[ChartPoint], groups: int = 6) -> list[dict[str, Any]]:
    """The chart in numbers: the time in a few equal groups of parts, with the median and the share above 1."""
    found = []
    size = max(1, -(-len(points) // groups))
    for start in range(0, len(points), size):
        some = points[start : start + size]
        ratios = sorted(each for point in some if (each := score_ratio(point.score, point.threshold)) is not None)
        flagged = sum(point.verdict != "normal" for point in some)
        median = ratios[len(ratios) // 2] if ratios else None
        row = {"since": some[0].taken, "until": some[-1].taken, "count": len(some), "median": median}
        found.append(row | {"flagged": flagged / len(some)})
    return found
