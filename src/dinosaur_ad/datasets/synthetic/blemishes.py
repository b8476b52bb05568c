"""Damage that many materials share: each function changes the surface in place and returns its mask."""

from __future__ import annotations

import numpy as np

from dinosaur_ad.datasets.synthetic.raster import (
    Mask,
    Point,
    Rng,
    bell,
    blob,
    circle,
    coverage,
    full_mask,
    middle,
    noise,
    path,
    polyline,
    smooth,
)
from dinosaur_ad.datasets.synthetic.surface import Colour, Surface


def scratch(
    surface: Surface, rng: Rng, centre: Point, angle: float, length: float, *, colour: Colour, depth: float
) -> Mask:
    """A groove with bare material at its bottom; it starts and ends shallow."""
    points = path(centre, angle, length, rng, bend=0.06)
    mid, reach = middle(points)
    area = surface.near(mid, reach + 6)
    width = rng.uniform(0.7, 1.5)
    distance = polyline(area, points)
    along = np.abs(area.frame(centre, angle)[0]) * np.float32(2 / length)
    pressure = np.clip((1.04 - along) * 4, 0, 1)
    groove = bell(distance, width) * pressure
    surface.lift(area, groove * np.float32(-depth))
    surface.paint(area, groove * np.float32(min(0.95, 0.45 + 0.3 * depth)), colour)
    return full_mask(surface.size, area, (distance < 2.0 * width + 0.3) & (pressure > 0.1))


def stain(
    surface: Surface,
    rng: Rng,
    centre: Point,
    radius: float,
    *,
    colour: Colour,
    strength: float,
    rim: float = 0.5,
) -> Mask:
    """A liquid that soaked in or dried: uneven inside, darkest along its edge (``rim`` 0..1)."""
    area = surface.near(centre, radius * 1.8 + 4)
    u, v = area.frame(centre)
    distance = blob(u, v, radius, rng, roughness=0.5)
    shape = (area.y.shape[0], area.x.shape[1])
    grain = 0.85 + 0.15 * noise(rng, shape, (shape[0] / 5, shape[1] / 5))
    ring = bell(distance + np.float32(radius * 0.1), radius * 0.1 + 0.6)
    alpha = smooth(distance, radius * 0.25 + 1.5) * grain * np.float32(1 - 0.6 * rim) + ring * np.float32(0.6 * rim)
    surface.paint(area, np.clip(alpha, 0, 1) * np.float32(strength), colour)
    return full_mask(surface.size, area, distance < radius * 0.08 + 0.5)


def dent(surface: Surface, rng: Rng, centre: Point, radius: float, depth: float) -> Mask:
    """A smooth hollow (or bump, for a negative depth): only the shading gives it away."""
    area = surface.near(centre, radius * 2.2)
    angle, squeeze = rng.uniform(0, np.pi), rng.uniform(0.7, 1.0)
    u, v = area.frame(centre, angle)
    distance = circle(u, v * np.float32(1 / squeeze), 0.0)
    surface.lift(area, bell(distance, radius * 0.5) * np.float32(-depth))
    return full_mask(surface.size, area, distance < radius * 1.15)


def hole(surface: Surface, rng: Rng, centre: Point, radius: float, colour: Colour) -> Mask:
    """Material gone: an irregular opening with what lies beneath in the shade of its own edge."""
    area = surface.near(centre, radius * 1.6 + 5)
    u, v = area.frame(centre)
    distance = blob(u, v, radius, rng, roughness=0.6)
    inside = coverage(distance, max(1.0, area.step))
    surface.paint(area, inside, colour, gloss=0.0)
    surface.level(area, inside, -1.5)
    surface.shadow(area, smooth(np.abs(distance + np.float32(1.5)) - 1, 3.0) * inside * np.float32(0.5))
    return full_mask(surface.size, area, distance < 0.7)


def fibre(surface: Surface, rng: Rng, centre: Point, length: float, colour: Colour, width: float = 0.7) -> Mask:
    """A hair or a lint fibre lying on top, with its thin shadow."""
    points = path(centre, rng.uniform(0, np.pi), length, rng, bend=0.45, steps=12)
    mid, reach = middle(points)
    area = surface.near(mid, reach + 6)
    distance = polyline(area, points)
    body = coverage(distance - np.float32(width), 1.2)
    below = polyline(area, [(x + 1.2, y + 1.4) for x, y in points])
    surface.shadow(area, smooth(below - np.float32(width), 2.0) * (1 - body) * np.float32(0.35))
    surface.paint(area, body * np.float32(0.9), colour, gloss=0.05)
    return full_mask(surface.size, area, np.minimum(distance, below) < width + 0.9)


def crack(surface: Surface, rng: Rng, centre: Point, angle: float, length: float, colour: Colour) -> Mask:
    """A jagged dark line, wide in the middle and closing at the ends, one lip a little raised."""
    points = path(centre, angle, length, rng, bend=0.5, steps=10)
    mid, reach = middle(points)
    area = surface.near(mid, reach + 5)
    distance = polyline(area, points)
    taper = np.clip(1.15 - np.abs(area.frame(centre, angle)[0]) * np.float32(2 / length), 0.1, 1)
    width = np.float32(rng.uniform(0.8, 1.4)) * taper
    surface.paint(area, coverage(distance - width, 1.2) * np.float32(0.85), colour, gloss=0.0)
    surface.lift(area, bell(distance, 1.6) * np.float32(-0.7))
    return full_mask(surface.size, area, distance < width + 1.3)


def corrosion(surface: Surface, rng: Rng, centre: Point, radius: float, strength: float) -> Mask:
    """Rust: a rough, speckled brown bloom that eats gloss and height."""
    area = surface.near(centre, radius * 1.8 + 4)
    u, v = area.frame(centre)
    shape = (area.y.shape[0], area.x.shape[1])
    grain = noise(rng, shape, (shape[0] / 2.5, shape[1] / 2.5))
    distance = blob(u, v, radius, rng, roughness=0.7) + grain * np.float32(radius * 0.22)
    alpha = smooth(distance, radius * 0.35 + 1) * np.clip(0.75 + 0.3 * grain, 0, 1) * np.float32(strength)
    surface.paint(area, alpha, (0.42, 0.24, 0.13), gloss=0.0)
    surface.lift(area, alpha * grain * np.float32(0.35))
    return full_mask(surface.size, area, alpha > 0.06)
