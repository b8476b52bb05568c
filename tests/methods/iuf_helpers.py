"""Waves to reconstruct, and a small IUF that has learned them, for the tests of IUF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dinosaur_ad.methods import Lesson, Photo, Workbench, get_method
from dinosaur_ad.methods.iuf import IUF

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
pytest.importorskip("transformers", reason="transformers is not installed (it comes with the extra 'bench')")

from dinosaur_ad.methods.shared.torch_tools import to_images  # noqa: E402
from dinosaur_ad.methods.training import Step  # noqa: E402


def waves(number: int, seed: int = 0, tilt: float = 9.0, *, broken: bool = False) -> Photo:
    """The same pattern every time but for noise; a broken one is turned inside out in one place."""
    generator = np.random.default_rng([seed, number, broken])
    y, x = np.mgrid[:64, :64]
    image = 128 + 60 * (np.sin(x / 5) * np.cos(y / tilt))[:, :, None] + generator.normal(0, 6, (64, 64, 3))
    if broken:
        row, column = generator.integers(0, 44, 2)
        place = np.s_[row : row + 20, column : column + 20]
        image[place] = 255 - image[place] + generator.normal(0, 40, (20, 20, 1))
    pixels = image.clip(0, 255).astype(np.uint8)
    return Photo(f"waves-{tilt}-{seed}-{number}-{broken}", lambda: pixels)


LESSONS = [Lesson("waves", tuple(map(waves, range(10)))), Lesson("other", tuple(waves(n, tilt=3.0) for n in range(6)))]
TESTS = [waves(n, seed=1, broken=broken) for broken in (False, True) for n in range(12)]
LABELS = [0] * 12 + [1] * 12


def tiny(name: str = "iuf", workbench: Workbench | None = None, **settings: Any) -> IUF:
    method = get_method(name).tiny().with_settings(settings).build(workbench or Workbench())
    assert isinstance(method, IUF)
    return method


def taught(name: str = "iuf", lessons: Sequence[Lesson] = LESSONS, **settings: Any) -> IUF:
    method = tiny(name, **settings)
    for lesson in lessons:
        method.learn(lesson)
    return method


def step_of(photos: Sequence[Photo], index: int = 0, size: int = 64) -> Step:
    pixels = np.stack([photo.pixels() for photo in photos])
    images = to_images(pixels, torch.device("cpu"))
    return Step(images, pixels, list(photos), 0, index, torch.Generator().manual_seed(0))


def draw(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
