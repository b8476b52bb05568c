"""What maps and thresholds of the presets are worth: ``fast``, ``default`` as it was, and ``default``.

    python -m benchmarks.maps run --data DIR --out results/maps.json
    python -m benchmarks.maps table results/maps.json

Each set is a cell of the benchmark: its products are learned one after another and every test image is scored, the
product not named. ``mtd-color-10`` is the last of the ten lights of the magnetic tiles, learned alone. "Before" are 5
to 20 folds of 200 normals, and a map fused as the score is; "softer map" is a map that is neither closed nor seen
beside its own image. Images are encoded once. On one core it takes half an hour; ``--presets`` measures some rows anew
and keeps the others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bench.cache import DEFAULT_LIMIT, DiskCache
from dinosaur_ad.bench.lessons import lesson, test_photos
from dinosaur_ad.bench.metrics import task_tally
from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.datasets import Scenario, Task, loco_scenario, mtd_scenario, mvtec_scenario
from dinosaur_ad.methods import Method, MethodChoice, Workbench, get_method
from dinosaur_ad.presets import GAINED

SETS = ("mvtec-loco", "mvtec-ad", "mtd-color-10")
AS_FUSED = {name: GAINED[name] for name in ("map_closing", "map_relative")}
EARLIER = AS_FUSED | {name: GAINED[name] for name in ("folds", "map_softness")}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "fast": ("dinosaur:fast", {}),
    "default, before": ("dinosaur", EARLIER),
    "default, softer map": ("dinosaur", AS_FUSED),
    "default": ("dinosaur", {}),
}


def open_set(name: str, data: Path) -> Scenario:
    """The products of a set."""
    if name == "mvtec-loco":
        return loco_scenario(data / "mvtec_loco")
    if name == "mvtec-ad":
        return mvtec_scenario(data / "mvtec_ad")
    scenario = mtd_scenario(data / "mtd", "color", 0)
    return replace(scenario, name=name, tasks=scenario.tasks[-1:])


def row_of(method: Method, task: Task, seed: int) -> dict[str, Any]:
    """What a method that has learned all tasks says of the test images of one of them, the task not named."""
    photos, order = test_photos(task, seed)
    scores, back = method.score(photos), np.argsort(order)
    assert scores.thresholds is not None
    assert scores.maps is not None
    image, limits, map_NHW = scores.image[back], scores.thresholds[back], scores.maps[back]
    labels = np.asarray([sample.label for sample in task.test])
    flagged = ~(image <= limits)  # what is no number is flagged
    row = {"task": task.name, "train": len(task.train), "auroc": round(auroc(image, labels), 5)}
    counts = {"good": labels == 0, "bad": labels == 1}
    row |= {what: int(chosen.sum()) for what, chosen in counts.items()}
    row |= {"flagged": int(flagged[counts["good"]].sum()), "missed": int((~flagged)[counts["bad"]].sum())}
    tally = task_tally(map_NHW, task.test)
    return row | {"pixel_auroc": round(tally.auroc().value, 5), "aupro": round(tally.aupro(), 5)}


def measured(
    choice: MethodChoice, scenario: Scenario, cache: DiskCache, say: Callable[[str], None], seed: int = 0
) -> dict[str, Any]:
    """All products learned one after another, and then tested: the encoder, and a row a product. These are the figures
    of a cell of the benchmark after its last task; it tests after each, which takes several times as long."""
    method = choice.build(Workbench(seed, cache=cache, say=say))
    for index, task in enumerate(scenario.tasks):
        say(f"{scenario.name}, seed {seed}: learning {task.name}")
        method.learn(lesson(scenario, index))
    say(f"{scenario.name}, seed {seed}: testing all {len(scenario.tasks)} tasks")
    rows = [row_of(method, task, seed) for task in scenario.tasks]
    info = method.info()
    return {"encoder": {key: info[key] for key in ("description", "provider", "precision", "size")}, "rows": rows}


def run(arguments: argparse.Namespace) -> None:
    """Measure and store, set by set."""
    cache = DiskCache(arguments.cache, 2 * DEFAULT_LIMIT)
    places = {"provider": arguments.provider, "precision": arguments.precision}
    cells: list[dict[str, Any]] = []
    if arguments.out.exists():  # what was measured before and is not asked for stays
        stored = json.loads(arguments.out.read_text())["cells"]
        cells = [
            each for each in stored if each["set"] not in arguments.sets or each["preset"] not in arguments.presets
        ]
    for name in arguments.sets:
        scenario = open_set(name, arguments.data)
        for label in arguments.presets:
            method, settings = METHODS[label]
            chosen = get_method(method).with_settings(settings | places)
            cells.append({"set": name, "preset": label} | measured(chosen, scenario, cache, lambda line: None))
            cells.sort(key=lambda cell: (SETS.index(cell["set"]), list(METHODS).index(cell["preset"])))
            write_atomic(arguments.out, (json.dumps({"cells": cells}) + "\n").encode())
            print(f"{name}, {label}: done", file=sys.stderr, flush=True)
    table(arguments)


def table(arguments: argparse.Namespace) -> None:
    """Print the stored result as Markdown."""
    print(
        "| set | preset | image AUROC | good parts flagged | defects missed | pixel AUROC | AUPRO |\n"
        "|---|---|--:|--:|--:|--:|--:|"
    )
    for cell in json.loads(arguments.out.read_text())["cells"]:
        rows = cell["rows"]
        counts = {key: sum(row[key] for row in rows) for key in ("flagged", "good", "missed", "bad")}
        image, pixel, pro = (f"{np.mean([row[key] for row in rows]):.3f}" for key in ("auroc", "pixel_auroc", "aupro"))
        shares = (f"{100 * counts[part] / counts[of]:.1f} %" for part, of in (("flagged", "good"), ("missed", "bad")))
        print(f"| {cell['set']} | {cell['preset']} | {image} | {' | '.join(shares)} | {pixel} | {pro} |")


def add_cell_options(runner: argparse.ArgumentParser, sets: Sequence[str], cache: Path) -> None:
    """Where the images are, what is measured of them, and with what."""
    runner.add_argument("--data", type=Path, required=True, help="the folder of mtd, mvtec_ad and mvtec_loco")
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--sets", nargs="+", choices=sets, default=sets)
    runner.add_argument("--cache", type=Path, default=cache, help="where features are kept")
    runner.add_argument("--provider", default="", help="what the encoder runs on (default: onnx-cpu)")
    runner.add_argument("--precision", default="", help="of the encoder (default: float32)")


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runner, printer = verbs.add_parser("run"), verbs.add_parser("table")
    runner.set_defaults(verb=run)
    add_cell_options(runner, SETS, Path("runs/maps-cache"))
    runner.add_argument("--presets", nargs="+", choices=tuple(METHODS), default=tuple(METHODS))
    printer.set_defaults(verb=table)
    printer.add_argument("out", type=Path)
    arguments = parser.parse_args()
    arguments.verb(arguments)


if __name__ == "__main__":
    main()
