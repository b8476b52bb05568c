"""From a score to a verdict. What cannot be judged is never called normal."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank import Bank, patch_box
from dinosaur_ad.bank.bank_files import (
    descriptor_width,
    open_bank,
    read_calibration_maps,
    read_candidates,
    read_prototype,
)
from dinosaur_ad.bank.bank_set import TaskScore, TaskScores, most_normal
from dinosaur_ad.bank.gallery import read_gallery
from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.core.calibration import p_values
from dinosaur_ad.core.exposure import exposure_gain
from dinosaur_ad.core.map_regions import small_cells
from dinosaur_ad.core.registration import Transform, carried_back, patches_in_image, seen_patches
from dinosaur_ad.core.zones import Zone
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.images.image_stream import BatchImage
from dinosaur_ad.inspection import Inspection, Rejected
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore

Floats = NDArray[np.float32]

NORMAL, ANOMALOUS, UNKNOWN, NOT_READY = "normal", "anomalous", "unknown", "not ready"
FARTHER = 3
"""With two images the limit of unknown lies at eight tenths of the way instead of half, with twenty at .57."""
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


def why_not_ready(
    task: str, threshold: float, control_scores: Floats, headroom: float = 1.0, *, by_hand: bool = False
) -> str:
    """Why a task cannot give a verdict at this threshold, as a sentence; empty if it can.

    With a threshold that even the control images, which show no product, do not exceed, everything would be normal. A
    threshold from few images is a guess: where half of them do not exceed it by a factor of ``headroom``, hardly any
    defect does. One that was set ``by_hand`` is not mended by more images.

    >>> why_not_ready("screw", 0.4, np.float32([0.7, 1.1]))
    ''
    """
    reach = float(np.max(control_scores)) if control_scores.size else math.inf
    advice = "set a lower one" if by_hand else "teach it more normal images, or allow more false alarms"
    if threshold < reach:  # written so that NaN is refused
        usual = float(np.median(control_scores)) if control_scores.size else math.inf
        if headroom <= 1 or threshold * headroom < usual:
            return ""
        return (
            f"The threshold of '{task}' ({threshold:.3f}) is too close to what pictures of something else score "
            f"({usual:.3f}), so hardly any defect would exceed it; {advice}."
        )
    return (
        f"The threshold of '{task}' ({threshold:.3f}) lies above what even pictures of something else score "
        f"({reach:.3f} at the most), so everything would be called normal; {advice}."
    )


def judge(score: float, threshold: float) -> str:
    """The verdict of a task that is ready; a score that is NaN is anomalous.

    >>> judge(0.5, 0.4), judge(0.3, 0.4), judge(float("nan"), 0.4)
    ('anomalous', 'normal', 'anomalous')
    """
    return NORMAL if score <= threshold else ANOMALOUS


def unknown_level(level_N: Floats, control_level_N: Floats, *, cautious: bool = False) -> float:
    """The median patch distance above which an image shows none of the products: half way, by ratio, from what is usual
    for normal images to what pictures without a product have; infinite where that is not known.

    Defects change a part of an image, and so hardly its median; another product changes all of it. Few images do not
    show how much a product varies: ``cautious``, the limit is that of :data:`FARTHER` more that were like nothing.

    >>> round(unknown_level(np.float32([0.1, 0.1]), np.float32([0.4, 0.4])), 3)
    0.2
    >>> round(unknown_level(np.float32([0.1, 0.1]), np.float32([0.4, 0.4]), cautious=True), 3)
    0.303
    """
    if not control_level_N.size or not level_N.size:
        return math.inf
    usual, foreign = float(np.median(level_N)), float(np.median(control_level_N))
    more = FARTHER if cautious else 0
    way = (len(level_N) / 2 + more) / (len(level_N) + more)
    return float(usual * (foreign / usual) ** way) if 0 < usual < foreign else math.inf


def read_whole_task(preset: Preset, store: TaskStore, record: TaskRecord) -> Bank:
    """Read all that inspecting and updating a task need, and return its bank; a StoreError if it is damaged."""
    bank = open_bank(store, record, preset)
    read_prototype(store, record, descriptor_width(preset, bank.packed))
    read_candidates(store, record)
    read_gallery(store, record, preset.size)
    read_calibration_maps(store, record, preset)
    return bank


def check_task(preset: Preset, store: TaskStore, record: TaskRecord) -> None:
    """Read all that inspecting and updating a task need; a StoreError if it is damaged or cannot give a verdict."""
    bank = read_whole_task(preset, store, record)
    threshold = bank.sensitivity(preset).threshold
    by_hand = bank.settings.threshold is not None
    if reason := why_not_ready(record.name, threshold, bank.control_scores, bank.headroom, by_hand=by_hand):
        raise StoreError(reason)


def without_small_regions(found: TaskScore, preset: Preset, threshold: float) -> TaskScore:
    """An image above the threshold, scored without its regions that are too small to count for the task.

    Their patches and every window that one of them lies in are left out; what is left decides. Where a distance is no
    number nothing is left out.
    """
    bank, smallest = found.bank, found.bank.settings.smallest_area
    if not smallest or found.distances is None or found.score <= threshold or not np.isfinite(found.map_HW).all():
        return found
    small_HW = small_cells(found.map_HW, threshold, smallest)
    zone = (bank.zone or Zone.of(np.ones(small_HW.shape, np.bool_))).without(small_HW)
    rest = replace(bank, zone=zone).read(found.distances, preset)
    return found._replace(score=float(rest.score_N[0]), reading_R=rest.reading_NR[0])


class Controls(NamedTuple):
    """Scores and levels of the control images under a bank."""

    scores: Floats
    levels: Floats


def controls_of(bank: Bank, preset: Preset, features: FeatureExtractor) -> Controls:
    """What the control images get under a bank; computed now for tasks taught by older versions."""
    if bank.control_levels.size:
        return Controls(bank.control_scores, bank.control_levels)
    distances = bank.distances(features.controls(bank.exposure, bank.tiling), preset.radius)
    return Controls(bank.read(distances, preset).score_N, bank.levels_of(distances))


def unknown_limit(bank: Bank, preset: Preset, controls: Controls) -> float:
    """The median patch distance above which an image is "unknown" to a task; infinite with in-sample calibration, the
    procedure of the paper, which knows no such verdict."""
    if preset.calibration != "unseen":
        return math.inf
    return unknown_level(bank.levels, controls.levels, cautious=bank.cautious)


def as_photographed(inspection: Inspection, moved: Transform) -> Inspection:
    """The result of a registered image in the coordinates of the image as it was given."""
    map_HW, worst = inspection.map, inspection.worst
    inspected = np.ones(map_HW.shape, np.bool_) if inspection.inspected is None else inspection.inspected
    height, width = map_HW.shape
    rows, columns = patches_in_image(height, width, moved)
    row, column = int(rows[worst.row, worst.column]), int(columns[worst.row, worst.column])
    box = patch_box(row, column, map_HW.shape, inspection.image_size)
    at_worst = np.zeros(map_HW.shape, np.bool_)
    at_worst[row, column] = True
    return replace(
        inspection,
        map=carried_back(map_HW, moved),
        worst=replace(worst, row=row, column=column, box=box),
        inspected=seen_patches(inspected, moved) | at_worst,
        moved=moved.movement(),
    )


class Verdicts:
    """Makes inspections from the scores of images."""

    def __init__(self, preset: Preset, features: FeatureExtractor) -> None:
        self._preset = preset
        self._features = features
        self._controls: dict[str, Controls] = {}

    def inspection(
        self,
        image: BatchImage,
        patches_HWC: Floats,
        exposure_2: Floats,
        scores: TaskScores,
        left_out: tuple[str, ...],
        false_alarms: float | None,
        ms: dict[str, float],
    ) -> Inspection | Rejected:
        """The result for an image under the task with the lowest score; ``Rejected`` if that is no number.

        Without a rate of ``false_alarms`` the settings of that task decide.
        """
        task = most_normal(scores)
        found, bank = scores[task], scores[task].bank
        if not math.isfinite(found.score):
            return self._features.not_finite(image.label)
        threshold, rate = bank.sensitivity(self._preset, false_alarms)
        found = without_small_regions(found, self._preset, threshold)
        score, distance_HW = found.score, found.map_HW
        controls = self._controls_of(bank)
        by_hand = false_alarms is None and bank.settings.threshold is not None
        reason = why_not_ready(task, threshold, controls.scores, bank.headroom, by_hand=by_hand)
        verdict = NOT_READY if reason else judge(score, threshold)
        if found.level > unknown_limit(bank, self._preset, controls):
            verdict = UNKNOWN
            reason = (
                f"It shows none of the learned products: all of it differs from '{task}', the most similar one, "
                f"{found.level / bank.level:.1f} times as much as a good part does."
            )
        encoder, size = self._features.encoder, (image.shape[0], image.shape[1])
        gain = None if bank.exposure is None else round(float(exposure_gain(exposure_2[1:], bank.exposure)[0]), 3)
        light = bank.unusual_light(exposure_2)
        inspection = Inspection(
            path=image.label,
            task=task,
            score=score,
            p_value=float(p_values(np.asarray([score]), bank.scores)[0]),
            verdict=verdict,
            threshold=threshold,
            false_alarms=rate,
            normal_level=bank.map_level,
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
            readings=dict(zip(self._preset.readings, found.reading_R.tolist(), strict=True)),
            level=found.level,
            level_ratio=round(found.level / bank.level, 3) if bank.level > 0 else 0.0,
            gain=gain,
            light=str(light or ""),
            smallest_area=bank.settings.smallest_area,
            inspected=None if bank.zone is None else bank.zone.patches_HW,
        )
        return inspection if found.moved is None else as_photographed(inspection, found.moved)

    def _controls_of(self, bank: Bank) -> Controls:
        """What the control images get under a bank, computed once."""
        if bank.record.id not in self._controls:
            self._controls[bank.record.id] = controls_of(bank, self._preset, self._features)
        return self._controls[bank.record.id]
