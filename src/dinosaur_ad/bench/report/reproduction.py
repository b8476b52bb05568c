"""Does it reproduce? Each method in its authors' form on one category, beside the figure published for it."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dinosaur_ad.bench.effort import config_of, formerly, in_percent, row_label, training_of
from dinosaur_ad.bench.metrics import seed_spread
from dinosaur_ad.bench.published_figures import PublishedFigure, published_figures
from dinosaur_ad.bench.report.table import Column, Entry, Note, Table, TableBlock, difference, figure, words
from dinosaur_ad.bench.results import CellResult
from dinosaur_ad.bench.scenarios import ONE_CATEGORY, ONE_CATEGORY_SCENARIO

WITHIN, NEAR = 0.01, 0.03
"""How far an image AUROC may be from the printed one to reproduce it, and nearly."""
# What a training may change without being another method; epochs, batch and steps are shown in a column of their own.
_LENGTH_AND_ROUNDING = ("epochs", "batch", "steps", "mixed", "tf32", "backbone", "replay", "replay_per")

Word = Literal["yes", "nearly", "no", "not known", "not run"]


@dataclass(frozen=True)
class Reproduction:
    """One variant: what is printed, what was measured (the seeds of one scenario), and in what that differs."""

    method: str
    published: PublishedFigure
    cells: tuple[CellResult, ...]

    @property
    def auroc(self) -> tuple[float, float]:
        """The image AUROC of the category right after it was learned, alone: mean over seeds and its spread."""
        return seed_spread([float(cell.auroc[0, 0]) for cell in self.cells]) if self.cells else (math.nan, math.nan)

    @property
    def schedule(self) -> str:
        """Steps, images a step and the share of the authors' schedule."""
        if not self.cells:
            return "–"
        training = training_of(self.cells[0], config_of(self.method), 1)
        return "none" if training is None else str(training)

    @property
    def differences(self) -> list[str]:
        """In what the measured form is not its authors', in words."""
        return list(self._differences()) if self.cells else []

    def _differences(self) -> Iterator[str]:
        cell, config = self.cells[0], config_of(self.method)
        training, backbone = training_of(cell, config, 1), cell.settings.get("backbone")
        if training is not None and not training.is_whole:
            same = training.share is None or math.isclose(training.share, 1)
            yield "another batch" if same else f"{in_percent(training.share or 0)} of the schedule"
        if backbone not in self.published.backbones:
            yield f"{backbone or 'another network'} for {self.published.network}"
        regions = str(cell.info.get("regions") or "")
        if self.published.regions and "superpixels" in regions:
            yield f"superpixels for {self.published.regions} masks"
        if config is not None:
            usual = json.loads(json.dumps(config.identity()))
            stored = json.loads(json.dumps(formerly(config) | cell.settings))
            changed = (key for key in usual if key not in _LENGTH_AND_ROUNDING and stored.get(key) != usual[key])
            yield from (f"{key}={stored.get(key)}" for key in changed)

    @property
    def verdict(self) -> Word:
        """Whether it reproduces: `yes` only in its authors' form, `nearly` as near in another form, trained as long."""
        if not self.cells:
            return "not run"
        if math.isnan(self.published.auroc):
            return "not known"
        gap = abs(self.auroc[0] - self.published.auroc)
        if gap <= WITHIN and not self.differences:
            return "yes"
        training = training_of(self.cells[0], config_of(self.method), 1)
        long_enough = training is None or training.share is None or training.share > 1 - NEAR
        return "nearly" if gap <= NEAR and long_enough else "no"

    @property
    def why(self) -> str:
        """What the verdict rests on."""
        gap = self.auroc[0] - self.published.auroc
        far = f"{abs(gap):.3f} {'lower' if gap < 0 else 'higher'}" if abs(gap) > WITHIN else ""
        reasons = [*([far] if far else []), *self.differences]
        return "; ".join(reasons) or "–"


def is_one_category(cell: CellResult) -> bool:
    """Whether a cell is of the category alone: it stands in no other table."""
    return cell.scenario == ONE_CATEGORY_SCENARIO


def reproductions(cells: Sequence[CellResult]) -> list[Reproduction]:
    """One for each published figure, in the order of the file.

    A cell of all of MVTec-AD will do where the category was not run alone: it is learned first, and what is measured
    right after it knows nothing of the others.
    """
    found: dict[tuple[str, str], list[CellResult]] = defaultdict(list)
    for cell in sorted(cells, key=lambda each: each.seed):
        if is_one_category(cell) or (cell.scenario == "mvtec-ad" and cell.tasks[0]["name"] == ONE_CATEGORY):
            found[cell.method, cell.scenario].append(cell)
    return [
        Reproduction(method, published, tuple(found.get((method, ONE_CATEGORY_SCENARIO)) or found[method, "mvtec-ad"]))
        for method, published in published_figures().items()
    ]


def reproduction_tables(cells: Sequence[CellResult]) -> list[Table]:
    """The table, if anything in it was measured."""
    every = reproductions(cells)
    if not any(each.cells for each in every):
        return []
    columns = (
        Column("Method", words=True),
        Column("published"),
        Column("measured"),
        Column("Δ"),
        Column("Steps", words=True),
        Column("Does it reproduce?", words=True),
        Column("Why", words=True),
    )
    return [
        Table(
            "reproduction",
            "Does it reproduce?",
            f"Image AUROC of {ONE_CATEGORY} of MVTec-AD, learned alone, in the form of each method's authors, beside "
            "the figure published for it; the notes say where and by whom. “Yes” means within "
            f"{WITHIN:g} with their network, settings and whole schedule, “nearly” within {NEAR:g} after the whole "
            "schedule in a form that differs as said. "
            "No row of any table is called “original” and nothing more unless this says yes: the rest of its name "
            "says what is missing. The category is an easy one, so near 1 says little about others.",
            columns,
            (TableBlock("", tuple(tuple(entry.cell for entry in _row(each)) for each in every)),),
            tuple(_sources(every)),
        )
    ]


def _row(each: Reproduction) -> list[Entry]:
    mean, spread = each.auroc
    known = {"not known": "no published figure known to us"}
    return [
        words(row_label(each.cells[0]) if each.cells else each.method),
        figure(each.published.auroc),
        figure(mean, spread),
        difference(mean - each.published.auroc),
        words(each.schedule),
        words(known.get(each.verdict, each.verdict)),
        words(each.why),
    ]


def _sources(every: Sequence[Reproduction]) -> Iterator[Note]:
    by_source: dict[str, list[str]] = {}
    for each in every:
        by_source.setdefault(each.published.source, []).append(each.method)
    return (Note(f"{', '.join(names)}: {source}.") for source, names in by_source.items())
