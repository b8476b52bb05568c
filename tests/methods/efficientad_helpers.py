"""Two small products, and a small EfficientAD, for the tests of EfficientAD."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from method_helpers import photos_of
from PIL import Image

from dinosaur_ad.datasets.synthetic import synthetic_scenario
from dinosaur_ad.methods import Lesson, Workbench, get_method
from dinosaur_ad.methods.efficientad import EfficientAD

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
pytest.importorskip("transformers", reason="transformers is not installed (it comes with the extra 'bench')")


SCENARIO = synthetic_scenario(train=10, test_normal=4, test_per_kind=2, size=64, products=["fabric", "gear"])
PHOTOS = [photos_of(task.train) for task in SCENARIO.tasks]
LESSONS = [Lesson("fabric", PHOTOS[0]), Lesson("gear", PHOTOS[1], earlier=(PHOTOS[0],))]


def tiny(name: str = "efficientad", seed: int = 0, **settings: Any) -> EfficientAD:
    method = get_method(name).tiny().with_settings(settings).build(Workbench(seed=seed))
    assert isinstance(method, EfficientAD)
    return method


def folder_of_images(folder: Path, count: int = 5) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for n in range(count):
        small = Image.fromarray(generator.integers(0, 255, (6, 8, 3), dtype=np.uint8))
        small.resize((90, 70), Image.Resampling.BICUBIC).save(folder / f"{n}.png")
    return folder
