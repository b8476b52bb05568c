"""From decoded pixels of any depth to 8 bits a channel, on a scale that never depends on the image's own range.

Two photographs of one part must stay comparable, so nothing is stretched. What a value of a 16-bit file means is taken
from the file where it says so (:func:`stated_depth`); otherwise 65535 is white. A 16-bit file that says nothing and
stays below 4096 is most likely that of a 12-bit camera: read as 16-bit it would be nearly black and every defect with
it, so it is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from dinosaur_ad.errors import InputError

WHITE = 65535
"""What white is in a 16-bit file that does not say otherwise."""

SUSPICIOUS_BELOW = 4096
"""A 16-bit image with no higher value is taken for 12-bit data that does not say so."""

STRIP_PIXELS = 4_000_000
"""Converted at a time, so that a large image is not held in several forms at once."""

_TRANSPARENT_MODES = frozenset({"RGBA", "RGBa", "LA", "La", "PA"})
_BITS_PER_SAMPLE, _MAX_SAMPLE_VALUES = 258, (341, 281)  # TIFF tags: SMaxSampleValue goes before MaxSampleValue
_HEADER_BYTES = 65536


@dataclass(frozen=True)
class Depth:
    """What a file says of its values: the one that is white, whether it said so, and PNG's significant bits.

    ``coarse`` is an image of more than 8 bits a channel of which the decoder keeps the high byte alone (colour).
    """

    white: int = WHITE
    stated: bool = False
    significant_bits: int = 16
    coarse: bool = False


def stated_depth(image: Image.Image) -> Depth:
    """What the header of an opened image says of its depth, before the pixels are decoded.

    TIFF: 12 packed bits, or the tags SMaxSampleValue and MaxSampleValue where they are 2**n - 1; another value is the
    highest one that happens to be in the image, and to go by that would stretch it. PNG: the chunk sBIT. PNM: its
    maximum, by which Pillow scales. JPEG 2000: its precision, likewise.
    """
    if image.format == "TIFF":
        return _tiff_depth(image)
    if image.format == "PNG":
        tiles: Any = getattr(image, "tile", None)
        if not tiles or ";16" not in str(tiles[0][3]):  # what Pillow calls the way the values are stored
            return Depth()
        bits = _significant_bits(_head(image))
        return Depth(stated=bits < 16, significant_bits=bits, coarse=image.mode != "I;16" and image.mode != "I")
    if image.format == "JPEG2000":
        bits = jpeg2000_header(_head(image))[0]
        return Depth(stated=0 < bits < 16, coarse=bits == 16 and not image.mode.startswith("I"))
    return Depth(stated=image.format == "PPM")


def _tiff_depth(image: Image.Image) -> Depth:
    tags: Any = getattr(image, "tag_v2", {})
    bits = _largest(tags.get(_BITS_PER_SAMPLE))
    coarse = bits > 8 and image.mode not in ("I", "F") and not image.mode.startswith("I;16")
    if 8 < bits < 16:
        return Depth(white=2**bits - 1, stated=True, coarse=coarse)
    for tag in _MAX_SAMPLE_VALUES:
        value = _largest(tags.get(tag))
        if 255 < value <= WHITE and value & (value + 1) == 0:
            return Depth(white=value, stated=True, coarse=coarse)
    return Depth(coarse=coarse)


def _largest(values: Any) -> int:
    numbers = values if isinstance(values, tuple) else (values,)
    return max((int(each) for each in numbers if isinstance(each, int | float) and 0 <= each <= 2**32), default=0)


def _head(image: Image.Image) -> bytes:
    """The first bytes of the file, whose position is kept."""
    file = getattr(image, "fp", None)
    if file is None:
        return b""
    position = file.tell()
    file.seek(0)
    head: bytes = file.read(_HEADER_BYTES)
    file.seek(position)
    return head


def _significant_bits(head: bytes) -> int:
    """The most bits that the chunk sBIT of a PNG names; 16 where there is none."""
    place = 8
    while place + 8 <= len(head):
        length, kind = struct.unpack(">I4s", head[place : place + 8])
        if kind == b"sBIT":
            return max(head[place + 8 : place + 8 + min(length, 4)], default=16)
        if kind == b"IDAT":
            break
        place += 12 + int(length)
    return 16


def jpeg2000_header(head: bytes) -> tuple[int, int]:
    """Of a JPEG 2000 file: the bits of its first channel, and how many times its sides can be halved in decoding.

    (0, 0) where that is not found in the first bytes.
    """
    place = head.find(b"\xff\x4f\xff\x51")
    if place < 0 or len(head) < place + 43:
        return 0, 0
    bits, place = (head[place + 42] & 0x7F) + 1, place + 2
    while place + 4 <= len(head):
        marker, length = struct.unpack(">HH", head[place : place + 4])
        if marker == 0xFF52 and place + 10 <= len(head):  # COD: coding style, with the number of wavelet levels
            return bits, head[place + 9]
        if marker == 0xFF90 or length < 2:  # the first tile, or damage
            break
        place += 2 + length
    return bits, 0


def halvings(image: Image.Image) -> int:
    """How many times a JPEG 2000 file's sides can be halved while it is decoded."""
    return jpeg2000_header(_head(image))[1]


# Values to 8 bits


def displayed(image: Image.Image, depth: Depth, name: str) -> Image.Image:
    """A decoded image as displayed, in the mode L or RGB, transparent parts on black; ``name`` is for the errors.

    :raises InputError: its values cannot be what the file says, or it cannot be known what they mean.
    """
    try:
        return _displayed(image, depth, name)
    except MemoryError as error:
        raise out_of_memory(name) from error
    except ValueError as error:  # Pillow has no way from these colours to RGB
        raise InputError(f"'{name}' holds {image.mode} colours, which are not read; save it as RGB.") from error


def out_of_memory(name: str) -> InputError:
    """The sentence for an image that this machine is too small for."""
    return InputError(f"'{name}' needs more memory to be decoded than there is; make it smaller.")


def _displayed(image: Image.Image, depth: Depth, name: str) -> Image.Image:
    if image.mode == "F":
        return _converted(image, "L", lambda strip: _from_float(strip, name))
    if image.mode == "I" or image.mode.startswith("I;16"):
        return _grey(image, depth, name)
    if depth.coarse:
        _refuse_coarse(image, depth, name)
    if image.mode in ("L", "RGB") and "transparency" not in image.info:
        return image
    return _converted(image, "RGB", _flattened)


def flattened(image: Image.Image) -> Image.Image:
    """An 8-bit image as RGB, transparent parts on black."""
    return image if image.mode == "RGB" and "transparency" not in image.info else _converted(image, "RGB", _flattened)


def _flattened(image: Image.Image) -> Image.Image:
    if image.mode in _TRANSPARENT_MODES or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (0, 0, 0, 255)), image)
    return image.convert("RGB")


def _converted(image: Image.Image, mode: str, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """``convert`` applied strip by strip; each works on pixels alone, so that the strips do not show."""
    if image.width * image.height <= STRIP_PIXELS:
        return convert(image)
    whole, top = Image.new(mode, image.size), 0
    for strip in _strips(image):
        whole.paste(convert(strip), (0, top))
        top += strip.height
    return whole


def _grey(image: Image.Image, depth: Depth, name: str) -> Image.Image:
    low, high = _extremes(image)
    white = depth.white
    if low < 0 or high > white:
        kind = "int32" if image.mode == "I" else "uint16"
        raise _outside(kind, white, name)
    if depth.significant_bits < 16 and _is_right_aligned(image, depth.significant_bits, high):
        white = 2**depth.significant_bits - 1
    elif not depth.stated and 0 < high < SUSPICIOUS_BELOW:
        raise _nearly_black(name)
    table = np.rint(np.arange(WHITE + 1) * 255.0 / white).clip(0, 255).astype(np.uint8)
    return _converted(image, "L", lambda strip: Image.fromarray(table[np.asarray(strip)]))


def _extremes(image: Image.Image) -> tuple[int, int]:
    extremes = [(int(values.min()), int(values.max())) for values in map(np.asarray, _strips(image))]
    return min(low for low, _ in extremes), max(high for _, high in extremes)


def _is_right_aligned(image: Image.Image, bits: int, high: int) -> bool:
    """Whether a PNG that calls only ``bits`` of 16 significant has them at the low end.

    The standard wants them at the high end, where values as low as these have nothing (or, rounded, a 1) in the bits
    that are not significant; so more than that there is a writer that did not scale.
    """
    spare = (1 << (16 - bits)) - 1
    return high < 2**bits and any(bool(np.any((np.asarray(strip) & spare) > 1)) for strip in _strips(image))


def _strips(image: Image.Image) -> Iterator[Image.Image]:
    rows = max(1, STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height)))


def _from_float(image: Image.Image, name: str) -> Image.Image:
    values = np.asarray(image)
    if not bool(np.all((values >= 0) & (values <= 1))):  # written so that NaN fails too
        raise _outside(str(values.dtype), 1, name)
    return Image.fromarray(np.rint(values * 255.0).astype(np.uint8))


def _refuse_coarse(image: Image.Image, depth: Depth, name: str) -> None:
    """Refuse 16-bit colour that does not reach the high byte, which is all the decoder keeps."""
    extremes: Any = image.getextrema()
    bands = image.getbands()
    pairs = extremes if len(bands) > 1 else (extremes,)
    high = max(int(pair[1]) for band, pair in zip(bands, pairs, strict=True) if band != "A")
    if depth.white != WHITE:
        raise InputError(
            f"'{name}' is a 16-bit colour image whose white is {depth.white}, of which only the high bytes are read; "
            "save it scaled to all 16 bits or as 8-bit."
        )
    if high < SUSPICIOUS_BELOW >> 8 and not (depth.stated and depth.significant_bits == 16):
        raise _nearly_black(name)


def _nearly_black(name: str) -> InputError:
    return InputError(
        f"'{name}' is a 16-bit image whose values stay below {SUSPICIOUS_BELOW}, as those of a 12-bit camera, and "
        "would be read as nearly black; save it scaled to all 16 bits (12-bit values times 16) or as 8-bit, or state "
        "its white in the TIFF tag SMaxSampleValue."
    )


def _outside(kind: str, top: float, name: str) -> InputError:
    return InputError(
        f"'{name}' holds {kind} values outside 0..{top:g}, whose brightness cannot be known; save it as 8- or 16-bit."
    )
