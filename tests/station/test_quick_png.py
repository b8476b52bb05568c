"""Pictures of cameras as PNG files: every reader gets the same pixels back, and zlib finds something to save."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from dinosaur_ad.station.history.quick_png import quick_png

SHAPES = [(40, 30, 3), (1, 1, 3), (1, 50, 3), (50, 1, 3), (33, 17), (9, 9, 1), (20, 30, 4)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("compressed", [True, False])
def test_a_reader_gets_the_same_pixels_back(shape: tuple[int, ...], compressed: bool) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    with Image.open(io.BytesIO(quick_png(pixels, compressed=compressed))) as image:
        assert image.format == "PNG"
        read = np.asarray(image)
    assert np.array_equal(read.reshape(pixels.shape), pixels)


def test_rows_that_do_not_lie_behind_one_another_are_read_right() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (30, 40, 3), np.uint8)
    for seen in (pixels[::2, ::3], pixels[::-1], pixels.transpose(1, 0, 2), pixels[..., ::-1]):
        with Image.open(io.BytesIO(quick_png(seen))) as image:
            assert np.array_equal(np.asarray(image), seen)


def test_a_smooth_picture_is_far_smaller_than_its_pixels() -> None:
    ramp = np.linspace(0, 255, 200).astype(np.uint8)
    pixels = np.broadcast_to(ramp[:, None, None], (200, 300, 3))
    assert len(quick_png(pixels)) < pixels.size / 20
    assert len(quick_png(pixels, compressed=False)) > pixels.size
