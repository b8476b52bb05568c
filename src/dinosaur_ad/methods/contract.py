"""What the benchmark asks of a method, and all that a method ever gets to see.

A method learns tasks one after another (:class:`Lesson`: normal images and nothing else) and scores images
(:class:`~dinosaur_ad.methods.photo.Photo`: pixels and a name for them). By walking these objects no label, mask, path
or sample can be reached, so that none is used by accident; code that looks for them elsewhere on purpose is not kept
from it.

Adding one: a file in this folder with a frozen configuration and a subclass of :class:`Method` under
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
    """One task as it is taught: normal images only.

    ``held_out`` are more normals, meant for thresholds alone (MVTec-LOCO's ``validation``; usually there are none).
    What replay may use comes from :meth:`rehearse`, by the rule of the scenario and not of the method.
    """

    task: str
    train: tuple[Photo, ...]
    held_out: tuple[Photo, ...] = ()
    earlier: tuple[tuple[Photo, ...], ...] = field(default=(), repr=False)
    widened: tuple[Photo, ...] = field(default=(), repr=False)

    def rehearse(self, count: int, *, per: Literal["task", "total"] = "task", seed: int = 0) -> tuple[Photo, ...]:
        """All that a replay method trains on for this task.

        Usually that is ``train`` and ``count`` of the training images of each earlier task (or of all of them
        together, with ``per="total"``), drawn without repetition, all of them where there are fewer. In a scenario of
        drift it is the training images once, drawn from the whole range of drift up to this task (``widened``): the
        paper widens the range instead of storing images.

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
    """What a method says about N images.

    ``image`` (N,): the higher, the more anomalous. ``maps`` (N, H, W): the same for places on a grid of the method's
    own choice, None when it has no idea where. ``routes``: the task each image was taken for, None when it does not
    ask. ``thresholds`` (N,): above which score the method itself would raise an alarm, not knowing the task.
    """

    image: Floats
    maps: Floats | None = None
    routes: tuple[str, ...] | None = None
    thresholds: Floats | None = None


@dataclass(frozen=True)
class Parameters:
    """How many numbers a model has, and how many of them learning may change."""

    total: int
    trainable: int


class Cache(Protocol):
    """Where what was once computed of a photo can be had again; the benchmark brings one."""

    def prepared(self, photos: Sequence[Photo], size: int) -> NDArray[np.uint8]:
        """The photos as an encoder sees them, (N, size, size, 3) uint8."""
        ...

    def features(self, recipe: str, photos: Sequence[Photo], compute: Callable[[Sequence[Photo]], Floats]) -> Floats:
        """``compute(photos)``, float32 with N as first axis, or what it gave before.

        ``recipe`` names everything besides the pixels that decides the result.
        """
        ...


class NoCache:
    """Remembers nothing."""

    def prepared(self, photos: Sequence[Photo], size: int) -> NDArray[np.uint8]:
        """The photos, read and resized now."""
        return prepare([photo.pixels() for photo in photos], size)

    def features(self, recipe: str, photos: Sequence[Photo], compute: Callable[[Sequence[Photo]], Floats]) -> Floats:
        """The features, computed now."""
        return compute(photos)


def _say_nothing(_text: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Workbench:
    """What a method works with and the result must not depend on, but for the seed.

    ``scratch`` is a folder for what is half done within one task, so that a training that was stopped can go on (see
    :mod:`dinosaur_ad.methods.training.training`); it is emptied when the task is learned and tested. ``say`` tells the
    user how far a long task has come.
    """

    seed: int = 0
    device: str = "cpu"
    cache: Cache = field(default_factory=NoCache)
    scratch: Path | None = None
    say: Callable[[str], None] = field(default=_say_nothing, repr=False, compare=False)


@dataclass(frozen=True)
class Config:
    """Base of a method's settings: a frozen dataclass of plain values.

    Fields marked ``field(metadata={"place": True})`` say where something lies (a file of weights) and not what is
    computed; a result may be resumed with another place, but not with another value.
    """

    def identity(self) -> dict[str, Any]:
        """The values that decide the result."""
        places = {entry.name for entry in fields(self) if entry.metadata.get("place")}
        return {key: value for key, value in asdict(self).items() if key not in places}

    def named_files(self) -> dict[str, Any]:
        """The fields that name a file or folder and are set."""
        return {
            entry.name: getattr(self, entry.name)
            for entry in fields(self)
            if entry.metadata.get("place") and getattr(self, entry.name)
        }


class Method(ABC):
    """A continual anomaly detector as the benchmark compares it: one instance lives through one sequence of tasks.

    Everything random comes from ``workbench.seed``: the same lessons in the same order give the same scores.
    """

    has_maps: ClassVar[bool] = True
    routes: ClassVar[bool] = False
    """Whether it chooses a task for each image; if so, :meth:`score` can also be told the task."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Modules beyond the package's own dependencies, so that a run can say what is missing before it begins."""

    def __init__(self, config: Any, workbench: Workbench) -> None:
        self.config = config
        self.workbench = workbench

    @classmethod
    def summary_with(cls, config: Any) -> str | None:
        """One line about the method with these settings, where the registered line would not be true of all."""
        return None

    @abstractmethod
    def learn(self, lesson: Lesson) -> None:
        """Learn one more task from its normal images."""

    @abstractmethod
    def score(self, photos: Sequence[Photo], task: str | None = None) -> Scores:
        """Score images of any task, without being told which; ``task`` only for methods that route."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write all that was learned into an empty folder; safetensors and JSON, never pickle."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Become what was saved there; scores are then the same to the last bit."""

    @abstractmethod
    def storage_bytes(self) -> int:
        """Bytes that have to be kept for what was learned so far, beyond the pretrained weights."""

    @abstractmethod
    def parameters(self) -> Parameters:
        """The size of the model, without what it remembers."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """What made the scores, JSON-able: encoder or backbone in truthful words, its weights' hash, precision."""

    def _refuse_task(self, task: str | None) -> None:
        """For methods that do not route: being told the task is a mistake of the caller."""
        if task is not None:
            raise InputError(f"{type(self).__name__} does not route images to tasks; leave the task out.")
