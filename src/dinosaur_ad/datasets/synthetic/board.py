"""An assembled circuit board: chips, passives, electrolytics, LEDs and a connector in fixed places."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dinosaur_ad.datasets.synthetic import blemishes
from dinosaur_ad.datasets.synthetic.artwork import artwork
from dinosaur_ad.datasets.synthetic.parts import Part, draw_part, leg_places, solder_pads
from dinosaur_ad.datasets.synthetic.product import Product
from dinosaur_ad.datasets.synthetic.raster import (
    Mask,
    Point,
    Rng,
    box,
    circle,
    coverage,
    full_mask,
    noise,
    polyline,
    smooth,
    whole,
    window,
)
from dinosaur_ad.datasets.synthetic.surface import Lighting, Surface

HALF_TURN = float(np.pi)
QUARTER = HALF_TURN / 2

LAYOUT: tuple[Part, ...] = (
    Part("chip", (0, -8), 0.0),
    Part("small_chip", (62, 34), QUARTER),
    *(Part("resistor", (-84 + 17 * i, 44), QUARTER) for i in range(5)),
    *(Part("capacitor", (-84 + 17 * i, 76), QUARTER) for i in range(4)),
    Part("resistor", (-38, -56), 0.0),
    Part("capacitor", (-12, -56), 0.0),
    Part("resistor", (14, -56), 0.0),
    Part("electrolytic", (-76, -10), 0.0),
    Part("electrolytic", (72, -24), QUARTER),
    Part("led_red", (50, 82), 0.0),
    Part("led_green", (80, 82), 0.0),
    Part("connector", (0, -88), 0.0),
    Part("capacitor", (10, 44), 0.0),
    Part("resistor", (10, 70), 0.0),
)


def draw(size: int, kind: str, scene: Rng, defect: Rng) -> tuple[Surface, Mask]:
    """Print the board, place the parts (rightly or wrongly), then damage it."""
    x, y = 128 + scene.normal(0, 1.8, 2)
    centre, angle = (float(x), float(y)), float(scene.normal(0, 0.012))
    surface = _bare_board(size, centre, angle, scene)
    parts = _placed(centre, angle, scene)
    for part in parts:
        solder_pads(surface, part)
    changed, mask = parts, np.zeros((size, size), dtype=bool)
    if kind in _PLACING:
        changed, mask = _PLACING[kind](size, parts, defect)
    for part in changed:
        draw_part(surface, part)
    if kind in _DAMAGE:
        mask = _DAMAGE[kind](surface, parts, defect)
    return surface, mask


def _placed(centre: Point, angle: float, rng: Rng) -> list[Part]:
    """The layout on this board: every part a little off, as a placer leaves it."""
    c, s = np.cos(angle), np.sin(angle)
    placed = []
    for part in LAYOUT:
        dx, dy = rng.normal(0, 0.35, 2)
        px, py = part.place
        place = (float(centre[0] + c * px - s * py + dx), float(centre[1] + s * px + c * py + dy))
        turn = part.angle + angle + rng.normal(0, 0.014)
        placed.append(replace(part, place=place, angle=float(turn), seed=int(rng.integers(2**32))))
    return placed


def _bare_board(size: int, centre: Point, angle: float, rng: Rng) -> Surface:
    area = whole(size)
    surface = Surface.plain(size, (0.13, 0.135, 0.14))
    u, v = area.frame(centre, angle)
    edge = box(u, v, 112, 112, 5)
    edge = np.maximum(edge, -circle(np.abs(u) - 101, np.abs(v) - 101, 5.0))  # four mounting holes
    board = coverage(edge, max(1.0, area.step))
    mottle = 1 + 0.04 * noise(rng, (size, size), (6, 6)) + 0.05 * noise(rng, (size, size), (size, size))
    surface.paint(area, board, (0.095, 0.30, 0.20), gloss=0.10)
    copper, vias, silk = artwork(size, centre, angle)
    surface.paint(area, copper * board * np.float32(0.7), (0.17, 0.42, 0.27))
    surface.tint(area, mottle)
    surface.paint(area, silk * board * np.float32(0.85), (0.84, 0.85, 0.82), gloss=0.02)
    surface.paint(area, vias * board, (0.74, 0.70, 0.58), gloss=0.30)
    warp = noise(rng, (size, size), (9, 9)) * np.float32(0.15)
    surface.lift(area, copper * np.float32(0.5) + smooth(edge + 1, 3.0) + warp)
    return surface


def _footprint(size: int, part: Part, grow: float = 0.0) -> Mask:
    half_width, half_height = part.extent
    area = window(size, part.place, max(part.extent) * 1.5 + grow + 2)
    distance = box(*area.frame(part.place, part.angle), half_width + grow, half_height + grow)
    return full_mask(size, area, distance < 0)


def _pick(parts: list[Part], rng: Rng, *names: str) -> int:
    """The position of a random part among those called ``names`` (any, without names)."""
    return int(rng.choice([i for i, part in enumerate(parts) if not names or part.name in names]))


def _missing(size: int, parts: list[Part], rng: Rng) -> tuple[list[Part], Mask]:
    i = _pick(parts, rng, "small_chip", "resistor", "capacitor", "electrolytic", "led_red", "led_green")
    return [*parts[:i], *parts[i + 1 :]], _footprint(size, parts[i], 0.5)


def _misaligned(size: int, parts: list[Part], rng: Rng) -> tuple[list[Part], Mask]:
    """A part that slid or turned before the solder set."""
    i = _pick(parts, rng, "chip", "small_chip", "resistor", "capacitor")
    part = parts[i]
    large = part.name == "chip"
    turn = rng.choice([-1, 1]) * (rng.uniform(0.08, 0.2) if large else rng.uniform(0.25, 0.8))
    dx, dy = rng.normal(0, 1.5, 2)
    moved = replace(part, place=(part.place[0] + dx, part.place[1] + dy), angle=part.angle + float(turn))
    mask = _footprint(size, part, 0.5) | _footprint(size, moved, 0.5)
    return [*parts[:i], moved, *parts[i + 1 :]], mask


def _wrong_part(size: int, parts: list[Part], rng: Rng) -> tuple[list[Part], Mask]:
    """A part that belongs elsewhere on the board, soldered where another should be."""
    i = _pick(parts, rng, *_MISTAKEN)
    wrong = replace(parts[i], name=_MISTAKEN[parts[i].name])
    return [*parts[:i], wrong, *parts[i + 1 :]], _footprint(size, parts[i])


def _reversed(size: int, parts: list[Part], rng: Rng) -> tuple[list[Part], Mask]:
    """A polarised part the wrong way round."""
    i = _pick(parts, rng, "chip", "small_chip", "electrolytic")
    turned = replace(parts[i], angle=parts[i].angle + HALF_TURN)
    return [*parts[:i], turned, *parts[i + 1 :]], _footprint(size, parts[i])


def _solder_bridge(surface: Surface, parts: list[Part], rng: Rng) -> Mask:
    """Solder across two to four neighbouring legs of a chip."""
    part = parts[_pick(parts, rng, "chip", "small_chip")]
    legs = leg_places(part)
    row = int(rng.integers(2)) * (len(legs) // 2)
    span = int(rng.integers(1, 4))
    i = row + int(rng.integers(len(legs) // 2 - span))
    (ax, ay), (bx, by) = legs[i], legs[i + span]
    centre = ((ax + bx) / 2, (ay + by) / 2)
    area = surface.near(centre, 22)
    distance = polyline(area, [(ax, ay), (bx, by)]) - np.float32(rng.uniform(2.6, 4.2))
    alpha = coverage(distance, max(1.0, area.step))
    surface.paint(area, alpha, (0.70, 0.71, 0.72), gloss=0.5)
    surface.lift(area, np.sqrt(np.clip(-distance, 0, None)) * np.float32(1.6))
    return full_mask(surface.size, area, distance < 0.5)


def _solder_ball(surface: Surface, parts: list[Part], rng: Rng) -> Mask:
    """Beads of solder that rolled away from a small part."""
    home = parts[_pick(parts, rng, "resistor", "capacitor", "led_red")].place
    mask = np.zeros((surface.size, surface.size), dtype=bool)
    for _ in range(int(rng.integers(2, 6))):
        angle, far = rng.uniform(0, 2 * np.pi), rng.uniform(9, 17)
        at, radius = (home[0] + far * np.cos(angle), home[1] + far * np.sin(angle)), rng.uniform(2.4, 4.8)
        area = surface.near(at, 11)
        distance = circle(*area.frame(at), radius)
        cast = smooth(circle(*area.frame((at[0] + 1.2, at[1] + 1.4)), radius), 2.0)
        ball = coverage(distance, max(1.0, area.step))
        surface.shadow(area, cast * (1 - ball) * np.float32(0.4))
        surface.paint(area, ball, (0.66, 0.67, 0.69), gloss=0.6)
        surface.level(area, ball, np.sqrt(np.clip(-distance * (distance + np.float32(2 * radius)), 0, None)))
        mask |= full_mask(surface.size, area, distance < 1.0)
    return mask


def _scratch(surface: Surface, parts: list[Part], rng: Rng) -> Mask:
    """Through the green mask down to copper; it starts beside a part, where a tool slipped."""
    home = parts[_pick(parts, rng, "resistor", "capacitor")].place
    centre = (home[0] + rng.uniform(-12, 12), home[1] + rng.uniform(-12, 12))
    length, depth = rng.uniform(24, 70), rng.uniform(0.7, 1.8)
    angle = rng.uniform(0, HALF_TURN)
    return blemishes.scratch(surface, rng, centre, angle, length, colour=(0.62, 0.60, 0.42), depth=depth)


_MISTAKEN = {"resistor": "capacitor", "capacitor": "resistor", "led_red": "led_green", "led_green": "led_red"}
_PLACING = {"missing": _missing, "misaligned": _misaligned, "wrong_part": _wrong_part, "reversed": _reversed}
_DAMAGE = {"solder_bridge": _solder_bridge, "solder_ball": _solder_ball, "scratch": _scratch}

BOARD = Product("board", "assembled circuit board", (*_PLACING, *_DAMAGE), Lighting((-0.45, -0.6, 0.9), 0.5, 16), draw)
