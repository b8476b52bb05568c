"""Turn a scenario into what methods may see of it.

Here, and nowhere else, samples lose their labels: a method gets :class:`~dinosaur_ad.methods.photo.Photo` and
:class:`~dinosaur_ad.methods.contract.Lesson`, from which no path, label, mask or sample can be reached by walking them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.datasets.samples import Sample
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.methods.contract import Lesson, Photo


def photo(sample: Sample) -> Photo:
    """The sample without its label: a name for its pixels, and a loader that the photo itself does not hold."""
    return Photo(sample.key(), sample.image)


def lesson(scenario: Scenario, index: int) -> Lesson:
    """The task at ``index`` as it is taught, after all tasks before it.

    >>> from dinosaur_ad.bench.scenarios import open_scenario
    >>> second = lesson(open_scenario("synthetic-tiny"), 1)
    >>> second.task, len(second.train), len(second.earlier[0]), len(second.rehearse(5))
    ('gear', 8, 8, 13)
    """
    task = scenario.tasks[index]
    return Lesson(
        task=task.name,
        train=_photos(task.train),
        held_out=_photos(task.validation),
        earlier=tuple(_photos(earlier.train) for earlier in scenario.tasks[:index]),
        widened=_photos(task.widened),
    )


def test_photos(task: Task, seed: int) -> tuple[tuple[Photo, ...], NDArray[np.intp]]:
    """The N test images, shuffled so that a position says nothing about a label, and the order they are in.

    ``photos[n]`` shows ``task.test[order[n]]``; ``scores[np.argsort(order)]`` puts scores back into the order of
    ``task.test``.
    """
    # Words of our own in the seed: a method that draws a permutation from the same seed must not get this one.
    digest = hashlib.sha256(f"order of the test images\0{task.name}\0{seed}".encode()).digest()
    order = np.random.default_rng(int.from_bytes(digest, "big")).permutation(len(task.test))
    return tuple(photo(task.test[n]) for n in order), order


# pytest takes every function with this prefix for a test wherever it is imported.
test_photos.__test__ = False  # type: ignore[attr-defined]


def task_checksum(task: Task) -> str:
    """The SHA-256 of which images a task has, in which split, under which names and labels; masks are not in it.

    Files are read once in a process, however often this is asked.
    """
    splits = {"train": task.train, "validation": task.validation, "test": task.test, "widened": task.widened}
    lines = (
        "\0".join((split, sample.name, str(sample.label), sample.kind, sample.key()))
        for split, samples in splits.items()
        for sample in samples
    )
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _photos(samples: Sequence[Sample]) -> tuple[Photo, ...]:
    return tuple(photo(sample) for sample in samples)
