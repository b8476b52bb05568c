"""The interface between the benchmark and a method, and all that a method gets to see.

A method learns tasks one after another (:class:`Lesson`: normal images and nothing else) and scores images
(:class:`~dinosaur_ad.methods.photo.Photo`: pixels and a key for them). No label, mask, path or sample can be reached by
following the attributes of these objects, so none is used by accident; code that searches the process or the disk for
them is not prevented from finding them.

To add a method: a file or folder here with a frozen configuration and a subclass of :class:`Method` under
:func:`~dinosaur_ad.methods.method_registry.register`. See docs/adding-a-method.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.encoders import prepare
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.photo import Photo

__all__ = [
    "Cache",
    "Config",
    "Floats",
    "Lesson",
    "Method",
    "NoCache",
    "Parameters",
    "Photo",
    "Scores",
    "Workbench",
]

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Lesson:
    """The training data of one task: normal images only.

    ``held_out`` are more normals, for thresholds only (MVTec-LOCO's ``validation``; most datasets have none). What
    replay may use is given by :meth:`rehearse`: the scenario decides it, not the method.
    """

    task: str
    train: tuple[Photo, ...]
    held_out: tuple[Photo, ...] = ()
    earlier: tuple[tuple[Photo, ...], ...] = field(default=(), repr=False)
    widened: tuple[Photo, ...] = field(default=(), repr=False)

    def rehearse(self, count: int, *, per: Literal["task", "total"] = "task", seed: int = 0) -> tuple[Photo, ...]:
        """All images that a replay method trains on for this task.

        Usually ``train`` and ``count`` of the training images of each earlier task (with ``per="total"``, of all
        earlier tasks together), drawn without repetition, all of them where there are fewer. In a drift scenario, the
        training images once, drawn from the whole range of drift up to this task (``widened``): the paper widens the
        range instead of storing images.

        >>> photos = [Photo(str(n), lambda: np.zeros((8, 8, 3), np.uint8)) for n in range(9)]
        >>> lesson = Lesson("c", tuple(photos[6:]), earlier=(tuple(photos[:3]), tuple(photos[3:6])))
        >>> len(lesson.rehearse(2)), len(lesson.rehearse(2, per="total")), len(lesson.rehearse(100))
        (7, 5, 9)
        """
        if self.widened:
            return self.widened
        generator = np.random.default_rng([seed, len(self.earlier)])
        pools = self.earlier if per == "task" else (tuple(photo for task in self.earlier for photo in task),)
        replayed = [
            pool[n]
            for pool in pools
            for n in sorted(generator.choice(len(pool), size=min(count, len(pool)), replace=False).tolist())
        ]
        return (*self.train, *replayed)


@dataclass(frozen=True)
class Scores:
    """The scores of N images.

    ``image`` (N,): higher is more anomalous. ``maps`` (N, H, W): the same per cell of a grid of any size, None for a
    method without localisation. ``routes``: the task chosen for each image, None for a method that does not route.
    ``thresholds`` (N,): the score above which the method would raise an alarm, without knowing the task.
    """

    image: Floats
    maps: Floats | None = None
    routes: tuple[str, ...] | None = None
    thresholds: Floats | None = None


@dataclass(frozen=True)
class Parameters:
    """The number of parameters of a model, and how many of them are trainable."""

    total: int
    trainable: int


class Cache(Protocol):
    """A cache for resized images and features; the benchmark provides one."""

    def prepared(self, photos: Sequence[Photo], size: int) -> NDArray[np.uint8]:
        """The photos resized for an encoder, (N, size, size, 3) uint8."""
        ...

    def features(self, recipe: str, photos: Sequence[Photo], compute: Callable[[Sequence[Photo]], Floats]) -> Floats:
        """``compute(photos)``, float32 with N as first axis, from the cache where it has them.

        ``recipe`` is the cache key of everything besides the pixels that decides the result.
        """
        ...


class NoCache:
    """A cache that stores nothing."""

    def prepared(self, photos: Sequence[Photo], size: int) -> NDArray[np.uint8]:
        """The photos, read and resized now."""
        return prepare([photo.pixels() for photo in photos], size)

    def features(self, recipe: str, photos: Sequence[Photo], compute: Callable[[Sequence[Photo]], Floats]) -> Floats:
        """The features, computed now."""
        return compute(photos)


def _no_messages(_text: str) -> None:
    """Drop a progress message."""


@dataclass(frozen=True)
class Workbench:
    """The surroundings of a method: seed, device, cache, scratch folder. Only the seed may change a result.

    ``scratch`` is a folder for checkpoints within one task, from which an interrupted training continues (see
    :mod:`dinosaur_ad.methods.training`); it is emptied when the task is learned and tested. ``say`` is a callback for
    progress messages.
    """

    seed: int = 0
    device: str = "cpu"
    cache: Cache = field(default_factory=NoCache)
    scratch: Path | None = None
    say: Callable[[str], None] = field(default=_no_messages, repr=False, compare=False)


@dataclass(frozen=True)
class Config:
    """Base class of a method's settings: a frozen dataclass of plain values.

    Fields marked ``field(metadata={"place": True})`` are locations (a file of weights). A run may be resumed with
    another location, but not with another value of any other field.
    """

    def identity(self) -> dict[str, Any]:
        """The values that decide the result."""
        places = {entry.name for entry in fields(self) if entry.metadata.get("place")}
        return {key: value for key, value in asdict(self).items() if key not in places}

    def require_at_least(self, method: str, limits: dict[str, int]) -> None:
        """Raise an error for the first field below its limit; ``method`` is the name in the message."""
        for name, least in limits.items():
            if getattr(self, name) < least:
                raise InputError(f"{method}'s {name} must be at least {least}, got {getattr(self, name)}.")

    def named_files(self) -> dict[str, Any]:
        """The fields that name a file or folder and are set."""
        return {
            entry.name: getattr(self, entry.name)
            for entry in fields(self)
            if entry.metadata.get("place") and getattr(self, entry.name)
        }


class Method(ABC):
    """A continual anomaly detector as the benchmark compares it; one instance learns one sequence of tasks.

    Everything random is seeded by ``workbench.seed``: the same lessons in the same order give the same scores.
    """

    has_maps: ClassVar[bool] = True
    routes: ClassVar[bool] = False
    """Whether it chooses a task for each image; if so, :meth:`score` also accepts the task."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Modules beyond the package's own dependencies; a run reports missing ones before it starts."""

    def __init__(self, config: Any, workbench: Workbench) -> None:
        self.config = config
        self.workbench = workbench

    @classmethod
    def summary_with(cls, config: Any) -> str | None:
        """One line about the method with these settings, where the registered summary does not hold for all."""
        return None

    @abstractmethod
    def learn(self, lesson: Lesson) -> None:
        """Learn one more task from its normal images."""

    @abstractmethod
    def score(self, photos: Sequence[Photo], task: str | None = None) -> Scores:
        """Score images of any learned task; ``task`` names it, only for methods that route."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the learned state into an empty folder, as safetensors and JSON, never as pickle."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read a saved state; the scores are then the same to the last bit."""

    @abstractmethod
    def storage_bytes(self) -> int:
        """Bytes of the learned state, beyond the pretrained weights."""

    @abstractmethod
    def parameters(self) -> Parameters:
        """The size of the model, without its memory of the tasks."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """What made the scores, as JSON: encoder or backbone, the hash of its weights, precision."""

    def skip_training(self, task: str) -> bool:
        """Take a task as learned without training it, to measure the speed of scoring where memory is short.

        False, and nothing done, for methods whose scoring needs what learning makes: that is the default.
        """
        return False

    def _refuse_task(self, task: str | None) -> None:
        """For methods that do not route: a task given to :meth:`score` is an error of the caller."""
        if task is not None:
            raise InputError(f"{type(self).__name__} does not route images to tasks; leave the task out.")
