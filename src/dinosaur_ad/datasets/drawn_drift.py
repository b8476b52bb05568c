"""Product and camera drift, as the paper's appendix ("Augmented MTD") describes it.

Ten levels of three kinds. A drift is a small frozen value that says exactly what is done to one image: the
same pixels at every evaluation, in any order, in any process. What is random is drawn by :func:`draw_drift`
from a generator seeded with the SHA-256 of the image's name, the level and the seed.

- ``color``: one factor ``1 + v`` or ``1 - v`` an image, ``v`` uniform in the level's band, applied to
  brightness, contrast and saturation in that order, each clipped and rounded down to uint8 (torchvision's
  ``adjust_*`` for PIL images). Magnetic tiles are grey, so saturation changes nothing there. The main text
  also names hue; the appendix does not, nor do we.
- ``blur``: a kernel size and a sigma a level, at native resolution (torchvision's ``gaussian_blur``). The
  first level has kernel 1, which is the identity: task 1 is the clean set, whatever its sigma says.
- ``geo``: one rotation, translation, scale and shear a level, shared by all images of the task (torchvision's
  ``affine``), at native resolution.

**A finding about the geometric levels.** The paper prints scales of 0.01 to 0.10 and samples from
``[nominal - 0.01, nominal]``. Read literally as a scale factor, that shrinks each image to at most a tenth of
its size on a black ground, where hardly a defect can be seen; the paper reports chance level for every
method. Its prose (the tiles "were still visible") only fits a factor of ``1 + s``. So ``geo`` scales by
``1 + s``, and ``geo-literal`` keeps the printed reading, from the same draws, so that the difference can be
measured.

**What replay may see.** Instead of storing images of earlier levels, the paper widens the range that a replay
method trains on until it takes in all levels up to the current one. :func:`draw_replay_drift` draws from that
range, and a scenario keeps such images apart (``Task.widened``), so that it is a property of the data and not
hidden in a method.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from dinosaur_ad.datasets.transforms import BlurDrift, ColorDrift, Drift, GeometricDrift
from dinosaur_ad.errors import InputError

DriftKind: TypeAlias = Literal["color", "blur", "geo", "geo-literal"]
DRIFT_KINDS: tuple[DriftKind, ...] = get_args(DriftKind)

# The appendix's table, easiest level first.
COLOR_BANDS = (
    (0.00, 0.05), (0.05, 0.10), (0.10, 0.15), (0.15, 0.20), (0.20, 0.25),
    (0.25, 0.30), (0.30, 0.35), (0.35, 0.40), (0.40, 0.45), (0.45, 0.50),
)  # fmt: skip
"""(low, high) of the magnitude v."""

BLUR_LEVELS = (
    (1, 0.5), (3, 1.0), (5, 1.5), (7, 2.0), (9, 2.5), (11, 3.0), (13, 3.5), (15, 4.0), (17, 4.5), (19, 5.0),
)  # fmt: skip
"""(kernel size in pixels, sigma in pixels)."""

GEOMETRIC_LEVELS = (
    (2, 1, 0.01, 1), (4, 2, 0.02, 2), (6, 3, 0.03, 3), (8, 4, 0.04, 4), (10, 5, 0.05, 5),
    (12, 6, 0.06, 6), (14, 7, 0.07, 7), (16, 8, 0.08, 8), (18, 9, 0.09, 9), (20, 10, 0.10, 10),
)  # fmt: skip
"""Nominal (rotation in degrees, translation in pixels, scale, shear in degrees)."""

GEOMETRIC_WINDOW = (2.0, 1.0, 0.01, 1.0)
"""How far below the nominal value the draw may go, in the same order."""

LEVELS = len(COLOR_BANDS)

_SMALLEST_SCALE = 1e-6  # the widened literal range begins at 0, which no image survives


def draw_drift(kind: DriftKind, level: int, name: str, seed: int = 0) -> Drift:
    """The drift of the image ``name`` at ``level`` (1 to 10); the same arguments always give the same drift.

    >>> draw_drift("blur", 3, "tile.jpg").params()
    {'drift': 'blur', 'kernel': 5, 'sigma': 1.5}
    """
    _check(kind, level)
    if kind == "color":
        return _draw_color(_generator("color", level, name, seed), *COLOR_BANDS[level - 1])
    if kind == "blur":
        return BlurDrift(*BLUR_LEVELS[level - 1])
    # No image name: the whole task shares one transform. No variant either: both readings see the same draw.
    nominal = GEOMETRIC_LEVELS[level - 1]
    lowest = np.subtract(nominal, GEOMETRIC_WINDOW).tolist()
    return _draw_geometric(_generator("geometric", level, seed), lowest, nominal, literal=kind == "geo-literal")


def draw_replay_drift(kind: DriftKind, level: int, name: str, seed: int = 0) -> Drift:
    """The drift of the image ``name`` when a replay method trains on it at ``level``: from all levels up to this one.

    Drawn once for each image, level and seed, apart from :func:`draw_drift`:

    - ``color``: a magnitude from 0 to the level's highest, either sign.
    - ``blur``: the level's kernel, a sigma from 0.5 to the level's. Level 1 has kernel 1 and stays the identity.
    - ``geo``: rotation, translation along each axis and shear from 0 to the level's nominal value, scale from 1 to
      1 + nominal, for each image anew. ``geo-literal``: a scale factor from 0 (excluded) to nominal.

    >>> 0.5 <= draw_replay_drift("blur", 3, "tile.jpg").params()["sigma"] <= 1.5
    True
    """
    _check(kind, level)
    if kind == "color":
        return _draw_color(_generator("replay-color", level, name, seed), 0.0, COLOR_BANDS[level - 1][1])
    if kind == "blur":
        kernel, sigma = BLUR_LEVELS[level - 1]
        return BlurDrift(kernel, float(_generator("replay-blur", level, name, seed).uniform(BLUR_LEVELS[0][1], sigma)))
    generator, nominal = _generator("replay-geometric", level, name, seed), GEOMETRIC_LEVELS[level - 1]
    return _draw_geometric(generator, (0.0, 0.0, 0.0, 0.0), nominal, literal=kind == "geo-literal")


def _check(kind: DriftKind, level: int) -> None:
    if not 1 <= level <= LEVELS:
        raise InputError(f"Drift level {level} does not exist; choose 1 to {LEVELS}.")
    if kind not in DRIFT_KINDS:
        raise InputError(f"Drift '{kind}' does not exist; choose one of {', '.join(DRIFT_KINDS)}.")


def _draw_color(generator: np.random.Generator, low: float, high: float) -> ColorDrift:
    magnitude = float(generator.uniform(low, high))
    return ColorDrift(1 + magnitude if generator.random() < 0.5 else 1 - magnitude)


def _draw_geometric(
    generator: np.random.Generator, lowest: Sequence[float], nominal: Sequence[float], *, literal: bool
) -> GeometricDrift:
    # The order of the draws is part of every published result.
    rotation, translation, scale, shear = zip(lowest, nominal, strict=True)
    translate_x, translate_y = generator.uniform(*translation, size=2).tolist()
    drawn_scale = float(generator.uniform(*scale))
    return GeometricDrift(
        rotation=float(generator.uniform(*rotation)),
        translate_x=translate_x,
        translate_y=translate_y,
        scale=max(drawn_scale, _SMALLEST_SCALE) if literal else 1 + drawn_scale,
        shear=float(generator.uniform(*shear)),
    )


def _generator(*key: str | int) -> np.random.Generator:
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
