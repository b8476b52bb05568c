"""What the results say, in a few sentences whose figures are all computed from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dinosaur_ad.bench.effort import chosen_on, config_of, row_label, training_of
from dinosaur_ad.bench.metrics import final_average
from dinosaur_ad.bench.report import numbers
from dinosaur_ad.bench.report.numbers import measure
from dinosaur_ad.bench.report.report_rows import chosen_words
from dinosaur_ad.bench.report.reproduction import reproductions
from dinosaur_ad.bench.report.row_groups import CellGroup, scenarios_of
from dinosaur_ad.bench.report.shortcuts import CONTROL, controls, likeness, separated_tasks
from dinosaur_ad.bench.report.table import Column, Table, TableBlock, TableCell
from dinosaur_ad.bench.results import CellResult
from dinosaur_ad.methods import list_methods

# A loss below this is not worth a sentence, and an AUROC this near to chance has nothing to lose.
_LITTLE, _CHANCE = 0.02, 0.6


def findings_table(results: Sequence[CellResult], groups: Sequence[CellGroup]) -> Table:
    """A sentence a row, and what it is about."""
    sentences = [
        *_leaders(groups),
        *_choice(groups),
        *_forgetting(groups),
        *_light(groups),
        *_reproduced(results),
        *_effort(groups),
    ]
    return Table(
        "findings",
        "What the results say",
        "Every figure below is computed from the results in this report.",
        (Column("About", words=True), Column("Finding", words=True)),
        (TableBlock("", tuple((TableCell(about), TableCell(sentence)) for about, sentence in sentences)),),
    )


def _leaders(groups: Sequence[CellGroup]) -> Iterator[tuple[str, str]]:
    """The best of each scenario and the best of another family, and whether one of both has a single seed."""
    for scenario in scenarios_of(groups):
        own = [group for group in groups if group.scenario == scenario and not _is_control(group)]
        ranked = sorted(own, key=lambda group: -_or_low(measure(group, numbers.auroc).mean))
        if not ranked or math.isnan(measure(ranked[0], numbers.auroc).mean):
            continue
        best = ranked[0]
        other = next((group for group in ranked if _family(group) != _family(best)), None)
        sentence = f"{row_label(best.first)} has the highest image AUROC, {_mean(best)}"
        if other is not None and not math.isnan(measure(other, numbers.auroc).mean):
            gap = measure(best, numbers.auroc).mean - measure(other, numbers.auroc).mean
            sentence += (
                f"; the best of the other methods is {row_label(other.first)} with {_mean(other)} ({gap:.3f} less)"
            )
            if 1 in (len(best.seeds), len(other.seeds)):
                both = len(best.seeds) == len(other.seeds)
                sentence += "; both rest on one seed" if both else "; one of the two rests on one seed"
        yield scenario, f"{sentence}."


def _choice(groups: Sequence[CellGroup]) -> Iterator[tuple[str, str]]:
    """The rows whose settings were chosen on the images they are tested on."""
    chosen: dict[str, list[str]] = {}
    for group in groups:
        if group.scenario in chosen_on(group.method):
            chosen.setdefault(row_label(group.first), []).append(group.scenario)
    if chosen:
        yield "choice", chosen_words(chosen)


def _forgetting(groups: Sequence[CellGroup]) -> Iterator[tuple[str, str]]:
    """The row that lost most of what it had learned, and how many lost something."""
    lost = []
    for group in groups:
        cell = group.first
        if len(cell.tasks) > 1 and not _is_control(group):
            learned, end = float(cell.auroc.diagonal().mean()), final_average(cell.auroc)
            if learned >= _CHANCE and not math.isnan(learned - end):
                lost.append((learned - end, learned, end, group))
    if not lost:
        return
    lost.sort(key=lambda entry: -entry[0])
    most, learned, end, group = lost[0]
    if most < _LITTLE:
        yield (
            "forgetting",
            f"No method lost {_LITTLE:g} or more of the image AUROC that its tasks had when just learned.",
        )
        return
    count = sum(entry[0] >= _LITTLE for entry in lost)
    yield (
        "forgetting",
        f"{row_label(group.first)} on {group.scenario} lost most, from {learned:.3f} when its tasks were "
        f"just learned to {end:.3f}; of {len(lost)} rows that had learned something (at least {_CHANCE:g}), "
        f"{count} lost {_LITTLE:g} or more.",
    )


def _light(groups: Sequence[CellGroup]) -> Iterator[tuple[str, str]]:
    """The rows whose AUROC falls most at equal brightness, and the tasks that brightness alone separates."""
    found = controls(cell for group in groups for cell in group.cells)
    for scenario in scenarios_of(groups):
        own = [group for group in groups if group.scenario == scenario and not _is_control(group)]
        falls = []
        for group in own:
            like = likeness(group.first, found)
            if like is not None and not math.isnan(like.equal_auroc):
                falls.append((numbers.auroc(group.first) - like.equal_auroc, group, like.equal_auroc))
        control = next((cell for (name, _), cell in sorted(found.items()) if name == scenario), None)
        told = separated_tasks(control) if control is not None and falls else {}
        if not told:
            continue
        falls.sort(key=lambda entry: -entry[0])
        fallen = [
            f"{row_label(group.first)} {numbers.auroc(group.first):.3f} to {equal:.3f}"
            for fall, group, equal in falls[:3]
            if fall >= _LITTLE
        ]
        sentence = f"On {scenario}, brightness alone separates {' and '.join(told)}"
        if fallen:
            sentence += f"; among images of equal brightness the image AUROC falls most for {', '.join(fallen)}"
        yield "light", f"{sentence}."


def _reproduced(results: Sequence[CellResult]) -> Iterator[tuple[str, str]]:
    every = [each for each in reproductions(results) if not math.isnan(each.published.auroc)]
    if not any(each.cells for each in every):
        return
    words = [each.verdict for each in every]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("yes", "nearly", "no", "not run") if word in words)
    yield "reproduction", f"Of {len(every)} figures published for one category: {counts}."


def _effort(groups: Sequence[CellGroup]) -> Iterator[tuple[str, str]]:
    """How much rests on a part of a schedule, and on one seed."""
    trained = [training for group in groups if (training := training_of(group.first, config_of(group.method)))]
    if trained:
        short = sum(training.share is not None and training.share < 1 for training in trained)
        yield "effort", f"{short} of {len(trained)} trained rows ran less than the whole of their schedule."
    single = sum(len(group.seeds) == 1 for group in groups)
    yield "seeds", f"{single} of {len(groups)} rows rest on one seed."


def _family(group: CellGroup) -> str:
    return group.method.partition(":")[0]


def _is_control(group: CellGroup) -> bool:
    spec = list_methods().get(_family(group))
    return group.method == CONTROL or (spec is not None and spec.control)


def _mean(group: CellGroup) -> str:
    found = measure(group, numbers.auroc)
    return f"{found.mean:.3f}" + ("" if math.isnan(found.spread) else f" ± {found.spread:.3f}")


def _or_low(value: float) -> float:
    return -math.inf if math.isnan(value) else value
