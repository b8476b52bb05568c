"""The protocols ``stream-*``: what is measured while a stream without boundaries goes by, and at its end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dinosaur_ad._text import percent
from dinosaur_ad.bench.hidden_stream import HiddenStream
from dinosaur_ad.bench.lessons import photo
from dinosaur_ad.bench.stream_learners import FoundProduct, StreamAnswer, StreamLearner
from dinosaur_ad.core.metrics import auroc

AT_ONCE = 100
"""Pictures of a step of the curves."""


@dataclass(frozen=True)
class ProductDelay:
    """A true product: its pictures in the stream, with which of them it was found (None: never), and how often."""

    product: str
    pictures: int
    noticed: int | None
    proposals: int


@dataclass(frozen=True)
class CurvePoint:
    """After so many pictures: what holds for those since the point before, memory, and seconds a picture."""

    pictures: int
    judged: int
    auroc: float | None
    false_alarms: float | None
    storage_bytes: int
    seconds: float


@dataclass(frozen=True)
class StreamResult:
    """What a learner did on a stream.

    ``judged`` of ``pictures`` got a verdict before they were learned; ``false_alarms`` (share of judged normals) and
    ``recall`` (share of judged defects) are of these, ``auroc`` also of those whose product was not ready.
    ``purity`` is the share of the largest product in what was proposed, ``surplus`` how many proposals there were
    beyond one a product (None: it proposes none), ``learned_defects`` the defects proposed as normal. ``final`` is the
    AUROC of each task's test images, none of which was in the stream, ``final_unready`` the share of them whose product
    is not ready, and ``final_false_alarms`` and ``final_recall`` the shares of the other good and bad ones that are
    alarms.
    """

    learner: str
    stream: str
    plan: dict[str, Any]
    pictures: int
    defects: int
    judged: int
    auroc: float | None
    false_alarms: float | None
    recall: float | None
    products: list[ProductDelay]
    purity: float | None
    surplus: int | None
    learned_defects: int
    final: dict[str, float]
    final_false_alarms: float | None
    final_recall: float | None
    curve: list[CurvePoint]
    final_unready: float = 0.0

    @property
    def final_mean(self) -> float | None:
        """The mean over the tasks."""
        return float(np.mean(list(self.final.values()))) if self.final else None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self) | {"final_mean": self.final_mean}


def run_stream(
    name: str, stream: HiddenStream, learner: StreamLearner, say: Callable[[str], None] | None = None
) -> StreamResult:
    """Let a learner go through a stream and measure it; ``say`` is told how far it is."""
    answers: list[StreamAnswer] = []
    curve: list[CurvePoint] = []
    label_N = np.asarray([each.label for each in stream.pictures])
    started = time.perf_counter()
    for answer in learner.follow(each.photo for each in stream.pictures):
        answers.append(answer)
        if len(answers) % AT_ONCE == 0 or len(answers) == len(stream.pictures):
            first = curve[-1].pictures if curve else 0
            seconds = (time.perf_counter() - started) / (len(answers) - first)
            part = _rates(answers[first:], label_N[first : len(answers)])
            curve.append(CurvePoint(len(answers), part[0], part[1], part[2], learner.storage_bytes(), seconds))
            started = time.perf_counter()
            if say:
                say(f"{name}: {len(answers)} of {len(stream.pictures)} pictures, {seconds:.2f} s each")
    if len(answers) != len(stream.pictures):
        raise RuntimeError(f"{name} gave {len(answers)} answers for {len(stream.pictures)} pictures")
    judged, area, false_alarms, recall = _rates(answers, label_N)
    found = learner.found
    purity, surplus, learned_defects = (None, None, 0) if found is None else _proposals(stream, found)
    final, final_false_alarms, final_recall, final_unready = _final(stream, learner)
    return StreamResult(
        learner=name,
        stream=stream.name,
        plan=asdict(stream.plan),
        pictures=len(answers),
        defects=int(label_N.sum()),
        judged=judged,
        auroc=area,
        false_alarms=false_alarms,
        recall=recall,
        products=[] if found is None else _delays(stream, found),
        purity=purity,
        surplus=surplus,
        learned_defects=learned_defects,
        final=final,
        final_false_alarms=final_false_alarms,
        final_recall=final_recall,
        curve=curve,
        final_unready=final_unready,
    )


def _rates(
    answers: Sequence[StreamAnswer], label_N: np.ndarray
) -> tuple[int, float | None, float | None, float | None]:
    """How many were judged; the AUROC of all that got a score; the share of normals and of defects among the judged
    ones that were alarms."""
    scored = [n for n, each in enumerate(answers) if each.ratio is not None]
    area = auroc([answers[n].ratio or 0.0 for n in scored], label_N[scored]) if scored else float("nan")
    judged, shares = [n for n in scored if answers[n].ready], []
    for label in (0, 1):
        alarms = [answers[n].alarm for n in judged if label_N[n] == label and answers[n].alarm is not None]
        shares.append(sum(map(bool, alarms)) / len(alarms) if alarms else None)
    return len(judged), None if np.isnan(area) else area, shares[0], shares[1]


def _largest(stream: HiddenStream, found: FoundProduct) -> tuple[str, int]:
    return Counter(stream.pictures[n].product for n in found.members).most_common(1)[0]


def _delays(stream: HiddenStream, found: Sequence[FoundProduct]) -> list[ProductDelay]:
    products = [each.product for each in stream.pictures]
    main = [(_largest(stream, each)[0], each.at) for each in found if each.members]
    delays = []
    for product, count in sorted(Counter(products).items()):
        at = [at for name, at in main if name == product]
        noticed = products[: at[0] + 1].count(product) if at else None
        delays.append(ProductDelay(product, count, noticed, len(at)))
    return delays


def _proposals(stream: HiddenStream, found: Sequence[FoundProduct]) -> tuple[float | None, int, int]:
    """Mean purity, proposals beyond one a product, and defects among the pictures proposed."""
    real = [each for each in found if each.members]
    purity = [_largest(stream, each)[1] / len(each.members) for each in real]
    defects = sum(stream.pictures[n].label for each in real for n in each.members)
    surplus = len(found) - len({_largest(stream, each)[0] for each in real})
    return float(np.mean(purity)) if purity else None, surplus, defects


def _final(stream: HiddenStream, learner: StreamLearner) -> tuple[dict[str, float], float | None, float | None, float]:
    """The AUROC of each task; the shares of good and of bad test images that are alarms, where their product is ready;
    the share of those where it is not."""
    areas, all_answers, all_labels = {}, [], []
    for task, samples in stream.tests.items():
        labels = [int(bool(sample.label)) for sample in samples]
        if 0 < sum(labels) < len(labels):
            answers = learner.judge([photo(sample) for sample in samples])
            areas[task] = float(auroc([each.ratio or 0.0 for each in answers], labels))
            all_answers += answers
            all_labels += labels
    _, _, false_alarms, recall = _rates(all_answers, np.asarray(all_labels))
    unready = sum(not each.ready for each in all_answers) / len(all_answers) if all_answers else 0.0
    return areas, false_alarms, recall, unready


def stream_table(results: Sequence[StreamResult]) -> list[str]:
    """Results as Markdown, a row each."""
    lines = [
        "| defects | learner | judged | AUROC as it goes | false alarms | noticed after | surplus | purity | "
        "at the end: AUROC | recall | false alarms | not ready | memory |",
        "|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for each in results:
        cells = [
            percent(each.plan["defects"], 1),
            each.learner,
            f"{each.judged} of {each.pictures}",
            _number(each.auroc),
            percent(each.false_alarms, 1),
            _slowest(each),
            "–" if each.surplus is None else str(each.surplus),
            _number(each.purity),
            _number(each.final_mean),
            percent(each.final_recall, 1),
            percent(each.final_false_alarms, 1),
            percent(each.final_unready, 1),
            f"{each.curve[-1].storage_bytes / 2**20:.1f} MiB",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _slowest(result: StreamResult) -> str:
    """With how many of its pictures the last product was noticed."""
    delays = [product.noticed for product in result.products]
    return "never" if None in delays else str(max((n for n in delays if n), default="–"))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
