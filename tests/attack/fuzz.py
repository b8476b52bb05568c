"""Image files of every kind that Pillow writes here, and ways to damage them."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from PIL import Image, features

KINDS = (
    "PNG",
    "JPEG",
    "TIFF",
    "BMP",
    "GIF",
    "PPM",
    "TGA",
    "WEBP",
    "JPEG2000",
    "AVIF",
    "ICO",
    "PCX",
    "SGI",
    "DDS",
    "EPS",
    "QOI",
)
LIBRARIES = {"WEBP": "webp", "JPEG2000": "jpg_2000", "AVIF": "avif"}
ENDINGS = (".png", ".jpg", ".tif", ".bmp", ".gif", ".ppm", ".tga", ".webp", ".jp2", ".avif")
FITTING = dict(zip(KINDS, (*ENDINGS, ".png", ".png", ".png", ".png", ".png", ".png"), strict=True))
MODES = {
    "PNG": ("RGB", "L", "RGBA", "P", "I;16", "1"),
    "TIFF": ("RGB", "L", "I;16", "F", "CMYK"),
    "JPEG": ("RGB", "L", "CMYK"),
}


@cache
def sample(kind: str, mode: str) -> bytes:
    """A valid file of that kind: a small picture with some structure."""
    pattern = np.kron(np.random.default_rng(7).integers(0, 255, (6, 7, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    image = Image.fromarray(pattern)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    elif mode == "F":
        image = Image.fromarray(np.asarray(image.convert("L")).astype(np.float32) / 255)
    elif mode != "RGB":
        image = image.convert(mode)
    buffer = io.BytesIO()
    options: dict[str, Any] = {"compression": "tiff_lzw"} if kind == "TIFF" and mode == "RGB" else {}
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@cache
def kinds() -> list[str]:
    """Those that this Pillow can write."""
    Image.init()
    missing = {kind for kind, library in LIBRARIES.items() if not features.check(library)}
    return [kind for kind in KINDS if kind in Image.SAVE and kind not in missing]


def truncated(data: bytearray, dice: random.Random) -> bytearray:
    """The file ends too early."""
    return data[: dice.randrange(len(data))]


def flipped(data: bytearray, dice: random.Random) -> bytearray:
    """Some bits are wrong."""
    for _ in range(dice.choice((1, 1, 2, 8, 64))):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return data


def flipped_header(data: bytearray, dice: random.Random) -> bytearray:
    """Some bytes near the start are others."""
    for _ in range(dice.choice((1, 2, 4))):
        data[dice.randrange(min(len(data), 64))] = dice.randrange(256)
    return data


def swapped(data: bytearray, dice: random.Random) -> bytearray:
    """Two parts have changed places."""
    size = dice.randint(1, max(1, len(data) // 4))
    one, other = sorted(dice.randrange(len(data) - size + 1) for _ in range(2))
    if other - one < size:
        return flipped(data, dice)
    return (
        data[:one]
        + data[other : other + size]
        + data[one + size : other]
        + data[one : one + size]
        + data[other + size :]
    )


def repeated(data: bytearray, dice: random.Random) -> bytearray:
    """A part comes twice."""
    begin = dice.randrange(len(data))
    end = dice.randint(begin, len(data))
    return data[:end] + data[begin:]


def zeroed(data: bytearray, dice: random.Random) -> bytearray:
    """A part was never written."""
    begin = dice.randrange(len(data))
    end = min(len(data), begin + dice.choice((1, 16, 512, 4096)))
    return data[:begin] + bytes(end - begin) + data[end:]


def extended(data: bytearray, dice: random.Random) -> bytearray:
    """Something follows."""
    return data + dice.randbytes(dice.choice((1, 100, 10_000)))


def enormous(data: bytearray, dice: random.Random) -> bytearray:
    """The size in the header is a lie, with a right checksum where there is one."""
    side = dice.choice((0, 1, 9_999, 20_001, 65_535, 2**31 - 1))
    if data[:4] == b"\x89PNG":
        data[16:24] = struct.pack(">II", side, dice.choice((side, 70)))
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    elif data[:2] == b"BM":
        data[18:26] = struct.pack("<II", side, dice.choice((side, 70)))
    elif data[:3] == b"GIF":
        data[6:10] = struct.pack("<HH", side & 0xFFFF, side & 0xFFFF)
    elif data[:2] == b"\xff\xd8" and (at := data.find(b"\xff\xc0")) > 0:
        data[at + 5 : at + 9] = struct.pack(">HH", side & 0xFFFF, side & 0xFFFF)
    else:
        return flipped_header(data, dice)
    return data


def other_content(data: bytearray, dice: random.Random) -> bytearray:
    """No image at all."""
    return bytearray(
        dice.choice(
            (
                b"",
                b"\0" * 4096,
                b"This is a text and no image.\n" * 20,
                b"<html><script>alert(1)</script></html>",
                b"%PDF-1.7\n%%EOF\n",
                b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
                b"PK\x03\x04" + b"\0" * 200,
                b"\x89PNG\r\n\x1a\n",
                b"\xff\xd8\xff\xe0",
                b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>',
                dice.randbytes(3000),
            )
        )
    )


def unharmed(data: bytearray, dice: random.Random) -> bytearray:
    """A valid file, perhaps under a wrong name."""
    return data


DAMAGES: tuple[Callable[[bytearray, random.Random], bytearray], ...] = (
    truncated,
    flipped,
    flipped_header,
    swapped,
    repeated,
    zeroed,
    extended,
    enormous,
    other_content,
    unharmed,
)


def fuzzed(case: int, dice: random.Random) -> tuple[str, bytes]:
    """The name and the content of one file: kinds and damages in turn, every eighth under a wrong ending."""
    available = kinds()
    kind, damage = available[case % len(available)], DAMAGES[case // len(available) % len(DAMAGES)]
    data = sample(kind, dice.choice(MODES.get(kind, ("RGB",))))
    ending = dice.choice(ENDINGS) if dice.random() < 0.125 else FITTING[kind]
    return f"{case:05d}-{kind}-{damage.__name__}{ending}", bytes(damage(bytearray(data), dice))
