"""Tasks and scenarios: a dataset is a sequence of tasks, each with samples.

A reader (``folder``, ``mvtec``, ``loco``, ``mtd``, ``visa``, ``synthetic`` and others) turns something on disk, or
nothing at all, into these types; nothing downstream knows which one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dinosaur_ad.datasets.samples import FileSample, Sample
from dinosaur_ad.errors import InputError

__all__ = ["FileSample", "Sample", "Scenario", "Task"]


@dataclass(frozen=True)
class Task:
    """One product or condition: normals to learn from, normals kept apart, labelled images to judge.

    ``widened`` are the training images once more, drawn from the whole range of drift up to this task: what a replay
    method trains on where the scenario widens the range instead of storing images of earlier tasks. ``product`` is what
    the images show where several tasks show the same; empty where the task is a product of its own.
    """

    name: str
    train: tuple[Sample, ...]
    validation: tuple[Sample, ...] = ()
    test: tuple[Sample, ...] = ()
    widened: tuple[Sample, ...] = ()
    product: str = ""

    def __post_init__(self) -> None:
        if not self.train:
            raise InputError(f"Task '{self.name}' has no training images; give at least one normal.")
        for sample in (*self.train, *self.validation, *self.widened):
            if sample.label != 0:
                raise InputError(
                    f"Task '{self.name}' would learn from '{sample.name}', which is '{sample.kind}'; "
                    "training and validation images must be normal."
                )
        samples = (*self.train, *self.validation, *self.test)
        _refuse_twins(f"Task '{self.name}'", "sample", (sample.name for sample in samples))
        self._check_widened()

    def _check_widened(self) -> None:
        # They share names with train, which is how one sees that nothing else was slipped in.
        _refuse_twins(f"Task '{self.name}'", "widened sample", (sample.name for sample in self.widened))
        strangers = {sample.name for sample in self.widened} - {sample.name for sample in self.train}
        if strangers:
            raise InputError(
                f"Task '{self.name}' would replay '{min(strangers)}', which is not one of its training images; widened "
                "images are training images under another drift."
            )


@dataclass(frozen=True)
class Scenario:
    """Tasks in the order they are learned, and what a published result must say about the data.

    ``same_images``: every task tests the same images in the same order, under another drift.
    """

    name: str
    tasks: tuple[Task, ...]
    description: str = ""
    licence: str = ""
    citation: str = ""
    same_images: bool = False

    def __post_init__(self) -> None:
        if not self.tasks:
            raise InputError(f"Scenario '{self.name}' has no tasks; at least one is needed.")
        _refuse_twins(f"Scenario '{self.name}'", "task", (task.name for task in self.tasks))
        if len({bool(task.widened) for task in self.tasks}) > 1:
            raise InputError(
                f"Scenario '{self.name}' widens the replay of some tasks and not of others; widen all of them or none."
            )
        if self.same_images and len({tuple(sample.name for sample in task.test) for task in self.tasks}) > 1:
            raise InputError(
                f"Scenario '{self.name}' says that its tasks test the same images, and they do not; "
                "leave out same_images."
            )

    @property
    def replay(self) -> Literal["stored", "widened"]:
        """What replay methods train on besides the task: images of earlier tasks, or a wider range of drift."""
        return "widened" if self.tasks[0].widened else "stored"


def _refuse_twins(owner: str, noun: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).most_common(1):
        if count > 1:
            raise InputError(f"{owner} has {count} {noun}s named '{name}'; names must be unique.")
