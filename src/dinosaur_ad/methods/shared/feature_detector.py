"""Any detector with ``fit(X)`` and ``decision_function(X)`` as a method: one a task, on descriptors of images.

PyOD's detectors and scikit-learn's outlier detectors have these two functions, with opposite signs: in PyOD a higher
value is more anomalous, in scikit-learn more normal. :func:`register_detector` therefore asks which it is, and refuses
an answer that is known to be wrong.

An image is described by one vector (N, C): the CLS token and the mean patch, as DINOSaur routes by. It goes to the task
whose mean descriptor is nearest, and that task's detector scores it. There are no maps. What is kept are the training
descriptors: a detector is fitted to them again when a state is loaded, so nothing has to be pickled.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.core.routing import prototype_distances
from dinosaur_ad.encoders import DEFAULT_ENCODER, load_encoder
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.contract import Config, Floats, Lesson, Parameters, Photo, Scores, Workbench
from dinosaur_ad.methods.method_registry import DEFAULT_VARIANT, register
from dinosaur_ad.methods.shared.method_rules import require_normals, require_photos, training_threshold
from dinosaur_ad.methods.shared.state_files import Arrays, StatefulMethod
from dinosaur_ad.presets import DEFAULT

Higher = Literal["anomalous", "normal"]
"""What a higher value of ``decision_function`` means."""


class Detector(Protocol):
    """What PyOD and scikit-learn have in common."""

    def fit(self, X: Floats) -> Any:
        """Learn from normal samples (N, C)."""
        ...

    def decision_function(self, X: Floats) -> Any:
        """One value for each sample, (N,)."""
        ...


@dataclass(frozen=True)
class FeatureDetectorConfig(Config):
    """The encoder, and what of it (``none``: as in the preset ``default``); ``detector`` is said by the detector."""

    detector: str = ""
    encoder: str = DEFAULT_ENCODER
    weights: str = field(default="", metadata={"place": True})
    layers: tuple[int | Literal["final"], ...] | None = None
    size: int | None = None


class _Task(NamedTuple):
    normal_NC: Floats
    detector: Detector
    threshold: float


class FeatureDetector(StatefulMethod):
    """One detector a task; :func:`register_detector` makes the subclasses."""

    has_maps = False
    routes = True
    higher: ClassVar[Higher]

    config: FeatureDetectorConfig

    def __init__(self, config: FeatureDetectorConfig, workbench: Workbench) -> None:
        super().__init__(config, workbench)
        said = describe_detector(self.make(workbench.seed))
        if config.detector != said:
            raise InputError(f"{self.title} is '{said}'; change that where it is registered, not with --set.")
        changes = {key: value for key in ("layers", "size") if (value := getattr(config, key)) is not None}
        preset = replace(DEFAULT, **changes)
        cuda = workbench.device != "cpu"
        self._encoder = load_encoder(
            config.encoder,
            layers=preset.layers,
            size=preset.size,
            provider="torch" if cuda else None,
            device=workbench.device,
            weights=config.weights or None,
        )
        self._extractor = FeatureExtractor(preset, lambda: self._encoder)
        self._recipe = f"{self._encoder.fingerprint}-descriptors-{preset.normalise:d}{preset.average:d}"
        self._tasks: dict[str, _Task] = {}

    @staticmethod
    @abstractmethod
    def make(seed: int) -> Detector:
        """A new detector that has seen nothing."""

    def learn(self, lesson: Lesson) -> None:
        """Fit a detector to the descriptors of the training images."""
        require_normals(lesson.task, lesson.train)
        self._fit(lesson.task, self._describe(lesson.train))

    def score(self, photos: Sequence[Photo], task: str | None = None) -> Scores:
        """Ask the detector of the task with the nearest mean descriptor, or that of ``task``."""
        require_photos(photos)
        self._require_learned(task, self._tasks)
        names = list(self._tasks) if task is None else [task]
        descriptor_NC = self._describe(photos)
        prototype_TC = np.stack([self._tasks[name].normal_NC.mean(axis=0) for name in names])
        chosen_N = np.asarray(prototype_distances(descriptor_NC, prototype_TC)).argmin(axis=1)
        image_N = np.empty(len(photos), np.float32)
        for index, name in enumerate(names):
            rows = chosen_N == index
            if rows.any():
                image_N[rows] = self._anomaly(self._tasks[name].detector, descriptor_NC[rows])
        routes = tuple(names[index] for index in chosen_N)
        limits = np.asarray([self._tasks[name].threshold for name in routes], np.float32)
        return Scores(image_N, routes=routes, thresholds=limits)

    def _fit(self, task: str, normal_NC: Floats) -> None:
        detector = self.make(self.workbench.seed)
        detector.fit(normal_NC)
        self._tasks[task] = _Task(normal_NC, detector, training_threshold(self._anomaly(detector, normal_NC)))

    def _anomaly(self, detector: Detector, descriptor_NC: Floats) -> Floats:
        """Scores (N,), higher for more anomalous."""
        value_N = np.asarray(detector.decision_function(descriptor_NC), np.float64)
        if value_N.shape != (len(descriptor_NC),):
            raise InputError(
                f"{self.title} gave values of shape {value_N.shape} for {len(descriptor_NC)} images; "
                "decision_function must return one an image."
            )
        return (value_N if self.higher == "anomalous" else -value_N).astype(np.float32)

    def _describe(self, photos: Sequence[Photo]) -> Floats:
        """The descriptors (N, C), from the cache where it has them."""
        return self.workbench.cache.features(self._recipe, photos, self._encode)

    def _encode(self, photos: Sequence[Photo]) -> Floats:
        pixels = self.workbench.cache.prepared(photos, self._encoder.size)
        batches = np.split(pixels, range(self._encoder.batch_size, len(pixels), self._encoder.batch_size))
        return np.concatenate([self._extractor.encode(batch)[1] for batch in batches])

    # --- state ---

    def _has_learned(self) -> bool:
        return bool(self._tasks)

    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        arrays = {f"normal-{index}": task.normal_NC for index, task in enumerate(self._tasks.values())}
        return arrays, {"tasks": list(self._tasks)}

    def _restore(self, tensors: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        self._tasks = {}
        for index, name in enumerate(facts["tasks"]):
            self._fit(str(name), tensors[f"normal-{index}"])

    def _made_with(self) -> dict[str, Any]:
        return {"detector": self.config.detector, "encoder": self._encoder.fingerprint, "seed": self.workbench.seed}

    def storage_bytes(self) -> int:
        """The training descriptors, from which all else follows."""
        return sum(task.normal_NC.nbytes for task in self._tasks.values())

    def parameters(self) -> Parameters:
        """Those of the encoder."""
        return Parameters(total=self._encoder.spec.parameters, trainable=0)

    def info(self) -> dict[str, Any]:
        """The encoder's info, the detector with its settings, and its sign."""
        encoder = {key: value for key, value in self._encoder.info().items() if key != "threads"}
        return encoder | {"detector": self.config.detector, "higher_is": self.higher}


def register_detector(
    name: str, make: Callable[[int], Detector], *, higher: Higher, needs: Sequence[str] = ()
) -> type[FeatureDetector]:
    """Make a detector available to the benchmark as the method ``name``.

    :param make: returns a new detector that has seen nothing; it gets the seed.
    :param higher: what a higher ``decision_function`` means: ``"anomalous"`` (PyOD) or ``"normal"`` (scikit-learn).
    :param needs: modules that a run of it needs.
    :raises InputError: the detector lacks one of the two functions, or is known to have the other sign.

    >>> from sklearn.ensemble import IsolationForest
    >>> made = register_detector("forest", lambda seed: IsolationForest(random_state=seed), higher="normal")
    >>> from dinosaur_ad.methods import get_method, unregister
    >>> get_method("forest").summary
    'IsolationForest on descriptors of a frozen encoder, one a task, routed by the nearest prototype'
    >>> unregister("forest")
    """
    detector = make(0)
    kind = type(detector).__name__
    for function in ("fit", "decision_function"):
        if not callable(getattr(detector, function, None)):
            raise InputError(f"{kind} has no {function}(X), which a detector needs (of LOF, give novelty=True).")
    known = _known_sign(detector)
    if higher not in ("anomalous", "normal") or known not in (None, higher):
        raise InputError(
            f"A higher decision_function of {kind} cannot mean '{higher}'; say higher='{known or 'anomalous'}'"
            f"{'' if known else ' or normal'}."
        )
    parts = {
        "title": name,
        "make": staticmethod(make),
        "higher": higher,
        "needs": tuple(needs),
        "__doc__": f"{kind} on descriptors.",
        # Where it is registered is where its source is: the hash in a result is that of this file.
        "__module__": getattr(make, "__module__", __name__),
    }
    made = type(kind, (FeatureDetector,), parts)
    register(
        name,
        variants={DEFAULT_VARIANT: FeatureDetectorConfig(detector=describe_detector(detector))},
        summary=f"{kind} on descriptors of a frozen encoder, one a task, routed by the nearest prototype",
        tiny={"encoder": "tiny-dinov2", "layers": (0, 1), "size": 70},
    )(made)
    return made


def describe_detector(detector: object) -> str:
    """The class of a detector and its settings, without the seed and without addresses in memory."""
    read = getattr(detector, "get_params", None)
    settings = read() if callable(read) else {}
    words = ", ".join(f"{key}={settings[key]!r}" for key in sorted(settings) if key != "random_state")
    return f"{type(detector).__name__}({re.sub(r' at 0x[0-9a-f]+', '', words)})"


def _known_sign(detector: object) -> Higher | None:
    """The sign of detectors of the two libraries, by the modules that their classes come from."""
    modules = {parent.__module__.partition(".")[0] for parent in type(detector).__mro__}
    if "pyod" in modules:
        return "anomalous"
    return "normal" if "sklearn" in modules else None
