"""Images moved: copies that show a part a little to the side, turned, nearer or farther; and images of parts that lie
elsewhere, moved to where a reference has them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dinosaur_ad.core.registration import Reference, Transform, edge_images, transform_of

SHIFT, DEGREES, SCALE = 10 / 448, 3.0, 0.02
"""How far a copy is moved at the most: a share of each side, degrees, a share of the size."""


def moved_copy(pixels_HWC: NDArray[np.uint8], generator: np.random.Generator, reach: float = 1.0) -> NDArray[np.uint8]:
    """The image shifted, turned and scaled at random; its border is repeated where the move leaves nothing.

    ``reach`` is the share of the usual move: of an image of many tiles less, so that it moves no farther than one tile.

    >>> moved_copy(np.full((28, 28, 3), 7, np.uint8), np.random.default_rng(0)).tolist()[0][0]
    [7, 7, 7]
    """
    height, width, _ = pixels_HWC.shape
    angle = reach * math.radians(generator.uniform(-DEGREES, DEGREES))
    scale = 1 + reach * generator.uniform(-SCALE, SCALE)
    right, down = (reach * generator.uniform(-SHIFT, SHIFT, 2) * (width, height)).tolist()
    margin = max(height, width) // 8
    wide = np.pad(pixels_HWC, ((margin, margin), (margin, margin), (0, 0)), mode="edge")
    centre_x, centre_y = wide.shape[1] / 2, wide.shape[0] / 2
    cosine, sine = math.cos(angle) / scale, math.sin(angle) / scale
    inverse = (
        cosine,
        sine,
        centre_x - cosine * (centre_x + right) - sine * (centre_y + down),
        -sine,
        cosine,
        centre_y + sine * (centre_x + right) - cosine * (centre_y + down),
    )
    size = wide.shape[1], wide.shape[0]
    moved = Image.fromarray(wide).transform(size, Image.Transform.AFFINE, inverse, Image.Resampling.BICUBIC)
    return np.asarray(moved)[margin : margin + height, margin : margin + width]


def registered(
    pixels_NHWC: NDArray[np.uint8], reference: Reference
) -> tuple[NDArray[np.uint8], list[Transform | None]]:
    """Prepared images ``(N, S, S, 3)`` with the part where the reference has it, and how each was moved.

    An image without a confident estimate, or that lies right already, stays as it is: None.
    """
    found = reference.find(edge_images(pixels_NHWC, reference.aspect))
    moved = [transform_of(each, reference.aspect) if each.counts else None for each in found]
    images = [pixels if each is None else warped(pixels, each) for pixels, each in zip(pixels_NHWC, moved, strict=True)]
    return np.stack(images), moved


def warped(pixels_HWC: NDArray[np.uint8], transform: Transform) -> NDArray[np.uint8]:
    """The image whose place ``p`` shows what ``transform`` of ``p`` shows here; beyond the border it is repeated.

    >>> pixels = np.repeat(np.arange(0, 160, 10, np.uint8)[None, :, None], 16, axis=0).repeat(3, axis=2)
    >>> warped(pixels, Transform(1, 0, 2 / 16, 0, 1, 0))[0, :4, 0].tolist()
    [20, 30, 40, 50]
    """
    height, width, _ = pixels_HWC.shape
    a, b, c, d, e, f = transform
    corner_x, corner_y = transform.at(np.asarray([0.0, 1, 0, 1]), np.asarray([0.0, 0, 1, 1]))
    reach = float(max(np.abs(corner_x - 0.5).max(), np.abs(corner_y - 0.5).max())) - 0.5
    margin = math.ceil(max(0.0, reach) * max(height, width)) + 2
    wide = np.pad(pixels_HWC, ((margin, margin), (margin, margin), (0, 0)), mode="edge")
    inverse = (a, b * width / height, c * width + margin, d * height / width, e, f * height + margin)
    size = width, height
    return np.asarray(Image.fromarray(wide).transform(size, Image.Transform.AFFINE, inverse, Image.Resampling.BICUBIC))
