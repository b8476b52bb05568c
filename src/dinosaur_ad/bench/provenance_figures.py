"""What a method reaches: measured here, printed in the paper, and what is known of the original publication."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.provenance_runs import Run, epochs_of
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.groups import Group
from dinosaur_ad.bench.report.numbers import Number, measure
from dinosaur_ad.bench.report.render import plain, to_markdown
from dinosaur_ad.bench.report.rows import data_notes, paper_scenario
from dinosaur_ad.bench.report.table import MEASURED, Block, Column, Entry, Note, Table, figure, finish, words

AUROC = "image AUROC"


@dataclass(frozen=True)
class OriginalFigure:
    """One number of an original publication, and what it is a number of."""

    metric: str
    value: float
    protocol: str
    source: str
    data: str = ""

    @property
    def about(self) -> str:
        """On which data, how, and where it stands."""
        return "; ".join(filter(None, (self.data, self.protocol, self.source)))


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


def original_section(name: str) -> str:
    """The original publication's own figures as a list, or that none are known here; as Markdown."""
    known = originals().get(name)
    if known is None:
        return ""
    lines = [plain(f"{each.metric}: {each.value:g} ({each.about}).") for each in known.figures]
    if not any(each.metric == AUROC for each in known.figures):
        lines.append(f"{AUROC}: none is given here, because none was looked up in the publication itself.")
    lines.append(f"How it measures, which is not how it is done here: {plain(known.protocol)}.")
    return "\n".join(
        [
            f"## The original: {plain(known.citation)}",
            "",
            f"Code that was read: {plain(known.code)}.",
            "",
            *(f"- {line}" for line in lines),
            "",
        ]
    )


def paper_section(name: str) -> str:
    """What the paper prints for the method, protocol by protocol, as Markdown; nothing where it has no such method."""
    key = paper().method_of(name)
    if key is None:
        return ""
    rows = []
    for scenario, entry in paper().scenarios.items():
        images, pixels = paper().images[scenario][key], paper().pixels[scenario][key]
        values = (images.auroc, pixels.pixel, images.accuracy, images.recall, images.fm)
        rows.append([words(entry.name), words(str(entry.tasks)), *map(figure, values)])
    training, title = paper().training[key], paper().methods[key]
    epochs = f"{training.epochs} epoch{'s' * (training.epochs != 1)} a task"
    table = Table(
        "paper",
        "In the paper",
        f"As printed there for {title}: {training.backbone}, {epochs}, {_replay_words(training.replay)}.",
        (
            Column("Protocol", words=True),
            *map(Column, ("tasks", "image AUROC", "pixel AUROC", "accuracy", "recall", "FM")),
        ),
        (Block("", finish(rows, {})),),
    )
    return to_markdown(table)


def figures_section(runs: Sequence[Run]) -> str:
    """Every run beside the paper's row of the same method and scenario, as Markdown."""
    groups, marks = [run.group for run in runs], _Marks()
    rows = [list(_row(run, marks)) for run in runs]
    table = Table(
        "figures",
        "Measured here",
        "After the last task, averaged over tasks; no image comes with the name of its task. Beside it, the paper's.",
        (
            *(Column(name, words=True) for name in ("Scenario", "Method", "set by hand")),
            *map(Column, ("tasks", "epochs a task", "seeds")),
            *(Column(name, group) for group in ("image AUROC", "pixel AUROC", "FM") for name in (MEASURED, "paper")),
            Column("FM std"),
        ),
        (Block("", finish(rows, {})),),
        (*marks.notes(), *data_notes(groups), *_notes(groups)),
    )
    return to_markdown(table)


@dataclass
class _Marks:
    """Numbers the notes that say what made the scores; variants that were made with the same share one."""

    texts: dict[str, str] = field(default_factory=dict)

    def name(self, run: Run) -> Entry:
        """The method's name with the number of its note."""
        text = "; ".join(_made_with(run.group.first.info))
        return words(run.group.method, self.texts.setdefault(text, str(len(self.texts) + 1)))

    def notes(self) -> list[Note]:
        """The notes, in the order of their numbers."""
        return [Note(f"{text}.", mark) for text, mark in self.texts.items()]


def _made_with(info: Mapping[str, Any]) -> Iterator[str]:
    """Network and weights, and whatever stands for something else, in the words of the result."""
    yield str(info.get("description") or info.get("encoder") or "encoder not recorded").rstrip(".")
    for key, label in {"substitute": "", "regions": "regions: ", "penalty": "penalty: "}.items():
        if info.get(key) not in (None, "", "none"):
            yield f"{label}{info[key]}"


def _row(run: Run, marks: _Marks) -> Iterator[Entry]:
    group = run.group
    yield words(group.scenario)
    yield marks.name(run)
    yield words(run.changed or "nothing")
    yield words(_tasks(group))
    yield words(epochs_of(group.first) or "not trained")
    yield words(", ".join(map(str, group.seeds)))
    measured = (numbers.auroc, numbers.pixel("auroc"), numbers.forgetting)
    for number, printed in zip(measured, _printed(group), strict=True):
        yield from (_over_seeds(group, number), figure(printed))
    yield _over_seeds(group, numbers.FORGETTING["FM std"])


def _tasks(group: Group) -> str:
    """How many, and of how many in the paper where it has more."""
    count, key = len(group.first.tasks), paper_scenario(group.scenario)
    return (
        str(count)
        if key is None or paper().scenarios[key].tasks == count
        else f"{count} of {paper().scenarios[key].tasks}"
    )


def _over_seeds(group: Group, number: Number) -> Entry:
    over_seeds = measure(group, number)
    return figure(over_seeds.mean, over_seeds.spread)


def _printed(group: Group) -> tuple[float, float, float]:
    """The paper's image AUROC, pixel AUROC and forgetting; NaN where it has none."""
    method, scenario = paper().method_of(group.method), paper_scenario(group.scenario)
    if method is None or scenario is None:
        return math.nan, math.nan, math.nan
    images = paper().images[scenario][method]
    return images.auroc, paper().pixels[scenario][method].pixel, images.fm


def _replay_words(images: int) -> str:
    return f"{images} images replayed" if images else "nothing replayed"


def _notes(groups: Sequence[Group]) -> Iterator[Note]:
    yield Note(
        "FM is the paper's forgetting measure, FM std counts only from when a task was learned; both mean little at "
        "an AUROC near 0.5."
    )
    if any(len(group.seeds) > 1 for group in groups):
        yield Note("Where there are several seeds: mean ± standard deviation over them.")
    if any(len(group.seeds) == 1 for group in groups):
        yield Note("Where there is one seed, there is no spread to show, which is no certainty.")
