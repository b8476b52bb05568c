"""How much the coreset ratio and the radius matter: the paper's hyperparameter table, and its scenarios one by one.

Nothing is computed twice. Images are encoded once. A greedy coreset is picked once, at the largest ratio, because its
first picks are the coreset of a smaller one. And while an image is compared with a bank, the distances for smaller
ratios and radii come by the way: the whole grid of the paper costs no more than its largest cell alone, a tenth of what
its cells cost one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank import members_last
from dinosaur_ad.bank.building import BankBuilder
from dinosaur_ad.bank.teaching import learn_at_once
from dinosaur_ad.bench.cache import DiskCache
from dinosaur_ad.bench.cell import OtherConfigurationError
from dinosaur_ad.bench.environment import environment
from dinosaur_ad.bench.grid_results import GridResult, ScenarioGrid, common, grid_file, load_grids
from dinosaur_ad.bench.grid_scores import cell_scores
from dinosaur_ad.bench.lessons import lesson, photo, task_checksum
from dinosaur_ad.bench.metrics import ranked_auroc
from dinosaur_ad.bench.places import Place, open_place
from dinosaur_ad.bench.runner import RunOptions
from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.core.arrays import Array
from dinosaur_ad.core.coreset import coreset_size
from dinosaur_ad.core.quantise import widen
from dinosaur_ad.core.routing import prototype_distances, shortlist
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.methods import Lesson, Photo, Workbench, choose_methods
from dinosaur_ad.methods.dinosaur.dinosaur_method import (
    SCORE_AT_ONCE,
    SCORE_AT_ONCE_GPU,
    DinosaurConfig,
    DinosaurMethod,
)
from dinosaur_ad.presets import get_preset

__all__ = ["RADII", "RATIOS", "GridPlan", "GridResult", "ScenarioGrid", "load_grids", "plan_grid", "run_grid"]

# The paper's.
RATIOS = (0.01, 0.025, 0.05, 0.10, 0.20)
RADII = (0, 1, 2, 3, 4)

Floats = NDArray[np.float32]
Say = Callable[[str], None]


@dataclass(frozen=True)
class GridPlan:
    """What is to be measured: everything but the scenarios. Ratios and radii ascend."""

    config: DinosaurConfig
    ratios: tuple[float, ...] = RATIOS
    radii: tuple[int, ...] = RADII
    seed: int = 0
    device: str = "cpu"

    @property
    def minimum(self) -> int:
        """The fewest patches a location keeps, whatever the ratio."""
        return self.config.to_preset().minimum


def plan_grid(
    preset: str,
    ratios: Sequence[float] = RATIOS,
    radii: Sequence[int] = RADII,
    *,
    settings: Mapping[str, str] | None = None,
    minimum: int | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> GridPlan:
    """A plan from what a user asks for; ``settings`` are those of the method ``dinosaur``.

    >>> plan_grid("paper", ratios=[0.1, 0.05], minimum=1).ratios
    (0.05, 0.1)
    """
    _check_axes(ratios, radii, minimum)
    if seed < 0:
        raise InputError(f"A seed of {seed} is not possible; give 0 or more.")
    wanted = dict(settings or {})
    for key, option in {"ratio": "--ratios", "radius": "--radii", "preset": "--preset"}.items():
        if {key, f"dinosaur.{key}"} & wanted.keys():
            raise InputError(f"The setting '{key}' has an option of its own in a grid; use {option} for it.")
    get_preset(preset)  # an unknown one is answered with the presets, not with variants of a method
    (choice,) = choose_methods(["dinosaur" if preset == "default" else f"dinosaur:{preset}"], wanted)
    assert isinstance(choice.config, DinosaurConfig)
    config = choice.config if minimum is None else replace(choice.config, minimum=minimum)
    _refuse_more_than_ratio_and_radius(config)
    return GridPlan(config, tuple(sorted(ratios)), tuple(sorted(radii)), seed, device)


def _refuse_more_than_ratio_and_radius(config: DinosaurConfig) -> None:
    """Raise where a score is more than distances to a coreset of a ratio within a radius."""
    preset = config.to_preset()
    if len(preset.readings) > 1 or preset.exposure or preset.copies or preset.budget:
        raise InputError(
            f"A grid is for presets whose scores depend on the coreset ratio and the radius alone; '{config.preset}' "
            "has several readings, matched brightness, moved copies or a budget: use --preset fast or --preset paper."
        )


def _check_axes(ratios: Sequence[float], radii: Sequence[int], minimum: int | None) -> None:
    for what, given, example in (("ratio", ratios, "0.05,0.1"), ("radius", radii, "0,1,3")):
        if not given or len(set(given)) < len(given):
            raise InputError(f"A grid needs at least one {what}, each named once; give some such as {example}.")
    for ratio in ratios:
        if not 0 < ratio <= 1:
            raise InputError(f"A coreset ratio of {ratio:g} is not possible; give shares above 0 and up to 1.")
    for radius in radii:
        if radius < 0:
            raise InputError(f"A radius of {radius} patches is not possible; give 0 or more.")
    if minimum is not None and minimum < 1:
        raise InputError(f"A location cannot keep {minimum} patches; give a minimum of 1 or more.")


# --- running ---


def run_grid(plan: GridPlan, scenarios: Sequence[str], where: RunOptions, say: Say) -> GridResult:
    """Measure the grid on every scenario; each is written down when it is finished, and then not repeated.

    :raises InputError: data that is not there, before any work begins.
    :raises OtherConfigurationError: the folder holds grids of this preset that were made otherwise.
    """
    if not scenarios or len(set(scenarios)) < len(scenarios):
        raise InputError("A grid needs at least one scenario, each named once; see: dinosaur bench list.")
    place = open_place(where.out)
    opened = [open_scenario(name, where.data, plan.seed) for name in scenarios]
    model = _Model(plan, DiskCache(where.cache, where.cache_limit))
    made_with = _made_with(plan, model)
    _refuse_others(place, made_with, opened)
    parts = []
    for scenario in opened:
        file = grid_file(plan.config.preset, scenario.name)
        if place.has(file):
            say(f"{scenario.name}: already done")
        else:
            _measure(model, scenario, made_with, say).save(place)
        parts.append(ScenarioGrid.load(place, file))
    return GridResult(tuple(parts))


def _made_with(plan: GridPlan, model: _Model) -> dict[str, Any]:
    """What the grids of all scenarios have in common, by the names of their fields."""
    return {
        "preset": plan.config.preset,
        "encoder": model.encoder.info(),
        "seed": plan.seed,
        "device": plan.device,
        "ratios": list(plan.ratios),
        "radii": list(plan.radii),
        "minimum": plan.minimum,
        "settings": plan.config.identity(),
    }


def _refuse_others(place: Place, made_with: Mapping[str, Any], scenarios: Sequence[Scenario]) -> None:
    """Grids of one preset in one folder get averaged, so they must have been made alike."""
    files = {grid_file(made_with["preset"], scenario.name): scenario for scenario in scenarios}
    if len(files) < len(scenarios):
        raise InputError(
            "Two of the folders have the same name, and so would their results; give them another --out each."
        )
    for name in place.list():
        if not (name.startswith(grid_file(made_with["preset"], "").removesuffix(".json")) and name.endswith(".json")):
            continue
        stored = ScenarioGrid.load(place, name)
        if stored.preset != made_with["preset"]:  # one whose name only begins alike
            continue
        wanted, found = common(made_with), stored.common()
        if name in files:
            wanted |= {"scenario": files[name].name, "data": _checksums(files[name])}
            found |= {"scenario": stored.scenario, "data": stored.data}
        different = sorted(key for key in wanted if wanted[key] != found[key])
        if different:
            raise OtherConfigurationError(
                f"'{place}/{name}' is a grid of another configuration (different: {', '.join(different)}); "
                "grids are not mixed: choose another --out, or remove that file."
            )


def _checksums(scenario: Scenario) -> list[str]:
    return [task_checksum(task) for task in scenario.tasks]


def _measure(model: _Model, scenario: Scenario, made_with: Mapping[str, Any], say: Say) -> ScenarioGrid:
    """Teach all tasks, then score the test images of each with the final model."""
    started, total = time.perf_counter(), len(scenario.tasks)
    model.forget()
    for index, task in enumerate(scenario.tasks):
        say(f"{scenario.name}: task {index + 1} of {total}: learning {task.name} ({len(task.train)} images)")
        model.learn(lesson(scenario, index))
    per_task_T = []
    for index, task in enumerate(scenario.tasks):
        say(f"{scenario.name}: task {index + 1} of {total}: testing {task.name} ({len(task.test)} images)")
        per_task_T.append(_aurocs(model, task))
    return ScenarioGrid(
        scenario=scenario.name,
        members=[list(row) for row in zip(*model.members(), strict=True)],
        per_task=np.stack(per_task_T, axis=2).tolist(),
        tasks=[task.name for task in scenario.tasks],
        data=_checksums(scenario),
        environment=environment(made_with["device"]),
        seconds=round(time.perf_counter() - started, 1),
        **made_with,
    )


def _aurocs(model: _Model, task: Task) -> NDArray[np.float64]:
    """Image AUROC (ratios, radii) on one task."""
    labels = [sample.label for sample in task.test]
    score_RrN = model.score_cells([photo(sample) for sample in task.test])
    return np.asarray([[ranked_auroc(score_N, labels).auroc for score_N in row] for row in score_RrN])


# --- the model ---


class _Picked(NamedTuple):
    """Remembered patches (H, W, M, C) as they are stored, and for each ratio how many of the first are its coreset."""

    vectors_HWMC: NDArray[Any]
    sizes: tuple[int, ...]


class _Model(DinosaurMethod):
    """The final model of every cell at once: same features, prototypes and candidates, banks at the largest ratio."""

    def __init__(self, plan: GridPlan, cache: DiskCache) -> None:
        super().__init__(plan.config, Workbench(plan.seed, plan.device, cache))
        self._plan = plan
        self.forget()

    def forget(self) -> None:
        """Forget all tasks."""
        self._picked: list[list[_Picked]] = []
        self._prototypes: list[Floats] = []

    def learn(self, lesson: Lesson) -> None:
        """Pick the task's coresets; no thresholds, which an AUROC does not read."""
        # Images that come in blocks are picked from what the block before left, and that depends on the ratio.
        count, ratios = len(lesson.train), self._plan.ratios
        block_size = learn_at_once(self.encoder, self.preset)
        at_once = count <= block_size
        drafts = [
            BankBuilder(replace(self.preset, ratio=ratio), self.workbench.seed, "held-out")
            for ratio in (ratios[-1:] if at_once else ratios)
        ]
        for block in batched(lesson.train, block_size):
            cls_NC, patches_NHWC = self._features.of(block)
            features = self._features.for_builder(block, cls_NC, patches_NHWC)
            moved_NHWC = self._features.put(patches_NHWC)
            for draft in drafts:
                draft.add(features._replace(patches_NHWC=moved_NHWC))
        files = [draft.files() for draft in drafts]
        sizes = [coreset_size(count, ratio, self.preset.minimum) for ratio in ratios]
        of_draft = [tuple(sizes)] if at_once else [(draft.members,) for draft in drafts]
        self._picked.append([_Picked(file["bank"]["vectors"], own) for file, own in zip(files, of_draft, strict=True)])
        self._prototypes.append(files[0]["prototype"]["prototype"])

    def members(self) -> list[tuple[int, ...]]:
        """Per task, how many patches a location keeps at each ratio."""
        return [tuple(size for picked in task for size in picked.sizes) for task in self._picked]

    def score_cells(self, photos: Sequence[Photo]) -> Floats:
        """Image scores (ratios, radii, N): in every cell, of the candidate that finds the image most normal."""
        at_once = SCORE_AT_ONCE if self.workbench.device == "cpu" else SCORE_AT_ONCE_GPU
        return np.concatenate([self._score_group(group) for group in batched(photos, at_once)], axis=2)

    def _score_group(self, photos: Sequence[Photo]) -> Floats:
        cls_NC, patches_NHWC = self._features.of(photos)
        distance_NT = prototype_distances(self._features.describe(cls_NC, patches_NHWC), np.stack(self._prototypes))
        candidates = shortlist(distance_NT, self.preset.limit, self.preset.margin)
        moved_NHWC = self._features.put(patches_NHWC)
        best_RrN = np.full((len(self._plan.ratios), len(self._plan.radii), len(photos)), np.inf, np.float32)
        for task, picked in enumerate(self._picked):
            rows = [n for n, chosen in enumerate(candidates) if task in chosen]
            if rows:
                answer_RrN = np.concatenate([self._compare(moved_NHWC[rows], each) for each in picked])
                best_RrN[:, :, rows] = np.minimum(best_RrN[:, :, rows], answer_RrN)
        return best_RrN

    def _compare(self, patches_NHWC: Array, picked: _Picked) -> Floats:
        bank_HWMC = self._features.put(members_last(widen(picked.vectors_HWMC)))
        return cell_scores(patches_NHWC, bank_HWMC, picked.sizes, self._plan.radii, self.preset.top)
