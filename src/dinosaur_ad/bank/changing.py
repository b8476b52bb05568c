"""Another version of a stored task with other settings: the same memory, and what was calibrated computed anew."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank import Bank, task_sensitivity
from dinosaur_ad.bank.bank_files import (
    Arrays,
    open_bank,
    read_bank,
    read_calibration_maps,
    read_zone,
    usual_image_size,
)
from dinosaur_ad.bank.calibrating import Calibration
from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.bank.position import Position, is_free
from dinosaur_ad.bank.settings import Settings, sensitivity_rate, zone_rows
from dinosaur_ad.bank.verdict import check_rate, why_not_ready
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.given_zones import Zones, read_zones
from dinosaur_ad.inspection import Changed, TaskSettings
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore

Floats = NDArray[np.float32]

LARGEST_SMALLEST = 0.25
"""Of what is inspected: the largest smallest area; beyond it hardly anything could be reported."""
LOWEST_THRESHOLD, HIGHEST_THRESHOLD = 1e-9, 1e9


@dataclass(frozen=True)
class Wanted:
    """What is to be changed of a task; None is left as it is."""

    zones: Zones | None = None
    no_zones: bool = False
    false_alarms: float | None = None
    threshold: float | None = None
    sensitivity: float | None = None
    preset_sensitivity: bool = False
    smallest_area: float | None = None

    def __post_init__(self) -> None:
        chosen = [each for each in (self.false_alarms, self.threshold, self.sensitivity) if each is not None]
        if len(chosen) + self.preset_sensitivity > 1:
            raise InputError(
                "A task has one sensitivity; give one of false_alarms, threshold, sensitivity and preset_sensitivity."
            )
        if self.zones is not None and self.no_zones:
            raise InputError("Zones and no zones contradict each other; give one of zones and no_zones.")
        others = self.zones is not None or self.no_zones or self.smallest_area is not None
        if not (chosen or self.preset_sensitivity or others):
            raise InputError("Nothing to change was given; give zones, a sensitivity or a smallest area.")

    def settings(self, old: Settings, preset: Preset, size: tuple[int, int] | None, grid: tuple[int, int]) -> Settings:
        """The settings with these changes, for photos of that (height, width) and a grid of patches."""
        new = old
        if self.no_zones:
            new = replace(new, zones=None)
        elif self.zones is not None:
            new = replace(new, zones=zone_rows(read_zones(self.zones, size, *grid)))
        if self.preset_sensitivity:
            new = replace(new, false_alarms=None, threshold=None)
        elif self.threshold is not None:
            new = replace(new, false_alarms=None, threshold=_checked_threshold(self.threshold))
        elif self.sensitivity is not None:
            new = replace(new, false_alarms=sensitivity_rate(self.sensitivity, preset), threshold=None)
        elif self.false_alarms is not None:
            new = replace(new, false_alarms=check_rate(self.false_alarms), threshold=None)
        if self.smallest_area is not None:
            new = replace(new, smallest_area=_share(self.smallest_area, size))
        _refuse_large(new, grid)
        return new


def _checked_threshold(threshold: float) -> float:
    if not LOWEST_THRESHOLD <= threshold <= HIGHEST_THRESHOLD:  # NaN is refused too
        raise InputError(f"A threshold is a positive number, on the scale of the scores, got {threshold}.")
    return float(threshold)


def _share(pixels: float, size: tuple[int, int] | None) -> float:
    """An area in pixels as a share of the image."""
    if not (math.isfinite(pixels) and pixels >= 0):
        raise InputError(f"The smallest area is a number of pixels, 0 or more, got {pixels}.")
    if size is None and pixels:
        raise InputError(
            "How large the photos of the product are is not known, because an older version taught it, so that a "
            "number of pixels says nothing; learn the product anew."
        )
    return pixels / (size[0] * size[1]) if size and pixels else 0.0


def _refuse_large(settings: Settings, grid: tuple[int, int]) -> None:
    zone = settings.zone(*grid)
    inspected = 1.0 if zone is None else zone.share
    if settings.smallest_area > LARGEST_SMALLEST * inspected:
        raise InputError(
            f"The smallest area would be {settings.smallest_area / inspected:.0%} of what is inspected, and hardly any "
            f"defect is as large; at most {LARGEST_SMALLEST:.0%} is possible: make it smaller, or the zones larger."
        )


def task_settings(record: TaskRecord, preset: Preset, scores: Floats) -> TaskSettings:
    """How a task with these calibration scores is set."""
    settings, size = Settings.of(record), usual_image_size(record)
    threshold, rate = task_sensitivity(preset, settings, scores)
    patches = "".join(settings.zones or "1")
    return TaskSettings(
        threshold=threshold,
        false_alarms=rate,
        fixed_threshold=settings.threshold is not None,
        inspected=patches.count("1") / len(patches),
        smallest_area=round(settings.smallest_area * size[0] * size[1]) if size else 0,
        position=str(Position.of(record) or ""),
    )


@dataclass(frozen=True)
class ChangedTask:
    """A new version of a task: its files, its manifest, and what has changed."""

    files: dict[str, Arrays]
    manifest: dict[str, Any]
    changed: Changed


def change_task(
    store: TaskStore, record: TaskRecord, preset: Preset, features: FeatureExtractor, wanted: Wanted
) -> ChangedTask:
    """A version of a task with other settings. With other zones, scores, levels and what is usual come from the stored
    distances of the calibration images, those of the control images from the encoder.
    """
    bank = open_bank(store, record, preset)
    grid, size = bank.source_HWM.shape[:2], usual_image_size(record)
    old = bank.settings
    new = wanted.settings(old, preset, size, (int(grid[0]), int(grid[1])))
    manifest = {key: value for key, value in record.manifest.items() if key != "settings"}
    manifest |= {"settings": new.to_json()} if new.to_json() else {}
    files: dict[str, Arrays] = {file: dict(store.arrays(record, file)) for file in record.files}
    changed_record = replace(record, manifest=manifest)
    if new.zones != old.zones:
        files["bank"] |= _calibrated(store, changed_record, preset, features, bank)
    scores, foreign = files["bank"]["scores"], files["bank"].get("foreign", np.empty(0, np.float32))
    before, after = (
        task_settings(each, preset, scored) for each, scored in ((record, bank.scores), (changed_record, scores))
    )
    note = ""
    if new.zones != old.zones and len(preset.readings) == 1:
        note = (
            f"the threshold stays that of the whole image, because the preset '{preset.name}' keeps no distances of "
            "the images it was calibrated with; those of default and best do"
        )
    headroom, by_hand = replace(bank, settings=new).headroom, new.threshold is not None
    reason = why_not_ready(record.name, after.threshold, foreign, headroom, by_hand=by_hand)
    changed = Changed(record.name, before, after, note, reason)
    return ChangedTask(files, manifest, changed)


def _calibrated(store: TaskStore, record: TaskRecord, preset: Preset, features: FeatureExtractor, bank: Bank) -> Arrays:
    """The arrays of a bank that depend on the zones, for those of ``record``."""
    arrays, packed = read_bank(store, record)
    zone = read_zone(record, packed)
    maps, anywhere = read_calibration_maps(store, record, preset), is_free(bank.position)
    tiles = bank.tiling.count if bank.tiling else 1
    calibration = Calibration.stored(preset, arrays, maps, zone, tiles, anywhere=anywhere)
    changed = calibration.arrays()
    zoned = replace(bank, zone=zone, scale=calibration.scale)
    distances = zoned.distances(features.controls(bank.exposure, bank.tiling), preset.radius)
    changed |= {"foreign": zoned.read(distances, preset).score_N, "foreign_levels": zoned.levels_of(distances)}
    return changed
