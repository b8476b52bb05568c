"""Inspections of one's own images, collected for a report: a small row for every image, the maps of those shown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.inspection import Inspection, Rejected
from dinosaur_ad.page.sequence_results import Share

NORMAL, ANOMALOUS, UNKNOWN, NOT_READY = "normal", "anomalous", "unknown", "not ready"
MOST_SHOWN, MOST_WRONG = 60, 12
"""Pictures of the worst images; and of false alarms and of missed defects, where the truth is known."""


@dataclass(frozen=True)
class ImageRow:
    """One inspected image; ``label`` is 0 for good, 1 for bad, None where that is not known."""

    path: str
    task: str
    verdict: str
    score: float
    threshold: float
    p_value: float
    reason: str
    label: int | None
    ms: float
    light: str = ""
    false_alarm_rate: float = 0.0

    @property
    def relative(self) -> float:
        """The score in units of the threshold; NaN where nothing can reach the threshold."""
        return self.score / self.threshold if 0 < self.threshold < math.inf else math.nan

    @property
    def judged(self) -> bool:
        """Whether the verdict is a judgement: normal or anomalous."""
        return self.verdict in (NORMAL, ANOMALOUS)

    @property
    def rank(self) -> tuple[int, float]:
        """Sorts the worst first: anomalous images, then those that could not be judged, then normal ones."""
        order = {ANOMALOUS: 0, NORMAL: 2}.get(self.verdict, 1)
        return order, -(self.score if math.isnan(self.relative) else self.relative)


class ShownImages(NamedTuple):
    """The rows whose pictures are shown, as indices; ``others`` are the worst of the rest."""

    false_alarms: list[int]
    missed: list[int]
    others: list[int]


@dataclass
class ImageResults:
    """All images of a report; ``inspections`` holds those of the images that are shown, by the index of their row."""

    rows: list[ImageRow] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    inspections: dict[int, Inspection] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    fallback: str | None = None
    warnings: list[str] = field(default_factory=list)

    def add(self, result: Inspection | Rejected, label: int | None = None) -> None:
        """Take one result. Memory stays bounded: the map of an image that cannot be shown any more is dropped."""
        if isinstance(result, Rejected):
            self.rejected.append(result)
            return
        self.inspections[len(self.rows)] = result
        self.rows.append(
            ImageRow(
                path=result.path,
                task=result.task,
                verdict=result.verdict,
                score=result.score,
                threshold=result.threshold,
                p_value=result.p_value,
                reason=result.reason,
                label=label,
                ms=result.ms.get("total", math.nan),
                light=result.light,
                false_alarm_rate=result.false_alarms,
            )
        )
        self.left_out.update(result.left_out)
        self.fallback = result.fallback or self.fallback
        if len(self.inspections) > 4 * (MOST_SHOWN + 2 * MOST_WRONG):
            kept = {index for group in self.shown() for index in group}
            self.inspections = {index: self.inspections[index] for index in kept}

    def count(self, verdict: str) -> int:
        """How many images have a verdict; "not ready" counts every other one that is no judgement."""
        if verdict == NOT_READY:
            return sum(not row.judged and row.verdict != UNKNOWN for row in self.rows)
        return sum(row.verdict == verdict for row in self.rows)

    def false_alarms(self) -> tuple[float, float]:
        """The lowest and the highest rate of false alarms that the thresholds of the judged images allow."""
        rates = [row.false_alarm_rate for row in self.rows if row.judged] or [0.0]
        return min(rates), max(rates)

    def expected_alarms(self) -> float:
        """How many of the judged images would be called anomalous by chance if all of them were good."""
        return sum(row.false_alarm_rate for row in self.rows if row.judged)

    def tasks(self) -> list[str]:
        """The tasks that images were assigned to, the most frequent first."""
        return [task for task, _ in Counter(row.task for row in self.rows).most_common()]

    def shown(self) -> ShownImages:
        """Which images are shown, the worst first; of missed defects those with the lowest scores first."""
        order = sorted(range(len(self.rows)), key=lambda index: self.rows[index].rank)
        wrong = [index for index in order if (self.rows[index].label, self.rows[index].verdict) == (0, ANOMALOUS)]
        missed = [index for index in order if (self.rows[index].label, self.rows[index].verdict) == (1, NORMAL)]
        missed.reverse()
        apart = {*wrong[:MOST_WRONG], *missed[:MOST_WRONG]}
        others = [index for index in order[: MOST_SHOWN + len(apart)] if index not in apart]
        return ShownImages(wrong[:MOST_WRONG], missed[:MOST_WRONG], others[:MOST_SHOWN])

    def labelled(self, label: int) -> list[ImageRow]:
        """The images that are known to be good (0) or bad (1)."""
        return [row for row in self.rows if row.label == label]

    def alarms(self, label: int) -> Share:
        """The share of the good or bad images that were called anomalous; images without a judgement count as not."""
        rows = self.labelled(label)
        return Share.of(sum(row.verdict == ANOMALOUS for row in rows), len(rows))

    def aurocs(self) -> dict[str, float]:
        """The image AUROC of every task that has good and bad images."""
        found = {}
        for task in self.tasks():
            rows = [row for row in self.rows if row.task == task and row.label is not None]
            value = _auroc(rows)
            if not math.isnan(value):
                found[task] = value
        return found


def _auroc(rows: Sequence[ImageRow]) -> float:
    return auroc([row.score for row in rows], [int(row.label or 0) for row in rows]) if rows else math.nan
