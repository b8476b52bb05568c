"""A made-up line for a first look: two products that are known, one that is not, defects, and a lamp that fails.

Everything is drawn (:mod:`dinosaur_ad.datasets.synthetic`), so that it runs on an empty machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from dinosaur_ad.datasets.synthetic.product import GOOD
from dinosaur_ad.datasets.synthetic.scenario import PRODUCTS, SyntheticSample
from dinosaur_ad.detector import Dinosaur
from dinosaur_ad.station.config import SourceConfig, StationConfig

KNOWN = ("gear", "blister")
UNKNOWN_PRODUCT = "board"
LEARNED_FROM = 20
SIZE = 256
RATE = 2.0
EVERY_NTH_IS_DEFECT = 7
DARKEST = 0.45
"""What is left of the light when the lamp has nearly failed."""


@dataclass(frozen=True)
class DemoPart:
    """One part of the line: what is in front of the camera, and how much of the light is left."""

    number: int
    sample: SyntheticSample
    light: float = 1.0

    @property
    def file_name(self) -> str:
        """Sorts in the order of the line; says what the part is, for whoever looks into the folder."""
        return f"{self.number:04d}-{self.sample.product}-{self.sample.kind}.png"


def demo_parts() -> Iterator[DemoPart]:
    """The line from its beginning to its end, which then begins again."""
    segments = (
        ("gear", 72, 1.0, 1.0),  # the first sixty that pass say what contrast is usual
        ("blister", 16, 1.0, 1.0),
        (UNKNOWN_PRODUCT, 24, 1.0, 1.0),  # enough to be proposed
        ("gear", 60, 1.0, DARKEST),
        ("gear", 12, DARKEST, DARKEST),
        ("blister", 16, 1.0, 1.0),
    )
    number = 0
    for product, count, first, last in segments:
        kinds = PRODUCTS[product].kinds
        for place in range(count):
            number += 1
            defect = number % EVERY_NTH_IS_DEFECT == 0 and product != UNKNOWN_PRODUCT and first == last
            kind = kinds[number // EVERY_NTH_IS_DEFECT % len(kinds)] if defect else GOOD
            light = first + (last - first) * place / max(1, count - 1)
            yield DemoPart(number, SyntheticSample(product, kind, 1000 + number, size=SIZE), light)


def draw_line(folder: Path) -> int:
    """Write the pictures of the line into a folder, unless they are there; how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = list(demo_parts())
    for part in parts:
        file = folder / part.file_name
        if not file.exists():
            pixels = (part.sample.image() * np.float32(part.light)).astype(np.uint8)
            _save(pixels, file)
    return len(parts)


def _save(pixels: np.ndarray, file: Path) -> None:
    draft = file.with_name(f".{file.name}.part")
    Image.fromarray(pixels).save(draft, "PNG")
    draft.rename(file)


def teach_known(detector: Dinosaur, folder: Path, say: Callable[[str], None]) -> None:
    """Learn the products that the line knows from the beginning, unless the store has them."""
    for product in KNOWN:
        if product in detector:
            continue
        images = folder / product
        images.mkdir(parents=True, exist_ok=True)
        for index in range(LEARNED_FROM):
            _save(SyntheticSample(product, GOOD, index, size=SIZE).image(), images / f"{index:03d}.png")
        learned = detector.learn(product, images)
        say(f"learned '{product}' from {learned.images} drawn pictures")


def demo_config(config: StationConfig) -> StationConfig:
    """The settings with the drawn line as their one source."""
    line = SourceConfig("line", "replay", path=config.folder / "demo" / "line", rate=RATE, repeat=True)
    return replace(config, sources=(line,))
