"""Into how many tiles the photos of a product are cut, and what learning it will cost."""

from __future__ import annotations

import math
import re
import time

import numpy as np

from dinosaur_ad._memory import peak_memory_bytes
from dinosaur_ad._text import printable
from dinosaur_ad.bank.budget import say_bytes
from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.core.tiles import MOST_PATCHES, MOST_TILES, Tiling
from dinosaur_ad.errors import InputError

WantedTiles = str | tuple[int, int]
"""``(columns, rows)``, or as text: ``4x1`` or ``auto``."""

HELD_FEATURES, HELD_MEMORIES = 3, 6
"""How often the features of a block of images, and the patches that are remembered of them, are in memory at the peak:
they are picked from and scored as copies. Measured with 6, 16 and 24 photos, which it foretells within a tenth."""
AUTO_PIXELS = 2.0
"""The side of a tile that ``auto`` aims at, in sides of the encoder's input."""


def parse_tiles(tiles: WantedTiles) -> tuple[int, int] | None:
    """Columns and rows; None for ``auto``.

    >>> parse_tiles("4x1"), parse_tiles((2, 3)), parse_tiles("auto")
    ((4, 1), (2, 3), None)

    :raises InputError: it is neither.
    """
    if tiles == "auto":
        return None
    found = re.fullmatch(r"\s*(\d{1,4})\s*[xX]\s*(\d{1,4})\s*", tiles) if isinstance(tiles, str) else None
    given = (int(found[1]), int(found[2])) if found else tiles
    whole = isinstance(given, tuple) and len(given) == 2 and all(type(each) is int for each in given)
    if not whole or not isinstance(given, tuple) or min(given) < 1:
        raise InputError(
            f"Tiles are given as columns x rows, each at least 1, like 4x1, or as auto, got '{printable(tiles, 40)}'."
        )
    columns, rows = given
    if columns * rows == 1 or columns * rows > MOST_TILES:
        raise InputError(
            f"{columns}x{rows} are {columns * rows} tiles, and 2 to {MOST_TILES} are possible; without tiles an image "
            "is looked at as a whole."
        )
    return columns, rows


def choose_tiling(wanted: tuple[int, int] | None, photo: tuple[int, int], features: FeatureExtractor) -> Tiling | None:
    """How photos of that (height, width) are cut; None where ``auto`` (no number wanted) finds them small enough.

    :raises InputError: a tile would have fewer pixels than the encoder looks at.
    """
    size, side = features.encoder.size, features.encoder.grid[0]
    columns, rows = wanted or automatic_tiles(photo, size)
    if columns * rows == 1:
        return None
    tiling = Tiling.of(columns, rows, size, side, photo)
    if max(tiling.grid) > MOST_PATCHES:
        raise InputError(
            f"{columns}x{rows} tiles would have {max(tiling.grid)} patches a side, and {MOST_PATCHES} are possible; "
            "give fewer tiles."
        )
    high, wide = tiling.tile_pixels
    if wanted and min(high, wide) < size:
        most_rows, most_columns = (max(1, each // size) for each in photo)
        advice = f"at most {most_columns}x{most_rows} tiles" if most_columns * most_rows > 1 else "no tiles"
        raise InputError(
            f"Of photos of {photo[1]} x {photo[0]} pixels, {columns}x{rows} tiles would have {wide:.0f} x {high:.0f} "
            f"each, fewer than the {size} x {size} that the encoder looks at; give {advice}."
        )
    return tiling


def automatic_tiles(photo: tuple[int, int], size: int) -> tuple[int, int]:
    """Columns and rows of tiles of about twice the ``size`` of the encoder's input, or larger if they were too many.

    >>> automatic_tiles((2000, 8000), 336), automatic_tiles((480, 640), 336)
    ((12, 3), (1, 1))
    """
    pixels = AUTO_PIXELS * size
    while True:
        rows, columns = (max(1, round(each / pixels)) for each in photo)
        if rows * columns <= MOST_TILES:
            return columns, rows
        pixels *= 1.1


def estimate(
    tiling: Tiling,
    features: FeatureExtractor,
    images: int | None,
    copies: int,
    budget: int | None,
    at_once: int,
    members: int,
) -> str:
    """What learning will take, in a sentence; a batch is encoded to measure the time.

    ``copies`` is how many moved copies each image has, ``budget`` the bytes of the bank (None: not limited),
    ``at_once`` how many images are in memory at a time, and ``members`` how many patches are remembered at a place.
    """
    encoder = features.encoder
    pixels = np.zeros((min(encoder.batch_size, tiling.count), encoder.size, encoder.size, 3), np.uint8)
    features.features(pixels[:1])  # the first one takes longer
    started = time.perf_counter()
    cls_NC, _ = features.features(pixels)
    each = (1 + copies) * (1 + tiling.count) * (time.perf_counter() - started) / len(pixels)
    held = min(images or at_once, at_once) * (1 + copies)
    patches = 4 * math.prod(tiling.grid) * cls_NC.shape[1]
    pixels_held = 3 * held * math.prod(tiling.scaled)
    memory = HELD_FEATURES * held * patches + HELD_MEMORIES * min(members, held) * patches + pixels_held
    memory += peak_memory_bytes() or 0  # the encoder, which has run by now, and all that was imported
    wanted = f"{_seconds(images * each)} s for {images} images" if images else f"{_seconds(each)} s an image"
    stored = "" if budget is None else f", and at most {say_bytes(budget)} on disk"
    return (
        f"{tiling.columns}x{tiling.rows} tiles of about {tiling.tile_pixels[1]:.0f} x {tiling.tile_pixels[0]:.0f} "
        f"pixels: encoding alone will take at least {wanted}; about {_roughly(memory)} of memory{stored}"
    )


def _roughly(count: float) -> str:
    """Bytes that were estimated.

    >>> _roughly(3_349_000_000), _roughly(612_000_000)
    ('3.3 GB', '610 MB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{round(count / 1e6, -1):.0f} MB"


def _seconds(value: float) -> str:
    """Seconds for people: whole ones from ten on, two digits below, so that little time is not "0 s"."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
