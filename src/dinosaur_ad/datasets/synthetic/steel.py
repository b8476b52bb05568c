"""Brushed steel sheet under a long lamp: grain along x, a soft highlight across it."""

from __future__ import annotations

import numpy as np

from dinosaur_ad.datasets.synthetic import blemishes
from dinosaur_ad.datasets.synthetic.product import Product
from dinosaur_ad.datasets.synthetic.raster import Field, Mask, Point, Rng, bell, circle, full_mask, noise, whole
from dinosaur_ad.datasets.synthetic.surface import Lighting, Surface


def draw(size: int, kind: str, scene: Rng, defect: Rng) -> tuple[Surface, Mask]:
    """The sheet, then what happened to it."""
    surface = _sheet(size, scene)
    mask = _DEFECTS[kind](surface, defect) if kind in _DEFECTS else np.zeros((size, size), dtype=bool)
    return surface, mask


def _sheet(size: int, rng: Rng) -> Surface:
    area = whole(size)
    surface = Surface.plain(size, (0.62, 0.63, 0.645), gloss=0.0)
    grain = _brushing(size, rng)
    surface.height += grain * np.float32(0.10)
    surface.tint(area, 1 + np.float32(0.075) * grain + np.float32(0.03) * noise(rng, (size, size), (3, 4)))
    # The lamp's reflection: a broad band whose place depends on how flat the sheet lies.
    u, v = area.frame((128 + rng.normal(0, 22), 128), rng.normal(0, 0.12))
    waviness = noise(rng, (size, size), (3, 3)) * np.float32(5)
    band = bell(u + waviness + 0 * v, rng.uniform(55, 75))
    surface.shine(area, band * (1 + np.float32(0.22) * grain) * np.float32(rng.uniform(0.10, 0.17)))
    return surface


def _brushing(size: int, rng: Rng) -> Field:
    """Streaks (S, S) of several lengths along x, sheared by the small angle at which the sheet was laid."""
    tall = size + size // 8
    streaks = (
        0.55 * noise(rng, (tall, size), (tall, 3))
        + 0.55 * noise(rng, (tall, size), (tall, 10))
        + 0.35 * noise(rng, (tall, size), (tall / 5, 5))
        + 0.25 * noise(rng, (tall, size), (tall, 40))
    )
    slope = rng.normal(0.0, 0.012)
    offsets = np.round((np.arange(size) - size / 2) * slope).astype(np.intp) + size // 16
    rows = np.arange(size)[:, None] + np.clip(offsets, 0, size // 8)[None, :]
    return np.take_along_axis(streaks, rows, axis=0).astype(np.float32)


def _spot(rng: Rng, margin: float = 34) -> Point:
    x, y = rng.uniform(margin, 256 - margin, 2)
    return float(x), float(y)


def _scratch(surface: Surface, rng: Rng) -> Mask:
    # Scratches along the brushing hide in it; these cross it.
    angle = rng.choice([-1, 1]) * rng.uniform(0.35, 1.5)
    length, depth = rng.uniform(24, 110), rng.uniform(0.4, 1.8)
    tone = (0.86, 0.86, 0.86) if rng.uniform() < 0.6 else (0.33, 0.33, 0.34)
    return blemishes.scratch(surface, rng, _spot(rng, 50), float(angle), length, colour=tone, depth=depth)


def _dent(surface: Surface, rng: Rng) -> Mask:
    radius = rng.uniform(7, 18)
    return blemishes.dent(surface, rng, _spot(rng), radius, radius * rng.uniform(0.27, 0.75))


def _rust(surface: Surface, rng: Rng) -> Mask:
    return blemishes.corrosion(surface, rng, _spot(rng), rng.uniform(4, 15), rng.uniform(0.4, 0.9))


def _water_mark(surface: Surface, rng: Rng) -> Mask:
    strength = rng.uniform(0.36, 0.75)
    colour = (0.47, 0.46, 0.44)
    return blemishes.stain(surface, rng, _spot(rng), rng.uniform(9, 24), colour=colour, strength=strength, rim=0.95)


def _pits(surface: Surface, rng: Rng) -> Mask:
    """A cluster of pinholes, as from scale rolled in."""
    centre, spread = _spot(rng), rng.uniform(5, 13)
    mask = np.zeros((surface.size, surface.size), dtype=bool)
    for dx, dy in rng.normal(0.0, spread, (int(rng.integers(6, 22)), 2)):
        at, radius = (centre[0] + dx * 1.4, centre[1] + dy), rng.uniform(0.8, 2.0)
        area = surface.near(at, 7)
        distance = circle(*area.frame(at), 0.0)
        pit = bell(distance, radius)
        surface.lift(area, pit * np.float32(-1.6))
        surface.paint(area, pit * np.float32(0.7), (0.25, 0.24, 0.24), gloss=0.0)
        mask |= full_mask(surface.size, area, distance < 2.0 * radius + 0.4)
    return mask


_DEFECTS = {"scratch": _scratch, "dent": _dent, "rust": _rust, "water_mark": _water_mark, "pits": _pits}

STEEL = Product("steel", "brushed steel sheet", tuple(_DEFECTS), Lighting((-0.25, -0.7, 0.75), 0.55), draw)
