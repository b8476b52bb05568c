"""Charts that compare methods: AUROC over the task sequence, forgetting, AUROC against storage and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dinosaur_ad.bench.effort import row_label
from dinosaur_ad.bench.metrics import final_average
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.curves import Line, coloured, dotted, key, scatter_chart, sequence_chart, sequence_mean
from dinosaur_ad.bench.report.numbers import Number
from dinosaur_ad.bench.report.row_groups import CellGroup, main_methods, scenarios_of
from dinosaur_ad.page.html import Html, element, join

_ONE_OF_EACH = "One form of each method: the plain one, or where that was not run the first other; lowest seed."


def sequence_charts(groups: Sequence[CellGroup]) -> Html:
    """For each scenario with several tasks: image AUROC after every task, averaged over the tasks learned so far."""
    styles = _styles(groups, coloured)
    charts = []
    for scenario, own in _by_scenario(groups):
        count = len(own[0].first.tasks)
        if count > 1:
            lines = [
                Line(sequence_mean(group.first.auroc), row_label(group.first), styles[_family(group)]) for group in own
            ]
            chart = sequence_chart(lines, count, f"{scenario}: AUROC by tasks learned")
            charts.append(element("div", element("h3", scenario), chart))
    return _section(
        charts, styles, groups, f"Image AUROC after every task, averaged over the tasks learned so far. {_ONE_OF_EACH}"
    )


def forgetting_charts(groups: Sequence[CellGroup]) -> Html:
    """Image AUROC at the end against the one right after learning, a dot for each method and scenario."""
    styles = _styles(groups, dotted)
    dots = []
    shown = [group for _, own in _by_scenario(groups) for group in own]
    for method, style in styles.items():
        cells = [group.first for group in shown if _family(group) == method and len(group.first.tasks) > 1]
        points = [(float(cell.auroc.diagonal().mean()), final_average(cell.auroc)) for cell in cells]
        points = [point for point in points if not any(map(math.isnan, point))]
        if points:
            dots.append(Line(points, method, style))
    if not dots:
        return Html("")
    chart = scatter_chart(dots, "AUROC of a task just learned", "AUROC at the end against AUROC just learned")
    lead = (
        "AUROC at the end (up) against AUROC of each task just learned; below the diagonal, something was forgotten. A "
        f"dot for each scenario. {_ONE_OF_EACH}"
    )
    return _section([element("div", chart)], styles, groups, lead)


def cost_charts(groups: Sequence[CellGroup]) -> Html:
    """Image AUROC against storage and against time, on the scenario that most methods ran."""
    scenarios = _by_scenario(groups)
    if not scenarios:
        return Html("")
    scenario, own = max(scenarios, key=lambda pair: len(pair[1]))
    styles = _styles(own, dotted)
    charts = [
        _cost_chart(own, styles, numbers.storage_mib, "storage in all, MiB"),
        _cost_chart(own, styles, numbers.score_ms, "time to score an image, ms"),
    ]
    lead = (
        f"Image AUROC against what is kept and against time (with cached features), on {scenario}; up and left is "
        f"better. {_ONE_OF_EACH}"
    )
    return _section([chart for chart in charts if chart], styles, own, lead)


def _cost_chart(own: Sequence[CellGroup], styles: dict[str, str], number: Number, name: str) -> Html:
    dots = []
    for group in own:
        point = (number(group.first), numbers.auroc(group.first))
        if point[0] > 0 and not math.isnan(point[1]):  # a logarithm needs a positive number
            dots.append(Line([point], row_label(group.first), styles[_family(group)]))
    if not dots:
        return Html("")
    return element(
        "div", element("h3", f"AUROC against {name}"), scatter_chart(dots, name, f"AUROC against {name}", log=True)
    )


def _by_scenario(groups: Sequence[CellGroup]) -> list[tuple[str, list[CellGroup]]]:
    """The groups of one method of each family, by scenario."""
    found = []
    for scenario in scenarios_of(groups):
        own = [group for group in groups if group.scenario == scenario]
        shown = main_methods(own)
        found.append((scenario, [group for group in own if group.method in shown]))
    return found


def _styles(groups: Sequence[CellGroup], style: Callable[[int], str]) -> dict[str, str]:
    """By family, so that one form in one chart and another in the next look alike."""
    families = dict.fromkeys(method.partition(":")[0] for method in main_methods(groups))
    return {family: style(index) for index, family in enumerate(families)}


def _family(group: CellGroup) -> str:
    return group.method.partition(":")[0]


def _forms(family: str, groups: Sequence[CellGroup]) -> str:
    """The rows of a method that the charts show, as tables name them."""
    shown = (group for _, own in _by_scenario(groups) for group in own if _family(group) == family)
    return ", ".join(dict.fromkeys(row_label(group.first) for group in shown))


def _section(charts: Sequence[Html], styles: dict[str, str], groups: Sequence[CellGroup], lead: str) -> Html:
    """Charts below what they show and a key of the methods among ``groups``."""
    if not charts:
        return Html("")
    names = key([Line([], _forms(family, groups), style) for family, style in styles.items()])
    return join((element("p", lead, class_="lead"), names, element("div", *charts, class_="charts")))
