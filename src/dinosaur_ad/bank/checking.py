"""What a task misses and what it flags wrongly, from images that are known to be good and bad."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._text import printable
from dinosaur_ad.bank.bank import Bank
from dinosaur_ad.bank.image_features import Progress
from dinosaur_ad.bank.verdict import LEAST_RATE, NORMAL, NOT_READY, UNKNOWN
from dinosaur_ad.core.calibration import images_needed, p_values, promised_rate, rate_interval
from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.image_stream import Images
from dinosaur_ad.inspection import Inspection, Rejected
from dinosaur_ad.presets import Preset

Floats = NDArray[np.float64]

NAMED = 3
"""Missed images that are named for each kind."""
MARGIN = 0.1
"""The share of the gap between two scores that a suggested threshold keeps away from both."""


@dataclass(frozen=True)
class Rate:
    """``count`` of ``total`` images, and the rates that this is compatible with (95 %)."""

    count: int
    total: int
    low: float
    high: float

    @classmethod
    def of(cls, count: int, total: int) -> Rate:
        """The rate with its interval.

        >>> Rate.of(3, 40)
        Rate(count=3, total=40, low=0.0157, high=0.2039)
        """
        low, high = rate_interval(count, total)
        return cls(count, total, round(low, 4), round(high, 4))

    @property
    def rate(self) -> float:
        """The share."""
        return self.count / self.total


@dataclass(frozen=True)
class Kind:
    """Bad images of one kind: how many were missed, and those with the lowest scores, lowest first."""

    name: str
    misses: Rate
    lowest: tuple[str, ...]


@dataclass(frozen=True)
class Suggestion:
    """The threshold at which misses and false alarms of the checked images balance, and what it would have given.

    ``false_alarm_rate`` is the rate to ask for to get it; None where none gives it.
    """

    threshold: float
    false_alarm_rate: float | None
    misses: Rate
    false_alarms: Rate


@dataclass(frozen=True)
class Check:
    """The result of checking a task with images that are known to be good and bad.

    ``false_alarms`` are good images that were not called normal, ``misses`` bad ones that were. ``auroc`` is the chance
    that a bad image scores above a good one. ``suggestion`` is None where the threshold of now is as good. ``kinds``
    are the folders of the bad images, the weakest first. ``learned`` names images that the task has learned, which
    would look better than they should, and ``rejected`` those that could not be read; neither counts.

    ``promised_rate`` is the share of false alarms that the ``calibrated`` images of the task promise not to exceed, and
    ``images_needed`` how many of them would promise the rate that is asked for (None with in-sample calibration);
    ``halving_images`` is how many good images halve what the task promises.
    """

    task: str
    threshold: float
    false_alarm_rate: float
    misses: Rate
    false_alarms: Rate
    unknown: int
    auroc: float
    suggestion: Suggestion | None
    kinds: tuple[Kind, ...]
    calibrated: int
    promised_rate: float | None
    images_needed: int | None
    halving_images: int | None
    learned: tuple[str, ...] = ()
    rejected: tuple[Rejected, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


class CheckedImage(NamedTuple):
    """A result, and the digest of its image (empty where it could not be read)."""

    result: Inspection | Rejected
    digest: str


@dataclass
class Checking:
    """Collects the results of the task of ``bank``, of good images and of bad ones; ``progress`` is told of each."""

    preset: Preset
    bank: Bank
    bad_folders: tuple[Path, ...] = ()
    progress: Progress | None = None
    _good: list[Inspection] = field(default_factory=list)
    _bad: list[Inspection] = field(default_factory=list)
    _labels: dict[str, str] = field(default_factory=dict)
    _learned: list[str] = field(default_factory=list)
    _rejected: list[Rejected] = field(default_factory=list)

    def take(self, images: Iterable[CheckedImage], label: str) -> None:
        """Count images that are ``"good"`` or ``"bad"``.

        :raises InputError: an image is both, or the task cannot judge, or none is left to check with.
        """
        kept, known = self._good if label == "good" else self._bad, set(self.bank.digests)
        for result, digest in images:
            if self.progress:
                self.progress(len(self._good) + len(self._bad) + len(self._learned) + len(self._rejected) + 1, None)
            if isinstance(result, Rejected):
                self._rejected.append(result)
                continue
            if self._labels.setdefault(digest, label) != label:
                raise InputError(
                    f"'{printable(result.path)}' is among the good images and among the bad ones; give every image to "
                    "one of them."
                )
            if result.verdict == NOT_READY:
                raise InputError(f"'{result.task}' cannot be checked yet. {result.reason}")
            if digest in known:
                self._learned.append(result.path)
            else:
                kept.append(result)
        if not kept:
            reasons = (
                f"{len(self._learned)} have been learned, and would look better than they should",
                f"{len(self._rejected)} could not be read",
            )
            why = [reason for reason in reasons if not reason.startswith("0 ")]
            raise InputError(
                f"None of the {label} images can be used to check '{self.bank.record.name}' ({'; '.join(why)}); give "
                "others."
            )

    def result(self) -> Check:
        """The result over all images."""
        good_N, bad_N = _scores(self._good), _scores(self._bad)
        threshold, rate = self._good[0].threshold, self._good[0].false_alarms
        promise = promised(self.preset, self.bank.scores, threshold, rate)
        return Check(
            task=self.bank.record.name,
            threshold=threshold,
            false_alarm_rate=rate,
            misses=Rate.of(sum(each.verdict == NORMAL for each in self._bad), len(self._bad)),
            false_alarms=Rate.of(sum(each.verdict != NORMAL for each in self._good), len(self._good)),
            unknown=sum(each.verdict == UNKNOWN for each in (*self._good, *self._bad)),
            auroc=auroc(np.concatenate([good_N, bad_N]), [0] * len(good_N) + [1] * len(bad_N)),
            suggestion=self._suggestion(good_N, bad_N, threshold),
            kinds=tuple(self._kinds()),
            calibrated=promise.calibrated,
            promised_rate=promise.rate,
            images_needed=promise.images_needed,
            halving_images=None if promise.rate is None else images_needed(promise.rate / 2),
            learned=tuple(self._learned),
            rejected=tuple(self._rejected),
        )

    def _suggestion(self, good_N: Floats, bad_N: Floats, threshold: float) -> Suggestion | None:
        best = balanced_threshold(good_N, bad_N, threshold)
        if best == threshold:
            return None
        if self.preset.calibration == "in-sample":
            rate = float((self.bank.scores > best).mean())
        else:
            rate = float(p_values(np.asarray([best]), self.bank.scores)[0])
        return Suggestion(
            threshold=best,
            false_alarm_rate=rate if LEAST_RATE <= rate < 1 else None,
            misses=Rate.of(int((bad_N <= best).sum()), len(bad_N)),
            false_alarms=Rate.of(int((good_N > best).sum()), len(good_N)),
        )

    def _kinds(self) -> Iterator[Kind]:
        kinds: dict[str, list[Inspection]] = {}
        for each in self._bad:
            kinds.setdefault(kind_of(each.path, self.bad_folders), []).append(each)
        found = []
        for name, images in kinds.items():
            missed = sorted((each for each in images if each.verdict == NORMAL), key=lambda each: each.score)
            lowest = tuple(each.path for each in missed[:NAMED])
            found.append(Kind(name, Rate.of(len(missed), len(images)), lowest))
        return iter(sorted(found, key=lambda kind: (-kind.misses.rate, kind.name)))


class Promise(NamedTuple):
    """How many calibration images there are, the false-alarm rate that they promise not to exceed with 95 % confidence,
    and how many would promise the rate that is asked for."""

    calibrated: int
    rate: float | None
    images_needed: int | None


def promised(preset: Preset, scores: NDArray[np.float32], threshold: float, rate: float) -> Promise:
    """What calibration scores promise of a threshold; in-sample calibration promises nothing."""
    if preset.calibration == "in-sample":
        return Promise(len(scores), None, None)
    return Promise(len(scores), promised_rate(len(scores), int((scores > threshold).sum())), images_needed(rate))


def balanced_threshold(good_N: Floats, bad_N: Floats, now: float) -> float:
    """The threshold with the smallest sum of the shares of misses and of false alarms; ``now`` if none has less.

    Of equally good ones the nearest to ``now`` is taken, but not next to a score: a tenth of the gap is left.

    >>> balanced_threshold(np.asarray([0.5, 0.6, 0.9]), np.asarray([0.8, 1.2, 1.4]), 1.3)
    1.17
    """
    finite = np.unique(np.concatenate([good_N, bad_N]))
    finite = finite[np.isfinite(finite)]
    gap = np.diff(finite)
    inside = np.concatenate([finite[:-1] + share * gap for share in (MARGIN, 0.5, 1 - MARGIN)])
    candidates = [now, *inside.round(9).tolist()]

    def cost(threshold: float) -> tuple[float, float]:
        wrong = float((bad_N <= threshold).mean() + (good_N > threshold).mean())
        return round(wrong, 12), abs(threshold - now)

    best: float = min(candidates, key=cost)
    return best


def kind_of(path: str, folders: Iterable[Path] = ()) -> str:
    """The folder below one of ``folders`` that an image lies in; where it lies in none, the folder of the file.

    >>> kind_of("bad/scratch/cam1/7.png", [Path("bad")]), kind_of("bad/7.png", [Path("bad")]), kind_of("image-000000")
    ('scratch', 'bad', '')
    """
    own = Path(path)
    for folder in folders:
        if own.is_relative_to(folder):
            parts = own.relative_to(folder).parts
            return parts[0] if len(parts) > 1 else folder.name
    return own.parent.name


def folders_of(images: Images) -> tuple[Path, ...]:
    """The paths among images that are folders."""
    named = [images] if isinstance(images, str | Path) else images if isinstance(images, list | tuple) else []
    return tuple(Path(each) for each in named if isinstance(each, str | Path) and os.path.isdir(each))  # noqa: PTH112


def _scores(results: Iterable[Inspection]) -> Floats:
    """What the verdicts go by: an unknown image is never called normal, whatever the threshold."""
    return np.asarray([math.inf if each.verdict == UNKNOWN else each.score for each in results], np.float64)
