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
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from typing import Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageEnhance

from dinosaur_ad.data.images import Mask, Pixels
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


@runtime_checkable
class Drift(Protocol):
    """What happened to an image between the camera we learned with and the camera we have."""

    def image(self, pixels: Pixels) -> Pixels:
        """The drifted image: uint8 (H, W, 3) to uint8 (H, W, 3)."""
        ...

    def mask(self, mask: Mask) -> Mask:
        """The defect mask (H, W), moved with the image."""
        ...

    def valid(self, shape: tuple[int, int]) -> Mask | None:
        """Which pixels of an (H, W) image still show the source: bool (H, W), None when all do."""
        ...

    def params(self) -> dict[str, str | float]:
        """What was done, ready for JSON."""
        ...


class _Photometric:
    """A drift that moves nothing: masks stay where they are and every pixel counts."""

    def mask(self, mask: Mask) -> Mask:
        """The mask as it is."""
        return mask

    def valid(self, shape: tuple[int, int]) -> Mask | None:
        """Every pixel counts."""
        return None


@dataclass(frozen=True)
class ColorDrift(_Photometric):
    """Brightness, then contrast, then saturation, all by one ``factor`` (1 is the identity).

    Contrast blends with the mean of the grey image, saturation with the grey image itself.

    >>> ColorDrift(1.5).image(np.full((1, 1, 3), 100, np.uint8))[0, 0].tolist()
    [150, 150, 150]
    """

    factor: float

    def image(self, pixels: Pixels) -> Pixels:
        """The image under other light: uint8 (H, W, 3)."""
        image = Image.fromarray(pixels)
        for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            image = enhance(image).enhance(self.factor)
        return np.array(image)

    def params(self) -> dict[str, str | float]:
        """``drift`` and ``factor``."""
        return {"drift": "color", **asdict(self)}


@dataclass(frozen=True)
class BlurDrift(_Photometric):
    """A Gaussian of ``sigma`` pixels cut to ``kernel`` taps (odd), borders reflected, rounded to nearest.

    >>> step = np.array([0, 0, 255, 255], np.uint8)[None, :, None].repeat(3, axis=2)
    >>> BlurDrift(3, 1.0).image(step)[0, :, 0].tolist()
    [0, 70, 185, 255]
    """

    kernel: int
    sigma: float

    def __post_init__(self) -> None:
        if self.kernel < 1 or self.kernel % 2 == 0 or not self.sigma > 0:
            raise InputError(
                f"A blur of kernel {self.kernel} and sigma {self.sigma} is not possible; "
                "the kernel must be odd and the sigma above 0."
            )

    def image(self, pixels: Pixels) -> Pixels:
        """The image out of focus: uint8 (H, W, 3)."""
        if self.kernel == 1:
            return pixels
        grey = bool((pixels == pixels[..., :1]).all())
        values = (pixels[..., :1] if grey else pixels).astype(np.float32)  # grey: a third of the work
        for axis in (0, 1):
            values = _convolve(values, self._weights(), axis)
        return np.broadcast_to(np.rint(values).astype(np.uint8), pixels.shape).copy()

    def params(self) -> dict[str, str | float]:
        """``drift``, ``kernel`` and ``sigma``."""
        return {"drift": "blur", **asdict(self)}

    def _weights(self) -> npt.NDArray[np.float32]:
        taps = np.arange(self.kernel) - self.kernel // 2
        weights: npt.NDArray[np.float64] = np.exp(-0.5 * (taps / self.sigma) ** 2)
        return np.asarray(weights / weights.sum(), dtype=np.float32)


@dataclass(frozen=True)
class GeometricDrift:
    """Shear, rotate (clockwise) and scale about the centre, then translate; what was outside is black.

    Angles in degrees, translation in pixels of the image as it is, ``scale`` a factor (1 is the identity).
    """

    rotation: float
    translate_x: float
    translate_y: float
    scale: float
    shear: float

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise InputError(f"A scale of {self.scale} leaves no image; it must be above 0.")

    def image(self, pixels: Pixels) -> Pixels:
        """The image as the moved camera sees it, bilinear: uint8 (H, W, 3)."""
        return np.array(self._warp(Image.fromarray(pixels), Image.Resampling.BILINEAR))

    def mask(self, mask: Mask) -> Mask:
        """The mask moved with the image, nearest neighbour: bool (H, W)."""
        moved = self._warp(Image.fromarray(mask.astype(np.uint8)), Image.Resampling.NEAREST)
        return np.asarray(moved) > 0

    def valid(self, shape: tuple[int, int]) -> Mask | None:
        """The pixels that come from inside the source image: bool (H, W)."""
        everywhere = Image.fromarray(np.full(shape, 255, dtype=np.uint8))
        # Bilinear, as for the image, so that both agree on the last border pixel.
        return np.asarray(self._warp(everywhere, Image.Resampling.BILINEAR)) > 0

    def params(self) -> dict[str, str | float]:
        """``drift`` and the five numbers."""
        return {"drift": "geometric", **asdict(self)}

    def matrix(self, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
        """The (3, 3) map from source to drifted (x, y, 1) coordinates of an (H, W) image."""
        centre = np.array([shape[1] / 2, shape[0] / 2])
        shift = np.array([self.translate_x, self.translate_y])
        angle, shear = math.radians(self.rotation), math.radians(self.shear)
        cos, sin = math.cos(angle), math.sin(angle)
        turn = np.array([[cos, -sin], [sin, cos]])
        slant = np.array([[1.0, -math.tan(shear)], [0.0, 1.0]])
        linear = self.scale * (turn @ slant)
        forward = np.eye(3)
        forward[:2, :2] = linear
        forward[:2, 2] = centre + shift - linear @ centre
        return forward

    def _warp(self, image: Image.Image, resample: Image.Resampling) -> Image.Image:
        inverse = np.linalg.inv(self.matrix((image.height, image.width)))
        coefficients = tuple(inverse[:2].ravel().tolist())  # Pillow asks where each output pixel comes from
        return image.transform(image.size, Image.Transform.AFFINE, coefficients, resample, fillcolor=0)


def draw_drift(kind: DriftKind, level: int, name: str, seed: int = 0) -> Drift:
    """The drift of the image ``name`` at ``level`` (1 to 10); the same arguments always give the same drift.

    >>> draw_drift("blur", 3, "tile.jpg").params()
    {'drift': 'blur', 'kernel': 5, 'sigma': 1.5}
    """
    if not 1 <= level <= LEVELS:
        raise InputError(f"Drift level {level} does not exist; choose 1 to {LEVELS}.")
    if kind == "color":
        return _draw_color(level, name, seed)
    if kind == "blur":
        return BlurDrift(*BLUR_LEVELS[level - 1])
    if kind in ("geo", "geo-literal"):
        return _draw_geometric(level, seed, literal=kind == "geo-literal")
    raise InputError(f"Drift '{kind}' does not exist; choose one of {', '.join(DRIFT_KINDS)}.")


def _draw_color(level: int, name: str, seed: int) -> ColorDrift:
    generator = _generator("color", level, name, seed)
    low, high = COLOR_BANDS[level - 1]
    magnitude = float(generator.uniform(low, high))
    return ColorDrift(1 + magnitude if generator.random() < 0.5 else 1 - magnitude)


def _draw_geometric(level: int, seed: int, *, literal: bool) -> GeometricDrift:
    # No image name: the whole task shares one transform. No variant either: both readings see the same draw.
    generator = _generator("geometric", level, seed)
    nominal, window = GEOMETRIC_LEVELS[level - 1], GEOMETRIC_WINDOW
    rotation, translation, scale, shear = zip(np.subtract(nominal, window).tolist(), nominal, strict=True)
    translate_x, translate_y = generator.uniform(*translation, size=2).tolist()
    drawn_scale = float(generator.uniform(*scale))
    return GeometricDrift(
        rotation=float(generator.uniform(*rotation)),
        translate_x=translate_x,
        translate_y=translate_y,
        scale=drawn_scale if literal else 1 + drawn_scale,
        shear=float(generator.uniform(*shear)),
    )


def _generator(*key: str | int) -> np.random.Generator:
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))


def _convolve(values: npt.NDArray[np.float32], weights: npt.NDArray[np.float32], axis: int) -> npt.NDArray[np.float32]:
    """Convolve (H, W, C) along one axis with a symmetric odd kernel, reflecting at the borders."""
    radius, length = len(weights) // 2, values.shape[axis]
    padding = [(radius, radius) if dim == axis else (0, 0) for dim in range(values.ndim)]
    padded = np.moveaxis(np.pad(values, padding, mode="reflect"), axis, 0)
    result = padded[radius : radius + length] * weights[radius]
    for tap in range(radius):  # the two halves are equal: add first, multiply once
        far = 2 * radius - tap
        result += (padded[tap : tap + length] + padded[far : far + length]) * weights[tap]
    return np.moveaxis(result, 0, axis)
