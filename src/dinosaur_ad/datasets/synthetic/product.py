"""The contract of a synthetic product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dinosaur_ad.datasets.synthetic.raster import Mask, Rng
from dinosaur_ad.datasets.synthetic.surface import Lighting, Surface

GOOD = "good"

Draw = Callable[[int, str, Rng, Rng], tuple[Surface, Mask]]


@dataclass(frozen=True)
class Product:
    """One product: its defect ``kinds``, its ``lighting`` and how to draw it.

    ``draw(size, kind, scene_rng, defect_rng) -> (surface, mask)``. Nothing a defect does may change what is
    drawn from ``scene_rng``: that makes the good sample of the same seed the exact twin of the defective one.
    """

    name: str
    description: str
    kinds: tuple[str, ...]
    lighting: Lighting
    draw: Draw
