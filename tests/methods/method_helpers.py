"""Small lessons and photos for tests of methods."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from dinosaur_ad.datasets.tasks import Sample, Scenario
from dinosaur_ad.methods import Lesson, Method, MethodChoice, Photo, Workbench, get_method, list_methods
from dinosaur_ad.methods.method_registry import DEFAULT_VARIANT


def every_variant() -> list[str]:
    """All registered methods in all their variants."""
    return [
        name if variant == DEFAULT_VARIANT else f"{name}:{variant}"
        for name, spec in list_methods().items()
        for variant in spec.variants
    ]


def tiny(name: str) -> MethodChoice:
    """A method with the settings that it declares for tests."""
    return get_method(name).tiny()


def build(name: str, seed: int = 0) -> Method:
    """A tiny method that has learned nothing."""
    return tiny(name).build(Workbench(seed=seed))


def lessons(scenario: Scenario) -> list[Lesson]:
    """What methods see of a scenario."""
    from dinosaur_ad.bench.lessons import lesson

    return [lesson(scenario, index) for index in range(len(scenario.tasks))]


def images_to_test(scenario: Scenario) -> list[Photo]:
    """The test images of all tasks."""
    from dinosaur_ad.bench.lessons import photo

    return [photo(sample) for task in scenario.tasks for sample in task.test]


def grey(level: int, key: str) -> Photo:
    """A photo of nothing at all."""
    return Photo(key, lambda: np.full((72, 80, 3), level, np.uint8))


def photos_of(samples: Sequence[Sample]) -> tuple[Photo, ...]:
    """Photos of samples; each image is drawn once, however often a test asks for it."""
    return tuple(Photo(sample.name, cache(sample.image)) for sample in samples)


def random(*shape: int, seed: int = 0) -> Any:
    """A torch tensor of normal numbers."""
    import torch

    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))
