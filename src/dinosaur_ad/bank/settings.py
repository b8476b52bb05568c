"""What can be changed of a task without learning it anew: sensitivity, zones, the smallest area that counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dinosaur_ad.core.zones import Mask, Zone
from dinosaur_ad.errors import InputError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord

USUAL_SENSITIVITY, MOST_SENSITIVITY = 5.0, 10.0
"""The place of the slider that means the preset's rate, and its end."""
MOST_FALSE_ALARMS = 0.5
"""The rate that no place of the slider exceeds."""


@dataclass(frozen=True)
class Settings:
    """The settings of a task; what is missing is the preset's.

    ``false_alarms`` is a rate, and a ``threshold`` goes before it. ``zones`` are the rows of the patch grid as texts, 1
    for a patch that is inspected and 0 for one that is not. ``smallest_area`` is a share of the image.
    """

    false_alarms: float | None = None
    threshold: float | None = None
    zones: tuple[str, ...] | None = None
    smallest_area: float = 0.0

    @classmethod
    def of(cls, record: TaskRecord) -> Settings:
        """Those of a stored task; the store has checked them."""
        stored: dict[str, Any] = dict(record.manifest.get("settings", {}))
        zones = stored.pop("zones", None)
        return cls(**stored, zones=None if zones is None else tuple(zones))

    def to_json(self) -> dict[str, Any]:
        """As the manifest of a task has them: without what is the preset's."""
        document: dict[str, Any] = {"false_alarms": self.false_alarms, "threshold": self.threshold}
        document["zones"] = None if self.zones is None else list(self.zones)
        document["smallest_area"] = self.smallest_area or None
        return {key: value for key, value in document.items() if value is not None}

    def rate(self, preset: Preset, asked: float | None = None) -> float:
        """The false-alarm rate: the one that is asked for, the task's, or the preset's."""
        return next(each for each in (asked, self.false_alarms, preset.false_alarms) if each is not None)

    def zone(self, rows: int, columns: int) -> Zone | None:
        """What is inspected, on a grid of patches; a ValueError if it is of another grid or empty."""
        if self.zones is None:
            return None
        if len(self.zones) != rows or any(len(row) != columns for row in self.zones):
            raise ValueError(f"its zones are not on a grid of {rows} x {columns} patches")
        patches_HW = np.asarray([[each == "1" for each in row] for row in self.zones])
        if not patches_HW.any():
            raise ValueError("its zones leave nothing to inspect")
        return Zone.of(patches_HW)


def zone_rows(patches_HW: Mask) -> tuple[str, ...]:
    """A zone as it is stored.

    >>> zone_rows(np.eye(2, dtype=bool))
    ('10', '01')
    """
    return tuple("".join("1" if each else "0" for each in row) for row in patches_HW.tolist())


def sensitivity_rate(sensitivity: float, preset: Preset) -> float:
    """The false-alarm rate of a place on the slider from 0 (cautious) to 10 (strict): 5 is the preset's, and five steps
    are ten times as many or as few; never above a half.

    >>> from dinosaur_ad.presets import DEFAULT
    >>> [round(sensitivity_rate(place, DEFAULT), 4) for place in (0, 2, 5, 8, 10)]
    [0.0025, 0.0063, 0.025, 0.0995, 0.25]
    """
    if not 0 <= sensitivity <= MOST_SENSITIVITY:  # NaN is refused too
        raise InputError(
            f"The sensitivity is a number from 0 (cautious) to {MOST_SENSITIVITY:g} (strict), got {sensitivity}; "
            f"{USUAL_SENSITIVITY:g} is the preset's."
        )
    rate = preset.false_alarms * 10 ** ((sensitivity - USUAL_SENSITIVITY) / USUAL_SENSITIVITY)
    return max(1e-6, min(rate, max(MOST_FALSE_ALARMS, preset.false_alarms)))
