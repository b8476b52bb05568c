"""Tables 1 to 3 of the paper, measured, beside its own numbers; and the same for scenarios the paper does not have."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dinosaur_ad.bench.paper import ImageNumbers, PixelNumbers, paper
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.numbers import Number, auroc_interval, measure
from dinosaur_ad.bench.report.report_rows import (
    Marks,
    block_title,
    data_notes,
    in_paper_order,
    paper_scenario,
    seed_note,
)
from dinosaur_ad.bench.report.row_groups import CONTINUOUS, DISCRETE, Group, scenarios_of
from dinosaur_ad.bench.report.table import (
    MEASURED,
    Better,
    Block,
    Column,
    Entry,
    Note,
    Table,
    difference,
    figure,
    finish,
    span,
    words,
)


@dataclass(frozen=True)
class Metric:
    """A group of columns: the measured number and, from the paper's row of its scenario, the printed one."""

    title: str
    number: Number
    better: Better
    printed: Callable[[str, str], float] | None = None
    """(scenario, method) as the paper has them -> its number; None when it prints none."""
    interval: bool = False

    def columns(self, beside: bool) -> list[Column]:
        """The measured column and those beside it."""
        names = [MEASURED, *(["95 %"] if self.interval else []), *(["paper", "Δ"] if self._prints(beside) else [])]
        return [Column(name, self.title) for name in names]

    def entries(self, row: Group | str, scenario: str, beside: bool) -> list[Entry]:
        """The same columns for a measured method, or for a method of the paper that was not measured."""
        measured = math.nan
        entries = [Entry(figure(math.nan).cell)] * (2 if self.interval else 1)
        if isinstance(row, Group):
            over_seeds = measure(row, self.number)
            measured = over_seeds.mean
            entries = [figure(measured, over_seeds.spread)]
            entries += [span(*auroc_interval(row))] if self.interval else []
        if self._prints(beside):
            printed = self._printed(row, scenario)
            entries += [figure(printed), difference(measured - printed)]
        return entries

    def bold(self, at: int, beside: bool) -> dict[int, Better]:
        """Where the best is to be bold, if these columns begin at ``at``."""
        places = [at, *([at + len(self.columns(beside)) - 2] if self._prints(beside) else [])]
        return dict.fromkeys(places, self.better)

    def _prints(self, beside: bool) -> bool:
        return beside and self.printed is not None

    def _printed(self, row: Group | str, scenario: str) -> float:
        method = row if isinstance(row, str) else paper().method_of(row.method)
        key = paper_scenario(scenario)
        return math.nan if method is None or key is None or self.printed is None else self.printed(key, method)


def _image(pick: Callable[[ImageNumbers], float]) -> Callable[[str, str], float]:
    return lambda scenario, method: pick(paper().images[scenario][method])


def _pixel(pick: Callable[[PixelNumbers], float]) -> Callable[[str, str], float]:
    return lambda scenario, method: pick(paper().pixels[scenario][method])


IMAGE_METRICS = (
    Metric("AUROC", numbers.auroc, "higher", _image(lambda row: row.auroc), interval=True),
    Metric("Accuracy", numbers.accuracy, "higher", _image(lambda row: row.accuracy)),
    Metric("Recall", numbers.recall, "higher", _image(lambda row: row.recall)),
    Metric("FM", numbers.forgetting, "lower", _image(lambda row: row.fm)),
)
PIXEL_METRICS = (
    Metric("Image AUROC", numbers.auroc, "higher", _pixel(lambda row: row.image)),
    Metric("Pixel AUROC", numbers.pixel("auroc"), "higher", _pixel(lambda row: row.pixel)),
    Metric("AUPRO", numbers.pixel("aupro"), "higher"),
    Metric("AU-sPRO", numbers.pixel("au_spro"), "higher"),
)


def paper_tables(groups: Sequence[Group]) -> list[Table]:
    """Tables 1, 2 and 3, those of them that have a measured row."""
    found = [
        _image_table("discrete", "Discrete tasks (the paper's Table 1)", _of(groups, DISCRETE), beside=True),
        _image_table("continuous", "Continuous drift (the paper's Table 2)", _of(groups, CONTINUOUS), beside=True),
        _pixel_table(
            "pixels", "Images and pixels (the paper's Table 3)", _of(groups, (*DISCRETE, *CONTINUOUS)), beside=True
        ),
    ]
    return [table for table in found if table is not None]


def other_tables(groups: Sequence[Group]) -> list[Table]:
    """The same for scenarios that the paper does not have, without its columns."""
    others = [group for group in groups if paper_scenario(group.scenario) is None]
    found = [
        _image_table("other-images", "Other scenarios: images", others, beside=False),
        _pixel_table("other-pixels", "Other scenarios: images and pixels", others, beside=False),
    ]
    return [table for table in found if table is not None]


def _of(groups: Sequence[Group], scenarios: Sequence[str]) -> list[Group]:
    return [group for group in groups if group.scenario in scenarios]


def _image_table(key: str, title: str, groups: Sequence[Group], *, beside: bool) -> Table | None:
    lead = (
        "After the last task, averaged over tasks. AUROC with its 95 % bootstrap interval over test images; accuracy "
        "and recall at the paper's threshold, the 97.5th percentile of each task's training scores; FM is forgetting "
        "as the paper defines it, lower is better."
    )
    return _table(key, title, lead + _beside(beside), groups, IMAGE_METRICS, beside)


def _pixel_table(key: str, title: str, groups: Sequence[Group], *, beside: bool) -> Table | None:
    lead = (
        "After the last task, averaged over tasks. Pixels are pooled within a task, without those that geometric "
        "drift left empty. AUPRO up to a false-positive rate of 0.3, AU-sPRO (MVTec-LOCO) up to 0.05."
    )
    table = _table(key, title, lead + _beside(beside), groups, PIXEL_METRICS, beside)
    return table and Table(
        table.key, table.title, table.lead, table.columns, table.blocks, (*table.notes, *_bound_note(groups))
    )


def _beside(beside: bool) -> str:
    return " Δ is measured minus paper; best of a column in bold." if beside else " Best of a column in bold."


def _table(
    key: str, title: str, lead: str, groups: Sequence[Group], metrics: Sequence[Metric], beside: bool
) -> Table | None:
    if not groups:
        return None
    marks = Marks()
    columns = [Column("Method", words=True), Column("Seeds")]
    bold: dict[int, Better] = {}
    for metric in metrics:
        bold |= metric.bold(len(columns), beside)
        columns += metric.columns(beside)
    blocks = []
    for scenario in scenarios_of(groups):
        own = [group for group in groups if group.scenario == scenario]
        chosen = in_paper_order(own) if beside else own
        rows = [_row(row, scenario, metrics, beside, marks) for row in chosen]
        blocks.append(Block(block_title(own, compared=beside), finish(rows, bold)))
    notes = (*marks.notes(), *data_notes(groups), seed_note(groups))
    return Table(key, title, lead, tuple(columns), tuple(blocks), notes)


def _row(row: Group | str, scenario: str, metrics: Sequence[Metric], beside: bool, marks: Marks) -> list[Entry]:
    if isinstance(row, Group):
        entries = [marks.name(row), words(str(len(row.cells)))]
    else:
        entries = [words(f"{paper().methods[row]} (paper only)"), words(figure(math.nan).cell.text)]
    for metric in metrics:
        entries += metric.entries(row, scenario, beside)
    return entries


def _bound_note(groups: Sequence[Group]) -> list[Note]:
    """How far the counting of pixels in bins can be off."""
    bounds = [numbers.pixel("auroc_bound")(cell) for group in groups for cell in group.cells]
    known = [bound for bound in bounds if not math.isnan(bound)]
    return [Note(f"Pixel AUROC is counted in bins; its error is at most {max(known):.1g}.")] if known else []
