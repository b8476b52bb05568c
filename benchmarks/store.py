"""A store of a thousand tasks: how long it takes to open, and to route the first and the next image over all of it.

Tiny encoder and small banks, so that what is timed is the store and the routing and not the model.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.measure import Section, Table
from dinosaur_ad import Dinosaur
from dinosaur_ad.presets import DEFAULT
from dinosaur_ad.store import Store

TINY = replace(DEFAULT, layers=(0, 1), size=70, minimum=4)


def run(quick: bool) -> Section:
    """Open, inspect, inspect again, for more and more tasks."""
    rows: list[tuple[object, ...]] = []
    for tasks in (10, 100) if quick else (10, 100, 1000):
        with tempfile.TemporaryDirectory() as folder:
            _fill(Path(folder) / "store", tasks)
            turns = [_first_steps(Path(folder) / "store") for _ in range(3 if quick else 5)]
        rows.append((tasks, *np.median(turns, axis=0).tolist()))
    columns = ("tasks", "open ms", "first inspection ms", "of these routing", "next inspection ms", "of these routing")
    return Section("Store", [Table("Tiny encoder; medians; files in the system's cache", columns, rows)])


def _fill(path: Path, tasks: int) -> None:
    """Learn one task, then put it under many names with prototypes of their own."""
    rng = np.random.default_rng(0)
    Dinosaur(path, encoder="tiny-dinov2", preset=TINY).learn(
        "task", list(rng.integers(0, 255, (6, 70, 70, 3), np.uint8))
    )
    store = Store.open(path)
    record = store.record("task")
    files = {file: store.arrays(record, file) for file in record.files}
    prototype = files["prototype"]["prototype"]
    for number in range(1, tasks):
        moved = prototype + rng.normal(scale=0.1, size=prototype.shape)
        store.put(
            f"task-{number}",
            files | {"prototype": {**files["prototype"], "prototype": np.asarray(moved, np.float32)}},
            record.manifest,
            action="learn",
        )


def _first_steps(path: Path) -> tuple[float, ...]:
    image = np.zeros((70, 70, 3), np.uint8)
    started = time.perf_counter()
    detector = Dinosaur(path)
    assert len(detector.store.names()) > 0
    opened = time.perf_counter()
    _ = detector.encoder  # loading it is not what is measured here
    loaded = time.perf_counter()
    first = detector.inspect(image)
    inspected = time.perf_counter()
    following = detector.inspect(image)
    again = time.perf_counter()
    milliseconds = (opened - started, inspected - loaded, first.ms["route"] / 1e3, again - inspected)
    return (*(1e3 * each for each in milliseconds), following.ms["route"])
