"""A scenario as one stream of pictures without boundaries, for the protocols ``stream-*``.

Segments of products are shuffled, products return, the light may fade, and a share of the pictures are defects. A
method gets :class:`~dinosaur_ad.methods.photo.Photo` in order and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dinosaur_ad.datasets.samples import Sample
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import Pixels
from dinosaur_ad.methods.contract import Photo

CONTAMINATION = (0.0, 0.02, 0.05, 0.10)
"""The shares of defects at which a stream is measured."""


@dataclass(frozen=True)
class StreamPlan:
    """How a scenario becomes a stream.

    Each product comes in ``turns`` segments of ``segment`` normal pictures, no picture twice, with a share of
    ``defects`` among them that are taken from its test images. Segments are ``shuffled`` within a turn, or in the
    order of the tasks: with a drift scenario, that is a gradual drift. ``apart``: of tasks that are the same images
    in other conditions, each shows images that no other does; as on a line, where no part comes twice. ``light`` is
    the factor to which the brightness fades or grows, evenly over the stream. Of each task, at most ``tests`` good
    and as many bad test images are inspected at the end; the same ones for every share of defects up to the largest
    of :data:`CONTAMINATION`.
    """

    segment: int = 40
    turns: int = 2
    defects: float = 0.05
    shuffled: bool = True
    light: float = 1.0
    seed: int = 0
    tests: int | None = None
    apart: bool = False

    def __post_init__(self) -> None:
        if self.segment < 1 or self.turns < 1:
            raise InputError(f"A stream has at least 1 picture and 1 turn, got {self.segment} and {self.turns}.")
        if not 0 <= self.defects <= 0.5:
            raise InputError(f"The share of defects in a stream lies between 0 and 0.5, got {self.defects}.")
        if not 0 < self.light <= 4:
            raise InputError(f"The light of a stream changes by a factor above 0 and at most 4, got {self.light}.")
        if self.tests is not None and self.tests < 1:
            raise InputError(f"At least 1 good and 1 bad test image of a task are inspected, got {self.tests}.")


STREAMS: dict[str, tuple[str, StreamPlan]] = {
    "stream-mvtec-ad": ("mvtec-ad", StreamPlan()),
    "stream-mtd-color": ("mtd-color", StreamPlan(turns=1, shuffled=False, apart=True)),
    "stream-mtd-blur": ("mtd-blur", StreamPlan(turns=1, shuffled=False, apart=True)),
    "stream-mtd-geo": ("mtd-geo", StreamPlan(turns=1, shuffled=False, apart=True)),
    "stream-synthetic": ("synthetic", StreamPlan()),
    "stream-synthetic-light": ("synthetic", StreamPlan(light=0.8)),
    "stream-synthetic-color": ("synthetic-color", StreamPlan(turns=1, shuffled=False)),
}
"""The scenario and the plan of each protocol."""


class TruePicture(NamedTuple):
    """A picture of a stream and what is hidden from the method: its product, whether it is a defect, and its task,
    of which a product that drifts has several."""

    photo: Photo
    product: str
    label: int
    task: str


class HiddenStream(NamedTuple):
    """The pictures in order, and by task the test images that are not among them."""

    name: str
    plan: StreamPlan
    pictures: tuple[TruePicture, ...]
    tests: dict[str, tuple[Sample, ...]]


def make_hidden_stream(scenario: Scenario, plan: StreamPlan) -> HiddenStream:
    """The stream of a scenario; the same for the same plan.

    >>> from dinosaur_ad.bench.scenarios import open_scenario
    >>> stream = make_hidden_stream(open_scenario("synthetic-tiny"), StreamPlan(segment=4, defects=0.2))
    >>> len(stream.pictures), sorted({each.product for each in stream.pictures})
    (20, ['fabric', 'gear'])
    """
    random = np.random.default_rng([plan.seed, 18])
    apart = plan.apart and scenario.same_images
    if apart:
        _refuse_too_few(scenario, plan)
    shares = [_defects_of(task, index, plan, apart) for index, task in enumerate(scenario.tasks)]
    found: list[tuple[Sample, Task]] = []
    for turn in range(plan.turns):
        order = random.permutation(len(scenario.tasks)) if plan.shuffled else np.arange(len(scenario.tasks))
        for index in order.tolist():
            task = scenario.tasks[index]
            segment = _normals(task, index, turn, plan, apart)
            for defect in shares[index].shown[turn]:
                segment.insert(int(random.integers(len(segment) + 1)), defect)
            found += [(sample, task) for sample in segment]
    gain_N = np.linspace(1.0, plan.light, max(1, len(found)))
    pictures = tuple(
        TruePicture(_photo(sample, gain), task.product or task.name, sample.label, task.name)
        for (sample, task), gain in zip(found, gain_N.tolist(), strict=True)
    )
    kept_out = set().union(*(share.kept_out for share in shares))
    tests = {
        task.name: _tests(task, kept_out if apart else share.kept_out, plan)
        for task, share in zip(scenario.tasks, shares, strict=True)
    }
    return HiddenStream(scenario.name, plan, pictures, tests)


class _Defects(NamedTuple):
    """The defects of a task that each turn shows, and the names of those that any share would show."""

    shown: list[list[Sample]]
    kept_out: set[str]


def _refuse_too_few(scenario: Scenario, plan: StreamPlan) -> None:
    fewest, wanted = min(len(task.train) for task in scenario.tasks), len(scenario.tasks) * plan.turns * plan.segment
    if fewest < wanted:
        raise InputError(
            f"A stream of '{scenario.name}' in which no image comes twice needs {wanted} normal images, but there are "
            f"{fewest}; choose a smaller segment."
        )


def _normals(task: Task, index: int, turn: int, plan: StreamPlan, apart: bool = False) -> list[Sample]:
    order = np.random.default_rng([plan.seed, 0 if apart else index]).permutation(len(task.train))
    first = ((index if apart else 0) * plan.turns + turn) * plan.segment
    return [task.train[n] for n in order[first : first + plan.segment]]


def _defects_of(task: Task, index: int, plan: StreamPlan, apart: bool = False) -> _Defects:
    """A larger share shows the defects of a smaller one and more."""
    bad = [sample for sample in task.test if sample.label]
    order = np.random.default_rng([plan.seed, 0 if apart else index, 1]).permutation(len(bad))
    most = max(plan.defects, *CONTAMINATION)
    shown, used = [], 0
    for turn in range(plan.turns):
        normals = len(_normals(task, index, turn, plan, apart))
        reserved = min(round(normals * most / (1 - most)), len(bad) // plan.turns)
        wanted = min(round(normals * plan.defects / (1 - plan.defects)), reserved)
        if apart:  # all tasks reserve equally many
            used = (index * plan.turns + turn) * reserved
        shown.append([bad[n] for n in order[used : used + wanted]])
        used += reserved
    first = index * plan.turns * reserved if apart else 0
    return _Defects(shown, {bad[n].name for n in order[first:used]})


def _tests(task: Task, kept_out: set[str], plan: StreamPlan) -> tuple[Sample, ...]:
    left = [sample for sample in task.test if sample.name not in kept_out]
    if plan.tests is None:
        return tuple(left)
    chosen: set[str] = set()
    for label in (0, 1):
        names = [sample.name for sample in left if bool(sample.label) == bool(label)]
        order = np.random.default_rng([plan.seed, 2]).permutation(len(names))
        chosen |= {names[n] for n in order[: plan.tests]}
    return tuple(sample for sample in left if sample.name in chosen)


def _photo(sample: Sample, gain: float) -> Photo:
    if gain == 1.0:
        return Photo(sample.key(), sample.image)
    return Photo(f"{sample.key()}*{gain:.6f}", _faded(sample.image, gain))


def _faded(load: Callable[[], Pixels], gain: float) -> Callable[[], Pixels]:
    def image() -> Pixels:
        pixels: Pixels = np.clip(np.round(load() * np.float32(gain)), 0, 255).astype(np.uint8)
        return pixels

    return image
