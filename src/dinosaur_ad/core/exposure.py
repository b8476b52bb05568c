"""Brightness matched before encoding: the same part under more or less light gives the same features.

An image is shifted and stretched so that the mean and the spread of its brightness are those that are usual for a
product. Colour drift is mostly exposure, and a lamp that ages is nothing else (docs/presets.md has the measurement).
How far an image had to be stretched is reported with its result. A part that is dark because it is dark looks normal
once it is matched, so an exposure far outside that of all normal images is reported too (:func:`unusual_light`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

MEAN_STEP, SPREAD_STEP = 16, 8
"""Grey levels that exposures are rounded to, so that products that are lit alike share one encoding of an image."""
THUMBNAIL = 8
"""Cells a side of a thumbnail."""
LEAST_GAIN, MOST_GAIN = 0.4, 2.5
"""An image is stretched no further: beyond it, shadows and lights are lost and noise is all that would grow."""
LEAST_SPREAD = 1e-3
"""What the spread of an image of one grey counts as."""
NEAR_BLACK = 8.0
"""Grey levels added before exposures are compared as a ratio: near black, noise alone would make a large one."""
FAR, FAR_OF_FEW, FEW = 1.5, 2.0, 20
"""Light is unusual where brightness or contrast lies outside the range of the normal images by more than the first
factor, or by the second where fewer images than the third were seen (docs/start/camera.md has what was measured)."""


class Exposure(NamedTuple):
    """Mean and spread (standard deviation) of the brightness of an image, in grey levels."""

    mean: float
    spread: float


class ExposureRange(NamedTuple):
    """The lowest and the highest mean and spread of the normal images of a product."""

    lowest: Exposure
    highest: Exposure

    @classmethod
    def of(cls, exposure_N2: NDArray[np.float32]) -> ExposureRange:
        """That of some images.

        >>> ExposureRange.of(np.float32([[100, 30], [120, 20]])).lowest
        Exposure(mean=100.0, spread=20.0)
        """
        return cls(Exposure(*exposure_N2.min(axis=0).tolist()), Exposure(*exposure_N2.max(axis=0).tolist()))

    def with_images(self, exposure_N2: NDArray[np.float32]) -> ExposureRange:
        """The range with more images."""
        return ExposureRange.of(np.concatenate([np.asarray(self, np.float32), exposure_N2]))


class UnusualLight(NamedTuple):
    """An image is by a ratio darker, brighter, flatter (less contrast) or harsher (more) than all normal images."""

    how: Literal["darker", "brighter", "flatter", "harsher"]
    ratio: float

    def __str__(self) -> str:
        """For people.

        >>> str(UnusualLight("darker", 2.14))
        '2.1 times darker than every normal image learned'
        """
        return f"{self.ratio:.1f} times {self.how} than every normal image learned"


def unusual_light(exposure_2: NDArray[np.float32], usual: ExposureRange, images: int) -> UnusualLight | None:
    """How an image's light differs from that of all ``images`` of a range, if it does by far.

    >>> usual = ExposureRange(Exposure(100.0, 30.0), Exposure(120.0, 40.0))
    >>> unusual_light(np.float32([90, 25]), usual, 20) is None
    True
    >>> unusual_light(np.float32([28, 20]), usual, 20)
    UnusualLight(how='darker', ratio=3.0)
    """
    own, lowest, highest = (np.asarray(each, np.float64) + NEAR_BLACK for each in (exposure_2, *usual))
    (darker, flatter), (brighter, harsher) = (lowest / own).tolist(), (own / highest).tolist()
    found = max(
        UnusualLight("darker", darker),
        UnusualLight("brighter", brighter),
        UnusualLight("flatter", flatter),
        UnusualLight("harsher", harsher),
        key=lambda each: each.ratio,
    )
    return found if found.ratio > (FAR if images >= FEW else FAR_OF_FEW) else None


def measure_exposure(pixels_NHWC: Pixels) -> NDArray[np.float32]:
    """Mean and spread of the brightness of images ``(N, H, W, 3)``, as ``(N, 2)``.

    >>> measure_exposure(np.full((1, 4, 4, 3), 90, np.uint8)).tolist()
    [[90.0, 0.0]]
    """
    counts_N256 = _grey_counts(pixels_NHWC)
    level_256 = np.arange(256, dtype=np.float64)
    total_N = counts_N256.sum(axis=1)
    mean_N = counts_N256 @ level_256 / total_N
    square_N = counts_N256 @ level_256**2 / total_N
    spread_N = np.sqrt(np.maximum(square_N - mean_N**2, 0))
    return np.stack([mean_N, spread_N], axis=1).astype(np.float32)


def thumbnails(pixels_NHWC: Pixels) -> NDArray[np.float32]:
    """Images as 8 x 8 coloured cells without their exposure, ``(N, 192)``: enough to guess the product by.

    >>> thumbnails(np.zeros((2, 16, 16, 3), np.uint8)).shape
    (2, 192)
    """
    count, height, width, _ = pixels_NHWC.shape
    rows, columns = (np.arange(THUMBNAIL) * side // THUMBNAIL for side in (height, width))
    sums = np.add.reduceat(np.add.reduceat(pixels_NHWC, rows, axis=1, dtype=np.float32), columns, axis=2)
    area = np.diff(np.append(rows, height))[:, None] * np.diff(np.append(columns, width))[None, :]
    cells_NP = (sums / area[None, :, :, None]).reshape(count, -1)
    cells_NP -= cells_NP.mean(axis=1, keepdims=True)
    result: NDArray[np.float32] = cells_NP / np.maximum(cells_NP.std(axis=1, keepdims=True), 1.0)
    return result.astype(np.float32)


def _grey_counts(pixels_NHWC: Pixels) -> NDArray[np.float64]:
    """Pixels of each image at each grey level ``(N, 256)``; the grey is the mean of the channels, rounded down."""
    sums_NP = pixels_NHWC.reshape(len(pixels_NHWC), -1, 3).astype(np.uint16) @ np.ones(3, np.uint16)
    return np.stack([np.bincount(sums_P // 3, minlength=256) for sums_P in sums_NP]).astype(np.float64)


def usual_exposure(exposure_N2: NDArray[np.float32]) -> Exposure:
    """The median exposure of the normal images of a product, rounded to steps.

    >>> usual_exposure(np.float32([[100, 30], [120, 33], [118, 31]]))
    Exposure(mean=112.0, spread=32.0)
    """
    mean, spread = np.median(exposure_N2, axis=0).tolist()
    rounded = Exposure(round(mean / MEAN_STEP) * MEAN_STEP, round(spread / SPREAD_STEP) * SPREAD_STEP)
    return Exposure(float(rounded.mean), float(max(SPREAD_STEP, rounded.spread)))


def exposure_gain(spread_N: NDArray[np.float32], target: Exposure) -> NDArray[np.float32]:
    """By which factor the contrast of images with that spread is multiplied, ``(N,)``.

    >>> exposure_gain(np.float32([16, 40, 1]), Exposure(112, 32)).astype(float).round(2).tolist()
    [2.0, 0.8, 2.5]
    """
    spread_N = np.maximum(np.asarray(spread_N, np.float32), np.float32(LEAST_SPREAD))
    gain_N: NDArray[np.float32] = np.clip(np.float32(target.spread) / spread_N, LEAST_GAIN, MOST_GAIN)
    return gain_N.astype(np.float32)


def match_exposure(pixels_NHWC: Pixels, exposure_N2: NDArray[np.float32], target: Exposure) -> Pixels:
    """Images ``(N, H, W, 3)`` with the brightness of ``target``; ``exposure_N2`` is what they have.

    >>> dark = np.uint8([[[[40] * 3, [60] * 3]]])
    >>> match_exposure(dark, measure_exposure(dark), Exposure(112.0, 16.0))[0, 0, :, 0].tolist()
    [96, 128]
    """
    gain_N = exposure_gain(exposure_N2[:, 1], target)
    shift_N = np.float32(target.mean) - gain_N * exposure_N2[:, 0]
    # A table of the 256 values of each image: faster than arithmetic on every pixel.
    value_256 = np.arange(256, dtype=np.float32)
    table_N256 = np.clip(np.rint(gain_N[:, None] * value_256 + shift_N[:, None]), 0, 255).astype(np.uint8)
    return np.stack([table_256[image] for table_256, image in zip(table_N256, pixels_NHWC, strict=True)])
