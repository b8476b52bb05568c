"""Settings of the detector for an encoder, chosen by leaving one product out.

Somebody who has an encoder that no preset was measured for gets settings for it, and a figure for them that was not
chosen on the product it is reported for. Every task is learned and judged alone, by the method that the benchmark runs,
with features from its cache: they are encoded once for each choice of blocks, size, exposure and copies.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dinosaur_ad._text import did_you_mean
from dinosaur_ad.bench.cache import GPU_MEMORY, DiskCache
from dinosaur_ad.bench.environment import environment
from dinosaur_ad.bench.lessons import lesson, photo, task_checksum
from dinosaur_ad.bench.metrics import confusion, ranked_auroc
from dinosaur_ad.bench.runner import RunOptions
from dinosaur_ad.bench.scenarios import data_status, open_scenario
from dinosaur_ad.bench.tune_results import TuneFile, TuneRecord, TuneResult
from dinosaur_ad.bench.tune_search import (
    VARIED,
    Measured,
    ProductChoice,
    TuneSettings,
    leave_one_out,
    search,
    space_for,
    start_for,
)
from dinosaur_ad.datasets.samples import Sample
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.encoders import EncoderSpec, get_spec, list_specs
from dinosaur_ad.encoders.pair import SEPARATOR
from dinosaur_ad.encoders.registry import token_encoder
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Workbench
from dinosaur_ad.methods.dinosaur import DinosaurConfig, DinosaurMethod

USUAL_SCENARIOS = ("mvtec-ad", "mvtec-loco", "mtd-color")
"""What is measured unless scenarios are named: those of them whose data is here."""
FEWEST_PRODUCTS, FEWEST_IMAGES = 3, 4

Say = Callable[[str], None]


@dataclass(frozen=True)
class TunePlan:
    """What is to be tried on what. ``images`` limits those a task learns from and those it is tested on."""

    encoder: EncoderSpec
    start: TuneSettings
    space: Mapping[str, tuple[Any, ...]]
    images: int | None = None
    tasks: int | None = None
    seed: int = 0
    device: str = "cpu"


class _Part(NamedTuple):
    """One task: of which scenario and product, and the lesson and tests that were drawn from it."""

    name: str
    product: str
    scenario: Scenario
    """A scenario of this task alone."""

    @property
    def task(self) -> Task:
        return self.scenario.tasks[0]


def plan_tune(
    encoder: str,
    *,
    vary: Sequence[str] = VARIED,
    images: int | None = None,
    tasks: int | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> TunePlan:
    """A plan from what a user asks for; what is not in ``vary`` stays as it is in the default preset.

    >>> plan_tune("dinov2-small", vary=["radius"]).space
    {'radius': (0, 1, 2)}
    """
    if SEPARATOR not in encoder and encoder not in list_specs() and (guess := did_you_mean(encoder, list_specs())):
        raise InputError(f"There is no encoder '{encoder}'{guess}")
    spec = token_encoder(get_spec(encoder))
    if not vary or (unknown := [name for name in vary if name not in VARIED]):
        raise InputError(
            f"What can be varied is {', '.join(VARIED)}, got '{','.join(unknown if vary else [])}'; name some of them."
        )
    if images is not None and images < FEWEST_IMAGES:
        raise InputError(f"{images} images a task are too few; give at least {FEWEST_IMAGES}.")
    if tasks is not None and tasks < 1:
        raise InputError(f"{tasks} tasks of a scenario are too few; give at least 1.")
    if seed < 0:
        raise InputError(f"A seed of {seed} is not possible; give 0 or more.")
    start = start_for(spec)
    space = {name: values for name, values in space_for(spec, start).items() if name in vary}
    return TunePlan(spec, start, space, images, tasks, seed, device)


def run_tune(plan: TunePlan, scenarios: Sequence[str] | None, where: RunOptions, say: Say) -> TuneResult:
    """Measure, choose, and write all of it to the file ``where.out``; what the file has is not measured again.

    :raises InputError: data that is not there, or fewer than three products, before any work begins.
    :raises OtherConfigurationError: the file holds measurements that were made otherwise.
    """
    parts = _parts(plan, scenarios, where)
    by_product: dict[str, list[_Part]] = defaultdict(list)
    for part in parts:
        by_product[part.product].append(part)
    if len(by_product) < FEWEST_PRODUCTS:
        raise InputError(
            f"Leaving one product out needs at least {FEWEST_PRODUCTS} products, got {len(by_product)} "
            f"({', '.join(by_product)}); name more scenarios with --scenarios."
        )
    bench = _Bench(plan, where, say)
    made_with = _made_with(plan, parts, bench.method(plan.start))
    record = TuneRecord.open(TuneFile.at(where.out), made_with, environment(plan.device))

    def measure(settings: TuneSettings, product: str) -> Measured:
        found = []
        for part in by_product[product]:
            known = record.measured.get(settings, {})
            if part.name not in known:
                record.add(settings, part.name, bench.measure(settings, part))
            found.append(record.measured[settings][part.name])
        return Measured(*np.mean(np.asarray(found), axis=0).tolist())

    products = list(by_product)
    overall = search(plan.start, plan.space, products, measure)
    chosen = []
    for product, settings in leave_one_out(plan.start, plan.space, products, measure).items():
        own = measure(settings, product)
        names = {part.name for part in by_product[product]}
        tried = [each for each, tasks in record.measured.items() if names <= tasks.keys()]
        aurocs = {each: measure(each, product).auroc for each in tried}
        best = min(tried, key=lambda each: (-aurocs[each], each.cost))
        chosen.append(ProductChoice(product, settings, own, measure(plan.start, product), best, measure(best, product)))
    result = TuneResult(plan.encoder, plan.start, tuple(chosen), overall)
    record.save(result.to_json())
    return result


def _made_with(plan: TunePlan, parts: Sequence[_Part], method: DinosaurMethod) -> dict[str, Any]:
    """What has to be the same when the command goes on."""
    info = method.encoder.info()
    return {
        "encoder": {key: info[key] for key in ("encoder", "description", "weights_sha256", "provider", "precision")},
        "settings": {"start": plan.start.to_json(), "false_alarms": method.preset.false_alarms},
        "space": {name: list(values) for name, values in plan.space.items()},
        "images": plan.images,
        "seed": plan.seed,
        "device": plan.device,
        "data": {part.name: {"product": part.product, "checksum": task_checksum(part.task)} for part in parts},
    }


# --- what is measured on ---


def _parts(plan: TunePlan, scenarios: Sequence[str] | None, where: RunOptions) -> list[_Part]:
    names = scenarios
    if names is None:
        names = [name for name in USUAL_SCENARIOS if data_status(name, where.data).state in ("ready", "partial")]
    if not names or len(set(names)) < len(names):
        reason = "name each scenario once" if names else f"none of {', '.join(USUAL_SCENARIOS)} is in the data folder"
        raise InputError(f"There is nothing to measure on: {reason}; see: dinosaur bench list.")
    parts = [
        _Part(f"{scenario.name}/{task.name}", task.product or task.name, replace(scenario, tasks=(drawn,)))
        for scenario in (open_scenario(name, where.data, plan.seed) for name in names)
        for task in _spread(scenario.tasks, plan.tasks)
        for drawn in (draw_task(task, plan.images, plan.seed),)
    ]
    for part in parts:
        if len({sample.label for sample in part.task.test}) < 2:
            raise InputError(
                f"The test images of '{part.name}' are of one class, and an AUROC needs normal and anomalous ones; "
                "leave its scenario out."
            )
    return parts


def _spread(tasks: Sequence[Task], count: int | None) -> list[Task]:
    """At most ``count`` of the tasks, evenly spread over their order: the levels of a drift from first to last."""
    if count is None or count >= len(tasks):
        return list(tasks)
    return [tasks[round(place)] for place in np.linspace(0, len(tasks) - 1, count)]


def draw_task(task: Task, images: int | None, seed: int) -> Task:
    """The task with at most ``images`` to learn from, to calibrate with and to test on, half of these normal if it can
    be; without the images for replay, which are not used here.

    >>> from dinosaur_ad.bench.scenarios import open_scenario
    >>> drawn = draw_task(open_scenario("synthetic-tiny").tasks[0], 4, seed=0)
    >>> len(drawn.train), [sample.label for sample in drawn.test]
    (4, [0, 0, 1, 1])
    """
    if images is None:
        return replace(task, widened=())
    digest = hashlib.sha256(f"images to tune with\0{task.name}\0{seed}".encode()).digest()
    generator = np.random.default_rng(int.from_bytes(digest, "big"))

    def some(samples: Sequence[Sample], count: int) -> tuple[Sample, ...]:
        if count >= len(samples):
            return tuple(samples)
        return tuple(samples[n] for n in sorted(generator.choice(len(samples), count, replace=False).tolist()))

    normal = [sample for sample in task.test if sample.label == 0]
    anomalous = [sample for sample in task.test if sample.label != 0]
    normals = some(normal, max(images // 2, images - len(anomalous)))
    test = (*normals, *some(anomalous, images - len(normals)))
    return replace(
        task, train=some(task.train, images), validation=some(task.validation, images), test=test, widened=()
    )


# --- measuring ---


class _Bench:
    """Measures one task at a time; the method of the last settings is kept for the next task."""

    def __init__(self, plan: TunePlan, where: RunOptions, say: Say) -> None:
        self._plan, self._say = plan, say
        memory = 0 if plan.device == "cpu" else GPU_MEMORY
        self._workbench = Workbench(plan.seed, plan.device, DiskCache(where.cache, where.cache_limit, memory=memory))
        self._current: tuple[TuneSettings, DinosaurMethod] | None = None

    def method(self, settings: TuneSettings) -> DinosaurMethod:
        """The method with these settings."""
        if self._current is None or self._current[0] != settings:
            config = DinosaurConfig(encoder=self._plan.encoder.name, **vars(settings))
            self._current = settings, DinosaurMethod(config, self._workbench)
        return self._current[1]

    def measure(self, settings: TuneSettings, part: _Part) -> Measured:
        """Learn the task and score its test images; the method is told the task, so others it knows do not matter."""
        method = self.method(settings)
        # Tasks of two scenarios may have the same name, and the name of a folder need not be one that a task can have.
        taught = replace(lesson(part.scenario, 0), task=hashlib.sha256(part.name.encode()).hexdigest())
        method.learn(taught)
        scores = method.score([photo(sample) for sample in part.task.test], taught.task)
        labels = [sample.label for sample in part.task.test]
        assert scores.thresholds is not None
        counts = confusion(scores.image, labels, scores.thresholds)
        found = Measured(ranked_auroc(scores.image, labels).auroc, counts.false_alarm_rate, counts.recall)
        what = settings.differences(self._plan.start) or "the start"
        self._say(f"{part.name}: {what}: image AUROC {found.auroc:.3f}")
        return found
