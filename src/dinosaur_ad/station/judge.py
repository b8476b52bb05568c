"""One picture in, one judged view out, whatever happens: what cannot be judged is "not ready" with its reason."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.bank.bank import patch_box
from dinosaur_ad.detector import Dinosaur
from dinosaur_ad.encoders.base import prepare_one
from dinosaur_ad.errors import DinosaurError, InputError
from dinosaur_ad.images.from_arrays import pixels_of
from dinosaur_ad.images.loading import ImageFile, Pixels, read_image
from dinosaur_ad.images.prefetching import SizedImages
from dinosaur_ad.inspection import Inspection, Rejected
from dinosaur_ad.station.part import Picture, View

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadPicture:
    """The pixels of a picture, or the sentence why there are none; ``ms`` is what reading took.

    ``size`` is the (height, width) of the picture where the pixels are those that the encoder needs, None where they
    are all there are.
    """

    pixels: Pixels | None
    error: str = ""
    ms: float = 0.0
    size: tuple[int, int] | None = None


class Judge:
    """Judges pictures one at a time with a detector. Neither method raises: a line goes on after a bad picture.

    Products that are taught meanwhile, by this process or another, are used from the next picture on. ``failures``
    counts the errors that nobody can do anything about but the developers; their text is in the log.
    """

    def __init__(self, detector: Dinosaur) -> None:
        self._detector = detector
        self._lock = threading.Lock()
        self.failures = 0

    def prepare(self) -> None:
        """Load the encoder and make the store, if there is none, so that the first part does not wait for it.

        A detector that was opened without a store would not see one that another detector makes later.

        :raises DinosaurError: the encoder cannot be loaded, or the store not be made.
        """
        _ = self._detector.encoder
        _ = self._detector.store

    def read(self, picture: Picture) -> ReadPicture:
        """Decode and resize a picture, as inspecting its file would; may run in a thread beside :meth:`judge`."""
        started = time.perf_counter()
        try:
            pixels, size = self._read_file(picture.path) if picture.path else self._resized(picture)
        except DinosaurError as error:
            return ReadPicture(None, str(error), _since(started))
        except Exception as error:
            return ReadPicture(None, self._unexpected(picture, error), _since(started))
        return ReadPicture(pixels, "", _since(started), size)

    def _read_file(self, path: Path) -> tuple[Pixels, tuple[int, int] | None]:
        if self._needs_all_pixels():
            return read_image(path), None
        side = self._detector.preset.size
        reader = SizedImages(side, partial(prepare_one, size=side))
        with ImageFile.opened(path) as file:
            reader.reduce(file)
            image = reader.from_file(file)
        return image.pixels, image.shape

    def _resized(self, picture: Picture) -> tuple[Pixels, tuple[int, int] | None]:
        if picture.pixels is None:
            raise InputError(f"The picture {printable(picture.key)} is neither a file nor pixels.")
        if self._needs_all_pixels():
            return picture.pixels, None
        side, name = self._detector.preset.size, printable(picture.key)
        reader = SizedImages(side, partial(prepare_one, size=side))
        image = reader.from_array(pixels_of(picture.pixels, name), name)
        return image.pixels, image.shape

    def _needs_all_pixels(self) -> bool:
        """Whether a product is inspected in tiles, which are cut from the whole picture."""
        return any(record.manifest.get("tiles") for record in self._detector.tasks())

    def judge(self, picture: Picture, read: ReadPicture | None = None) -> View:
        """The view of a picture; ``read`` is what :meth:`read` returned, if that was done ahead."""
        read = read or self.read(picture)
        started = time.perf_counter()
        if read.pixels is None:
            return View(picture, None, read.error, {"read": read.ms, "total": read.ms})
        try:
            result = self._inspect(read.pixels, picture.task)
        except DinosaurError as error:
            result = Rejected(picture.key, str(error))
        except Exception as error:
            result = Rejected(picture.key, self._unexpected(picture, error))
        ms = {"read": read.ms, "total": read.ms + _since(started)}
        if isinstance(result, Rejected):
            return View(picture, None, result.reason, ms)
        taken = {step: value for step, value in result.ms.items() if step not in ("decode", "total")}
        result = replace(result, path=str(picture.path or picture.key))
        return View(picture, _in_full_size(result, read.size) if read.size else result, "", ms | taken)

    def _inspect(self, pixels: Pixels, task: str | None) -> Inspection | Rejected:
        with self._lock:  # a detector's caches are made for one caller at a time
            return next(iter(self._detector.stream([pixels], task=task)))

    def _unexpected(self, picture: Picture, error: Exception) -> str:
        """The sentence for an error of the program itself."""
        self.failures += 1
        log.error("Judging %s failed", printable(picture.key), exc_info=error)
        kind = type(error).__name__
        return (
            f"The picture could not be judged because of an error in the program ({kind}: {first_line(error)}); "
            "the log has the details, please report it."
        )


def _in_full_size(inspection: Inspection, size: tuple[int, int]) -> Inspection:
    """The inspection of a resized picture in pixels of the picture as it was."""
    worst = inspection.worst
    box = patch_box(worst.row, worst.column, inspection.map.shape, size)
    return replace(inspection, image_size=size, worst=replace(worst, box=box))


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1e3
