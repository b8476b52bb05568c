"""What is printed on the circuit board: copper, vias and lettering, drawn once a size and reused."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from dinosaur_ad.datasets.synthetic.raster import UNITS, Field, Point

TRACES: tuple[tuple[Point, ...], ...] = (
    ((-84, 50), (-84, 70)),
    ((-67, 50), (-67, 62), (-50, 70)),
    ((-50, 38), (-50, 22), (-30, 8), (-22, 8)),
    ((-33, 38), (-33, 26), (-14, 12)),
    ((-16, 38), (-6, 26), (-6, 14)),
    ((-33, 70), (-33, 60), (3, 60), (3, 70)),
    ((17, 44), (34, 44), (46, 34)),
    ((17, 70), (40, 70), (50, 78)),
    ((-76, 8), (-60, 18), (-52, 18)),
    ((-64, -20), (-44, -20), (-30, -16)),
    ((-45, -56), (-62, -56), (-76, -40), (-76, -28)),
    ((-19, -56), (-31, -56)),
    ((21, -56), (50, -56), (72, -42)),
    ((-5, -56), (7, -56)),
    ((-24, -74), (-24, -66), (-6, -46), (-6, -30)),
    ((8, -74), (8, -66), (30, -44), (14, -30)),
    ((24, -74), (24, -70), (96, -70), (96, 60), (80, 74)),
    ((58, -24), (44, -24), (32, -12), (24, -8)),
    ((72, -8), (72, 8), (62, 16)),
    ((22, 12), (34, 20), (48, 26)),
)
LABELS: tuple[tuple[Point, str], ...] = (
    ((-66, 92), "DS-01 REV C"),
    ((-34, 24), "U1"),
    ((74, 8), "U2"),
    ((-100, 22), "R1-R5"),
    ((-98, 58), "C1"),
    ((-98, -36), "C9"),
    ((40, -42), "C8"),
    ((56, 66), "D1 D2"),
    ((40, -92), "J1"),
)
OUTLINES: tuple[tuple[float, float, float, float], ...] = (
    (-92, 34, -8, 54),
    (-92, 66, -25, 86),
    (-50, -63, 26, -49),
    (-38, -100, 38, -76),
)
OVERSAMPLING = 3


def artwork(size: int, centre: Point, angle: float) -> tuple[Field, Field, Field]:
    """Coverage (S, S) by copper, vias and lettering, for a board at ``centre`` turned by ``angle``."""
    step = UNITS / size
    c, s = np.cos(angle), np.sin(angle)
    # Output pixel -> artwork pixel: the artwork's middle is the board's.
    cx, cy = centre[0] / step, centre[1] / step
    half = size / 2
    matrix = (c, s, half - c * cx - s * cy, -s, c, half + s * cx - c * cy)
    laid = _layers(size).transform((size, size), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
    copper, vias, silk = (np.asarray(band, dtype=np.float32) / np.float32(255) for band in laid.split())
    return copper, vias, silk


@lru_cache(maxsize=4)
def _layers(size: int) -> Image.Image:
    """Copper, vias and lettering as the three bands of one picture: one transform lays them all."""
    copper, vias, silk = (Image.new("L", (size * OVERSAMPLING,) * 2) for _ in range(3))
    zoom = size * OVERSAMPLING / UNITS

    def at(point: Point) -> Point:
        return (point[0] + UNITS / 2) * zoom, (point[1] + UNITS / 2) * zoom

    pen, drill = ImageDraw.Draw(copper), ImageDraw.Draw(vias)
    for trace in TRACES:
        pen.line([at(point) for point in trace], fill=255, width=max(1, round(2.2 * zoom)), joint="curve")
        for end in (trace[0], trace[-1]):
            _dot(pen, at(end), 2.6 * zoom, 255)
        _dot(drill, at(trace[len(trace) // 2]), 1.9 * zoom, 255)
        _dot(drill, at(trace[len(trace) // 2]), 0.8 * zoom, 40)
    ink = ImageDraw.Draw(silk)
    for left, top, right, bottom in OUTLINES:
        ink.rectangle([at((left, top)), at((right, bottom))], outline=220, width=max(1, round(0.7 * zoom)))
    for place, text in LABELS:
        _write(silk, at(place), text, zoom)
    return Image.merge("RGB", (copper, vias, silk)).resize((size, size), Image.Resampling.BOX)


def _dot(pen: ImageDraw.ImageDraw, at: Point, radius: float, fill: int) -> None:
    pen.ellipse([at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius], fill=fill)


def _write(layer: Image.Image, at: Point, text: str, zoom: float) -> None:
    # Pillow's built-in bitmap letters: they need no font library, so every machine prints the same board.
    font = ImageFont.load_default_imagefont()
    left, top, right, bottom = font.getbbox(text)
    stamp = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(stamp).text((-left, -top), text, fill=230, font=font)
    scale = 0.72 * zoom
    stamp = stamp.resize(
        (max(1, round(stamp.width * scale)), max(1, round(stamp.height * scale))), Image.Resampling.BICUBIC
    )
    layer.paste(stamp, (round(at[0]), round(at[1])))
