"""A machined spur gear on a conveyor: turned faces, six lightening holes, a bore with a keyway."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dinosaur_ad.datasets.synthetic import blemishes
from dinosaur_ad.datasets.synthetic.product import Product
from dinosaur_ad.datasets.synthetic.raster import (
    Field,
    Mask,
    Point,
    Rng,
    Window,
    blob,
    box,
    circle,
    coverage,
    full_mask,
    noise,
    polyline,
    smooth,
    whole,
)
from dinosaur_ad.datasets.synthetic.surface import Lighting, Surface

TEETH, HOLES = 26, 6
ROOT, TIP = 91.0, 104.0  # radii
RIM, HUB, BORE = 78.0, 36.0, 20.0
RING, HOLE = 57.0, 10.5  # where the lightening holes sit, and their radius


@dataclass
class Gear:
    """How this gear lies, and what is wrong with its outline."""

    centre: Point
    angle: float
    broken: dict[int, float] = field(default_factory=dict)  # tooth -> radius it is broken down to
    bites: list[tuple[Point, float]] = field(default_factory=list)  # (place in the gear's frame, radius)
    holes: list[float] = field(default_factory=lambda: [i * 2 * np.pi / HOLES for i in range(HOLES)])


def draw(size: int, kind: str, scene: Rng, defect: Rng) -> tuple[Surface, Mask]:
    """Lay the gear down, change its outline or, after shading layers are drawn, its faces."""
    x, y = 128 + scene.normal(0, 2.0, 2)
    gear = Gear((float(x), float(y)), float(scene.normal(0, 0.04)))
    outline = _outline(whole(size), gear, defect)
    mask = np.zeros((size, size), dtype=bool)
    if kind in _SHAPE:
        _SHAPE[kind](gear, defect)
        good, outline = outline, _outline(whole(size), gear, defect)
        # A bevel goes with an edge, so what changed is a little wider than the outline itself.
        edge = 2 * max(2.0, whole(size).step)
        mask = np.abs(smooth(good, edge) - smooth(outline, edge)) > 0.08
    surface = _body(size, gear, outline, scene)
    if kind in _FACE:
        mask = _FACE[kind](surface, gear, defect)
    return surface, mask


def _outline(area: Window, gear: Gear, rng: Rng) -> Field:
    """Signed distance (S, S) to the metal: teeth, bore, keyway and holes."""
    u, v = area.frame(gear.centre, gear.angle)
    theta = np.arctan2(v, u)
    reach = _tooth_radius(theta)
    for tooth, radius in gear.broken.items():
        offset = np.abs(np.mod(theta - np.float32(tooth * 2 * np.pi / TEETH) + np.pi, 2 * np.pi) - np.pi)
        jagged = radius + 0.9 * np.sin(theta * 71.0 + radius) + 0.5 * np.sin(theta * 133.0)
        reach = np.where(offset < np.pi / TEETH, np.minimum(reach, jagged), reach).astype(np.float32)
    metal = _even(np.sqrt(u * u + v * v) - reach, area.step)
    metal = np.maximum(metal, -circle(u, v, BORE))
    metal = np.maximum(metal, -box(u, v + np.float32(BORE + 1), 5.0, 6.0, 0.8))
    for angle in gear.holes:
        at = (RING * np.cos(angle), RING * np.sin(angle))
        metal = np.maximum(metal, -circle(u - np.float32(at[0]), v - np.float32(at[1]), HOLE))
    for (bx, by), radius in gear.bites:
        metal = np.maximum(metal, -blob(u - np.float32(bx), v - np.float32(by), radius, rng, 0.5))
    return metal


def _even(level: Field, step: float) -> Field:
    """A level function as a distance near its zero, so that steep flanks get soft edges too."""
    down, across = np.gradient(level, step)
    distance: Field = level / np.maximum(np.sqrt(down * down + across * across), np.float32(0.7))
    return distance


def _tooth_radius(theta: Field) -> Field:
    profile = np.clip(np.cos(theta * np.float32(TEETH)) * np.float32(1.9) + np.float32(0.1), -1, 1)
    radius: Field = np.float32((ROOT + TIP) / 2) + profile * np.float32((TIP - ROOT) / 2)
    return radius


def _body(size: int, gear: Gear, metal: Field, rng: Rng) -> Surface:
    area = whole(size)
    surface = _conveyor(size, rng)
    drop = max(1, round(5 / area.step))
    cast = np.pad(smooth(metal - 2, 9.0), ((drop, 0), (drop, 0)))[:size, :size]
    surface.shadow(area, cast * np.float32(0.65))

    u, v = area.frame(gear.centre, gear.angle)
    radius = np.sqrt(u * u + v * v)
    body = coverage(metal, max(1.0, area.step))
    surface.paint(area, body, _turned(area, gear, u, v, radius, rng), gloss=0.10)
    surface.lit += body * (1 - surface.lit)

    web = smooth(np.abs(radius - np.float32((RIM + HUB) / 2)) - np.float32((RIM - HUB) / 2), 5.0)
    height = 2.2 * smooth(metal + 1.6, 3.6) - 2.4 * web
    surface.level(area, body, height + _rings(radius, rng) * np.float32(0.10))
    surface.shadow(area, body * web * np.float32(0.12))
    return surface


def _conveyor(size: int, rng: Rng) -> Surface:
    surface = Surface.plain(size, (0.20, 0.215, 0.22))
    shape = (size, size)
    weave = noise(rng, shape, (size / 2, size / 2))
    surface.height += weave * np.float32(0.35)
    surface.tint(surface.whole, 1 + np.float32(0.10) * weave + np.float32(0.08) * noise(rng, shape, (6, 6)))
    return surface


def _turned(area: Window, gear: Gear, u: Field, v: Field, radius: Field, rng: Rng) -> Field:
    """Albedo (3, S, S) of faces cut on a lathe: they reflect the lamp as two opposite fans."""
    lamp = -0.9 - gear.angle + rng.normal(0, 0.12)
    c, s = np.float32(np.cos(lamp)), np.float32(np.sin(lamp))
    fan = np.square((c * u + s * v) / np.maximum(radius, 1.0))
    fan *= fan
    cross = np.square((c * v - s * u) / np.maximum(radius, 1.0))
    tone = 0.17 + 0.36 * fan + 0.08 * cross * cross
    tone *= 1 + np.float32(0.05) * _rings(radius, rng) + np.float32(0.02) * noise(rng, u.shape, (90, 90))
    steel = np.array([0.98, 1.0, 1.03]) * rng.normal(1.0, 0.012, 3)
    return tone * steel.astype(np.float32)[:, None, None]


def _rings(radius: Field, rng: Rng) -> Field:
    """Tool marks: noise that depends on the radius only."""
    marks = rng.standard_normal(256).astype(np.float32)
    rings: Field = marks[np.minimum(radius * np.float32(1.6), 255).astype(np.intp)]
    return rings


def _broken_tooth(gear: Gear, rng: Rng) -> None:
    """One to three neighbouring teeth snapped off, near the root or half way up."""
    first = int(rng.integers(-TEETH // 2, TEETH // 2))
    for tooth in range(first, first + int(rng.integers(1, 4))):
        gear.broken[tooth] = float(rng.uniform(ROOT - 2, TIP - 6))


def _chip(gear: Gear, rng: Rng) -> None:
    tooth = rng.integers(TEETH) + rng.uniform(-0.22, 0.22)
    angle = tooth * 2 * np.pi / TEETH
    gear.bites.append(((TIP * np.cos(angle), TIP * np.sin(angle)), float(rng.uniform(7.5, 14.0))))


def _missing_hole(gear: Gear, rng: Rng) -> None:
    del gear.holes[int(rng.integers(HOLES))]


def _extra_hole(gear: Gear, rng: Rng) -> None:
    gear.holes.append(float((rng.integers(HOLES) + 0.5) * 2 * np.pi / HOLES))


def _on_face(gear: Gear, rng: Rng) -> tuple[Point, float]:
    """A place on metal, clear of the lightening holes, and its direction from the centre."""
    angle = rng.uniform(0, 2 * np.pi)
    radius = rng.choice([84.0, 71.0, 42.0, 29.0]) + rng.uniform(-1.5, 1.5)
    return (gear.centre[0] + radius * np.cos(angle), gear.centre[1] + radius * np.sin(angle)), angle


def _scratch(surface: Surface, gear: Gear, rng: Rng) -> Mask:
    centre, angle = _on_face(gear, rng)
    length, depth = rng.uniform(10, 24), rng.uniform(0.5, 1.8)
    slant = angle + np.pi / 2 + rng.uniform(-0.45, 0.45)  # more along the rim than off it
    return blemishes.scratch(surface, rng, centre, slant, length, colour=(0.90, 0.90, 0.92), depth=depth)


def _rust(surface: Surface, gear: Gear, rng: Rng) -> Mask:
    return blemishes.corrosion(surface, rng, _on_face(gear, rng)[0], rng.uniform(3, 10), rng.uniform(0.35, 0.9))


def _swarf(surface: Surface, gear: Gear, rng: Rng) -> Mask:
    """A curl of cut metal left on the face."""
    centre = _on_face(gear, rng)[0]
    turn = rng.choice([-1.0, 1.0]) * rng.uniform(0.35, 0.65)
    count, stride = int(rng.integers(7, 14)), rng.uniform(2.0, 3.2)
    headings = rng.uniform(0, 2 * np.pi) + np.cumsum(np.full(count, turn) + rng.normal(0, 0.08, count))
    xs, ys = (
        centre[0] + np.cumsum(np.cos(headings)) * stride,
        centre[1] + np.cumsum(np.sin(headings)) * stride,
    )
    points = list(zip(xs.tolist(), ys.tolist(), strict=True))
    area = surface.near((float(xs.mean()), float(ys.mean())), 34)
    distance = polyline(area, points)
    below = polyline(area, [(x + 1.5, y + 2.0) for x, y in points])
    curl = coverage(distance - np.float32(1.1), 1.2)
    surface.shadow(area, smooth(below - 1, 3.0) * (1 - curl) * np.float32(0.5))
    surface.paint(area, curl, (0.74, 0.73, 0.70), gloss=0.5)
    surface.lift(area, curl * np.clip(1.6 - distance, 0, 2))
    return full_mask(surface.size, area, np.minimum(distance, below) < 2.0)


_SHAPE = {
    "broken_tooth": _broken_tooth,
    "chip": _chip,
    "missing_hole": _missing_hole,
    "extra_hole": _extra_hole,
}
_FACE = {"scratch": _scratch, "rust": _rust, "swarf": _swarf}

GEAR = Product("gear", "spur gear on a conveyor", (*_SHAPE, *_FACE), Lighting((-0.5, -0.6, 0.85), 0.4), draw)
