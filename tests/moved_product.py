"""A made-up part that lies a little elsewhere in every photo, and how."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.registration import Movement, transform_of
from dinosaur_ad.images.alignment import warped

Pixels = NDArray[np.uint8]


def plate(height: int = 210, width: int = 210, kind: int = 0) -> Pixels:
    """A plate with bars of its own on a plain ground, uint8 (height, width, 3)."""
    generator = np.random.default_rng(500 + kind)
    image = np.full((height, width, 3), 60, np.uint8)
    top, left = height // 5, width // 5
    image[top : height - top, left : width - left] = 120
    for _ in range(14):
        row = int(generator.integers(top, height - top - height // 10))
        column = int(generator.integers(left, width - left - width // 10))
        tall, wide = generator.integers(height // 25, height // 8), generator.integers(width // 25, width // 8)
        image[row : row + int(tall), column : column + int(wide)] = generator.integers(30, 240, 3)
    return image


def lying(image: Pixels, right: float, down: float, degrees: float = 0.0, scale: float = 1.0) -> Pixels:
    """The photo with the part shifted by shares of the sides, turned clockwise and scaled about the centre."""
    movement = Movement(right, down, degrees, scale, 1.0, 0.0)
    return warped(image, transform_of(movement, image.shape[1] / image.shape[0]).inverse()).copy()


def moving_photos(count: int, shift: float, degrees: float, seed: int = 0, image: Pixels | None = None) -> list[Pixels]:
    """Photos of a part that is shifted and turned at random, with a little noise."""
    generator = np.random.default_rng(seed)
    photos = []
    for _ in range(count):
        right, down, turn = generator.uniform(-1, 1, 3).tolist()
        photo = lying(plate() if image is None else image, right * shift, down * shift, turn * degrees)
        photos.append(np.clip(photo + generator.normal(0, 4, photo.shape), 0, 255).astype(np.uint8))
    return photos
