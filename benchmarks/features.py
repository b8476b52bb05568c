"""Tasks whose features are drawn and cached before any clock runs: no image is read and nothing is encoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bench.cache import DiskCache
from dinosaur_ad.bench.lessons import photo
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.images.loading import Mask, Pixels
from dinosaur_ad.methods import Photo

# What the default encoder and preset give: a CLS feature and 16 x 16 patch features an image.
SIDE, CHANNELS = 16, 384
# How far apart the tasks' patterns lie, in units of the noise. Conditions of one product are so near to each other that
# routing asks five banks, as it does on the paper's drifting tiles; of products one knows at once which it is.
CONDITIONS, PRODUCTS = 0.3, 2.0
MASK_SIDE = 256
# The defect, in patches from the upper left corner.
SPOT = slice(4, 7)

Floats = NDArray[np.float32]


@cache
def _pattern(number: int) -> Floats:
    """What a task's tokens have in common, (1 + H * W, C)."""
    return np.random.default_rng(number).standard_normal((1 + SIDE * SIDE, CHANNELS), np.float32)


@dataclass(frozen=True)
class DrawnSample:
    """A sample that has features and a mask, and no pixels."""

    apart: float
    task: int
    number: int
    label: int = 0

    @property
    def name(self) -> str:
        """Its number."""
        return f"{self.number:05d}"

    @property
    def kind(self) -> str:
        """``"good"`` or ``"spot"``."""
        return "spot" if self.label else "good"

    def image(self) -> Pixels:
        """Never asked for: its features are in the cache."""
        raise NotImplementedError("a drawn sample has no pixels")

    def mask(self) -> Mask:
        """Where the spot is: bool (256, 256)."""
        mask_HW = np.zeros((MASK_SIDE, MASK_SIDE), np.bool_)
        scale = MASK_SIDE // SIDE
        mask_HW[SPOT.start * scale : SPOT.stop * scale, SPOT.start * scale : SPOT.stop * scale] = self.label
        return mask_HW

    def valid(self) -> None:
        """All pixels count."""

    def regions(self) -> None:
        """Nobody says how much of the spot must be found."""

    def key(self) -> str:
        """Also the name of a file, with the task in front: the cache makes folders of the first two letters."""
        return f"{self.task:02d}-{self.number:05d}-{self.label}-{self.apart}"

    def tokens(self) -> Floats:
        """CLS and patch features, (1 + H * W, C)."""
        rng = np.random.default_rng([self.task, self.number])
        token_TC = rng.standard_normal((1 + SIDE * SIDE, CHANNELS), np.float32)
        token_TC += _pattern(0) + np.float32(self.apart) * _pattern(1 + self.task)
        if self.label:
            token_TC[1:].reshape(SIDE, SIDE, CHANNELS)[SPOT, SPOT] += 1.5 * _pattern(0)[0]
        return token_TC


def drawn_scenario(tasks: int, train: int, normal: int, anomalous: int, apart: float = CONDITIONS) -> Scenario:
    """Tasks of ``train`` normals each to learn from, and ``normal`` and ``anomalous`` images to test.

    A larger scenario holds the images of a smaller one.
    """

    def task(index: int) -> Task:
        return Task(
            f"task-{index:02d}",
            train=tuple(DrawnSample(apart, index, n) for n in range(train)),
            test=(
                *(DrawnSample(apart, index, 20_000 + n) for n in range(normal)),
                *(DrawnSample(apart, index, 40_000 + n, label=1) for n in range(anomalous)),
            ),
        )

    return Scenario("drawn", tuple(map(task, range(tasks))))


class DrawnCache:
    """The benchmark's cache on disk, holding drawn features under whatever recipe they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.disk = DiskCache(folder)
        self._samples: dict[str, DrawnSample] = {}

    def fill(self, scenario: Scenario) -> None:
        """Have the features of all its images."""
        samples = list(chain.from_iterable((*task.train, *task.test) for task in scenario.tasks))
        self._samples |= {sample.key(): sample for sample in samples if isinstance(sample, DrawnSample)}
        for group in batched(samples, 128):
            self.features("", [photo(sample) for sample in group])

    def prepared(self, photos: Sequence[Photo], size: int) -> NDArray[np.uint8]:
        """Never asked for, because nothing is encoded."""
        raise NotImplementedError("drawn samples have no pixels")

    def features(
        self, recipe: str, photos: Sequence[Photo], compute: Callable[[Sequence[Photo]], Floats] | None = None
    ) -> Floats:
        """The drawn features, read from disk; only :meth:`fill` meets some that are not there yet."""
        return self.disk.features("drawn", photos, self._draw)

    def _draw(self, photos: Sequence[Photo]) -> Floats:
        return np.stack([self._samples[photo.key].tokens() for photo in photos])
