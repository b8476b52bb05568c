"""Every method of the benchmark: how fast it learns and scores, and the memory it takes.

A method is taught one task of drawn images through its own ``learn``, once with one epoch and once with more: the
difference is what an epoch costs, what is left is done once a task (statistics, a memory, the threshold). Then it
scores images that it has not seen. Images are decoded and resized before any clock runs, features are never cached, and
a small task before warms up. Each method has a process of its own; one that fails is a row with the reason.

Weights that are not on this machine are replaced by random ones of the same network, which take as long; the rows say
so. ``--quick`` runs the tiny configurations of the tests, which say nothing about speed.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import save_file

from benchmarks.images import products
from benchmarks.machine import with_peak_megabytes
from benchmarks.measure import Section, Table
from dinosaur_ad.bench.environment import environment
from dinosaur_ad.encoders import prepare
from dinosaur_ad.encoders.registry import get_spec
from dinosaur_ad.encoders.weights.local import status
from dinosaur_ad.encoders.weights.sources import random_tensors
from dinosaur_ad.methods import Lesson, Method, MethodChoice, NoCache, Photo, Workbench, get_method
from dinosaur_ad.methods.shared.vit_weights import VITS

RANDOM = "random weights"
NOISE = "lost in noise"
# A file of weights that has no download; tests find it in the same folder.
RESNET = "resnet50-v1"
Row = tuple[object, ...]


@dataclass(frozen=True)
class Case:
    """A method as it is measured; ``images`` replaces the usual number on a CPU, for one that is slow there."""

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    images: int | None = None

    def choice(self, tiny: bool) -> MethodChoice:
        """The method with its settings."""
        choice = get_method(self.method)
        return choice.tiny() if tiny else choice.with_settings(self.settings)


FOCUS, VIT_B = {"backbone": "dinov2s-focus"}, {"backbone": "vit-base"}
CASES = (
    Case("dinosaur"),
    Case("dinosaur:paper"),
    Case("patchcore", {"backbone": RESNET}),
    Case("patchcore:vit"),
    Case("dne", FOCUS),
    Case("dne", VIT_B, images=12),
    Case("dne:original", FOCUS),
    Case("iuf", images=4),  # 631 million parameters, and Adam's two numbers for each
    Case("iuf:original-resnet50", images=12),
    Case("iuf:original-vit", images=12),
    Case("ucad", FOCUS),
    Case("ucad", VIT_B, images=12),
    Case("ucad:original", FOCUS),
    Case("efficientad", {"teacher": "random"}, images=12),
    Case("efficientad:original", {"teacher": "random"}, images=12),
)


@dataclass(frozen=True)
class Effort:
    """How much is measured: images of a task, epochs of the longer training, images scored alone, turns of scoring."""

    images: int
    epochs: int
    alone: int
    turns: int


TINY, CPU, GPU = Effort(8, 2, 3, 1), Effort(24, 2, 8, 2), Effort(240, 3, 40, 3)


@dataclass(frozen=True)
class Measured:
    """One method on one device.

    Seconds: ``shorter`` and ``longer`` are the two learnings, ``epoch`` what one epoch costs (None: it does not train).
    Megabytes are beyond what the process held before the method was built, or those on the GPU.
    """

    network: str
    weights: str
    parameters: int
    trainable: int
    batch: int | None
    images: int
    shorter: float
    longer: float
    epoch: float | None
    scoring: float
    alone: float
    learning_megabytes: float
    scoring_megabytes: float

    def row(self) -> Row:
        """As a line of the table."""
        trained: object
        once: object
        if self.epoch is None:
            trained, once = "-", self.longer
        elif self.epoch <= 0:  # what else the machine did took longer than the epochs
            trained, once = NOISE, NOISE
        else:
            trained, once = self.images / self.epoch, max(0.0, self.shorter - self.epoch)
        sizes = (self.parameters / 1e6, self.trainable / 1e6)
        memory = (self.learning_megabytes, self.scoring_megabytes)
        speeds = (trained, once, self.images / self.scoring, self.alone * 1e3)
        return (self.network, self.weights, *sizes, self.batch or "-", self.images, *speeds, *memory)


def run(quick: bool, device: str = "cpu") -> Section:
    """Measure all methods, one after another."""
    effort = TINY if quick else CPU if device == "cpu" else GPU
    rows: list[Row] = []
    failed: list[Row] = []
    for case in CASES:
        found = _measured_apart(case, effort, device, quick)
        if isinstance(found, Measured):
            rows.append((case.method, *found.row()))
        else:
            failed.append((case.method, found))
        print(f"  {case.method}: {found}", file=sys.stderr, flush=True)
    where = _where(device)
    memory = "allocated on the GPU" if device != "cpu" else "resident above the start of the process"
    columns = (
        *("method", "network", "its weights", "million parameters", "trainable", "batch", "D"),
        *("training images/s", "once a task s", "scoring images/s", "one image ms"),
        *("learning MB", "scoring MB"),
    )
    caption = f"One task of D images on {where}{'; tiny configurations' * quick}; peak memory {memory}"
    return Section(
        "Methods",
        [
            Table(caption, columns, rows),
            *([Table("Not measured", ("method", "why"), failed)] if failed else []),
        ],
    )


def _where(device: str) -> str:
    facts = environment(device)
    name = facts["device"] if device != "cpu" else f"{facts['processor']}, {facts['cores']} cores"
    return f"{name}, torch {facts['packages'].get('torch', 'absent')}"


def _measured_apart(case: Case, effort: Effort, device: str, tiny: bool) -> Measured | str:
    """Measure in a new process; the reason where it could not be, even when the process was killed."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(_measure, case, effort, device, tiny).result()
        except Exception as error:  # whatever ends one method, the others are still to be measured
            return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _measure(case: Case, effort: Effort, device: str, tiny: bool) -> Measured:
    """Warm up, learn for one epoch, learn for more, score."""
    if device == "cpu" and case.images and not tiny:
        effort = replace(effort, images=case.images)
    meter = _Meter(device)
    with tempfile.TemporaryDirectory() as folder:
        choice, weights = _with_weights(case.choice(tiny), Path(folder))
        bench = _Bench(choice, effort, device)
        trains = hasattr(choice.config, "epochs")
        bench.learned(epochs=1, images=min(4, effort.images))
        short = bench.learned(epochs=1)[1]
        (method, long), learning = meter.peak(partial(bench.learned, epochs=effort.epochs))
        epoch = (long - short) / (effort.epochs - 1) if trains else None
        (scoring, alone), holding = meter.peak(partial(bench.scored, method))
    size = method.parameters()
    return Measured(
        network=_network(choice),
        weights=weights,
        parameters=size.total,
        trainable=size.trainable,
        batch=getattr(choice.config, "batch", None),
        images=effort.images,
        shorter=short,
        longer=long,
        epoch=epoch,
        scoring=scoring,
        alone=alone,
        learning_megabytes=learning,
        scoring_megabytes=holding,
    )


def _network(choice: MethodChoice) -> str:
    """The network that a method stands on, or "own" where it brings all of it."""
    return str(getattr(choice.config, "backbone", getattr(choice.config, "encoder", "own")))


# --- one method at work ---


class _Ready(NoCache):
    """Pictures resized once, all together, when a size is first asked for. Features are computed each time."""

    def __init__(self, pictures: Sequence[NDArray[np.uint8]]) -> None:
        self._pictures = pictures
        self._sized: dict[int, NDArray[np.uint8]] = {}

    def prepared(self, photos: Sequence[Photo], size: int) -> NDArray[np.uint8]:
        """The pictures whose numbers the keys end in."""
        if size not in self._sized:
            self._sized[size] = prepare(self._pictures, size)
        return self._sized[size][[int(photo.key.rpartition("-")[2]) for photo in photos]]

    def photos(self, use: str, numbers: Sequence[int]) -> tuple[Photo, ...]:
        """Photos with keys of their own for each ``use``: what a method remembers of one, it does not of another."""
        return tuple(Photo(f"{use}-{n}", partial(self._pictures.__getitem__, n)) for n in numbers)


class _Bench:
    """The images, and a method that learns and scores them by the clock."""

    def __init__(self, choice: MethodChoice, effort: Effort, device: str) -> None:
        self._choice, self._effort, self._device = choice, effort, device
        self._cache = _Ready(products("gear", 2 * effort.images))

    def learned(self, epochs: int, images: int | None = None) -> tuple[Method, float]:
        """A new method that was taught one task, and the seconds it took; networks are loaded before."""
        if hasattr(self._choice.config, "epochs"):
            choice = self._choice.with_settings({"epochs": epochs})
        else:
            choice = self._choice
        gc.collect()
        method = choice.build(Workbench(device=self._device, cache=self._cache))
        method.info()  # names the weights, for which it has to load them
        lesson = Lesson("task", self._cache.photos("learn", range(images or self._effort.images)))
        started = time.perf_counter()
        method.learn(lesson)
        _wait(self._device)
        return method, time.perf_counter() - started

    def scored(self, method: Method) -> tuple[float, float]:
        """Seconds of all unseen images at once, the fastest turn, and of one alone, the median."""
        unseen = range(self._effort.images, 2 * self._effort.images)
        together = [self._score(method, f"turn{turn}", unseen) for turn in range(self._effort.turns + 1)]
        # The first of either kind warms up.
        alone = [self._score(method, "alone", [n]) for n in unseen[: self._effort.alone + 1]]
        return min(together[1:]), statistics.median(alone[1:])

    def _score(self, method: Method, use: str, numbers: Sequence[int]) -> float:
        photos = self._cache.photos(use, numbers)
        started = time.perf_counter()
        method.score(photos)
        _wait(self._device)
        return time.perf_counter() - started


def _wait(device: str) -> None:
    """For what was started on a GPU."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize(device)


class _Meter:
    """Peak memory above what there was when it was made."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._before = with_peak_megabytes(lambda: None)[1]

    def peak(self, work: partial[Any]) -> tuple[Any, float]:
        """What ``work`` returns, and the most megabytes that were held meanwhile."""
        gc.collect()
        if self._device == "cpu":
            result, _, highest = with_peak_megabytes(work)
            return result, highest - self._before
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        result = work()
        return result, torch.cuda.max_memory_allocated(self._device) / 2**20


# --- weights ---


def _with_weights(choice: MethodChoice, folder: Path) -> tuple[MethodChoice, str]:
    """The method with a file of weights where it needs one, and what kind they are."""
    config = choice.config
    if getattr(config, "penalty", False):
        choice = choice.with_settings({"penalty_images": str(_pictures(folder / "pictures"))})
    if hasattr(config, "teacher"):
        return choice, f"{RANDOM} (teacher)"
    name = _network(choice)
    if name == "own":
        return choice, "trained from the start"
    if name not in VITS and status(name).state in ("ready", "built in"):
        return choice, "seeded" if status(name).state == "built in" else "its own"
    if name in VITS and VITS[name].source.startswith("seed:"):
        return choice, "seeded"
    given = Path(os.environ.get("DINOSAUR_WEIGHTS", "")) / (get_spec(name).file if name not in VITS else "")
    if name == RESNET and given.is_file():
        return choice.with_settings({"weights": str(given)}), "its own"
    return choice.with_settings({"weights": str(_random_file(name, folder))}), RANDOM


def _random_file(name: str, folder: Path) -> Path:
    """Random weights of the network called ``name``, as a file that it can be loaded from."""
    spec = VITS[name] if name in VITS else get_spec(name)
    path = folder / f"{name}.safetensors"
    save_file(random_tensors(replace(spec, source="seed:0")), path)
    return path


def _pictures(folder: Path) -> Path:
    """Drawn images on disk, for a penalty that reads some at every step."""
    folder.mkdir()
    for number, pixels in enumerate(products("gear", 8)):
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder
