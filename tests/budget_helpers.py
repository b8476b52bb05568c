"""What the tests of small banks share: a preset with room to shrink in, and what a store says of a task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from detector_helpers import TINY, TINY_FAST, TINY_PAPER
from dinosaur_ad import Dinosaur

# Of 60 images 20 members are kept at each of 100 places, of 16 channels each: about 42 kB as int8.
IMAGES = 60

# More places than the tiny preset has, so that the scores of smaller forms, as many for any grid, do not outweigh them.
ROOMY, ROOMY_PAPER = replace(TINY_FAST, name="roomy", size=140), replace(TINY_PAPER, name="roomy-paper", size=140)

# The default preset keeps distances of its calibration images too, and windows: with 60 images about 85 kB.
ROOMY_DEFAULT = replace(TINY, name="roomy-default", size=140)


def detector(store: Path | None = None, **options: Any) -> Dinosaur:
    return Dinosaur(store, encoder="tiny-dinov2", preset=options.pop("preset", ROOMY), **options)


def manifest(taught: Dinosaur, name: str = "x") -> dict[str, Any]:
    return taught.store.record(name).manifest
