"""The image AUROC of every method at a glance, and the paper's Tables 1 to 3, measured, beside its own numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from dinosaur_ad.bench.effort import row_label, training_words
from dinosaur_ad.bench.paper import ImageNumbers, PixelNumbers, paper
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.numbers import Number, auroc_interval, measure
from dinosaur_ad.bench.report.report_rows import (
    TRAINING,
    Marks,
    block_title,
    geometry_note,
    in_paper_order,
    paper_scenario,
    rows_of,
    seed_note,
)
from dinosaur_ad.bench.report.row_groups import CONTINUOUS, DISCRETE, CellGroup, main_methods, methods_of, scenarios_of
from dinosaur_ad.bench.report.table import (
    MEASURED,
    Better,
    Column,
    Entry,
    Note,
    Table,
    TableBlock,
    difference,
    figure,
    finish,
    span,
    words,
)

TableMaker = Callable[[], Table]


def overview_table(groups: Sequence[CellGroup]) -> Table:
    """The image AUROC of each measured method, and below it what the paper prints for the same methods."""
    marks, scenarios = Marks(), scenarios_of(groups)
    measured = []
    for own in chain.from_iterable(rows_of(method, groups) for method in methods_of(groups)):
        first = next(iter(own.values()))
        measured.append([marks.name(first), _training(own.values()), *_aurocs(own, scenarios, marks)])
    blocks = [TableBlock("", finish(measured, _best_of_each(scenarios)))]
    known = {paper().method_of(group.method) for group in groups}
    printed = [_printed_aurocs(key, scenarios) for key in paper().methods if key in known]
    if any(not math.isnan(entry.value) for row in printed for entry in row[2:]):
        blocks.append(TableBlock("the paper's own numbers, on its encoder and all its tasks", finish(printed, {})))
    return Table(
        "overview",
        "At a glance",
        "Image AUROC after the last task, averaged over tasks; best of a column in bold. A dash was not measured.",
        (Column("Method", words=True), Column(TRAINING, words=True), *(Column(scenario) for scenario in scenarios)),
        tuple(blocks),
        (*marks.notes(), *geometry_note(groups), seed_note(groups)),
    )


def short_table(groups: Sequence[CellGroup]) -> Table:
    """One row for each of the paper's methods, the image AUROC of each scenario, and no notes: for a README.

    Where the plain form of a method was not measured everywhere, the form that was measured most stands before it.
    """
    scenarios = scenarios_of(groups)
    rows = []
    for method in chain.from_iterable(_with_most_measured(method, groups) for method in main_methods(groups)):
        if paper().method_of(method) is not None:
            for own in rows_of(method, groups):
                label = row_label(next(iter(own.values())).first)
                rows.append([words(label), _training(own.values()), *_aurocs(own, scenarios)])
    columns = (
        Column("Method", words=True),
        Column(TRAINING, words=True),
        *(Column(scenario) for scenario in scenarios),
    )
    blocks = (TableBlock("", finish(rows, _best_of_each(scenarios))),)
    return Table("short", "Image AUROC", "After the last task, averaged over tasks.", columns, blocks)


def _with_most_measured(method: str, groups: Sequence[CellGroup]) -> list[str]:
    """A method and, before it, the form of it that was measured on the most scenarios, if that is more."""
    family = method.partition(":")[0]
    counts = Counter(group.method for group in groups if group.method.partition(":")[0] == family)
    most = max(counts, key=lambda form: (counts[form], form == method))
    return [method] if most == method or counts[most] == counts[method] else [most, method]


def _aurocs(own: dict[str, CellGroup], scenarios: Sequence[str], marks: Marks | None = None) -> list[Entry]:
    """With ``marks`` a figure has its spread over seeds, and the number of its note if that is not the row's."""
    return [_auroc(own.get(scenario), next(iter(own.values())), marks) for scenario in scenarios]


def _auroc(group: CellGroup | None, first: CellGroup, marks: Marks | None) -> Entry:
    if group is None:
        return figure(math.nan)
    found = measure(group, numbers.auroc)
    if marks is None:
        return figure(found.mean)
    number, of_row = marks.number(group), marks.number(first)
    return figure(found.mean, found.spread, mark="" if number == of_row else number)


def _printed_aurocs(method: str, scenarios: Sequence[str]) -> list[Entry]:
    keys = [paper_scenario(scenario) for scenario in scenarios]
    values = [math.nan if key is None else paper().images[key][method].auroc for key in keys]
    return [words(paper().methods[method]), figure(math.nan), *(figure(value) for value in values)]


def _training(groups: Iterable[CellGroup]) -> Entry:
    """Steps, images a step and the share of the schedule, over all of a method's scenarios and seeds."""
    return words(training_words(cell for group in groups for cell in group.cells))


def _best_of_each(scenarios: Sequence[str]) -> dict[int, Better]:
    return dict.fromkeys(range(2, 2 + len(scenarios)), "higher")


# --- the paper's tables ---


@dataclass(frozen=True)
class Metric:
    """A group of columns: the measured number and, where the paper prints one, its number.

    ``printed`` maps (scenario, method), by the paper's keys, to its number; None when it prints none. ``detailed``
    adds the bootstrap interval and the difference from the paper.
    """

    title: str
    number: Number
    better: Better
    printed: Callable[[str, str], float] | None = None
    detailed: bool = False

    def columns(self, beside: bool) -> list[Column]:
        """The measured column and those beside it."""
        names = [MEASURED, *(["95 %"] if self.detailed else [])]
        if self._prints(beside):
            names += ["paper", *(["Δ"] if self.detailed else [])]
        return [Column(name, self.title) for name in names]

    def entries(self, row: CellGroup | str, scenario: str, beside: bool) -> list[Entry]:
        """The same columns for a measured method, or for a method of the paper that was not measured."""
        measured, entries = math.nan, [figure(math.nan)] * (2 if self.detailed else 1)
        if isinstance(row, CellGroup):
            over_seeds = measure(row, self.number)
            measured = over_seeds.mean
            entries = [figure(measured, over_seeds.spread)]
            entries += [span(*auroc_interval(row))] if self.detailed else []
        if self._prints(beside):
            printed = self._printed(row, scenario)
            entries += [figure(printed), *([difference(measured - printed)] if self.detailed else [])]
        return entries

    def bold(self, at: int, beside: bool) -> dict[int, Better]:
        """Where the best is printed bold, if these columns begin at ``at``."""
        names = [column.name for column in self.columns(beside)]
        return {at + place: self.better for place, name in enumerate(names) if name in (MEASURED, "paper")}

    def _prints(self, beside: bool) -> bool:
        return beside and self.printed is not None

    def _printed(self, row: CellGroup | str, scenario: str) -> float:
        method = row if isinstance(row, str) else paper().method_of(row.method)
        key = paper_scenario(scenario)
        return math.nan if method is None or key is None or self.printed is None else self.printed(key, method)


def _image(pick: Callable[[ImageNumbers], float]) -> Callable[[str, str], float]:
    return lambda scenario, method: pick(paper().images[scenario][method])


def _pixel(pick: Callable[[PixelNumbers], float]) -> Callable[[str, str], float]:
    return lambda scenario, method: pick(paper().pixels[scenario][method])


METRICS = (
    Metric("AUROC", numbers.auroc, "higher", _image(lambda row: row.auroc), detailed=True),
    Metric("Accuracy", numbers.accuracy, "higher", _image(lambda row: row.accuracy)),
    Metric("Recall", numbers.recall, "higher", _image(lambda row: row.recall)),
    Metric("FM", numbers.forgetting, "lower", _image(lambda row: row.fm)),
    Metric("Pixel AUROC", numbers.pixel("auroc"), "higher", _pixel(lambda row: row.pixel)),
    Metric("AUPRO", numbers.pixel("aupro"), "higher"),
)
LOCO_METRIC = Metric("AU-sPRO", numbers.pixel("au_spro"), "higher")


def paper_table_makers(groups: Sequence[CellGroup]) -> dict[str, TableMaker]:
    """Discrete tasks, continuous drift, and scenarios that the paper does not have; those with a measured row."""
    others = [group for group in groups if paper_scenario(group.scenario) is None]
    made = (
        ("discrete", "Discrete tasks (the paper's Tables 1 and 3)", _of(groups, DISCRETE), True),
        ("continuous", "Continuous drift (the paper's Tables 2 and 3)", _of(groups, CONTINUOUS), True),
        ("other", "Other scenarios", others, False),
    )
    return {key: partial(_table, key, title, own, beside) for key, title, own, beside in made if own}


def _of(groups: Sequence[CellGroup], scenarios: Sequence[str]) -> list[CellGroup]:
    return [group for group in groups if group.scenario in scenarios]


def _table(key: str, title: str, groups: Sequence[CellGroup], beside: bool) -> Table:
    spro = any(not math.isnan(measure(group, LOCO_METRIC.number).mean) for group in groups)
    metrics = (*METRICS, *((LOCO_METRIC,) if spro else ()))
    marks = Marks()
    columns = [Column("Method", words=True), Column(TRAINING, words=True), Column("Seeds")]
    bold: dict[int, Better] = {}
    for metric in metrics:
        bold |= metric.bold(len(columns), beside)
        columns += metric.columns(beside)
    blocks = []
    for scenario in scenarios_of(groups):
        own = [group for group in groups if group.scenario == scenario]
        rows = [_row(row, scenario, metrics, beside, marks) for row in (in_paper_order(own) if beside else own)]
        blocks.append(TableBlock(block_title(own, compared=beside), finish(rows, bold)))
    lead = (
        "After the last task, averaged over tasks. AUROC with its 95 % bootstrap interval over test images; accuracy "
        "and recall at the paper's threshold; FM is forgetting, lower is better; AUPRO up to a false-positive rate of "
        f"0.3{', AU-sPRO up to 0.05' if spro else ''}."
        f"{' Δ is measured minus paper.' if beside else ''} Best of a column in bold."
    )
    notes = (*marks.notes(), *geometry_note(groups), *_bound_note(groups), seed_note(groups))
    return Table(key, title, lead, tuple(columns), tuple(blocks), notes)


def _row(row: CellGroup | str, scenario: str, metrics: Sequence[Metric], beside: bool, marks: Marks) -> list[Entry]:
    if isinstance(row, CellGroup):
        entries = [marks.name(row), _training([row]), words(str(len(row.cells)))]
    else:
        entries = [words(f"{paper().methods[row]} (paper only)"), figure(math.nan), figure(math.nan)]
    for metric in metrics:
        entries += metric.entries(row, scenario, beside)
    return entries


def _bound_note(groups: Sequence[CellGroup]) -> list[Note]:
    """How far the counting of pixels in bins can be off."""
    bounds = [numbers.pixel("auroc_bound")(cell) for group in groups for cell in group.cells]
    known = [bound for bound in bounds if not math.isnan(bound)]
    return [Note(f"Pixel AUROC is counted in bins; its error is at most {max(known):.1g}.")] if known else []
