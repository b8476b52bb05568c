"""What goes through a stream without boundaries: DINOSaur's watch, and the baselines that it is compared with.

All of them judge a picture before they learn from it (test, then train).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image

from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.stream import StreamMemory, begin_stream, follow_stream, stream_distances
from dinosaur_ad.detector import Dinosaur
from dinosaur_ad.encoders import Encoder, prepare
from dinosaur_ad.methods.contract import Floats, Lesson, Method, Photo
from dinosaur_ad.presets import Preset

ENOUGH = 20
"""Pictures after which a product is learned where the boundaries are known, and the size of a blind lesson."""
WINDOW = 200
"""Scores of the last pictures from which a flat memory has its threshold."""


class StreamAnswer(NamedTuple):
    """What was said of a picture before it was learned: the score over the threshold (None: not judged), and whether
    that is an alarm (None: the method has no threshold)."""

    ratio: float | None = None
    alarm: bool | None = None


class FoundProduct(NamedTuple):
    """A product that was found after the picture ``at``, and the pictures that it was said to consist of."""

    at: int
    members: tuple[int, ...]


class StreamLearner(Protocol):
    """Anything that can be measured on a stream."""

    found: list[FoundProduct]

    def follow(self, photos: Iterable[Photo]) -> Iterator[StreamAnswer]:
        """One answer for each picture, in order, before the next one is asked for."""

    def score(self, photos: Sequence[Photo]) -> Floats:
        """Scores of other images with what was learned, comparable between products."""

    def storage_bytes(self) -> int:
        """Bytes of what is remembered now, without the encoder."""


class WatchLearner:
    """DINOSaur told nothing: ``watch`` with ``--adopt auto`` on a store in ``folder``."""

    def __init__(self, folder: Path, encoder: Encoder, preset: Preset, seed: int = 0) -> None:
        self._pictures = folder / "pictures"
        self._pictures.mkdir(parents=True)
        self._detector = Dinosaur(folder / "store", encoder=encoder, preset=preset, seed=seed)
        self._latest = -1
        self.found: list[FoundProduct] = []

    def _files(self, photos: Iterable[Photo]) -> Iterator[Path]:
        for self._latest, photo in enumerate(photos):
            path = self._pictures / f"{self._latest:07d}.png"
            Image.fromarray(photo.pixels()).save(path)
            yield path

    def follow(self, photos: Iterable[Photo]) -> Iterator[StreamAnswer]:
        """Inspected pictures are judged, those of no known product are not."""
        answered = -1
        for event in self._detector.watch(self._files(photos), adopt="auto"):
            if event.kind == "proposed":
                members = tuple(int(Path(path).stem) for path in event.pictures)
                self.found.append(FoundProduct(self._latest, members))
            if not event.path or event.kind == "proposed" or int(Path(event.path).stem) != self._latest:
                continue
            if answered < self._latest:
                answered = self._latest
                result = event.inspection
                yield (
                    StreamAnswer(result.score / result.threshold, result.verdict != "normal")
                    if result
                    else (StreamAnswer())
                )

    def score(self, photos: Sequence[Photo]) -> Floats:
        """Scores over thresholds."""
        if not len(self._detector):
            return np.zeros(len(photos), np.float32)
        results = self._detector.inspect([photo.pixels() for photo in photos])
        return np.asarray([each.score / each.threshold for each in results], np.float32)

    def storage_bytes(self) -> int:
        """Of the current versions of all tasks."""
        return sum(info.bytes for record in self._detector.tasks() for info in record.files.values())


class MethodLearner:
    """Any method of the benchmark, in lessons.

    Told nothing, every 20 pictures are a lesson, defects included. With ``truth`` (product and label of each picture)
    it is told the products: one is learned from its first 20 normal pictures.
    """

    def __init__(self, method: Method, truth: Sequence[tuple[str, int]] | None = None, lesson: int = ENOUGH) -> None:
        self._method, self._truth, self._lesson = method, truth, lesson
        self._waiting: dict[str, list[tuple[int, Photo]]] = defaultdict(list)
        self._learned: list[str] = []
        self.found: list[FoundProduct] = []

    def follow(self, photos: Iterable[Photo]) -> Iterator[StreamAnswer]:
        """Pictures before the first lesson, or of a product that is told and not yet learned, are not judged."""
        for number, photo in enumerate(photos):
            product, label = self._truth[number] if self._truth else ("", 0)
            known = product in self._learned if self._truth else bool(self._learned)
            yield self._answer(photo) if known else StreamAnswer()
            if not label and not (self._truth and known):
                self._take(number, photo, product)

    def _answer(self, photo: Photo) -> StreamAnswer:
        found = self._method.score([photo])
        if found.thresholds is None:
            return StreamAnswer(float(found.image[0]))
        ratio = float(found.image[0] / found.thresholds[0])
        return StreamAnswer(ratio, not ratio <= 1)

    def _take(self, number: int, photo: Photo, product: str) -> None:
        waiting = self._waiting[product]
        waiting.append((number, photo))
        if len(waiting) < self._lesson:
            return
        name = product or f"lesson-{len(self._learned) + 1}"
        self._method.learn(Lesson(name, tuple(each for _, each in waiting)))
        self._learned.append(name)
        if self._truth:
            self.found.append(FoundProduct(number, tuple(n for n, _ in waiting)))
        del self._waiting[product]

    def score(self, photos: Sequence[Photo]) -> Floats:
        """Scores over thresholds where the method has them."""
        if not self._learned:
            return np.zeros(len(photos), np.float32)
        found = self._method.score(list(photos))
        return found.image if found.thresholds is None else found.image / found.thresholds

    def storage_bytes(self) -> int:
        """As the method counts it."""
        return self._method.storage_bytes() if self._learned else 0


class FlatLearner:
    """One memory for all products at each place of the patch grid, of bounded size (:mod:`dinosaur_ad.core.stream`).

    It knows no products. The threshold is a quantile of the scores of the last 200 pictures before they were learned.
    """

    def __init__(self, encoder: Encoder, preset: Preset, *, members: int = 60, probation: int | None = 500) -> None:
        self._features = FeatureExtractor(preset, lambda: encoder)
        self._preset, self._members, self._probation = preset, members, probation
        self._memory: StreamMemory | None = None
        self._last: deque[float] = deque(maxlen=WINDOW)
        self.found: list[FoundProduct] = []

    def follow(self, photos: Iterable[Photo]) -> Iterator[StreamAnswer]:
        """Pictures are judged once every place has a patch that two images had, and 20 scores are there."""
        for photo in photos:
            patches_1HWC = self._patches([photo])
            if self._memory is None:
                self._memory = begin_stream(patches_1HWC[0], self._members)
            score = self._pooled(patches_1HWC)[0]
            ratio = score / self._threshold() if np.isfinite(score) and len(self._last) >= ENOUGH else None
            yield StreamAnswer() if ratio is None else StreamAnswer(float(ratio), not ratio <= 1)
            if np.isfinite(score):
                self._last.append(float(score))
            self._memory = follow_stream(self._memory, patches_1HWC, probation=self._probation)

    def _patches(self, photos: Sequence[Photo]) -> Floats:
        return self._features.encode(prepare([photo.pixels() for photo in photos], self._preset.size))[0]

    def _pooled(self, patches_NHWC: Floats) -> Floats:
        assert self._memory is not None
        distances_NHW = stream_distances(self._memory, patches_NHWC)
        found: Floats = pool(distances_NHW, self._preset.top)
        return found

    def _threshold(self) -> float:
        return max(float(np.quantile(self._last, 1 - self._preset.false_alarms)), float(np.finfo(np.float32).tiny))

    def score(self, photos: Sequence[Photo]) -> Floats:
        """Distances, which one memory makes comparable."""
        if self._memory is None:
            return np.zeros(len(photos), np.float32)
        score_N = [float(self._pooled(self._patches([photo]))[0]) for photo in photos]
        return np.nan_to_num(np.asarray(score_N, np.float32), posinf=float(np.finfo(np.float32).max))

    def storage_bytes(self) -> int:
        """The same at any time."""
        return 0 if self._memory is None else self._memory.nbytes
