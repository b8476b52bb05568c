"""One picture in, one judged view out, whatever happens: what cannot be judged is "not ready" with its reason."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.detector import Dinosaur
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.images.loading import Pixels, read_image
from dinosaur_ad.inspection import Inspection, Rejected
from dinosaur_ad.station.part import Picture, View

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadPicture:
    """The pixels of a picture, or the sentence why there are none; ``ms`` is what reading took."""

    pixels: Pixels | None
    error: str = ""
    ms: float = 0.0


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
        """Decode a picture; may run in a thread beside :meth:`judge`."""
        if picture.pixels is not None:
            return ReadPicture(picture.pixels)
        started = time.perf_counter()
        try:
            if picture.path is None:
                return ReadPicture(None, f"The picture {printable(picture.key)} is neither a file nor pixels.")
            pixels = read_image(picture.path)
        except DinosaurError as error:
            return ReadPicture(None, str(error), _since(started))
        except Exception as error:
            return ReadPicture(None, self._unexpected(picture, error), _since(started))
        return ReadPicture(pixels, "", _since(started))

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
        return View(picture, replace(result, path=str(picture.path or picture.key)), "", ms | taken)

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


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1e3
