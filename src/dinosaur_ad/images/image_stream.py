"""Images of any kind as one stream of labelled images, and as batches that are ready to be encoded."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set, Sized, ValuesView
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from dinosaur_ad.core.tiles import LargeImage, Tiling
from dinosaur_ad.encoders.base import prepare_one
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.finding import Found, find_images, is_single_file, name_of, shown_path
from dinosaur_ad.images.from_arrays import EXPECTED, described, images_in, pixels_of
from dinosaur_ad.images.loading import ImageFile, Pixels
from dinosaur_ad.images.prefetching import THREADS, SizedImage, SizedImages, Source, WholeImages, read_ahead

# One image: a file (or folder or glob of them), a PIL image, or a uint8 array (see dinosaur_ad.images.from_arrays).
OneImage = str | Path | Pixels | Image.Image
# One or many; N images may also be one array (N, H, W, 3).
Images = OneImage | Iterable[str | Path] | Iterable[Pixels] | Iterable[Image.Image] | Iterable[OneImage]
# What an image is called, and its pixels, or why there are none.
Labelled = tuple[str, Pixels | InputError]

READ_AHEAD = 2 * THREADS
"""Images that are read before their turn where all of them are known."""

_Item = TypeVar("_Item")
_END = object()


class ImageStream(Iterator[Labelled]):
    """Labelled images in order; iterating gives all their pixels, :meth:`sized` only what an encoder needs."""

    def __init__(self, items: Iterable[tuple[str, Source]], *, live: bool = False) -> None:
        self._live = live
        self._items = iter(items)
        self._whole = read_ahead(self._items, WholeImages(), 0 if live else READ_AHEAD)

    def __next__(self) -> Labelled:
        return next(self._whole)

    def sized(
        self,
        size: int,
        resize: Callable[[Image.Image], Pixels],
        ahead: int = READ_AHEAD,
        tilings: Iterable[Tiling] = (),
    ) -> Iterator[tuple[str, SizedImage | InputError]]:
        """Each image at ``size`` pixels a side, resized once it is decoded; at most ``ahead`` before their turn."""
        return read_ahead(self._items, SizedImages(size, resize, tilings=tuple(tilings)), ahead)

    def first_size(self) -> tuple[int, int] | None:
        """The (height, width) of the first image that can be read, None without one; all images are still to come."""
        seen: list[tuple[str, Source]] = []
        size = None
        for item in self._items:
            seen.append(item)
            try:
                size = _size_of(item[1])
            except InputError:
                continue
            break
        self._items = chain(seen, self._items)
        self._whole = read_ahead(self._items, WholeImages(), 0 if self._live else READ_AHEAD)
        return size


def _size_of(source: Source) -> tuple[int, int]:
    if isinstance(source, InputError):
        raise source
    if isinstance(source, Path):
        with ImageFile.opened(source) as file:
            return file.shape
    return source.shape[0], source.shape[1]


def stream_images(images: Images) -> tuple[int | None, ImageStream]:
    """How many images there are, if that is known, and each with its label; files are read ahead in the background.

    Of a list, a tuple, an array, a folder or a glob the number is known. Of anything else that can be iterated over, a
    generator above all, it is not: it may be a camera, so nothing is read ahead. A file is
    called by its path, an image in memory by its place, counted from 0. What is no image is an entry with its error,
    and the rest go on.

    >>> count, stream = stream_images(np.zeros((16, 16), np.uint8))
    >>> count, [label for label, pixels in stream]
    (1, ['image-000000'])

    :raises InputError: ``images`` as a whole is no image and no images, or a path in it leads to none.
    """
    if isinstance(images, Found):
        return len(images), ImageStream(map(_from_path, images))
    if isinstance(images, str | os.PathLike):
        return stream_images(find_images([_path(images)]))
    if isinstance(images, np.ndarray):
        return _known(images_in(images))
    if isinstance(images, Image.Image):
        return _known([images])
    rest = _iterator(images)
    if isinstance(images, list | tuple | deque | Set | ValuesView):
        return _known(list(rest))
    total = len(images) if isinstance(images, Sized) else None  # a dataset that loads its images one by one
    for first in islice(rest, total):
        items = chain([first], islice(rest, None if total is None else total - 1))
        return total, ImageStream(_arriving(items), live=total is None)
    raise _none()


def is_single(images: Images) -> bool:
    """Whether ``images`` is one image: a path that is no folder and no glob, an array (H, W) or (H, W, C), a PIL image.

    >>> is_single("part.png"), is_single("photos/*.png"), is_single(np.zeros((16, 16, 3))), is_single(["part.png"])
    (True, False, True, False)
    """
    if isinstance(images, str | os.PathLike):
        return is_single_file(_path(images))
    return isinstance(images, Image.Image) or (isinstance(images, np.ndarray) and images.ndim in (2, 3))


def _iterator(images: object) -> Iterator[object]:
    # Bytes and dicts can be iterated over, but not for images; arrays of other libraries give more such arrays.
    refused = isinstance(images, Mapping | bytes | bytearray | memoryview) or hasattr(images, "__array__")
    try:
        if not refused:
            return iter(images)  # type: ignore[call-overload, no-any-return]
    except TypeError:
        pass
    raise InputError(f"Expected images, got {described(images)}; {EXPECTED}, or a list of those.")


def _none() -> InputError:
    return InputError("Expected at least one image, got none.")


def _known(images: list[object]) -> tuple[int | None, ImageStream]:
    """All images of a list; a path in it that does not exist is refused before anything is done."""
    if not images:
        raise _none()
    paths = [_path(each) for each in images if isinstance(each, str | os.PathLike)]
    if len(paths) == len(images):
        return stream_images(find_images(paths))
    items: list[tuple[str, object]] = []
    for place, each in enumerate(images):
        if isinstance(each, str | os.PathLike):
            items += map(_from_path, find_images([_path(each)]))
        else:
            items.append((_place(place), each))
    return len(items), ImageStream((label, _source(label, each)) for label, each in items)


def _arriving(images: Iterable[object]) -> Iterator[tuple[str, Source]]:
    """Images one at a time; a bad one costs only itself, what the camera raises is raised."""
    for place, each in enumerate(images):
        if isinstance(each, str | os.PathLike):
            try:
                found = find_images([_path(each)])
            except InputError as error:
                yield shown_path(_path(each)), error
            else:
                yield from map(_from_path, found)
        else:
            yield _place(place), _source(_place(place), each)


def _place(place: int) -> str:
    return f"image-{place:06d}"


def _path(path: str | os.PathLike[Any]) -> str | Path:
    return path if isinstance(path, str | Path) else os.fsdecode(path)


def _from_path(path: Path) -> tuple[str, Path]:
    return name_of(path), path


def _source(label: str, image: object) -> Source:
    if isinstance(image, Path | InputError):
        return image
    try:
        return pixels_of(image, label)
    except InputError as error:
        return error


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


# --- batches ---


@dataclass(frozen=True)
class BatchImage:
    """One image of a batch: its label, original shape and file, if it has one, or why it could not be read.

    ``large`` is the image for each tiling that it fits.
    """

    label: str
    shape: tuple[int, ...]
    error: str
    decode_ms: float
    path: Path | None = None
    large: tuple[LargeImage, ...] = ()


@dataclass(frozen=True)
class ImageBatch:
    """Images ready to be encoded: all of them in order, and pixels (N, S, S, 3) of those that could be read."""

    images: list[BatchImage]
    pixels: Pixels
    resize_ms: float

    @cached_property
    def readable(self) -> list[BatchImage]:
        """Those that have pixels, in the same order."""
        return [each for each in self.images if not each.error]

    def ms(self, index: int, waited: float) -> dict[str, float]:
        """What decoding and resizing a readable image cost, of the milliseconds ``waited`` for the whole batch.

        What was done in the background while other images were encoded does not count.
        """
        taken = self.resize_ms + sum(each.decode_ms for each in self.images)
        share = min(1.0, waited / taken) if taken else 1.0
        return {
            "decode": share * self.readable[index].decode_ms,
            "resize": share * self.resize_ms / len(self.readable),
        }


def prepared_batches(
    stream: Iterator[Labelled], total: int | None, at_once: int, size: int, tilings: Iterable[Tiling] = ()
) -> Iterator[ImageBatch]:
    """Images read and resized to ``size`` pixels, in batches of ``at_once``; a thread prepares the next batch.

    Each image is resized as soon as it is decoded, so that no original is held for its batch. Of a camera (with no
    ``total``) nothing is read ahead, because its next image may take long: with ``at_once`` 1 every image is a batch as
    soon as it is there. Images that fit one of ``tilings`` are prepared for it too, and the more tiles there are, the
    fewer of them make a batch.
    """
    tilings = tuple(tilings)
    at_once = max(1, at_once // max((each.count for each in tilings), default=1))
    images = stream if isinstance(stream, ImageStream) else ImageStream(stream)
    ahead = READ_AHEAD if total is not None else at_once - 1
    sized = images.sized(size, partial(prepare_one, size=size), ahead, tilings)
    batches = (_batch(group, size) for group in batched(timed(sized), at_once))
    return batches if total is None or total <= at_once else prefetched(batches)


def _batch(group: list[tuple[tuple[str, SizedImage | InputError], float]], size: int) -> ImageBatch:
    started = time.perf_counter()
    good = [image.pixels for (_, image), _ in group if not isinstance(image, InputError)]
    pixels = np.stack(good) if good else np.empty((0, size, size, 3), np.uint8)
    images, resize_ms = [], (time.perf_counter() - started) * 1e3
    for (label, image), waited in group:
        if isinstance(image, InputError):
            images.append(BatchImage(label, (), str(image), waited))
            continue
        taken = image.decode_ms + image.resize_ms
        resized = image.resize_ms * min(1.0, waited / taken) if taken else 0.0  # what was done ahead cost no waiting
        images.append(BatchImage(label, (*image.shape, 3), "", waited - resized, image.path, image.large))
        resize_ms += resized
    return ImageBatch(images, pixels, resize_ms)


def prefetched(items: Iterable[_Item]) -> Iterator[_Item]:
    """The same items in the same order; while the caller works on one, a thread computes the next.

    >>> list(prefetched("abc"))
    ['a', 'b', 'c']
    """
    iterator = iter(items)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch") as pool:
        upcoming = pool.submit(next, iterator, _END)
        while (item := upcoming.result()) is not _END:
            upcoming = pool.submit(next, iterator, _END)
            yield item  # type: ignore[misc]


def read_prepared(path: str | Path, size: int) -> Pixels:
    """One file as :func:`prepared_batches` prepares it, uint8 (size, size, 3); an InputError says why not."""
    _, stream = stream_images(Path(path))
    batch = next(prepared_batches(stream, 1, 1, size))
    if batch.images[0].error:
        raise InputError(batch.images[0].error)
    pixels: Pixels = batch.pixels[0]
    return pixels
