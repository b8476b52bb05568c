"""Images in groups: decoded and resized for the encoder while it is still busy with the group before."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from dinosaur_ad.encoders.base import prepare_one
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import Pixels
from dinosaur_ad.images.prefetching import SizedImage
from dinosaur_ad.images.stream import READ_AHEAD, ImageStream, Labelled, batched, stream_images, timed

_Item = TypeVar("_Item")
_END = object()


@dataclass(frozen=True)
class Seen:
    """One image of a group: what it is called, its shape as it was, its file if it has one, or what was wrong."""

    label: str
    shape: tuple[int, ...]
    error: str
    decode_ms: float
    path: Path | None = None


@dataclass(frozen=True)
class Group:
    """Images ready to be encoded: pixels (N, S, S, 3) of the readable ones, and all of them in their order."""

    images: list[Seen]
    pixels: Pixels
    resize_ms: float

    @cached_property
    def readable(self) -> list[Seen]:
        """Those that have pixels, in the same order."""
        return [each for each in self.images if not each.error]

    def ms(self, index: int, waited: float) -> dict[str, float]:
        """What decoding and resizing a readable image cost, of the milliseconds ``waited`` for the whole group.

        What was done while other images were encoded cost nobody anything.
        """
        taken = self.resize_ms + sum(each.decode_ms for each in self.images)
        share = min(1.0, waited / taken) if taken else 1.0
        return {
            "decode": share * self.readable[index].decode_ms,
            "resize": share * self.resize_ms / len(self.readable),
        }


def prepared_groups(stream: Iterator[Labelled], total: int | None, at_once: int, size: int) -> Iterator[Group]:
    """Images read and resized to ``size`` pixels in groups of ``at_once``, one group ahead of their use.

    Each image is resized as soon as it is decoded, so that no original is held for its group. A camera (whose ``total``
    nobody knows) is not read ahead of: its next image may be long in coming, and so with ``at_once`` 1 every image is
    a group as soon as it is there.
    """
    images = stream if isinstance(stream, ImageStream) else ImageStream(stream)
    sized = images.sized(size, partial(prepare_one, size=size), READ_AHEAD if total is not None else at_once - 1)
    groups = (_prepared(group, size) for group in batched(timed(sized), at_once))
    return groups if total is None or total <= at_once else ahead(groups)


def _prepared(group: list[tuple[tuple[str, SizedImage | InputError], float]], size: int) -> Group:
    started = time.perf_counter()
    good = [image.pixels for (_, image), _ in group if not isinstance(image, InputError)]
    pixels = np.stack(good) if good else np.empty((0, size, size, 3), np.uint8)
    images, resize_ms = [], (time.perf_counter() - started) * 1e3
    for (label, image), waited in group:
        if isinstance(image, InputError):
            images.append(Seen(label, (), str(image), waited))
            continue
        taken = image.decode_ms + image.resize_ms
        resized = image.resize_ms * min(1.0, waited / taken) if taken else 0.0  # what was done ahead cost no waiting
        images.append(Seen(label, (*image.shape, 3), "", waited - resized, image.path))
        resize_ms += resized
    return Group(images, pixels, resize_ms)


def ahead(items: Iterable[_Item]) -> Iterator[_Item]:
    """The same items in the same order; while the caller works on one, the next is made in the background.

    >>> list(ahead("abc"))
    ['a', 'b', 'c']
    """
    iterator = iter(items)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead") as pool:
        upcoming = pool.submit(next, iterator, _END)
        while (item := upcoming.result()) is not _END:
            upcoming = pool.submit(next, iterator, _END)
            yield item  # type: ignore[misc]


def read_again(path: str | Path, size: int) -> Pixels:
    """One file as :func:`prepared_groups` prepares it, uint8 (size, size, 3); an InputError says why not."""
    _, stream = stream_images(Path(path))
    group = next(prepared_groups(stream, 1, 1, size))
    if group.images[0].error:
        raise InputError(group.images[0].error)
    pixels: Pixels = group.pixels[0]
    return pixels
