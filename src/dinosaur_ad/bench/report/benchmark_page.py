"""The page of a benchmark: charts and findings first, a section a table, what was run, details of every scenario."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from statistics import fmean

from dinosaur_ad.bench.effort import row_label
from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.numbers import measure
from dinosaur_ad.bench.report.overview_charts import cost_charts, forgetting_charts, sequence_charts
from dinosaur_ad.bench.report.render import to_html
from dinosaur_ad.bench.report.report_rows import paper_scenario
from dinosaur_ad.bench.report.row_groups import CellGroup, methods_of, scenarios_of
from dinosaur_ad.bench.report.scenario_details import scenario_section
from dinosaur_ad.bench.report.table import Table, figure
from dinosaur_ad.bench.results import FailedCell
from dinosaur_ad.page.html import Html, element, page, section, table, tile

TITLE = "DINOSaur benchmark"
_UNFOLD = 3
"""With no more methods and scenarios than this, nothing has to be folded away."""


def benchmark_page(
    groups: Sequence[CellGroup], tables: Sequence[Table], failed: Sequence[FailedCell], data: Path | None
) -> Html:
    """The whole page, with everything in it."""
    parts = []
    for each in tables:
        head = element("p", each.lead, class_="lead")
        parts.append((each.key, each.title, section(each.title, "", head, to_html(each))))
    drawn = [chart for chart in (sequence_charts(groups), forgetting_charts(groups), cost_charts(groups)) if chart]
    if drawn:
        parts.insert(0, ("charts", "Charts", section("Charts", "", *drawn)))
    if failed:
        parts.append(("failed", "What failed", _failed(failed)))
    parts.append(("run", "What was run", _what_was_run(groups)))
    for number, scenario in enumerate(scenarios_of(groups)):
        own = [group for group in groups if group.scenario == scenario]
        parts.append((f"scenario-{number}", scenario, scenario_section(own, data, unfold=len(groups) <= _UNFOLD)))
    links = (element("li", element("a", title, href=f"#{anchor}")) for anchor, title, _ in parts)
    style = files("dinosaur_ad.bench.report").joinpath("report.css").read_text("utf-8")
    document = page(
        TITLE,
        _head(groups, failed),
        element("ul", *links, class_="contents"),
        *(element("div", content, id=anchor) for anchor, _, content in parts),
    )
    return Html(document.replace("</head>", f"<style>{style}</style></head>", 1))


def headline(groups: Sequence[CellGroup], failed: Sequence[FailedCell]) -> str:
    """What was run, in one sentence."""
    if not (groups or failed):
        return "Grids of hyperparameters, and no cells."
    cells = sum(len(group.cells) for group in groups)
    forms, scenarios = methods_of(groups), scenarios_of(groups)
    methods = {form.partition(":")[0] for form in forms}
    seeds = [len(group.seeds) for group in groups] or [0]
    range_of_seeds = f"{min(seeds)} to " if min(seeds) < max(seeds) else ""
    lost = f", and {len(failed)} that failed" if failed else ""
    return (
        f"{_count(len(methods), 'method')}{f' in {len(forms)} forms' if len(forms) > len(methods) else ''} on "
        f"{_count(len(scenarios), 'scenario')} with {range_of_seeds}{_count(max(seeds), 'seed')}: "
        f"{_count(cells, 'finished cell')}{lost}."
    )


def _head(groups: Sequence[CellGroup], failed: Sequence[FailedCell]) -> Html:
    return element(
        "header",
        element("p", TITLE, class_="eyebrow"),
        element("h1", headline(groups, failed)),
        element("div", *(_tile(groups, scenario) for scenario in scenarios_of(groups)), class_="tiles"),
    )


def _tile(groups: Sequence[CellGroup], scenario: str) -> Html:
    """The best method of a scenario beside the paper's best."""
    own = {row_label(group.first): measure(group, numbers.auroc).mean for group in groups if group.scenario == scenario}
    best = max(own, key=lambda method: (own[method] == own[method], own[method]))  # a NaN is never the best
    first = next(group.first for group in groups if group.scenario == scenario)
    note, key = f"{best}: best image AUROC of {_count(len(own), 'row')}", paper_scenario(scenario)
    if key is not None:
        printed = {method: row.auroc for method, row in paper().images[key].items()}
        leader = max(printed, key=lambda method: printed[method])
        note += f"; the paper's best: {printed[leader]:.3f}, {paper().methods[leader]}"
        if scenario == "mtd-geo":
            note += ", with the scale as printed"
        if len(first.tasks) != paper().scenarios[key].tasks:
            note += f", on {paper().scenarios[key].tasks} tasks instead of {len(first.tasks)}"
    return tile(figure(own[best]).cell.text, scenario, note)


def _what_was_run(groups: Sequence[CellGroup]) -> Html:
    return section(
        "What was run",
        "Which encoder a method looked through decides its numbers as much as the method; the paper's is DINOv3 "
        "ViT-S/16 for DINOSaur.",
        table(("method", "what it is", "encoder or backbone", "parameters", "seeds"), _method_rows(groups)),
        element("h3", "Data"),
        table(("scenario", "tasks", "training images a task", "data", "licence"), _scenario_rows(groups)),
    )


def _method_rows(groups: Sequence[CellGroup]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for method in methods_of(groups):
        own = [group for group in groups if group.method == method]
        words = dict.fromkeys(str(group.first.info.get("description", "not recorded")) for group in own)
        seeds = sorted({seed for group in own for seed in group.seeds})
        size = f"{own[0].first.parameters['total'] / 1e6:.1f} M"
        rows.append((row_label(own[0].first), own[0].first.summary, "; ".join(words), size, ", ".join(map(str, seeds))))
    return rows


def _scenario_rows(groups: Sequence[CellGroup]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for scenario in scenarios_of(groups):
        first = next(group.first for group in groups if group.scenario == scenario)
        about = first.scenario_info
        images = fmean(task["train"] for task in first.tasks)
        words = " ".join(str(about.get(key, "")) for key in ("description", "citation")).strip()
        rows.append((scenario, str(len(first.tasks)), f"{images:.0f}", words, str(about.get("licence", ""))))
    return rows


def _failed(failed: Sequence[FailedCell]) -> Html:
    rows = [(cell.method, cell.scenario, str(cell.seed), cell.error) for cell in failed]
    return section(
        "What failed",
        "These cells have no numbers anywhere below.",
        table(("method", "scenario", "seed", "error"), rows),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
