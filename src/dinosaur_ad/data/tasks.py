"""What a dataset is here: samples in tasks, tasks in a scenario.

A reader (``folder``, ``mvtec``, ``loco``, ``mtd``, ``synthetic``) turns something on disk, or nothing at all,
into these types; nothing downstream knows which one. Samples are lazy: building a scenario of ten thousand
images reads no pixel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from dinosaur_ad.data.drift import Drift
from dinosaur_ad.data.images import Mask, Pixels, image_size, read_image, read_mask
from dinosaur_ad.errors import InputError


@runtime_checkable
class Sample(Protocol):
    """One labelled image that is produced when asked for, the same every time.

    Anything with these six members is one; no base class is needed.
    """

    @property
    def name(self) -> str:
        """Unique within the task."""
        ...

    @property
    def label(self) -> int:
        """0: normal, 1: anomalous."""
        ...

    @property
    def kind(self) -> str:
        """``"good"``, or the defect's name."""
        ...

    def image(self) -> Pixels:
        """The pixels: uint8 (H, W, 3)."""
        ...

    def mask(self) -> Mask | None:
        """Where the defect is: bool (H, W), all False for a normal image, None when nobody marked it."""
        ...

    def valid(self) -> Mask | None:
        """Which pixels count in pixel metrics: bool (H, W), None when all do."""
        ...


@dataclass(frozen=True)
class FileSample:
    """A :class:`Sample` that lives in a file, with or without drift.

    Several ``mask_paths`` are united; an anomalous sample without any has an unknown mask.

    >>> FileSample("crack/007.png", Path("tiles/test/crack/007.png"), label=1, kind="crack").mask() is None
    True
    """

    name: str
    path: Path
    label: int = 0
    kind: str = "good"
    mask_paths: tuple[Path, ...] = ()
    drift: Drift | None = None

    def image(self) -> Pixels:
        """The pixels after drift: uint8 (H, W, 3)."""
        pixels = read_image(self.path)
        return pixels if self.drift is None else self.drift.image(pixels)

    def mask(self) -> Mask | None:
        """Where the defect is after drift: bool (H, W), or None when unknown."""
        if self.label == 0:
            return np.zeros(image_size(self.path), dtype=np.bool_)
        if not self.mask_paths:
            return None
        mask = read_mask(self.mask_paths)
        expected = image_size(self.path)
        if mask.shape != expected:
            raise InputError(
                f"The mask '{self.mask_paths[0]}' is {_size(mask.shape)} but its image '{self.path}' is "
                f"{_size(expected)}; give a mask of the image's size."
            )
        return mask if self.drift is None else self.drift.mask(mask)

    def valid(self) -> Mask | None:
        """Pixels that show the product and not what drift left empty: bool (H, W), or None when all do."""
        return None if self.drift is None else self.drift.valid(image_size(self.path))


@dataclass(frozen=True)
class Task:
    """One product or condition: normals to learn from, normals kept apart, labelled images to judge."""

    name: str
    train: tuple[Sample, ...]
    validation: tuple[Sample, ...] = ()
    test: tuple[Sample, ...] = ()

    def __post_init__(self) -> None:
        if not self.train:
            raise InputError(f"Task '{self.name}' has no training images; give at least one normal.")
        for sample in (*self.train, *self.validation):
            if sample.label != 0:
                raise InputError(
                    f"Task '{self.name}' would learn from '{sample.name}', which is '{sample.kind}'; "
                    "training and validation images must be normal."
                )
        samples = (*self.train, *self.validation, *self.test)
        _refuse_twins(f"Task '{self.name}'", "sample", (sample.name for sample in samples))


@dataclass(frozen=True)
class Scenario:
    """Tasks in the order they are learned, and what a published result must say about the data."""

    name: str
    tasks: tuple[Task, ...]
    description: str = ""
    licence: str = ""
    citation: str = ""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise InputError(f"Scenario '{self.name}' has no tasks; at least one is needed.")
        _refuse_twins(f"Scenario '{self.name}'", "task", (task.name for task in self.tasks))


def _refuse_twins(owner: str, noun: str, names: Iterable[str]) -> None:
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise InputError(f"{owner} has {count} {noun}s named '{name}'; names must be unique.")


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]} pixels"
