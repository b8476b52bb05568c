"""What can be promised of a task after learning, in words that the commands and the station share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dinosaur_ad._text import percent

if TYPE_CHECKING:
    from dinosaur_ad.inspection import Learned


def promises(learned: Learned, false_alarms: float | None) -> list[str]:
    """What can be promised of a task, a clause each: the share of false alarms, and the smallest defect.

    ``false_alarms`` is what was asked for; None where a threshold was set by hand.
    """
    clauses = []
    if learned.promised_rate is not None and learned.images_needed is not None:
        more = ""
        if false_alarms is not None and learned.promised_rate > false_alarms:
            more = f"; for {100 * false_alarms:.3g} % take {learned.images_needed}"
        clauses.append(
            f"with {learned.calibrated} images: at most {percent(learned.promised_rate)} false alarms with 95 % "
            f"confidence{more}"
        )
    if learned.photo_size is not None:
        height, width = learned.photo_size
        wide, high = learned.smallest_width * width, learned.smallest_defect * height
        clauses.append(f"sees defects from about {wide:.0f} x {high:.0f} of {width} x {height} pixels")
    return clauses
