"""Woven fabric: a two-by-two twill of dyed warp and paler weft, seen close."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dinosaur_ad.datasets.synthetic import blemishes
from dinosaur_ad.datasets.synthetic.product import Product
from dinosaur_ad.datasets.synthetic.raster import Field, Mask, Rng, bell, coverage, noise, whole
from dinosaur_ad.datasets.synthetic.surface import Colour, Lighting, Surface, linear

PITCH = 8.0  # units between threads
FULLNESS = 0.94  # share of the pitch that a thread fills
WARP: Colour = (0.29, 0.37, 0.52)
WEFT: Colour = (0.66, 0.68, 0.70)
UNDER: Colour = (0.10, 0.11, 0.13)


@dataclass
class Weave:
    """Where every pixel lies in the weave, (S, S) each; a swell of 1 is a normal thread, 0 is none."""

    u: Field  # across the warp, in threads
    v: Field  # across the weft, in threads
    warp_swell: Field
    weft_swell: Field
    weft_float: Field  # 1 where the weft leaves the weave and lies on top


def draw(size: int, kind: str, scene: Rng, defect: Rng) -> tuple[Surface, Mask]:
    """Weave, then damage the threads (before shading) or the cloth (after)."""
    weave = _weave(size, scene)
    mask = np.zeros((size, size), dtype=bool)
    if kind in _THREADS:
        mask = _THREADS[kind](weave, defect)
    surface = _cloth(size, weave, scene)
    if kind in _CLOTH:
        mask = _CLOTH[kind](surface, defect)
    return surface, mask


def _weave(size: int, rng: Rng) -> Weave:
    area = whole(size)
    x, y = area.frame((rng.uniform(0, 64), rng.uniform(0, 64)), rng.normal(0.0, 0.02))
    shape = (size, size)
    u = (x + noise(rng, shape, (5, 5)) * np.float32(0.9)) / np.float32(PITCH * rng.normal(1.0, 0.01))
    v = (y + noise(rng, shape, (5, 5)) * np.float32(0.9)) / np.float32(PITCH * rng.normal(1.0, 0.01))
    # Yarn is spun, not extruded: its thickness wanders along each thread.
    warp_swell = 1 + np.float32(0.05) * noise(rng, shape, (12, 40))
    weft_swell = 1 + np.float32(0.05) * noise(rng, shape, (40, 12))
    return Weave(u + 64, v + 64, warp_swell, weft_swell, np.zeros(shape, dtype=np.float32))


def _cloth(size: int, weave: Weave, rng: Rng) -> Surface:
    shape = (size, size)
    iu, iv = np.floor(weave.u), np.floor(weave.v)
    warp_tone = 1 + 0.07 * rng.standard_normal(256).astype(np.float32)
    weft_tone = 1 + 0.05 * rng.standard_normal(256).astype(np.float32)
    across_warp, across_weft = weave.u - iu - np.float32(0.5), weave.v - iv - np.float32(0.5)
    # A twill: every warp thread floats over two wefts, one step later on the next thread.
    along_warp = np.mod(weave.v - iu, 4.0)
    along_weft = np.mod(weave.u - iv - 1.0, 4.0)
    warp = _thread(across_warp, weave.warp_swell, along_warp)
    weft = _thread(across_weft, weave.weft_swell, along_weft)
    weft += weave.weft_float * (1.7 * np.clip(weave.weft_swell, 0, 1) - 0.5 * np.abs(across_weft))
    top = coverage(warp - weft, 0.25)  # 1 where the weft is above
    height = np.maximum(np.maximum(warp, weft), np.float32(-0.9))
    fibres = np.where(top > 0.5, noise(rng, shape, (size, size / 4)), noise(rng, shape, (size / 4, size)))
    tone_warp = warp_tone[iu.astype(np.intp) & 255] * linear(WARP)
    tone_weft = weft_tone[iv.astype(np.intp) & 255] * linear(WEFT)
    albedo = tone_warp + top * (tone_weft - tone_warp)
    albedo *= 1 + np.float32(0.10) * fibres
    depth = np.clip(height * np.float32(0.75) + np.float32(0.55), 0.12, 1.0)  # gaps between threads see little light
    zeros = np.zeros(shape, dtype=np.float32)
    dye = rng.normal(1.0, 0.02, (3, 1, 1)).astype(np.float32)
    return Surface(albedo * dye, height * 1.1 + fibres * 0.06, zeros + 0.02, depth, zeros)


def _thread(across: Field, swell: Field, along: Field) -> Field:
    """Height of a thread: round across, and bowing over the two threads it floats on (``along`` in 0..2)."""
    half = np.float32(0.5 * FULLNESS) * swell
    round_ = np.sqrt(np.clip(1 - (across / np.maximum(half, np.float32(1e-3))) ** 2, 0, 1))
    bow = np.cos((along - 1.0) * np.float32(np.pi / 2))
    return np.where(np.abs(across) < half, round_ * np.float32(0.6) + bow * np.float32(0.55) - 0.3, np.float32(-1.2))


def _stretch(weave: Weave, rng: Rng, shortest: float, longest: float) -> tuple[Field, Field]:
    """Part of one weft thread: distance across it (in threads), and how far inside the part (0..1)."""
    size = weave.u.shape[0]
    row, column = rng.integers(size // 8, size * 7 // 8, 2)
    thread = np.floor(weave.v[row, column])
    half = rng.uniform(shortest, longest) / PITCH / 2
    inside = np.clip((half - np.abs(weave.u - weave.u[row, column])) * 1.5, 0, 1)
    return weave.v - np.float32(thread + 0.5), inside


def _pulled_thread(weave: Weave, rng: Rng) -> Mask:
    across, inside = _stretch(weave, rng, 44, 140)
    on = np.abs(across) < 0.5
    weave.weft_float += inside * on
    weave.warp_swell *= 1 - np.float32(0.25) * inside * bell(across, 0.8)  # the pull tightens its neighbourhood
    return (np.abs(across) < 0.75) & (inside > 0.1)


def _missing_thread(weave: Weave, rng: Rng) -> Mask:
    across, inside = _stretch(weave, rng, 40, 200)
    on = np.abs(across) < 0.5
    weave.weft_swell *= 1 - inside * on
    return (np.abs(across) < 0.6) & (inside > 0.15)


def _slub(weave: Weave, rng: Rng) -> Mask:
    across, inside = _stretch(weave, rng, 22, 60)
    gain = rng.uniform(0.5, 1.1)
    width = 0.5 + 0.45 * gain * inside
    weave.weft_float += np.where(np.abs(across) < width, 0.75 * inside, 0).astype(np.float32)
    weave.v -= np.where(
        np.abs(across) < width, across * (1 - 0.5 / width), 0
    )  # the thick thread spreads over its neighbours
    return (np.abs(across) < width) & (inside > 0.15)


def _spot(rng: Rng, margin: float = 36) -> tuple[float, float]:
    x, y = rng.uniform(margin, 256 - margin, 2)
    return float(x), float(y)


def _hole(surface: Surface, rng: Rng) -> Mask:
    """Threads torn through; a few loose ends hang into the opening."""
    centre, radius = _spot(rng), rng.uniform(4, 13)
    mask = blemishes.hole(surface, rng, centre, radius, UNDER)
    for _ in range(int(rng.integers(1, 5))):
        angle = rng.uniform(0, 2 * np.pi)
        at = (centre[0] + 0.8 * radius * np.cos(angle), centre[1] + 0.8 * radius * np.sin(angle))
        colour = WARP if rng.uniform() < 0.5 else WEFT
        mask |= blemishes.fibre(surface, rng, at, rng.uniform(0.5, 1.1) * radius, colour, rng.uniform(0.5, 1.0))
    return mask


def _stain(surface: Surface, rng: Rng) -> Mask:
    oil = rng.uniform() < 0.5
    colour = (0.16, 0.14, 0.12) if oil else (0.45, 0.33, 0.22)
    strength = rng.uniform(0.22, 0.55)
    return blemishes.stain(surface, rng, _spot(rng), rng.uniform(8, 26), colour=colour, strength=strength, rim=0.25)


def _lint(surface: Surface, rng: Rng) -> Mask:
    colour = (0.72, 0.16, 0.14) if rng.uniform() < 0.4 else (0.86, 0.85, 0.80)
    return blemishes.fibre(surface, rng, _spot(rng), rng.uniform(30, 80), colour, rng.uniform(0.6, 1.2))


_THREADS = {"pulled_thread": _pulled_thread, "missing_thread": _missing_thread, "slub": _slub}
_CLOTH = {"hole": _hole, "stain": _stain, "lint": _lint}

FABRIC = Product("fabric", "twill fabric, close up", (*_THREADS, *_CLOTH), Lighting((-0.5, -0.6, 0.8), 0.5), draw)
