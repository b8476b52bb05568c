"""From a file to uint8 RGB, or to one sentence that says why not.

What comes in, and what it becomes (always uint8 (H, W, 3), EXIF orientation applied):

- 8-bit grey, colour, palette, CMYK, YCbCr, bi-level: the colours as displayed.
- With transparency: laid on black, as if no light came from the transparent part.
- 16-bit grey: ``round(value / 257)``, so that 0 stays 0 and 65535 becomes 255, unless the file says which value is
  white; see :mod:`dinosaur_ad.images.depth`, also for what is refused.
- 32-bit integer grey: taken as 16-bit counts; values outside 0..65535 are refused.
- float grey: taken as 0..1; values outside, and NaN, are refused.
- 16-bit colour: the high byte of each channel.
- Several pages or frames: refused, because which one is meant cannot be known. Of a JPEG with more pictures in it
  (phones keep previews and depth maps there) the main one is read, as every viewer does.

Which formats are read: :mod:`dinosaur_ad.images.formats`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dinosaur_ad.errors import InputError
from dinosaur_ad.images.depth import flattened
from dinosaur_ad.images.finding import Found, find_images
from dinosaur_ad.images.formats import EXTENSIONS, is_image_name
from dinosaur_ad.images.image_files import MAX_PIXELS, MAX_SIDE, MIN_SIDE, ImageFile, Pixels, rgb_array
from dinosaur_ad.images.prefetching import WholeImages, read_ahead

Mask: TypeAlias = npt.NDArray[np.bool_]
"""A yes or no for each pixel: bool (H, W)."""

__all__ = [
    "EXTENSIONS", "MAX_PIXELS", "MAX_SIDE", "MIN_SIDE", "Found", "Mask", "Pixels", "find_images",
    "image_size", "is_image_name", "read_image", "read_many", "read_mask", "read_mask_values",
]  # fmt: skip


def read_image(path: str | Path, max_pixels: int = MAX_PIXELS) -> Pixels:
    """Read one image file as uint8 (H, W, 3); see the module's docstring for what becomes of each format.

    The size is taken from the header and checked before a single pixel is decoded. Pillow's own limit (about
    179 million pixels) holds whatever ``max_pixels`` says.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (4, 2), 7).save(f"{folder}/grey.png")
    ...     pixels = read_image(f"{folder}/grey.png")
    >>> pixels.shape, int(pixels[0, 0, 2])
    ((2, 4, 3), 7)

    :raises InputError: missing, not an image, damaged, over ``max_pixels``, or over ``MAX_SIDE`` on a side.
    """
    with ImageFile.opened(path, max_pixels) as file:
        return rgb_array(file.decoded())


def image_size(path: str | Path) -> tuple[int, int]:
    """The (height, width) that :func:`read_image` would give, from the header alone."""
    with ImageFile.opened(path) as file:
        return file.shape


def read_mask(paths: Sequence[str | Path]) -> Mask:
    """The union of mask files as bool (H, W): where any channel of any of them is above zero.

    The raw values are compared, so that a mask whose grey value encodes a defect class is read whole.

    :raises InputError: a file cannot be read, or the files differ in size.
    """
    if not paths:
        raise ValueError("read_mask needs at least one path")
    union: Mask = read_mask_values(paths[0]) > 0
    for path in paths[1:]:
        mask = read_mask_values(path) > 0
        if mask.shape != union.shape:
            raise InputError(f"The masks '{paths[0]}' and '{path}' of one image differ in size; make them equal.")
        union |= mask
    return union


def read_mask_values(path: str | Path) -> npt.NDArray[Any]:
    """The raw values of one mask file, (H, W), the highest of the channels where there are several.

    :raises InputError: the file cannot be read.
    """
    with ImageFile.opened(path) as file:
        decoded = file.raw()
        is_deep = decoded.mode == "F" or decoded.mode.startswith("I")
        values = np.asarray(decoded if is_deep else flattened(decoded))
    return np.asarray(np.atleast_3d(values).max(axis=2))


def read_many(paths: Iterable[str | Path], threads: int = 2) -> Iterator[tuple[Path, Pixels | InputError]]:
    """Read images ahead of their use, in order; an unreadable file yields its error and the rest go on.

    At most ``2 * threads`` images wait in memory, however slow the consumer is, and of large ones fewer: all that wait
    take at most :data:`~dinosaur_ad.images.prefetching.MAX_BYTES`.

    >>> [(path.name, type(result).__name__) for path, result in read_many(["no_such_file.png"])]
    [('no_such_file.png', 'InputError')]
    """
    if threads < 1:
        raise InputError(f"threads is {threads}; at least 1 is needed to read images.")
    return read_ahead(((path, path) for path in map(Path, paths)), WholeImages(), 2 * threads, threads)
