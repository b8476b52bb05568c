"""From a score to a verdict. What cannot be judged is never called normal."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank import Bank
from dinosaur_ad.bank.bank_files import descriptor_width, open_bank, read_candidates, read_prototype
from dinosaur_ad.bank.bank_set import TaskScores, most_normal
from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.core.calibration import conformal_threshold, p_values, quantile_threshold
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.images.stream import BatchImage
from dinosaur_ad.inspection import Inspection, Rejected
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore

Floats = NDArray[np.float32]

NORMAL, ANOMALOUS, NOT_READY = "normal", "anomalous", "not ready"
LEAST_RATE = 1e-6
"""The lowest false-alarm rate; no set of normal images is large enough to calibrate a lower one."""


def check_rate(false_alarms: float) -> float:
    """The false-alarm rate, if it is one; an InputError otherwise.

    >>> check_rate(0.025)
    0.025
    """
    if not LEAST_RATE <= false_alarms < 1:  # NaN is refused too
        raise InputError(
            f"The false-alarm rate must lie between 0 and 1 (at least {LEAST_RATE:g}), got {false_alarms}; 0.025 is "
            "usual."
        )
    return float(false_alarms)


def alarm_threshold(preset: Preset, scores: Floats, false_alarms: float) -> float:
    """The score above which an image is anomalous, from the ``scores`` a task's normals got when it was taught."""
    rule = quantile_threshold if preset.calibration == "in-sample" else conformal_threshold
    return rule(scores, check_rate(false_alarms))


def why_not_ready(task: str, threshold: float, control_scores: Floats) -> str:
    """Why a task cannot give a verdict at this threshold, as a sentence; empty if it can.

    With a threshold that even the control images, which show no product, do not exceed, everything would be normal.

    >>> why_not_ready("screw", 0.4, np.float32([0.7, 1.1]))
    ''
    """
    reach = float(np.max(control_scores)) if control_scores.size else math.inf
    if threshold < reach:  # written so that NaN is refused
        return ""
    return (
        f"The threshold of '{task}' ({threshold:.3g}) lies above what even pictures of something else score "
        f"({reach:.3g} at the most), so everything would be called normal; teach it more normal images, or allow more "
        "false alarms."
    )


def judge(score: float, threshold: float) -> str:
    """The verdict of a task that is ready; a score that is NaN is anomalous.

    >>> judge(0.5, 0.4), judge(0.3, 0.4), judge(float("nan"), 0.4)
    ('anomalous', 'normal', 'anomalous')
    """
    return NORMAL if score <= threshold else ANOMALOUS


def check_task(preset: Preset, store: TaskStore, record: TaskRecord) -> None:
    """Read all that inspecting and updating a task need; a StoreError if it is damaged or cannot give a verdict."""
    bank = open_bank(store, record)
    read_prototype(store, record, descriptor_width(preset, bank.packed))
    read_candidates(store, record)
    threshold = alarm_threshold(preset, bank.scores, preset.false_alarms)
    if reason := why_not_ready(record.name, threshold, bank.control_scores):
        raise StoreError(reason)


class Verdicts:
    """Makes inspections from the scores of images."""

    def __init__(self, preset: Preset, features: FeatureExtractor) -> None:
        self._preset = preset
        self._features = features
        self._control_scores: dict[str, Floats] = {}

    def inspection(
        self,
        image: BatchImage,
        patches_HWC: Floats,
        scores: TaskScores,
        left_out: tuple[str, ...],
        false_alarms: float,
        ms: dict[str, float],
    ) -> Inspection | Rejected:
        """The result for an image under the task with the lowest score; ``Rejected`` if that is no number."""
        task = most_normal(scores)
        score, distance_HW, bank = scores[task]
        if not math.isfinite(score):
            return self._features.not_finite(image.label)
        threshold = alarm_threshold(self._preset, bank.scores, false_alarms)
        reason = why_not_ready(task, threshold, self._control_scores_of(bank))
        encoder, size = self._features.encoder, (image.shape[0], image.shape[1])
        return Inspection(
            path=image.label,
            task=task,
            score=score,
            p_value=float(p_values(np.asarray([score]), bank.scores)[0]),
            verdict=NOT_READY if reason else judge(score, threshold),
            threshold=threshold,
            false_alarms=false_alarms,
            normal_level=bank.level,
            worst=bank.worst_patch(patches_HWC, distance_HW, self._preset.radius, size),
            asked={name: each.score for name, each in scores.items()},
            encoder=encoder.name,
            ms={key: round(value, 3) for key, value in (ms | {"total": sum(ms.values())}).items()},
            map=distance_HW,
            image_size=size,
            provider=encoder.provider,
            precision=encoder.precision,
            fallback=encoder.fallback,
            reason=reason,
            left_out=left_out,
        )

    def _control_scores_of(self, bank: Bank) -> Floats:
        """The scores of the control images under a bank; computed now for tasks taught by older versions."""
        if bank.control_scores.size:
            return bank.control_scores
        known = self._control_scores.get(bank.record.id)
        if known is None:
            distance_NHW = bank.distances(self._features.controls(), self._preset.radius)
            known = self._control_scores[bank.record.id] = pool(distance_NHW, self._preset.top)
        return known
