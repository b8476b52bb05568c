"""A method of this benchmark as a model or a strategy of pyCLAD, whose concepts are the tasks here.

pyCLAD is no dependency: it is imported when one of the two functions is called. Its data must be images, (N, H, W, 3)
uint8. Its labels are 1 where a score is above the threshold that the method has set by itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import digest
from dinosaur_ad.methods.contract import Floats, Lesson, Photo, Workbench
from dinosaur_ad.methods.method_registry import MethodChoice

Labels = NDArray[np.int64]
Images = NDArray[np.uint8]


class ConceptLearner:
    """What a model and a strategy share: concepts are learned one after another by one method."""

    def __init__(self, choice: MethodChoice, workbench: Workbench) -> None:
        self._choice = choice
        self._method = choice.build(workbench)
        self._earlier: dict[str, tuple[Photo, ...]] = {}

    def name(self) -> str:
        """The method as on the command line."""
        return self._choice.name

    def additional_info(self) -> dict[str, Any]:
        """Settings, and what made the scores."""
        return {"settings": self._choice.config.identity(), **self._method.info()}

    def _learn(self, images_NHWC: Images, concept: str) -> None:
        if concept in self._earlier:
            raise InputError(f"The concept '{concept}' was learned already; give each concept one name of its own.")
        photos = _photos(images_NHWC)
        self._method.learn(Lesson(concept, photos, earlier=tuple(self._earlier.values())))
        # Only a method that replays will ask for them again.
        self._earlier[concept] = photos if self._choice.spec.replay else ()

    def _predict(self, images_NHWC: Images, concept: str | None) -> tuple[Labels, Floats]:
        told = concept if self._method.routes and concept in self._earlier else None
        scores = self._method.score(_photos(images_NHWC), told)
        if scores.thresholds is None:
            raise InputError(f"{self.name()} sets no threshold, which labels need; give its Scores thresholds.")
        # A score that is no number raises an alarm.
        return (~(scores.image <= scores.thresholds)).astype(np.int64), scores.image


class MethodModel(ConceptLearner):
    """A method as a pyCLAD model: every :meth:`fit` is one more task."""

    def fit(self, data: Images) -> None:
        """Learn one more task from normal images (N, H, W, 3)."""
        self._learn(data, f"concept {len(self._earlier) + 1}")

    def predict(self, data: Images) -> tuple[Labels, Floats]:
        """Labels (0 normal, 1 anomalous) and scores of images of any task."""
        return self._predict(data, None)


class MethodStrategy(ConceptLearner):
    """A method as a pyCLAD strategy, for scenarios that name the concept and for those that do not.

    A method that routes is told the concept where it is named and was learned.
    """

    def learn(self, data: Images, concept_id: str | None = None) -> None:
        """Learn one more concept from normal images (N, H, W, 3)."""
        self._learn(data, f"concept {len(self._earlier) + 1}" if concept_id is None else concept_id)

    def predict(self, data: Images, concept_id: str | None = None) -> tuple[Labels, Floats]:
        """Labels (0 normal, 1 anomalous) and scores."""
        return self._predict(data, concept_id)


def pyclad_model(choice: MethodChoice, workbench: Workbench | None = None) -> MethodModel:
    """A method as a ``pyclad.models.model.Model``, to be used in any pyCLAD strategy, such as ``NaiveStrategy``.

    :raises InputError: pyCLAD is not installed.
    """
    made = type("DinosaurModel", (MethodModel, _pyclad("models.model", "Model")), {})
    model: MethodModel = made(choice, workbench or Workbench())
    return model


def pyclad_strategy(choice: MethodChoice, workbench: Workbench | None = None) -> MethodStrategy:
    """A method as a concept-aware and concept-incremental strategy of pyCLAD.

    :raises InputError: pyCLAD is not installed.
    """
    kinds = (_pyclad("strategies.strategy", f"Concept{kind}Strategy") for kind in ("Aware", "Incremental"))
    strategy: MethodStrategy = type("DinosaurStrategy", (MethodStrategy, *kinds), {})(choice, workbench or Workbench())
    return strategy


def _pyclad(module: str, name: str) -> type:
    try:
        found: type = getattr(import_module(f"pyclad.{module}"), name)
    except ImportError as error:
        raise InputError(f"This needs pyCLAD ({error}); install it with: pip install pyclad.") from error
    return found


def _photos(images_NHWC: Images) -> tuple[Photo, ...]:
    array = np.asarray(images_NHWC)
    if array.ndim != 4 or array.shape[-1] != 3 or array.dtype != np.uint8:
        raise InputError(
            f"The concepts must hold images, (N, H, W, 3) uint8, but hold {array.shape} {array.dtype}; "
            "convert them before they go into the pyCLAD dataset."
        )
    return tuple(_photo(image) for image in array)


def _photo(pixels: Images) -> Photo:
    """A function of its own, so that every photo loads its own pixels."""
    return Photo(digest(pixels), lambda: pixels)
