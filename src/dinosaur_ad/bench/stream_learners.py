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
from dinosaur_ad.core.stream_memory import StreamMemory, begin_stream, follow_stream, stream_distances
from dinosaur_ad.detector import Dinosaur
from dinosaur_ad.encoders import Encoder, prepare
from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.inspection import Inspection
from dinosaur_ad.methods.contract import Floats, Lesson, Method, Photo
from dinosaur_ad.presets import Preset

ENOUGH = 20
"""Pictures after which a product is learned where the boundaries are known, and the size of a blind lesson."""
MORE = 10
"""Pictures that are then added to it at a time."""
AT_ONCE = 64
"""Images that are read and inspected together at the end."""
WINDOW = 200
"""Scores of the last pictures from which a flat memory has its threshold."""


class StreamAnswer(NamedTuple):
    """What was said of a picture before it was learned: the score over the threshold (None: not judged), whether that
    is an alarm (None: the method has no threshold), and whether its product could be judged."""

    ratio: float | None = None
    alarm: bool | None = None
    ready: bool = True


class FoundProduct(NamedTuple):
    """A product that was found after the picture ``at``, and the pictures that it was said to consist of."""

    at: int
    members: tuple[int, ...]


class StreamLearner(Protocol):
    """Anything that can be measured on a stream."""

    @property
    def found(self) -> list[FoundProduct] | None:
        """The products that were found so far; None if it does not look for products."""

    def follow(self, photos: Iterable[Photo]) -> Iterator[StreamAnswer]:
        """One answer for each picture, in order, before the next one is asked for."""

    def judge(self, photos: Sequence[Photo]) -> list[StreamAnswer]:
        """What is said of other images with what was learned; ratios are comparable between products."""

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
                yield StreamAnswer() if event.inspection is None else _answer(event.inspection)

    def judge(self, photos: Sequence[Photo]) -> list[StreamAnswer]:
        """As the detector inspects them, no task named."""
        return _inspected(self._detector, photos)

    def storage_bytes(self) -> int:
        """Of the current versions of all tasks."""
        return _stored_bytes(self._detector)


class ToldLearner:
    """The same detector told the task and the label of each picture of the stream (``truth``).

    A task is learned from its first 20 normal pictures, and all later ones are added to it in tens. Pictures of a task
    that is not learned yet are not judged; which task a picture shows is not told when it is judged.
    """

    found = None

    def __init__(self, encoder: Encoder, preset: Preset, truth: Sequence[tuple[str, int]], seed: int = 0) -> None:
        self._detector = Dinosaur(encoder=encoder, preset=preset, seed=seed)
        self._truth = truth
        self._waiting: dict[str, list[Photo]] = defaultdict(list)

    def follow(self, photos: Iterable[Photo]) -> Iterator[StreamAnswer]:
        """Normal pictures are learned after they were judged."""
        for (task, label), photo in zip(self._truth, photos, strict=True):
            yield self.judge([photo])[0] if task in self._detector else StreamAnswer()
            if not label:
                self._take(task, photo)

    def _take(self, task: str, photo: Photo) -> None:
        waiting, known = self._waiting[task], task in self._detector
        waiting.append(photo)
        if len(waiting) < (MORE if known else ENOUGH):
            return
        teach = self._detector.update if known else self._detector.learn
        teach(task, [each.pixels() for each in waiting], force=True)
        waiting.clear()

    def judge(self, photos: Sequence[Photo]) -> list[StreamAnswer]:
        """As the detector inspects them, no task named."""
        return _inspected(self._detector, photos)

    def storage_bytes(self) -> int:
        """Of the current versions of all tasks."""
        return _stored_bytes(self._detector)


def _answer(result: Inspection) -> StreamAnswer:
    return StreamAnswer(result.score / result.threshold, result.verdict != "normal", result.verdict != "not ready")


def _inspected(detector: Dinosaur, photos: Sequence[Photo]) -> list[StreamAnswer]:
    if not len(detector):
        return [StreamAnswer()] * len(photos)
    return [_answer(each) for some in batched(photos, AT_ONCE) for each in detector.inspect([p.pixels() for p in some])]


def _stored_bytes(detector: Dinosaur) -> int:
    return sum(info.bytes for record in detector.tasks() for info in record.files.values())


class MethodLearner:
    """Any method of the benchmark, told nothing: every 20 pictures are a lesson, defects included."""

    found = None

    def __init__(self, method: Method, lesson: int = ENOUGH) -> None:
        self._method, self._lesson = method, lesson
        self._waiting: list[Photo] = []
        self._lessons = 0

    def follow(self, photos: Iterable[Photo]) -> Iterator[StreamAnswer]:
        """Pictures before the first lesson are not judged."""
        for photo in photos:
            yield self.judge([photo])[0]
            self._waiting.append(photo)
            if len(self._waiting) == self._lesson:
                self._lessons += 1
                self._method.learn(Lesson(f"lesson-{self._lessons}", tuple(self._waiting)))
                self._waiting = []

    def judge(self, photos: Sequence[Photo]) -> list[StreamAnswer]:
        """Scores over thresholds; scores where the method has no thresholds."""
        if not self._lessons:
            return [StreamAnswer()] * len(photos)
        found = self._method.score(list(photos))
        if found.thresholds is None:
            return [StreamAnswer(score) for score in found.image.tolist()]
        return [StreamAnswer(ratio, not ratio <= 1) for ratio in (found.image / found.thresholds).tolist()]

    def storage_bytes(self) -> int:
        """As the method counts it."""
        return self._method.storage_bytes() if self._lessons else 0


class FlatLearner:
    """One bounded memory for all products at each place of the patch grid (:mod:`dinosaur_ad.core.stream_memory`).

    It knows no products. The threshold is a quantile of the scores of the last 200 pictures before they were learned.
    """

    found = None

    def __init__(self, encoder: Encoder, preset: Preset, *, members: int = 60, probation: int | None = 500) -> None:
        self._features = FeatureExtractor(preset, lambda: encoder)
        self._preset, self._members, self._probation = preset, members, probation
        self._memory: StreamMemory | None = None
        self._last: deque[float] = deque(maxlen=WINDOW)

    def follow(self, photos: Iterable[Photo]) -> Iterator[StreamAnswer]:
        """Pictures are judged once every place has a patch that two images had, and 20 scores are there."""
        for photo in photos:
            patches_1HWC = self._patches(photo)
            if self._memory is None:
                self._memory = begin_stream(patches_1HWC[0], self._members)
            score = self._pooled(patches_1HWC)
            yield self._compared(score)
            if np.isfinite(score):
                self._last.append(score)
            self._memory = follow_stream(self._memory, patches_1HWC, probation=self._probation)

    def _patches(self, photo: Photo) -> Floats:
        return self._features.encode(prepare([photo.pixels()], self._preset.size))[0]

    def _pooled(self, patches_1HWC: Floats) -> float:
        assert self._memory is not None
        return float(pool(stream_distances(self._memory, patches_1HWC), self._preset.top)[0])

    def _compared(self, score: float) -> StreamAnswer:
        if len(self._last) < ENOUGH or not np.isfinite(score):
            return StreamAnswer()
        threshold = float(np.quantile(self._last, 1 - self._preset.false_alarms))
        ratio = score / max(threshold, float(np.finfo(np.float32).tiny))
        return StreamAnswer(ratio, not ratio <= 1)

    def judge(self, photos: Sequence[Photo]) -> list[StreamAnswer]:
        """With the threshold of the last pictures."""
        if self._memory is None:
            return [StreamAnswer()] * len(photos)
        return [self._compared(self._pooled(self._patches(photo))) for photo in photos]

    def storage_bytes(self) -> int:
        """The same at any time."""
        return 0 if self._memory is None else self._memory.nbytes
