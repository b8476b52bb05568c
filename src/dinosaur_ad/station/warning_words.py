"""What a warning of the drift watch says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dinosaur_ad.core.drift import Cause
from dinosaur_ad.station.product_watch import ProductWatch

CLEAR = 1.02
"""Contrast that differs by less, one way or the other, is rather one that varies."""
NAMED = 5
"""Products that a sentence names."""


@dataclass(frozen=True)
class WarningWords:
    """The kind of a warning ("product", "light" or "shared"), its sentence, and the numbers behind it."""

    kind: str
    sentence: str
    detail: dict[str, Any]


def warning_of(cause: Cause, tasks: list[str], watch: ProductWatch, false_warnings: float) -> WarningWords:
    """The warning about products that changed; ``watch`` is that of the one that shows it most clearly."""
    ratio = watch.light_ratio(false_warnings)
    kind = "product" if cause.kind == "task" else cause.kind
    if kind == "light":
        ratio = cause.gain or ratio
    what, advice = _words(kind, tasks, watch.channel, ratio)
    detail = {
        "tasks": tasks,
        "channel": watch.channel,
        "log_evidence": round(watch.log_evidence, 2),
        "parts_seen": watch.parts,
        "light_ratio": round(ratio, 3),
        "advice": advice,
    }
    return WarningWords(kind, f"{what} {advice}", detail)


def _words(kind: str, tasks: list[str], channel: str, ratio: float) -> tuple[str, str]:
    named = ", ".join(f"'{task}'" for task in tasks[:NAMED]) + (" and others" if len(tasks) > NAMED else "")
    if kind == "light":
        return (
            f"The light changed: pictures have {ratio:.0%} of the contrast they had ({named}).",
            "Look after the lamp, the exposure and the lens; if it stays like this, recalibrate the products.",
        )
    if kind == "shared":
        return (
            f"Several products changed at once: {named}.",
            "Look after the camera, its focus and the light; if it stays like this, recalibrate the products.",
        )
    recalibrate = f"Look at these parts: if they are good, recalibrate {named}."
    if channel == "light" and not 1 / CLEAR < ratio < CLEAR:
        return f"The pictures of {named} have {ratio:.0%} of the contrast they had.", recalibrate
    if channel == "light":
        return f"The brightness of the pictures of {named} varies more than it did.", recalibrate
    return f"Parts of {named} that pass look different from those it learned.", recalibrate
