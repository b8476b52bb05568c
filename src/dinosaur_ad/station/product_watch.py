"""Whether the parts of one product still look like those it learned: three kinds of evidence, without files or threads.

- *scores*: parts that pass score higher than the images that the threshold comes from. Defects, however many, are no
  sign: only the ranks among parts that pass count.
- *level*: the median patch distance of parts that pass. A defect changes a place, a change of camera or light all of
  the picture.
- *light*: the contrast of the pictures, against the first parts since the product was last taught.

The evidence of a product is the mean of the three. Without a change it reaches ``1 / alpha`` within ``N`` parts with
probability ``N alpha`` at most (:mod:`dinosaur_ad.core.change_point`), however often one looks.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.verdict import NORMAL
from dinosaur_ad.core.change_point import (
    ChangeSums,
    FirstValues,
    begin_sums,
    count_part,
    first_values,
    gap_of,
    mean_evidence,
)
from dinosaur_ad.core.drift import FLAGGED

Floats = NDArray[np.float64]

REFERENCE = 60
"""Parts that pass, since the last change of a product, that say what is usual where nothing that was learned does."""
RECENT = 40
"""The latest parts are remembered, to show those that differ."""
CHANNELS = ("scores", "level", "light")
SMALL = 1.5
"""The logarithm of evidence that says nothing yet."""


@dataclass(frozen=True)
class Sighting:
    """What is known of one picture of a product: its part, score, median patch distance and the logarithm of its
    contrast (None where that is not known)."""

    part: str
    score: float
    level: float
    light: float | None
    verdict: str = NORMAL


@dataclass(frozen=True)
class Shown:
    """A recent part and how far it differs, by channel: 1 is farther than all that is usual."""

    part: str
    oddness: dict[str, float]
    light: float | None


class RankWatch:
    """Evidence that values of parts are higher than those of calibration images."""

    def __init__(self, usual: Floats) -> None:
        self._usual = np.sort(usual)
        self._sums = begin_sums(len(usual))

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence."""
        return self._sums.log_evidence

    def take(self, value: float) -> float:
        """Count one part; returns how far it differs from what is usual, 0 to 1."""
        gap = gap_of(value, self._usual)
        self._sums = count_part(self._sums, gap)
        return 1 - gap / len(self._usual)


class FirstPartsWatch:
    """Evidence that values of parts differ from those of the first ones."""

    def __init__(self) -> None:
        self._first: list[float] = []
        self._sums: list[ChangeSums] = []
        self.reference: FirstValues | None = None

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence; minus infinity until there is a reference."""
        return mean_evidence([each.log_evidence for each in self._sums]) if self._sums else -math.inf

    def take(self, value: float) -> float:
        """Count one part; returns how far it differs from what is usual, 0 to 1."""
        if self.reference is None:
            self._first.append(value)
            if len(self._first) == REFERENCE:
                self.reference = first_values(self._first)
                self._sums = [begin_sums(len(self.reference.usual_RQ))] * self.reference.usual_RQ.shape[1]
            return 0.0
        gaps = self.reference.answers(value)
        self._sums = [count_part(sums, gap) for sums, gap in zip(self._sums, gaps, strict=True)]
        return 1 - gaps[-1] / len(self.reference.usual_RQ)


class ProductWatch:
    """The evidence that parts of a product changed, since it was taught, or since a person accepted a change.

    ``scores`` and ``levels`` are those of its calibration images. With ``accepted`` the first parts from now on say
    what is usual instead: a person has closed the warning of a change and left the product as it is.
    """

    def __init__(self, scores: Floats, levels: Floats, *, accepted: bool = False) -> None:
        self._scores, self._accepted = np.asarray(scores, np.float64), accepted
        # Calibration images without the highest, and parts that do not score above these, are exchangeable again.
        flagged = max(1, int(FLAGGED * (len(self._scores) + 1)))
        order = np.argsort(-self._scores, kind="stable")
        self._highest = float(self._scores[order[flagged - 1]])
        passing = order[flagged:]
        self._watches: dict[str, RankWatch | FirstPartsWatch] = {
            "scores": FirstPartsWatch() if accepted else RankWatch(self._scores[passing]),
            "level": FirstPartsWatch() if accepted else RankWatch(np.asarray(levels, np.float64)[passing]),
            "light": FirstPartsWatch(),
        }
        self.parts = 0
        self._rising = dict.fromkeys(CHANNELS, 0)  # parts since the evidence of a channel was last small
        self._recent: deque[Shown] = deque(maxlen=RECENT)

    def take(self, seen: Sighting) -> None:
        """Count one picture."""
        self.parts += 1
        if not (seen.verdict == NORMAL if self._accepted else seen.score <= self._highest):
            return  # a defect, or as high as one
        oddness = {"scores": self._watches["scores"].take(seen.score), "level": self._watches["level"].take(seen.level)}
        if seen.light is not None and math.isfinite(seen.light):
            oddness["light"] = self._watches["light"].take(seen.light)
        for name, watch in self._watches.items():
            self._rising[name] = self._rising[name] + 1 if watch.log_evidence > SMALL else 0
        self._recent.append(Shown(seen.part, oddness, seen.light))

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence of all channels together."""
        return mean_evidence([watch.log_evidence for watch in self._watches.values()])

    @property
    def channel(self) -> str:
        """What shows the change most clearly: one of ``CHANNELS``."""
        return max(CHANNELS, key=lambda name: self._watches[name].log_evidence)

    @property
    def knows_light(self) -> bool:
        """Whether it is known what contrast is usual."""
        light = self._watches["light"]
        return isinstance(light, FirstPartsWatch) and light.reference is not None

    def light_ratio(self, alpha: float) -> float:
        """The contrast of the latest parts over what was usual; 1 where it is not known to have changed.

        Half of the orders of magnitude of a warning are enough: this is asked once something has changed.
        """
        light = self._watches["light"]
        usual = light.reference if isinstance(light, FirstPartsWatch) else None
        if usual is None or light.log_evidence < -math.log(alpha) / 2:
            return 1.0
        recent = [each.light for each in self._recent if each.light is not None][-max(3, self._rising["light"]) :]
        return float(np.exp(np.median(recent) - usual.centre)) if recent else 1.0

    def shown(self, count: int = 6) -> Sequence[str]:
        """The recent parts that show the change most clearly, the newest first."""
        channel = self.channel
        latest = list(self._recent)[-max(count // 2, self._rising[channel]) :]
        odd = sorted(latest, key=lambda each: each.oddness.get(channel, 0.0), reverse=True)[:count]
        chosen = {each.part for each in odd}
        return list(dict.fromkeys(each.part for each in reversed(latest) if each.part in chosen))
