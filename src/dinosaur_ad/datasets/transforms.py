"""Drift applied to one image: light, focus or the position of the camera.

Each is a small frozen value that says exactly what is done, so that the same pixels come out at every evaluation, in
any order, in any process. Which value an image gets is drawn in :mod:`dinosaur_ad.datasets.drawn_drift`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageEnhance

from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import Mask, Pixels


@runtime_checkable
class Drift(Protocol):
    """One drift of an image: a change of its pixels, and how masks move with it."""

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
