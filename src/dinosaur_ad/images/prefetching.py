"""Images read ahead of their use in the background, with a bound on the bytes of decoded pixels."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from PIL import Image

from dinosaur_ad.core.tiles import LargeImage, Tiling
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import ImageFile, Pixels, refuse_tiny, rgb_array

MAX_BYTES = 256 * 2**20
"""Decoded pixels that may be in memory at a time; an image that needs more is decoded with nothing beside it."""

THREADS = 2

Source: TypeAlias = Path | Pixels | InputError
"""A file, an array uint8 (H, W) or (H, W, 3), or the error for something that is neither."""

_Name = TypeVar("_Name")
_Result = TypeVar("_Result")
_Made = TypeVar("_Made", covariant=True)


class Reader(Protocol[_Made]):
    """How each image is read."""

    @property
    def keeps_originals(self) -> bool:
        """Whether the result holds all pixels of the image, and not a small version."""
        ...

    def reduce(self, file: ImageFile) -> None:
        """Check a file after its header was read, and set a reduced decoding."""
        ...

    def from_file(self, file: ImageFile) -> _Made:
        """Decode a file; called in a thread of its own."""
        ...

    def from_array(self, pixels: Pixels, name: str) -> _Made:
        """The same for an image that is in memory already."""
        ...


class WholeImages:
    """Reads every image as it is: uint8 (H, W, 3)."""

    keeps_originals = True

    def reduce(self, file: ImageFile) -> None:
        """Nothing is left out."""

    def from_file(self, file: ImageFile) -> Pixels:
        """All pixels of the file."""
        return rgb_array(file.decoded())

    def from_array(self, pixels: Pixels, name: str) -> Pixels:
        """The array as it is."""
        return pixels


@dataclass(frozen=True)
class SizedImage:
    """An image at the size an encoder needs, uint8 (S, S, 3), the (H, W) it had, and what making it took.

    ``path`` is the file it came from, None for one that was in memory. ``large`` is the image for each tiling that it
    fits.
    """

    pixels: Pixels
    shape: tuple[int, int]
    decode_ms: float
    resize_ms: float
    path: Path | None = None
    large: tuple[LargeImage, ...] = ()


@dataclass(frozen=True)
class SizedImages:
    """Reads every image at ``size`` pixels a side, and for each of ``tilings`` that it fits; originals are dropped."""

    size: int
    resize: Callable[[Image.Image], Pixels]
    keeps_originals: bool = False
    tilings: tuple[Tiling, ...] = ()

    def reduce(self, file: ImageFile) -> None:
        """Leave out what ``size`` pixels a side will not show."""
        width, height = file.stored_size
        refuse_tiny(height, width, file.name)
        # As stored, a photo may lie on its side.
        if not any(tiling.fits(height, width) or tiling.fits(width, height) for tiling in self.tilings):
            file.reduce(self.size)

    def from_file(self, file: ImageFile) -> SizedImage:
        """Decode and resize."""
        started = time.perf_counter()
        image = file.decoded()
        return self._resized(image, file.shape, started, file.path)

    def from_array(self, pixels: Pixels, name: str) -> SizedImage:
        """Resize."""
        height, width = pixels.shape[0], pixels.shape[1]
        refuse_tiny(height, width, name)
        started = time.perf_counter()
        return self._resized(Image.fromarray(np.ascontiguousarray(pixels)), (height, width), started)

    def _resized(
        self, image: Image.Image, shape: tuple[int, int], started: float, path: Path | None = None
    ) -> SizedImage:
        decoded = time.perf_counter()
        pixels = self.resize(image)
        large = tuple(LargeImage(each, _scaled(image, each)) for each in self.tilings if each.fits(*shape))
        decode_ms, resize_ms = (decoded - started) * 1e3, (time.perf_counter() - decoded) * 1e3
        return SizedImage(pixels, shape, decode_ms, resize_ms, path, large)


def _scaled(image: Image.Image, tiling: Tiling) -> Pixels:
    """An image in the mode L or RGB as it is cut into tiles."""
    height, width = tiling.scaled
    return rgb_array(
        image if image.size == (width, height) else image.resize((width, height), Image.Resampling.BILINEAR)
    )


def read_many(paths: Iterable[str | Path], threads: int = 2) -> Iterator[tuple[Path, Pixels | InputError]]:
    """Read images ahead of their use, in order; an unreadable file yields its error and the rest go on.

    At most ``2 * threads`` images wait in memory, however slow the consumer is, and of large ones fewer: all that wait
    take at most :data:`MAX_BYTES`.

    >>> [(path.name, type(result).__name__) for path, result in read_many(["no_such_file.png"])]
    [('no_such_file.png', 'InputError')]
    """
    if threads < 1:
        raise InputError(f"threads is {threads}; at least 1 is needed to read images.")
    return read_ahead(((path, path) for path in map(Path, paths)), WholeImages(), 2 * threads, threads)


def read_ahead(
    items: Iterable[tuple[_Name, Source]], reader: Reader[_Result], ahead: int, threads: int = THREADS
) -> Iterator[tuple[_Name, _Result | InputError]]:
    """Every image as the ``reader`` makes it, in order and with its name; a bad one yields its error, the rest go on.

    At most ``ahead`` items are taken before their turn; 0 reads each only when it is needed, in the
    caller's thread, as for a camera. Headers are read by the caller's thread, to know how much memory decoding will
    take and to start only what fits into :data:`MAX_BYTES`.
    """
    source = iter(items)
    if ahead < 1:
        for name, each in source:
            yield name, _Waiting(name, each, reader).finished()
        return
    waiting: deque[_Waiting[_Name, _Result]] = deque()
    upcoming: list[_Waiting[_Name, _Result]] = []  # the next one, if it has to wait for room
    pool = ThreadPoolExecutor(threads, thread_name_prefix="read-image")

    def fill() -> None:
        while len(waiting) < ahead:
            if not upcoming:
                upcoming.extend(_Waiting(name, each, reader) for name, each in _first(source))
            if not upcoming or (waiting and sum(each.bytes for each in waiting) + upcoming[0].bytes > MAX_BYTES):
                return
            waiting.append(upcoming.pop().started(pool))

    try:
        fill()
        while waiting:
            first = waiting.popleft()
            result = first.finished()
            fill()
            yield first.name, result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for unread in (*waiting, *upcoming):
            unread.abandoned()


def _first(items: Iterator[_Result]) -> Iterator[_Result]:
    for item in items:
        yield item
        return


class _Waiting(Generic[_Name, _Result]):
    """An image whose header was read and that may be decoded in a thread."""

    def __init__(self, name: _Name, source: Source, reader: Reader[_Result]) -> None:
        self.name = name
        self._reader = reader
        self._file: ImageFile | None = None
        self._source = source
        self._future: Future[_Result | InputError] | None = None
        self._bytes = 0
        if isinstance(source, Path):
            self._open(source)
        elif not isinstance(source, InputError):
            self._bytes = source.nbytes

    def _open(self, path: Path) -> None:
        try:
            self._file = ImageFile.open(path)
            self._reader.reduce(self._file)
            self._bytes = self._file.bytes_needed()
        except InputError as error:
            self.abandoned()
            self._file, self._source = None, error

    @property
    def bytes(self) -> int:
        """What it has in memory, or will have."""
        if self._future is not None and self._future.done() and not self._reader.keeps_originals:
            return 0
        return self._bytes

    def started(self, pool: ThreadPoolExecutor) -> _Waiting[_Name, _Result]:
        """Decode it in the background if it is a file; not a very large one, which would be decoded alone anyway.

        Those are decoded in one thread, when it is their turn, because the allocator of each thread keeps for a while
        what it has freed.
        """
        if self._file is not None and self._bytes <= MAX_BYTES // 2:
            self._future = pool.submit(self._decoded, self._file)
        return self

    def finished(self) -> _Result | InputError:
        """What the reader made of it, or what was wrong."""
        if self._future is not None:
            return self._future.result()
        if self._file is not None:
            return self._decoded(self._file)
        if isinstance(self._source, InputError):
            return self._source
        assert not isinstance(self._source, Path)
        try:
            return self._reader.from_array(self._source, str(self.name))
        except InputError as error:
            return error

    def abandoned(self) -> None:
        """Close the file, unless a thread is decoding it, which closes it then."""
        if self._file is not None and (self._future is None or self._future.cancel() or self._future.cancelled()):
            self._file.close()

    def _decoded(self, file: ImageFile) -> _Result | InputError:
        try:
            return self._reader.from_file(file)
        except InputError as error:
            return error
        finally:
            file.close()
