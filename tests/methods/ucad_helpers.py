"""Two small products, and a small UCAD that has learned them, for the tests of UCAD."""

from __future__ import annotations

from typing import Any

import pytest
from method_helpers import photos_of

from dinosaur_ad.datasets.synthetic import synthetic_scenario
from dinosaur_ad.methods import Lesson, Workbench, get_method
from dinosaur_ad.methods.ucad import UCAD, UCADConfig

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
pytest.importorskip("transformers", reason="transformers is not installed (it comes with the extra 'bench')")

from dinosaur_ad.methods.ucad.prompted_features import PromptedFeatures  # noqa: E402

SCENARIO = synthetic_scenario(train=8, test_normal=4, test_per_kind=2, size=64, products=["fabric", "gear"])
LESSONS = [Lesson(task.name, photos_of(task.train)) for task in SCENARIO.tasks]
TESTS = [photo for task in SCENARIO.tasks for photo in photos_of(task.test)]


def tiny(name: str = "ucad", workbench: Workbench | None = None, **settings: Any) -> UCAD:
    method = get_method(name).tiny().with_settings(settings).build(workbench or Workbench())
    assert isinstance(method, UCAD)
    return method


def taught(name: str = "ucad", **settings: Any) -> UCAD:
    method = tiny(name, **settings)
    for lesson in LESSONS:
        method.learn(lesson)
    return method


def network(kind: Any = "added", **settings: Any) -> PromptedFeatures:
    options = {"backbone": "tiny-vit", "blocks": 3, "size": 32, "prompt": kind}
    return PromptedFeatures(UCADConfig(**(options | settings)), "cpu")
