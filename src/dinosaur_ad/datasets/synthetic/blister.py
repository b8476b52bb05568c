"""A blister pack: twelve tablets under clear domes on foil; the left column is the yellow kind."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dinosaur_ad.datasets.synthetic import blemishes
from dinosaur_ad.datasets.synthetic.product import Product
from dinosaur_ad.datasets.synthetic.raster import (
    Mask,
    Point,
    Rng,
    bell,
    blob,
    box,
    circle,
    coverage,
    full_mask,
    noise,
    path,
    polyline,
    smooth,
    whole,
)
from dinosaur_ad.datasets.synthetic.surface import Colour, Lighting, Surface, linear

COLUMNS, ROWS = 4, 3
SPACING = 54.0
TABLET, DOME = 17.0, 22.5  # radii
WHITE: Colour = (0.93, 0.92, 0.89)
YELLOW: Colour = (0.90, 0.74, 0.34)
WRONG: tuple[Colour, ...] = ((0.80, 0.46, 0.44), (0.45, 0.62, 0.80), (0.60, 0.72, 0.50))


@dataclass(frozen=True)
class Tablet:
    """One tablet in its dome. ``present`` 0 means an empty dome; ``seed`` is its own texture."""

    dome: Point
    place: Point
    turn: float
    colour: Colour
    seed: int
    present: bool = True
    size: float = TABLET


def draw(size: int, kind: str, scene: Rng, defect: Rng) -> tuple[Surface, Mask]:
    """Fill the domes (rightly or wrongly), seal, then damage."""
    centre, angle = (128 + scene.normal(0, 2.2), 128 + scene.normal(0, 2.2)), scene.normal(0, 0.02)
    tablets = _filling(centre, angle, scene)
    surface = _pack(size, centre, angle, scene)
    mask = np.zeros((size, size), dtype=bool)
    if kind in _FILLING:
        tablets, mask = _FILLING[kind](size, tablets, defect)
    for tablet in tablets:
        _seat(surface, tablet)
    if kind in _DAMAGE:
        mask = _DAMAGE[kind](surface, tablets, defect)
    for tablet in tablets:
        _cover(surface, tablet)
    return surface, mask


def _filling(centre: Point, angle: float, rng: Rng) -> list[Tablet]:
    c, s = np.cos(angle), np.sin(angle)
    tint = rng.normal(1.0, 0.012, 3)
    tablets = []
    for i in range(COLUMNS * ROWS):
        gx, gy = (i % COLUMNS - 1.5) * SPACING, (i // COLUMNS - 1.0) * (SPACING + 8)
        dome = (float(centre[0] + c * gx - s * gy), float(centre[1] + s * gx + c * gy))
        dx, dy = rng.normal(0, 1.0, 2)
        base = YELLOW if i % COLUMNS == 0 else WHITE
        red, green, blue = (np.array(base) * tint * rng.normal(1.0, 0.008)).tolist()
        place = (dome[0] + float(dx), dome[1] + float(dy))
        seed = int(rng.integers(2**32))
        tablets.append(Tablet(dome, place, float(rng.uniform(0, np.pi)), (red, green, blue), seed))
    return tablets


def _pack(size: int, centre: Point, angle: float, rng: Rng) -> Surface:
    """Foil with its sealing pattern on a dark tray."""
    area = whole(size)
    surface = Surface.plain(size, (0.155, 0.165, 0.18))
    surface.tint(area, 1 + np.float32(0.12) * noise(rng, (size, size), (size / 2, size / 2)))
    u, v = area.frame(centre, angle)
    card = box(u, v, 116, 97, 9)
    shifted = box(u - 4, v - 5, 116, 97, 9)
    surface.shadow(area, smooth(shifted, 9.0) * np.float32(0.6))
    foil = coverage(card, max(1.0, area.step))
    surface.paint(area, foil, (0.70, 0.71, 0.725), gloss=0.16)
    surface.lit += foil * (1 - surface.lit)
    knurl = np.sin((u + v) * np.float32(1.25)) * np.sin((u - v) * np.float32(1.25))
    buckle = noise(rng, (size, size), (7, 8)) * np.float32(1.1) + noise(rng, (size, size), (18, 18)) * np.float32(0.22)
    surface.lift(area, foil * (knurl * np.float32(0.16) + buckle) + smooth(card + 1, 3.0) * np.float32(1.2))
    return surface


def _seat(surface: Surface, tablet: Tablet) -> None:
    """The dome's floor, and the tablet on it with its shadow, bevel and score line."""
    area = surface.near(tablet.dome, DOME + 4)
    u, v = area.frame(tablet.dome)
    floor = circle(u, v, DOME)
    inside = coverage(floor, max(1.0, area.step))
    surface.level(area, inside, 0.0)
    surface.paint(area, inside * np.float32(0.35), (0.60, 0.61, 0.63), gloss=0.05)
    surface.shadow(area, inside * smooth(-floor - 3, 7.0) * np.float32(0.25))
    if not tablet.present:
        return
    rng = np.random.default_rng(tablet.seed)
    u, v = area.frame(tablet.place, tablet.turn)
    edge = circle(u, v, tablet.size)
    body = coverage(edge, max(1.0, area.step))
    cast = circle(*area.frame((tablet.place[0] + 2.2, tablet.place[1] + 2.6)), tablet.size)
    surface.shadow(area, smooth(cast, 5.0) * np.float32(0.45))
    surface.lit[area.rows, area.cols] += body * (1 - surface.lit[area.rows, area.cols])
    powder = noise(rng, edge.shape, edge.shape)
    surface.paint(area, body, linear(tablet.colour) * (1 + np.float32(0.015) * powder), gloss=0.0)
    score = bell(v, 1.0) * smooth(edge + 3, 3.0)
    surface.level(area, body, 3.0 * smooth(edge + 2.4, 5.5) - np.float32(1.1) * score + powder * np.float32(0.03))


def _cover(surface: Surface, tablet: Tablet) -> None:
    """The clear dome: a bright and a dark rim, and the lamp mirrored in it."""
    area = surface.near(tablet.dome, DOME + 4)
    u, v = area.frame(tablet.dome)
    radius = np.sqrt(u * u + v * v)
    rim = bell(radius - np.float32(DOME), 1.1)
    towards = (-u * np.float32(0.62) - v * np.float32(0.78)) / np.maximum(radius, 1.0)
    surface.shine(area, rim * np.clip(towards, 0, 1) * np.float32(0.38))
    surface.shadow(area, rim * np.clip(0.3 - towards, 0, 1) * np.float32(0.4))
    lamp = bell(radius - np.float32(DOME * 0.76), 1.5) * smooth(np.float32(0.93) - towards, 0.1)
    surface.shine(area, lamp * np.float32(0.55))
    glow = bell(circle(u - 6, v - 8, 0.0), 6.0)
    surface.shine(area, glow * np.float32(0.035))


def _disc(size: int, centre: Point, radius: float) -> Mask:
    area = whole(size)
    return circle(*area.frame(centre), radius) < 0


def _missing(size: int, tablets: list[Tablet], rng: Rng) -> tuple[list[Tablet], Mask]:
    i = int(rng.integers(len(tablets)))
    mask = _disc(size, tablets[i].place, TABLET)
    return [*tablets[:i], replace(tablets[i], present=False), *tablets[i + 1 :]], mask


def _wrong_colour(size: int, tablets: list[Tablet], rng: Rng) -> tuple[list[Tablet], Mask]:
    i = int(rng.integers(len(tablets)))
    wrong = WRONG[int(rng.integers(len(WRONG)))]
    return [*tablets[:i], replace(tablets[i], colour=wrong), *tablets[i + 1 :]], _disc(size, tablets[i].place, TABLET)


def _swapped(size: int, tablets: list[Tablet], rng: Rng) -> tuple[list[Tablet], Mask]:
    """A yellow tablet and a white one trade places: each is fine in itself."""
    i = int(rng.integers(ROWS)) * COLUMNS
    j = int(rng.integers(ROWS)) * COLUMNS + int(rng.integers(1, COLUMNS))
    changed = list(tablets)
    changed[i] = replace(tablets[i], colour=tablets[j].colour)
    changed[j] = replace(tablets[j], colour=tablets[i].colour)
    return changed, _disc(size, tablets[i].place, TABLET) | _disc(size, tablets[j].place, TABLET)


def _wrong_size(size: int, tablets: list[Tablet], rng: Rng) -> tuple[list[Tablet], Mask]:
    i = int(rng.integers(len(tablets)))
    small = replace(tablets[i], size=float(rng.uniform(9.0, 12.5)))
    ring = _disc(size, small.place, TABLET + 2.5) & ~_disc(size, small.place, small.size - 4.5)
    return [*tablets[:i], small, *tablets[i + 1 :]], ring


def _broken(surface: Surface, tablets: list[Tablet], rng: Rng) -> Mask:
    """A piece is out of the tablet's edge, and some of it lies about as crumbs."""
    tablet = tablets[int(rng.integers(len(tablets)))]
    angle, bite = rng.uniform(0, 2 * np.pi), rng.uniform(5, 12)
    area = surface.near(tablet.dome, DOME + 4)
    at = (tablet.place[0] + TABLET * np.cos(angle), tablet.place[1] + TABLET * np.sin(angle))
    gone = blob(*area.frame(at), bite, rng, 0.5)
    removed = np.maximum(gone, circle(*area.frame(tablet.place), TABLET + 0.5))
    alpha = coverage(removed, max(1.0, area.step))
    surface.paint(area, alpha, (0.60, 0.61, 0.63), gloss=0.03)
    surface.level(area, alpha, 0.0)
    surface.shadow(area, alpha * np.float32(0.22))
    crumbs = removed
    for _ in range(int(rng.integers(2, 6))):
        spread = angle + rng.normal(0, 0.25)
        far = TABLET + rng.uniform(-2, 3.5)
        crumb_at = (tablet.place[0] + far * np.cos(spread), tablet.place[1] + far * np.sin(spread))
        crumb = blob(*area.frame(crumb_at), rng.uniform(0.8, 1.8), rng, 0.5)
        surface.paint(area, coverage(crumb, 1.0), tablet.colour)
        crumbs = np.minimum(crumbs, crumb)
    return full_mask(surface.size, area, crumbs < 0.6)


def _crack(surface: Surface, tablets: list[Tablet], rng: Rng) -> Mask:
    tablet = tablets[int(rng.integers(len(tablets)))]
    length = rng.uniform(22, 33)
    return blemishes.crack(surface, rng, tablet.place, rng.uniform(0, np.pi), length, (0.30, 0.28, 0.26))


def _torn_foil(surface: Surface, tablets: list[Tablet], rng: Rng) -> Mask:
    """A slit in the foil between two rows, its lips curled up."""
    i, j = int(rng.integers(COLUMNS - 1)), int(rng.integers(ROWS - 1))
    a, b = tablets[j * COLUMNS + i].dome, tablets[(j + 1) * COLUMNS + i + 1].dome
    centre = ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2)
    length = rng.uniform(12, 24)
    points = path(centre, rng.uniform(0, np.pi), length, rng, bend=0.4)
    area = surface.near(centre, 26)
    distance = polyline(area, points)
    gap = coverage(distance - np.float32(rng.uniform(0.6, 1.8)), 1.2)
    surface.lift(area, bell(distance, 2.2) * np.float32(rng.uniform(0.8, 2.0)))
    surface.paint(area, gap, (0.16, 0.16, 0.17), gloss=0.0)
    return full_mask(surface.size, area, distance < 5.0)


def _hair(surface: Surface, tablets: list[Tablet], rng: Rng) -> Mask:
    tablet = tablets[int(rng.integers(len(tablets)))]
    return blemishes.fibre(surface, rng, tablet.place, rng.uniform(34, 76), (0.12, 0.08, 0.06), rng.uniform(0.5, 0.9))


_FILLING = {
    "missing": _missing,
    "wrong_colour": _wrong_colour,
    "swapped": _swapped,
    "wrong_size": _wrong_size,
}
_DAMAGE = {"broken": _broken, "crack": _crack, "torn_foil": _torn_foil, "hair": _hair}

BLISTER = Product(
    "blister",
    "blister pack of twelve tablets",
    (*_FILLING, *_DAMAGE),
    Lighting((-0.5, -0.62, 0.85), 0.5, 32),
    draw,
)
