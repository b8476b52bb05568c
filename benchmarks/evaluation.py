"""Evaluating a benchmark's full T x T matrix from cached features, and its metrics: how time and memory grow.

A cell is run as ``dinosaur bench run`` runs it, with the default preset: after every task it scores the training images
of the tasks learned and the test images of all, writes the row and a checkpoint, and measures at the end. Its features
are drawn and lie in the cache on disk; the encoder is loaded and never used. Every cell has a process of its own, so
that none finds memory which another one left.
"""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.features import PRODUCTS, SIDE, DrawnCache, DrawnSample, drawn_scenario
from benchmarks.machine import with_peak_megabytes
from benchmarks.measure import Section, Table, Target, at_most, in_turns
from dinosaur_ad.bench.cell import CellSpec, run_cell
from dinosaur_ad.bench.metrics import PixelAuroc, bootstrap_mean_auroc, mask_at, task_tally, upsample
from dinosaur_ad.bench.places import LocalPlace
from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.datasets.tasks import Scenario
from dinosaur_ad.methods import get_method

# The paper's tiles: 10 tasks of 443 images to learn, 509 normal and 392 anomalous ones to test.
PAPER = (10, 443, 509, 392)
PIXELS = 224

Row = tuple[object, ...]
Floats = NDArray[np.float32]
_Result = TypeVar("_Result")


def run(quick: bool) -> Section:
    """Let tasks and images grow, run the paper's size once, then the metrics alone."""
    with tempfile.TemporaryDirectory() as folder:
        grown = _grown(Path(folder), quick)
        whole = [] if quick else [_whole(Path(folder))]
    seconds = ("learning s", "scoring s", "the rest s", "in all s", "processor s")
    columns = ("T", "D", "test images a task", *seconds, "extra MB")
    pixel_rows, flat = _pixels((20, 100) if quick else (20, 100, 200, 901))
    return Section(
        "Evaluation",
        [
            Table("The full T x T matrix of a cell, features cached; fastest turn", ("case", *columns), grown),
            *(Table("The paper's size, once", columns, [measured.row()]) for measured in whole),
            Table(
                "Pixel metrics of one task; the exact form holds all pixels and ranks them, and gives AUROC only",
                ("images", "million pixels", "s, median", "peak MB", "exact s, median", "peak MB", "times", "off by"),
                pixel_rows,
            ),
            Table(
                "Confidence interval of the mean AUROC, 1000 resamples of 901 images a task",
                ("tasks", "s, median", "peak MB", "one by one s, median", "times"),
                _bootstrap((1, 2) if quick else (1, 5, 10)),
            ),
        ],
        [
            *(at_most("full matrix, T = 10, 901 test images a task: minutes", each.total / 60, 10) for each in whole),
            flat,
        ],
    )


# --- cells ---


@dataclass(frozen=True)
class Measured:
    """One cell, run once."""

    shape: tuple[int, int, int]
    learning: float
    scoring: float
    total: float
    processor: float
    extra: float

    def row(self) -> Row:
        """As a line of a table."""
        rest = self.total - self.learning - self.scoring
        return (*self.shape, self.learning, self.scoring, rest, self.total, self.processor, self.extra)


def _grown(folder: Path, quick: bool) -> list[Row]:
    """More tasks with as many images each, then more images with as many tasks; all cases once a turn."""
    test = (10, 10) if quick else (50, 50)
    few, images, counts = (2, 25, (25, 50)) if quick else (3, 100, (50, 200, 443))
    cases = {f"T = {tasks}": drawn_scenario(tasks, images, *test) for tasks in ((2, 4) if quick else (2, 5, 10))}
    cases |= {f"D = {count}": drawn_scenario(few, count, *test) for count in counts}
    most = max(len(scenario.tasks) for scenario in cases.values())
    cases[f"T = {most}, far apart"] = drawn_scenario(most, images, *test, apart=PRODUCTS)
    for scenario in cases.values():
        DrawnCache(folder).fill(scenario)
    taken: dict[str, list[Measured]] = {name: [] for name in cases}
    for _ in range(1 if quick else 3):
        for name, scenario in cases.items():
            taken[name].append(_measured_apart(scenario, folder))
    return [(name, *min(turns, key=attrgetter("total")).row()) for name, turns in taken.items()]


def _whole(folder: Path) -> Measured:
    scenario = drawn_scenario(*PAPER)
    DrawnCache(folder).fill(scenario)
    return _measured_apart(scenario, folder)


def _measured_apart(scenario: Scenario, folder: Path) -> Measured:
    """Run a cell in a new process."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measure, scenario, folder).result()


def _measure(scenario: Scenario, folder: Path) -> Measured:
    """Run a cell here, with the features that lie in ``folder``."""
    cell = CellSpec(get_method("dinosaur"), scenario.name, seed=0)
    cache = DrawnCache(folder)
    with tempfile.TemporaryDirectory() as out:
        started, worked = time.perf_counter(), time.process_time()
        result, before, peak = with_peak_megabytes(
            partial(run_cell, cell, scenario, LocalPlace(Path(out)), cache=cache, say=lambda line: None)
        )
        total, processor = time.perf_counter() - started, time.process_time() - worked
    assert cache.disk.misses == 0, "features were drawn while the clock ran"
    assert result.routing is not None
    assert np.diag(result.routing).min() > 0.9, "routing fails on these features, so they are unlike real ones"
    learning, scoring = (sum(row[key] for row in result.rows) for key in ("learn_seconds", "score_seconds"))
    shape = (len(scenario.tasks), len(scenario.tasks[0].train), len(scenario.tasks[0].test))
    return Measured(shape, learning, scoring, total, processor, peak - before)


# --- metrics ---


def _pixels(counts: tuple[int, ...]) -> tuple[list[Row], Target]:
    """Ours and the exact form for more and more images; memory must not grow."""
    rows: list[Row] = []
    peaks = []
    for count in counts:
        samples = [DrawnSample(0.0, 0, n, label=n % 2) for n in range(count)]
        map_Nhw = np.random.default_rng(0).standard_normal((count, SIDE, SIDE), np.float32)
        ours, exact = partial(_tallied, map_Nhw, samples), partial(_ranked, map_Nhw, samples)
        times = in_turns({"ours": ours, "exact": exact}, 2)
        (found, _), peak = _with_peak_allocated(ours)
        true, exact_peak = _with_peak_allocated(exact)
        off = abs(found.value - true)
        assert off <= found.bound + 1e-9
        seconds, exact_seconds = times["ours"].median, times["exact"].median
        pixels = count * PIXELS * PIXELS / 1e6
        rows.append((count, pixels, seconds, peak, exact_seconds, exact_peak, exact_seconds / seconds, off))
        peaks.append(peak)
    what = f"pixel metrics: peak memory of {counts[-1]} images over that of {counts[0]}"
    return rows, at_most(what, peaks[-1] / peaks[0], 1.2)


def _tallied(map_Nhw: Floats, samples: list[DrawnSample]) -> tuple[PixelAuroc, float]:
    tally = task_tally(map_Nhw, samples, PIXELS)
    return tally.auroc(), tally.aupro()


def _ranked(map_Nhw: Floats, samples: list[DrawnSample]) -> float:
    map_P = np.concatenate([upsample(map_hw, PIXELS, PIXELS).ravel() for map_hw in map_Nhw])
    label_P = np.concatenate([mask_at(sample.mask(), PIXELS).ravel() for sample in samples])
    return auroc(map_P, label_P)


def _bootstrap(counts: tuple[int, ...]) -> list[Row]:
    """All resamples in one pass against one AUROC at a time."""
    _, _, normal, anomalous = PAPER
    label_N = np.repeat([0, 1], [normal, anomalous])
    score_TN = np.random.default_rng(0).standard_normal((max(counts), len(label_N))) + label_N
    rows: list[Row] = []
    for count in counts:
        tasks = [(score_N, label_N) for score_N in score_TN[:count]]
        ours, naive = partial(bootstrap_mean_auroc, tasks, paired=True), partial(_one_by_one, score_TN[:count], label_N)
        times = in_turns({"ours": ours, "naive": naive}, 3)
        interval, peak = _with_peak_allocated(ours)
        np.testing.assert_allclose((interval.low, interval.high), naive(), atol=0.005)
        seconds, naive_seconds = times["ours"].median, times["naive"].median
        rows.append((count, seconds, peak, naive_seconds, naive_seconds / seconds))
    return rows


def _one_by_one(score_TN: NDArray[np.float64], label_N: NDArray[np.int64], resamples: int = 1000) -> tuple[float, ...]:
    rng = np.random.default_rng(0)
    groups = [np.flatnonzero(label_N == label) for label in (0, 1)]
    means = []
    for _ in range(resamples):
        drawn = np.concatenate([rng.choice(group, len(group)) for group in groups])
        means.append(np.mean([auroc(score_N[drawn], label_N[drawn]) for score_N in score_TN]))
    return tuple(np.quantile(means, [0.025, 0.975]).tolist())


def _with_peak_allocated(work: Callable[[], _Result]) -> tuple[_Result, float]:
    """What ``work`` returns, and the most megabytes that its arrays held at a time."""
    tracemalloc.start()
    try:
        result = work()
        return result, tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
