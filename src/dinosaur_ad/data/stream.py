"""Whatever a caller calls images, as one stream of labelled pixels."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from dinosaur_ad.data.images import Pixels, find_images, read_many
from dinosaur_ad.errors import InputError

# Files, folders or globs; or images as uint8 arrays (H, W) or (H, W, 3).
Images = str | Path | Pixels | Iterable[str | Path] | Iterable[Pixels]
# What an image is called, and its pixels, or why there are none.
Labelled = tuple[str, Pixels | InputError]

_Item = TypeVar("_Item")


def stream_images(images: Images) -> tuple[int | None, Iterator[Labelled]]:
    """How many images there are, if that is known, and each with its label; files are read ahead in the background.

    >>> count, stream = stream_images(np.zeros((8, 8), np.uint8))
    >>> count, [label for label, pixels in stream]
    (1, ['image-000000'])
    """
    one = isinstance(images, str | Path) or (isinstance(images, np.ndarray) and images.shape[2:] in ((), (3,)))
    given: Iterable[str | Path | Pixels] = [images] if one else images  # type: ignore[list-item, assignment]
    rest = iter(given)
    first = next(rest, None)
    if first is None:
        raise InputError("Expected at least one image, got none.")
    items = chain([first], rest)
    if isinstance(first, str | Path):
        paths = find_images(items)  # type: ignore[arg-type]
        return len(paths), ((str(path), image) for path, image in read_many(paths))
    count = len(given) if isinstance(given, Sequence | np.ndarray) else None
    return count, ((f"image-{index:06d}", image) for index, image in enumerate(items))  # type: ignore[misc]


def batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Lists of ``size`` items, the last one shorter.

    >>> list(batched("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def timed(items: Iterable[_Item]) -> Iterator[tuple[_Item, float]]:
    """Each item with the milliseconds spent waiting for it."""
    iterator = iter(items)
    while True:
        started = time.perf_counter()
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item, (time.perf_counter() - started) * 1e3
