"""What is known of a method's original publication, its figures beside the paper's and those measured here."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.provenance_figures import over_seeds, printed, task_count
from dinosaur_ad.bench.provenance_runs import Run
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.numbers import Number
from dinosaur_ad.bench.report.render import plain, to_markdown
from dinosaur_ad.bench.report.report_rows import paper_scenario
from dinosaur_ad.bench.report.table import Column, Entry, Table, figure, finish, words
from dinosaur_ad.bench.report.table import TableBlock as Block

AUROC = "image AUROC"
"""The metric that every original has; a page says so where none is known."""

# Which of the three numbers that the paper prints, and what is measured here, of the same name and unit.
_ALIKE: Mapping[str, tuple[int, Number]] = {
    AUROC: (0, numbers.auroc),
    "pixel AUROC": (1, numbers.pixel("auroc")),
    "FM": (2, numbers.forgetting),
}


@dataclass(frozen=True)
class OriginalFigure:
    """One number of an original publication, and what it is a number of."""

    metric: str
    value: float
    protocol: str
    source: str
    data: str = ""
    whose: str = "the original"

    @property
    def about(self) -> str:
        """How it was measured, and where it was read."""
        return f"{self.protocol}; {self.source}"


@dataclass(frozen=True)
class Original:
    """An original publication: what to cite, which code was read, and how it measures."""

    citation: str
    code: str
    protocol: str
    figures: tuple[OriginalFigure, ...]


@cache
def originals() -> Mapping[str, Original]:
    """What is known of the original publications, by the method's name; read once.

    >>> originals()["iuf"].citation
    'Tang et al., ECCV 2024'
    """
    document = tomllib.loads(files("dinosaur_ad.bench").joinpath("originals.toml").read_text("utf-8"))
    return {
        name: Original(
            entry["citation"],
            entry["code"],
            entry["protocol"],
            tuple(OriginalFigure(**each) for each in entry.get("figures", ())),
        )
        for name, entry in document.items()
    }


def original_section(name: str, runs: Sequence[Run] = ()) -> str:
    """What the original publication is, and its figures beside the paper's and those of ``runs``; as Markdown."""
    known = originals().get(name)
    if known is None:
        return ""
    lines = [plain(f"{each.metric}: {each.value:g} ({each.about}).") for each in known.figures if not each.data]
    if not any(each.metric == AUROC for each in known.figures):
        lines.append(f"{AUROC}: none is given here, because none was found in a place where it could be read.")
    lines.append(f"How it measures, which is not how it is done here: {plain(known.protocol)}.")
    return "\n".join(
        [
            f"## The original: {plain(known.citation)}",
            "",
            f"Code that was read: {plain(known.code)}.",
            "",
            *(f"- {line}" for line in lines),
            "",
            _side_by_side(name, known, runs),
        ]
    )


def _side_by_side(name: str, known: Original, runs: Sequence[Run]) -> str:
    """One block for each metric and data of the original: its values, the paper's, those measured here."""
    compared: dict[tuple[str, str], list[OriginalFigure]] = {}
    for each in known.figures:
        if each.data:
            compared.setdefault((each.metric, each.data), []).append(each)
    if not compared:
        return ""
    blocks = [
        Block(f"{metric} on {data}", finish(list(_rows(name, metric, data, values, runs)), {}))
        for (metric, data), values in compared.items()
    ]
    table = Table(
        "originals",
        "The original's figures, the paper's and ours",
        "All as fractions of one. The protocols differ, so a difference between rows is not one between methods alone.",
        (Column("Whose", words=True), Column("value"), Column("how", words=True)),
        tuple(blocks),
    )
    return to_markdown(table)


def _rows(
    name: str, metric: str, data: str, values: Sequence[OriginalFigure], runs: Sequence[Run]
) -> Iterator[list[Entry]]:
    for each in values:
        yield [words(each.whose), figure(each.value), words(each.about)]
    alike, scenario = _ALIKE.get(metric), _scenario(data)
    if alike is None or scenario is None:
        yield [words("the paper (this benchmark), ours"), figure(math.nan), words("printed neither there nor here")]
        return
    at, number = alike
    tasks = paper().scenarios[scenario].tasks
    yield [words("the paper (this benchmark)"), figure(printed(name, scenario)[at]), words(f"{tasks} tasks one by one")]
    own = [run for run in runs if paper_scenario(run.group.scenario) == scenario]
    for run in own:
        yield [words(f"ours, {run.group.method}"), over_seeds(run.group, number), words(_how(run))]
    if not own:
        yield [words("ours"), figure(math.nan), words("not measured here")]


def _scenario(data: str) -> str | None:
    """The paper's protocol on data of this name."""
    return next((key for key, entry in paper().scenarios.items() if entry.name == data), None)


def _how(run: Run) -> str:
    """In how many tasks, and with which settings other than the variant's."""
    changed = f"; set by hand: {run.changed}" if run.changed else ""
    return f"{task_count(run.group)} tasks one by one{changed}"
