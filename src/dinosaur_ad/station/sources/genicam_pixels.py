"""Frames of GenICam cameras as RGB: grey, Bayer and colour formats by their PFNC numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import Pixels

_GREY = {
    0x01080001: "8",
    0x01100003: "10",
    0x01100005: "12",
    0x01100007: "16",
    0x010C0004: "packed",  # Mono10Packed
    0x010C0006: "packed",  # Mono12Packed
    0x010C0047: "12p",
}
"""Grey formats, and how their values are stored."""

_BAYER = {
    **{0x01080008 + n: ("8", kind) for n, kind in enumerate(("GR", "RG", "GB", "BG"))},
    **{0x0110000C + n: ("10", kind) for n, kind in enumerate(("GR", "RG", "GB", "BG"))},
    **{0x01100010 + n: ("12", kind) for n, kind in enumerate(("GR", "RG", "GB", "BG"))},
    **{0x0110002E + n: ("16", kind) for n, kind in enumerate(("GR", "RG", "GB", "BG"))},
    **{0x010C002A + n: ("packed", kind) for n, kind in enumerate(("GR", "RG", "GB", "BG"))},
}
"""Bayer formats: how the values are stored, and the colours of the first two pixels."""

RGB8, BGR8, UYVY, YUYV = 0x02180014, 0x02180015, 0x0210001F, 0x02100032
_SHIFTS = {"10": 2, "12": 4, "16": 8}


def rgb_of(data: bytes, width: int, height: int, pixel_format: int) -> Pixels:
    """A frame as RGB uint8 (H, W, 3); deeper values keep their upper 8 bits.

    >>> rgb_of(bytes(6), 3, 2, 0x01080001).shape
    (2, 3, 3)

    :raises InputError: the format is not known, or there are too few bytes for it.
    """
    try:
        if pixel_format in _GREY:
            return np.repeat(_values(data, width, height, _GREY[pixel_format])[..., None], 3, axis=2)
        if pixel_format in _BAYER:
            stored, first = _BAYER[pixel_format]
            return demosaiced(_values(data, width, height, stored), first)
        if pixel_format in (RGB8, BGR8):
            rgb = np.frombuffer(data, np.uint8, width * height * 3).reshape(height, width, 3)
            return np.ascontiguousarray(rgb[..., ::-1] if pixel_format == BGR8 else rgb)
        if pixel_format in (UYVY, YUYV):
            return _from_yuv(data, width, height, pixel_format)
    except ValueError:
        raise InputError(f"A frame of {width} x {height} pixels has only {len(data)} bytes; it is left out.") from None
    raise InputError(
        f"The camera's pixel format 0x{pixel_format:08x} is not read; set it to one that is, such as "
        'settings = { PixelFormat = "Mono8" } or RGB8.'
    )


def grey_of(data: bytes, width: int, height: int, pixel_format: int) -> NDArray[np.uint8] | None:
    """A quick grey version for comparing frames, None where there is none; of Bayer the bare values."""
    if pixel_format in (0x01080001, *range(0x01080008, 0x0108000C)) and len(data) >= width * height:
        return np.frombuffer(data, np.uint8, width * height).reshape(height, width)
    return None


def _values(data: bytes, width: int, height: int, stored: str) -> NDArray[np.uint8]:
    """One value for each pixel, uint8 (H, W)."""
    count = width * height
    if stored == "8":
        return np.frombuffer(data, np.uint8, count).reshape(height, width)
    if stored in _SHIFTS:
        deep = np.frombuffer(data, "<u2", count)
        return (deep >> _SHIFTS[stored]).astype(np.uint8).reshape(height, width)
    triples = np.frombuffer(data, np.uint8, (count + 1) // 2 * 3).reshape(-1, 3)  # two pixels in three bytes
    first = triples[:, 0] if stored == "packed" else (triples[:, 1] << 4) | (triples[:, 0] >> 4)
    return np.stack([first, triples[:, 2]], axis=1).reshape(-1)[:count].reshape(height, width)


def demosaiced(values: NDArray[np.uint8], first: str) -> Pixels:
    """A Bayer picture as RGB: each missing colour is the mean of its nearest neighbours.

    ``first`` are the colours of the first two pixels of the first row: GR, RG, GB or BG.
    """
    second = {"GR": "BG", "RG": "GB", "GB": "RG", "BG": "GR"}[first]
    rgb = np.empty((*values.shape, 3), np.uint8)
    for channel, colour in enumerate("RGB"):
        there = np.zeros(values.shape, np.uint16)
        for row, colours in enumerate((first, second)):
            for column in (0, 1):
                there[row::2, column::2] = colours[column] == colour
        weights = _blurred(there)
        rgb[..., channel] = (_blurred(values * there) + weights // 2) // weights
    return rgb


def _blurred(values: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """The sum over 3 x 3 neighbours with the weights 1 2 1; beyond the border there is nothing."""
    padded = np.pad(values, 1)
    rows = padded[:-2] + 2 * padded[1:-1] + padded[2:]
    return np.asarray(rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:], np.uint16)


def _from_yuv(data: bytes, width: int, height: int, pixel_format: int) -> Pixels:
    pairs = np.frombuffer(data, np.uint8, width * height * 2).reshape(height, width // 2, 4)
    order = (1, 0, 3, 2) if pixel_format == UYVY else (0, 1, 2, 3)
    first, blue, second, red = (pairs[..., each] for each in order)
    luma = np.stack([first, second], axis=2).reshape(height, width)
    planes = np.stack([luma, np.repeat(blue, 2, axis=1), np.repeat(red, 2, axis=1)], axis=2)
    return np.array(Image.fromarray(planes, "YCbCr").convert("RGB"))
