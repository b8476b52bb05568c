"""The components of the circuit board: their pads, bodies, legs and markings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dinosaur_ad.datasets.synthetic.raster import Field, Point, Rng, Window, bell, box, circle, coverage, noise, smooth
from dinosaur_ad.datasets.synthetic.surface import Colour, Surface

SOLDER: Colour = (0.66, 0.67, 0.68)
PLASTIC: Colour = (0.14, 0.14, 0.15)

_EXTENT: dict[str, Point] = {  # half width and half height, in the part's own frame
    "chip": (27.0, 21.0),
    "small_chip": (15.0, 15.0),
    "resistor": (8.0, 4.2),
    "capacitor": (8.0, 4.2),
    "electrolytic": (16.0, 16.0),
    "led_red": (8.0, 5.0),
    "led_green": (8.0, 5.0),
    "connector": (34.0, 9.0),
}
_LEGS: dict[str, tuple[int, float, float]] = {
    "chip": (8, 6.2, 18.0),
    "small_chip": (4, 6.2, 12.0),
}  # a side, pitch, offset


@dataclass(frozen=True)
class Part:
    """One component: what it is, where it sits, how it is turned; ``seed`` is its own grain."""

    name: str
    place: Point
    angle: float
    seed: int = 0

    @property
    def extent(self) -> Point:
        """Half width and half height in the part's frame, legs included."""
        return _EXTENT[self.name]


def leg_places(part: Part) -> list[Point]:
    """Where a chip's legs meet the board, one row after the other."""
    count, pitch, offset = _LEGS[part.name]
    c, s = np.cos(part.angle), np.sin(part.angle)
    places = []
    for side in (-1, 1):
        for i in range(count):
            u, v = (i - (count - 1) / 2) * pitch, side * (offset + 1.0)
            places.append((float(part.place[0] + c * u - s * v), float(part.place[1] + s * u + c * v)))
    return places


def solder_pads(surface: Surface, part: Part) -> None:
    """The tinned pads that stay visible when the part is not there."""
    area, u, v = _frame(surface, part)
    if part.name in _LEGS:
        pads = _leg_field(part.name, u, v, 1.9, 4.0)
    elif part.name == "electrolytic":
        pads = box(np.abs(u) - 9, v, 4.5, 2.6, 0.8)
    elif part.name == "connector":
        pads = circle(np.mod(u + 4, np.float32(8.0)) - 4, v, 2.4)
        pads = np.maximum(pads, np.abs(u) - 28)
    else:
        pads = box(np.abs(u) - 6.6, v, 3.2, 4.4, 0.8)
    tin = coverage(pads, max(1.0, area.step))
    surface.paint(area, tin, SOLDER, gloss=0.35)
    surface.lift(area, smooth(pads + 1, 3.0) * np.float32(0.9))


def draw_part(surface: Surface, part: Part) -> None:
    """The part itself with its shadow."""
    rng = np.random.default_rng(part.seed)
    _BODIES[part.name](surface, part, rng)


def _frame(surface: Surface, part: Part) -> tuple[Window, Field, Field]:
    area = surface.near(part.place, max(part.extent) * 1.3 + 7)
    return (area, *area.frame(part.place, part.angle))


def _solid(
    surface: Surface,
    area: Window,
    shape: Field,
    colour: Colour | Field,
    *,
    gloss: float,
    tall: float,
    bevel: float = 2.5,
) -> Field:
    """A body with bevelled edges; returns its coverage."""
    body = coverage(shape, max(1.0, area.step))
    surface.paint(area, body, colour, gloss=gloss)
    surface.level(area, body, np.float32(tall) * smooth(shape + np.float32(bevel / 2), bevel))
    lit = surface.lit[area.rows, area.cols]
    lit += body * (1 - lit)
    return body


def _cast(
    surface: Surface, area: Window, u: Field, v: Field, part: Part, half: Point, fall: float, corner: float
) -> None:
    """The shadow of a box: the lamp is up left of the table, whichever way the part is turned."""
    c, s = np.cos(part.angle), np.sin(part.angle)
    du, dv = fall * (0.8 * c + s), fall * (c - 0.8 * s)
    shape = box(u - np.float32(du), v - np.float32(dv), *half, corner)
    surface.shadow(area, smooth(shape, fall * 1.6 + 1) * np.float32(0.55))


def _leg_field(name: str, u: Field, v: Field, half_width: float, half_length: float) -> Field:
    count, pitch, offset = _LEGS[name]
    nearest = np.clip(np.round(u / np.float32(pitch) + np.float32((count - 1) / 2)), 0, count - 1)
    own = u - (nearest - np.float32((count - 1) / 2)) * np.float32(pitch)
    return box(own, np.abs(v) - np.float32(offset), half_width, half_length, 0.5)


def _chip(surface: Surface, part: Part, rng: Rng) -> None:
    area, u, v = _frame(surface, part)
    large = part.name == "chip"
    half = (27.0, 14.5) if large else (14.0, 9.0)
    legs = _leg_field(part.name, u, v, 1.3, 4.0)
    _solid(surface, area, legs, (0.70, 0.70, 0.70), gloss=0.4, tall=1.5, bevel=1.5)
    _cast(surface, area, u, v, part, half, 2.2, 1.0)
    shape = box(u, v, *half, 1.0)
    body = _solid(surface, area, shape, PLASTIC, gloss=0.05, tall=3.0)
    surface.tint(area, 1 + np.float32(0.12) * body * noise(rng, shape.shape, shape.shape))
    notch = circle(u + np.float32(half[0] - 5), v - np.float32(half[1] - 5), 2.0)
    dimple = coverage(notch, max(1.0, area.step))
    surface.lift(area, dimple * np.float32(-1.4))
    surface.paint(area, dimple * np.float32(0.6), (0.26, 0.26, 0.27))
    surface.paint(area, _lettering(u, v, half) * np.float32(0.55), (0.62, 0.62, 0.60))
    stripe = box(u + np.float32(half[0] - 1.6), v, 1.2, half[1] - 1.5)  # the end with leg 1
    surface.paint(area, coverage(stripe, max(1.0, area.step)) * np.float32(0.8), (0.80, 0.80, 0.78))


def _lettering(u: Field, v: Field, half: Point) -> Field:
    """Two lines of laser marking: strokes too small to read, the same on every chip."""
    column, row = np.floor((u + 40) * np.float32(1.1)), np.floor((v + 40) * np.float32(1.1))
    stroke = np.sin(column * np.float32(12.9898) + row * np.float32(4.1414)) > 0.05
    letter = (np.mod(u + 40, np.float32(4.6)) < 3.4) & (np.abs(np.abs(v) - 3.6) < 2.2)
    inside = (np.abs(u - 2) < np.float32(half[0] * 0.62)) & (np.abs(v) < np.float32(half[1] - 3))
    marking: Field = (stroke & letter & inside).astype(np.float32)
    return marking


def _passive(surface: Surface, part: Part, rng: Rng) -> None:
    area, u, v = _frame(surface, part)
    _cast(surface, area, u, v, part, (8.0, 4.0), 1.3, 0.6)
    shape = box(u, v, 8.0, 4.0, 0.6)
    resistor = part.name == "resistor"
    colour = (0.12, 0.12, 0.13) if resistor else (0.55, 0.42, 0.29)
    red, green, blue = (np.array(colour) * rng.normal(1.0, 0.03)).tolist()
    _solid(surface, area, shape, (red, green, blue), gloss=0.08, tall=2.0)
    caps = np.maximum(shape, np.float32(5.4) - np.abs(u))
    surface.paint(area, coverage(caps, max(1.0, area.step)), (0.74, 0.74, 0.73), gloss=0.45)
    if resistor:
        surface.paint(
            area,
            _lettering(u * 1.3 + 2, v * np.float32(1.4) + 3.6, (7.0, 9.0)) * np.float32(0.7),
            (0.7, 0.7, 0.7),
        )


def _electrolytic(surface: Surface, part: Part, rng: Rng) -> None:
    area, u, v = _frame(surface, part)
    _cast(surface, area, u, v, part, (16.0, 16.0), 1.2, 4.0)
    _solid(surface, area, box(u, v, 15.5, 15.5, 4.0), (0.10, 0.10, 0.11), gloss=0.05, tall=1.2)
    _cast(surface, area, u, v, part, (13.5, 13.5), 4.0, 13.5)
    can = circle(u, v, 13.8)
    body = _solid(surface, area, can, (0.72, 0.73, 0.74), gloss=0.35, tall=4.0, bevel=3.0)
    brushed = noise(rng, can.shape, (can.shape[0], 6))
    surface.tint(area, 1 + np.float32(0.05) * body * brushed)
    stripe = np.maximum(can + np.float32(1.5), np.float32(6.8) - u)  # the minus side is black
    surface.paint(area, coverage(stripe, max(1.0, area.step)), (0.13, 0.13, 0.15), gloss=0.1)


def _led(surface: Surface, part: Part, rng: Rng) -> None:
    area, u, v = _frame(surface, part)
    _cast(surface, area, u, v, part, (8.0, 4.8), 1.3, 0.6)
    shape = box(u, v, 8.0, 4.8, 0.6)
    _solid(surface, area, shape, (0.86, 0.85, 0.80), gloss=0.1, tall=1.8)
    base = (0.78, 0.16, 0.14) if part.name == "led_red" else (0.30, 0.68, 0.28)
    red, green, blue = (np.array(base) * rng.normal(1.0, 0.03)).tolist()
    lens = box(u, v, 5.0, 4.0, 1.8)
    _solid(surface, area, lens, (red, green, blue), gloss=0.5, tall=3.2, bevel=3.0)
    surface.shine(area, bell(circle(u + 1.2, v + 1.2, 0.0), 1.2) * np.float32(0.25))


def _connector(surface: Surface, part: Part, rng: Rng) -> None:
    area, u, v = _frame(surface, part)
    _cast(surface, area, u, v, part, (34.0, 9.0), 3.2, 1.5)
    shape = box(u, v, 34.0, 9.0, 1.5)
    tone = float(rng.normal(0.86, 0.01))
    _solid(surface, area, shape, (tone, tone * 0.985, tone * 0.93), gloss=0.06, tall=3.4)
    well = box(u, v, 31.0, 6.0, 0.8)
    inside = coverage(well, max(1.0, area.step))
    surface.level(area, inside, 1.0)
    surface.shadow(area, inside * np.float32(0.45))
    pins = np.maximum(box(np.mod(u + 4, np.float32(8.0)) - 4, v, 1.5, 1.5, 0.3), np.abs(u) - 28)
    surface.paint(area, coverage(pins, max(1.0, area.step)), (0.80, 0.70, 0.42), gloss=0.5)
    surface.lift(area, smooth(pins, 1.5) * np.float32(2.0))


_BODIES = {
    "chip": _chip,
    "small_chip": _chip,
    "resistor": _passive,
    "capacitor": _passive,
    "electrolytic": _electrolytic,
    "led_red": _led,
    "led_green": _led,
    "connector": _connector,
}
