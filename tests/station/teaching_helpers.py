"""A small station's teaching without cameras: a taught product, a history with parts of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from detector_helpers import TINY_FAST, product, tiny

pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed (it comes with the extra 'station')")

from dinosaur_ad.detector import Dinosaur
from dinosaur_ad.inspection import Inspection
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import TeachingConfig
from dinosaur_ad.station.history.history import History
from dinosaur_ad.station.jobs import Job
from dinosaur_ad.station.part import JudgedPart, Picture, View
from dinosaur_ad.station.station_teaching import Teaching

PATIENCE = 60.0
_numbers = itertools.count(1)


@dataclass
class Bench:
    """What the tests of teaching use."""

    detector: Dinosaur
    history: History
    bus: Bus
    teaching: Teaching
    folder: Path

    def judged(self, pixels: NDArray[np.uint8], task: str | None = None) -> JudgedPart:
        """A part as the station judges it."""
        found: Inspection = self.detector.inspect(pixels, task=task)
        key = f"camera:{next(_numbers)}"
        picture = Picture(key, "camera", datetime.now(UTC), pixels=pixels)
        return JudgedPart(key, picture.taken, (View(picture, found),))

    def record(self, pixels: NDArray[np.uint8], task: str | None = None) -> int:
        """The id of a part that was judged and recorded."""
        return self.history.record_part(self.judged(pixels, task))

    def files(self, images: Sequence[NDArray[np.uint8]], name: str) -> list[Path]:
        """Images as files."""
        paths = []
        for number, image in enumerate(images):
            path = self.folder / f"{name}-{number}.png"
            Image.fromarray(image).save(path)
            paths.append(path)
        return paths

    def ended(self, job: Job) -> Job:
        """The job once it has ended."""
        assert self.teaching.queue.wait(job, PATIENCE), job
        return job

    def all_ended(self) -> list[Job]:
        """All jobs, once they have ended."""
        return [self.ended(job) for job in self.teaching.jobs()]

    def feedback(self, number: int) -> Any:
        """An answer as it is now."""
        row = self.history.one_feedback(number)
        assert row is not None
        return row


@cache
def _taught() -> Dinosaur:
    """A detector that has learned "plate"; learned once, and copied by every test."""
    detector = tiny(preset=TINY_FAST)
    detector.learn("plate", product(1, 16))
    return detector


@contextmanager
def bench(folder: Path, **config: Any) -> Iterator[Bench]:
    """A running teaching of one product, "plate"."""
    _taught().save(folder / "store")
    detector = Dinosaur(folder / "store", encoder=_taught().encoder)
    history = History("", folder / "station")
    history.open()
    bus = Bus()
    teaching = Teaching(detector, history, bus, TeachingConfig(**config))
    teaching.start()
    try:
        yield Bench(detector, history, bus, teaching, folder)
    finally:
        teaching.stop()
        history.close()
