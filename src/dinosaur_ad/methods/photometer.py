"""Photometer, a control: how bright an image is on the whole, and nothing else.

What it is: no method of the paper and no detector to use, but what every detector should be held against. It measures
one number of an image, the mean of its pixels. Where that number alone tells normal test images from anomalous ones,
the photographs were lit differently, and an image AUROC says less about defects than it seems to. And where another
method's scores rank images as this number does, and no better, light explains what it reaches; the benchmark's table
``shortcuts`` has the correlations.

| | ``photometer`` | ``photometer:signed`` |
|---|---|---|
| score | how many standard deviations an image is from its task's mean brightness | the brightness itself |
| what it is for | a row to be better than | showing that light differs, whichever way: 0.000 says as much as 1.000 |
| task | the one whose mean is nearest, in its standard deviations | the same; it changes no score |
| threshold of its own | 97.5 % of the scores of its task's training images | the same |

Paper and original: none. Nothing is trained, and nothing is drawn: every seed that sees the same images gives the same
scores. A task keeps three numbers. There are no maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.contract import Config, Floats, Lesson, Parameters, Photo, Scores, Workbench
from dinosaur_ad.methods.method_registry import register
from dinosaur_ad.methods.shared.method_rules import require_normals, require_photos, training_threshold
from dinosaur_ad.methods.shared.state_files import Arrays, StatefulMethod

RECIPE = "mean-brightness"


@dataclass(frozen=True)
class PhotometerConfig(Config):
    """``least_spread`` (of 255) stands in for the spread of a task whose images are all equally bright."""

    signed: bool = False
    least_spread: float = 0.5

    def __post_init__(self) -> None:
        if not self.least_spread > 0:
            raise InputError(f"The photometer's least_spread must be above 0, got {self.least_spread}.")


@dataclass(frozen=True)
class _Brightness:
    mean: float
    spread: float
    threshold: float


@register(
    "photometer",
    variants={"default": PhotometerConfig(), "signed": PhotometerConfig(signed=True)},
    summary="a control: the mean brightness of an image, and nothing else",
    control=True,
)
class Photometer(StatefulMethod):
    """Mean and spread of the brightness of each task's images."""

    title = "Photometer"
    has_maps = False
    routes = True

    config: PhotometerConfig

    def __init__(self, config: PhotometerConfig, workbench: Workbench) -> None:
        super().__init__(config, workbench)
        self._tasks: dict[str, _Brightness] = {}

    def learn(self, lesson: Lesson) -> None:
        """Measure the training images."""
        require_normals(lesson.task, lesson.train)
        light_N = self._light(lesson.train)
        mean, spread = float(light_N.mean()), max(float(light_N.std()), self.config.least_spread)
        off_N = np.abs(light_N - mean) / spread
        self._tasks[lesson.task] = _Brightness(
            mean, spread, training_threshold(light_N if self.config.signed else off_N)
        )

    def score(self, photos: Sequence[Photo], task: str | None = None) -> Scores:
        """Measure the images, and compare them with the task that fits best, or with ``task``."""
        require_photos(photos)
        self._require_learned(task, self._tasks)
        names = list(self._tasks) if task is None else [task]
        light_N = self._light(photos)
        off_TN = np.stack([np.abs(light_N - each.mean) / each.spread for each in map(self._tasks.__getitem__, names)])
        routes = tuple(names[index] for index in off_TN.argmin(axis=0))
        image_N = light_N if self.config.signed else off_TN.min(axis=0)
        limits = [self._tasks[name].threshold for name in routes]
        return Scores(image_N.astype(np.float32), routes=routes, thresholds=np.asarray(limits, np.float32))

    def _light(self, photos: Sequence[Photo]) -> Floats:
        """The mean of all pixels and colours of each photo, (N,), from 0 to 255."""

        def measure(group: Sequence[Photo]) -> Floats:
            return np.asarray([photo.pixels().mean(dtype=np.float64) for photo in group], np.float32)

        return self.workbench.cache.features(RECIPE, photos, measure)

    # --- state ---

    def _has_learned(self) -> bool:
        return bool(self._tasks)

    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        numbers = np.asarray([[each.mean, each.spread, each.threshold] for each in self._tasks.values()], np.float64)
        return {"mean_spread_threshold": numbers}, {"tasks": list(self._tasks)}

    def _restore(self, tensors: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        rows = tensors["mean_spread_threshold"].tolist()
        self._tasks = {str(name): _Brightness(*row) for name, row in zip(facts["tasks"], rows, strict=True)}

    def _made_with(self) -> dict[str, Any]:
        return self.config.identity()

    def storage_bytes(self) -> int:
        """Three float64 numbers a task."""
        return 3 * np.dtype(np.float64).itemsize * len(self._tasks)

    def parameters(self) -> Parameters:
        """There is no model."""
        return Parameters(total=0, trainable=0)

    def info(self) -> dict[str, Any]:
        """What made the scores."""
        return {
            "description": "a control without a network: the mean of the pixels",
            "backend": "numpy",
            "precision": "float32",
            "weights_sha256": "",
        }
