"""Made-up results of the shape that the runner writes, for tests of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dinosaur_ad.bench.grid_results import GridResult, ScenarioGrid
from dinosaur_ad.bench.metrics import ranked_auroc
from dinosaur_ad.bench.results import CellResult, TaskScores

ENVIRONMENT = {
    "dinosaur-ad": "0.1.0", "revision": "abc123def456", "python": "3.11.9", "packages": {"numpy": "2.0.0"},
    "system": "Linux x86_64", "processor": "Test CPU", "cores": 2, "device": "cpu",
}  # fmt: skip


def cell(
    method: str = "dinosaur:paper",
    scenario: str = "mtd-color",
    seed: int = 0,
    *,
    tasks: int = 3,
    normals: int = 40,
    anomalies: int = 30,
    gap: float = 1.5,
    kinds: tuple[str, ...] = ("crack", "fray"),
    maps: bool = False,
    settings: dict[str, Any] | None = None,
    checksum: str = "c0ffee",
    scenario_info: dict[str, Any] | None = None,
    description: str = "a tiny encoder of random numbers, for tests",
) -> CellResult:
    """A finished cell whose anomalous images score higher than its normal ones by about ``gap``."""
    words = f"{method}/{scenario}/{seed}"
    rng = np.random.default_rng([ord(letter) for letter in words])
    labels = np.repeat(np.array([0, 1], np.int8), [normals, anomalies])
    kind_of = ("good",) * normals + tuple(kinds[n % len(kinds)] for n in range(anomalies))
    history = rng.normal(10, 1, (tasks, tasks, len(labels))) + gap * labels * rng.uniform(0.6, 1.2, (tasks, tasks, 1))
    matrix = np.array([[ranked_auroc(history[t, j], labels).auroc for j in range(tasks)] for t in range(tasks)])
    learned = np.tril(np.ones((tasks, tasks), bool))
    final = [
        TaskScores(
            labels=labels,
            kinds=kind_of,
            scores=history[-1, j].astype(np.float32),
            oracle=history[-1, j].astype(np.float32),
            routes=np.full(len(labels), j, np.int16),
            own_thresholds=np.full(len(labels), 12, np.float32),
            names=tuple(f"{n:03d}" for n in range(len(labels))) if maps else None,
            maps=rng.normal(8, 1, (len(labels), 4, 4)).astype(np.float16) if maps else None,
        )
        for j in range(tasks)
    ]
    names = [f"{scenario}-{j + 1:02d}" for j in range(tasks)]
    return CellResult(
        method=method,
        summary="a made-up method",
        scenario=scenario,
        seed=seed,
        settings={"ratio": 0.1} if settings is None else settings,
        info={
            "description": description, "encoder": "tiny", "precision": "float32", "provider": "CPUExecutionProvider",
            "weights_sha256": "ab" * 32,
        },
        parameters={"total": 21_600_000, "trainable": 0},
        scenario_info={
            "description": "Made-up images.", "licence": "none", "citation": "", "replay": "widened",
            "same_images": scenario.startswith("mtd"),
        } | (scenario_info or {}),
        tasks=[
            {
                "name": name, "train": 20, "held_out": 0, "test_normal": normals, "test_anomalous": anomalies,
                "checksum": f"{checksum}-{name}-{seed if scenario.startswith('mtd') else ''}",
            }
            for name in names
        ],
        auroc=matrix,
        nan_scores=np.zeros((tasks, tasks), np.int64),
        thresholds=np.where(learned, 12.0, np.nan),
        oracle_auroc=np.where(learned, matrix, np.nan),
        routing=np.where(learned, 0.9, np.nan),
        pixel=[{"auroc": 0.9, "auroc_bound": 1e-5, "aupro": 0.7, "au_spro": float("nan")} for _ in names],
        rows=[
            {
                "task": name, "learn_seconds": 2.0, "score_seconds": 1.0, "images_scored": 100,
                "storage_bytes": (j + 1) * 2**21, "peak_memory_bytes": 2**30, "peak_device_bytes": None,
            }
            for j, name in enumerate(names)
        ],
        environments=[dict(ENVIRONMENT)],
        final=final,
    )  # fmt: skip


def grid(
    ratios: Sequence[float], radii: Sequence[int], scenarios: Mapping[str, Sequence[Sequence[float]]], tasks: int = 2
) -> GridResult:
    """A grid with these AUROCs (ratios, radii) a scenario, the same for each of its tasks."""
    parts = [
        ScenarioGrid(
            preset="paper", encoder={"description": "an encoder"}, scenario=name, seed=0, device="cpu",
            ratios=list(ratios), radii=list(radii), minimum=20,
            members=[[20 + row] * tasks for row in range(len(ratios))],
            per_task=[[[value] * tasks for value in row] for row in matrix],
            tasks=[f"{name}-{task}" for task in range(tasks)], settings={}, data=["c0ffee"] * tasks,
            environment=dict(ENVIRONMENT), seconds=1.0,
        )
        for name, matrix in scenarios.items()
    ]  # fmt: skip
    return GridResult(tuple(parts))
