"""What ``fast`` and ``default`` say under drift: ten levels learned one after another, some tiles of each judged.

    python -m benchmarks.drift_levels run --data DIR --out results/drift_levels.json
    python -m benchmarks.drift_levels table results/drift_levels.json

All training images of a cell of the benchmark, and of the 509 good and 392 bad test tiles of each level only
``--judged`` of either kind. Levels get different ones, evenly spread, so that no tile is judged twice where that can
be avoided, and with the next seed those of the level above. A cell with all of them takes hours without a GPU; this
takes a quarter of an hour a drift and seed. What is measured is stored as it comes; the same command goes on where it
was.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.maps import add_cell_options, measured
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bench.cache import DEFAULT_LIMIT, DiskCache
from dinosaur_ad.bench.environment import git_revision
from dinosaur_ad.core.calibration import rate_interval
from dinosaur_ad.datasets import Sample, Scenario, mtd_scenario
from dinosaur_ad.methods import get_method

SETS = ("color", "blur", "geo")
Groups = dict[tuple[str, str], list[dict[str, Any]]]
"""By drift and preset: the cells of its seeds."""
PRESETS = {"default": "dinosaur", "fast": "dinosaur:fast"}


def some(test: tuple[Sample, ...], count: int, level: int, levels: int) -> tuple[Sample, ...]:
    """``count`` good and as many bad ones: evenly spread, and other ones at each level."""
    chosen: list[Sample] = []
    for label in (0, 1):
        own = [sample for sample in test if sample.label == label]
        places = (np.arange(count) * levels + level) * len(own) / (count * levels)
        chosen += [own[int(place)] for place in places]
    return tuple(chosen)


def open_set(drift: str, data: Path, count: int, seed: int) -> Scenario:
    """The ten levels of a drift, with some of their test tiles."""
    scenario = mtd_scenario(data / "mtd", drift, seed)  # type: ignore[arg-type]
    levels = len(scenario.tasks)
    tasks = (
        replace(task, test=some(task.test, count, (level + seed) % levels, levels))
        for level, task in enumerate(scenario.tasks)
    )
    return replace(scenario, tasks=tuple(tasks), same_images=False)


def run(arguments: argparse.Namespace) -> None:
    """Measure and store, cell by cell."""
    cache = DiskCache(arguments.cache, 2 * DEFAULT_LIMIT)
    document: dict[str, Any] = {"machine": machine.facts(), "judged": arguments.judged, "cells": []}
    if arguments.out.exists():
        document = json.loads(arguments.out.read_text())
    if document["judged"] != arguments.judged:
        sys.exit(f"{arguments.out} has {document['judged']} judged tiles of a kind; name another file.")
    places = {"provider": arguments.provider, "precision": arguments.precision}
    done = {(cell["preset"], cell["set"], cell["seed"]) for cell in document["cells"]}
    for seed, drift, preset in product(arguments.seeds, arguments.sets, arguments.presets):
        cell = {"preset": preset, "set": f"mtd-{drift}", "seed": seed}
        if tuple(cell.values()) in done:
            continue
        scenario = open_set(drift, arguments.data, arguments.judged, seed)
        choice = get_method(PRESETS[preset]).with_settings(places)
        cell["revision"] = git_revision()  # as it was when it began
        document["cells"].append(cell | measured(choice, scenario, cache, say, seed))
        write_atomic(arguments.out, (json.dumps(document) + "\n").encode())
    table(arguments)


def say(line: str) -> None:
    """Progress, to where it does not mix with the table."""
    print(line, file=sys.stderr, flush=True)


def table(arguments: argparse.Namespace) -> None:
    """Print the stored result as Markdown: how well images and patches are ranked, then what is called a defect."""
    document = json.loads(arguments.out.read_text())
    order = [f"mtd-{each}" for each in SETS]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in sorted(document["cells"], key=lambda cell: (order.index(cell["set"]), cell["preset"], cell["seed"])):
        groups.setdefault((cell["set"], cell["preset"]), []).append(cell)
    cells = document["cells"]
    each = {f"{cell['encoder']['provider']} {cell['encoder']['precision']}" for cell in cells}
    about = (
        f"{document['judged']} good and as many bad tiles of each level and seed; ± is the standard deviation over "
        f"seeds; {cells[-1]['encoder']['description']}; {', '.join(sorted(each))}."
    )
    print("\n".join([*ranking_table(groups), "", *alarm_table(groups), "", about]))


def ranking_table(groups: Groups) -> list[str]:
    """Means over the levels and the seeds, and the worst level of the image AUROC."""
    lines = [
        "| drift | preset | seeds | image AUROC | its worst level | pixel AUROC | AUPRO |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for (drift, preset), cells in groups.items():
        values = {
            key: np.asarray([[row[key] for row in cell["rows"]] for cell in cells])
            for key in ("auroc", "pixel_auroc", "aupro")
        }
        shown = {key: spread([float(row.mean()) for row in found]) for key, found in values.items()}
        lines.append(
            f"| {drift} | {preset} | {seeds(cells)} | {shown['auroc']} | {values['auroc'].min():.3f} "
            f"| {shown['pixel_auroc']} | {shown['aupro']} |"
        )
    return lines


def alarm_table(groups: Groups) -> list[str]:
    """Shares over all levels and seeds, and those of the level with the fewest and of the one with the most."""
    lines = [
        "| drift | preset | seeds | good tiles flagged (95 %) | by level | defects found | by level |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for (drift, preset), cells in groups.items():
        rows = [row for cell in cells for row in cell["rows"]]
        counts = {key: sum(row[key] for row in rows) for key in ("flagged", "good", "missed", "bad")}
        low, high = rate_interval(counts["flagged"], counts["good"])
        flagged = [row["flagged"] / row["good"] for row in rows]
        found = [1 - row["missed"] / row["bad"] for row in rows]
        lines.append(
            f"| {drift} | {preset} | {seeds(cells)} "
            f"| {percent(counts['flagged'] / counts['good'])} ({percent(low)} to {percent(high)}) "
            f"| {percent(min(flagged))} to {percent(max(flagged))} | {percent(1 - counts['missed'] / counts['bad'])} "
            f"| {percent(min(found))} to {percent(max(found))} |"
        )
    return lines


def seeds(cells: Sequence[dict[str, Any]]) -> str:
    """Which seeds were measured."""
    return ", ".join(str(cell["seed"]) for cell in cells)


def spread(values: Sequence[float]) -> str:
    """The mean of some seeds, and with more than one their standard deviation."""
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


def percent(share: float) -> str:
    """A share for people."""
    return f"{100 * share:.1f} %"


def main() -> None:
    """Measure, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runner, printer = verbs.add_parser("run"), verbs.add_parser("table")
    runner.set_defaults(verb=run)
    add_cell_options(runner, SETS, Path("runs/drift-cache"))
    runner.add_argument("--presets", nargs="+", choices=tuple(PRESETS), default=tuple(PRESETS))
    runner.add_argument("--seeds", nargs="+", type=int, default=[0], help="of the drift and of the memory (default: 0)")
    runner.add_argument("--judged", type=int, default=50, help="good and bad tiles of each level (default: 50)")
    printer.set_defaults(verb=table)
    printer.add_argument("out", type=Path)
    arguments = parser.parse_args()
    arguments.verb(arguments)


if __name__ == "__main__":
    main()
