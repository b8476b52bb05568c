"""Streams of small pictures for the tests of the watch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from detector_helpers import TINY_FAST, tiny
from dinosaur_ad import Dinosaur
from dinosaur_ad.watch.watch_event import WatchEvent

Pixels = NDArray[np.uint8]


def write(folder: Path, images: list[Pixels]) -> Path:
    """Images as files whose names say their order."""
    folder.mkdir(parents=True, exist_ok=True)
    first = len(list(folder.iterdir()))
    for n, image in enumerate(images, start=first):
        Image.fromarray(image).save(folder / f"{n:04d}.png")
    return folder


def opened(store: Path) -> Dinosaur:
    return tiny(store, preset=TINY_FAST)


def kinds(events: list[WatchEvent]) -> dict[str, int]:
    return {kind: sum(each.kind == kind for each in events) for kind in dict.fromkeys(each.kind for each in events)}
