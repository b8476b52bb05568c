"""What ``fast`` and ``default`` say under drift: ten levels learned one after another, some tiles of each judged.

    python -m benchmarks.drift_levels run --data DIR --out results/drift_levels.json
    python -m benchmarks.drift_levels table results/drift_levels.json

A cell of the benchmark with all of its training images, and of the 509 good and 392 bad test tiles of each level only
``--judged`` of either kind. Levels get different ones, evenly spread, so that no tile is judged twice where that can
be avoided. A cell with all of them takes hours without a GPU. What is measured is stored as it comes; the same command
goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
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
PRESETS = {"default": "dinosaur", "fast": "dinosaur:fast"}


def some(test: tuple[Sample, ...], count: int, level: int, levels: int) -> tuple[Sample, ...]:
    """``count`` good and as many bad ones: evenly spread, and other ones at each level."""
    chosen: list[Sample] = []
    for label in (0, 1):
        own = [sample for sample in test if sample.label == label]
        places = (np.arange(count) * levels + level) * len(own) / (count * levels)
        chosen += [own[int(place)] for place in places]
    return tuple(chosen)


def open_set(drift: str, data: Path, count: int) -> Scenario:
    """The ten levels of a drift, with some of their test tiles."""
    scenario = mtd_scenario(data / "mtd", drift, 0)  # type: ignore[arg-type]
    levels = len(scenario.tasks)
    tasks = (replace(task, test=some(task.test, count, level, levels)) for level, task in enumerate(scenario.tasks))
    return replace(scenario, tasks=tuple(tasks), same_images=False)


def run(arguments: argparse.Namespace) -> None:
    """Measure and store, cell by cell."""
    cache = DiskCache(arguments.cache, 2 * DEFAULT_LIMIT)
    document: dict[str, Any] = {"machine": machine.facts(), "judged": arguments.judged, "cells": []}
    if arguments.out.exists():
        document = json.loads(arguments.out.read_text())
    if document["judged"] != arguments.judged:
        sys.exit(f"{arguments.out} has {document['judged']} judged tiles of a kind; name another file.")
    for preset, drift in ((preset, drift) for drift in arguments.sets for preset in arguments.presets):
        if any((cell["preset"], cell["set"]) == (preset, f"mtd-{drift}") for cell in document["cells"]):
            continue
        places = {"provider": arguments.provider, "precision": arguments.precision}
        scenario, choice = open_set(drift, arguments.data, arguments.judged), get_method(PRESETS[preset])
        cell = {"set": scenario.name, "preset": preset, "revision": git_revision()}  # as it was when it began
        document["cells"].append(cell | measured(choice.with_settings(places), scenario, cache, say))
        write_atomic(arguments.out, (json.dumps(document) + "\n").encode())
    table(arguments)


def say(line: str) -> None:
    """Progress, to where it does not mix with the table."""
    print(line, file=sys.stderr, flush=True)


def table(arguments: argparse.Namespace) -> None:
    """Print the stored result as Markdown: how well images and patches are ranked, then what is called a defect."""
    document = json.loads(arguments.out.read_text())
    order = [f"mtd-{each}" for each in SETS]
    cells = sorted(document["cells"], key=lambda cell: order.index(cell["set"]))
    each = {f"{cell['encoder']['provider']} {cell['encoder']['precision']}" for cell in cells}
    about = (
        f"Seed 0; {document['judged']} good and as many bad tiles of each level; "
        f"{cells[-1]['encoder']['description']}; {', '.join(sorted(each))}."
    )
    print("\n".join([*ranking_table(cells), "", *alarm_table(cells), "", about]))


def ranking_table(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Means over the levels, and the worst level of the image AUROC."""
    lines = ["| drift | preset | image AUROC | its worst level | pixel AUROC | AUPRO |", "|---|---|--:|--:|--:|--:|"]
    for cell in cells:
        values = {key: [row[key] for row in cell["rows"]] for key in ("auroc", "pixel_auroc", "aupro")}
        means = {key: float(np.mean(each)) for key, each in values.items()}
        lines.append(
            f"| {cell['set']} | {cell['preset']} | {means['auroc']:.3f} | {min(values['auroc']):.3f} "
            f"| {means['pixel_auroc']:.3f} | {means['aupro']:.3f} |"
        )
    return lines


def alarm_table(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Shares over all levels, and those of the level with the fewest and of the one with the most."""
    lines = [
        "| drift | preset | good tiles flagged (95 %) | by level | defects found | by level |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for cell in cells:
        rows = cell["rows"]
        counts = {key: sum(row[key] for row in rows) for key in ("flagged", "good", "missed", "bad")}
        low, high = rate_interval(counts["flagged"], counts["good"])
        flagged = [row["flagged"] / row["good"] for row in rows]
        found = [1 - row["missed"] / row["bad"] for row in rows]
        lines.append(
            f"| {cell['set']} | {cell['preset']} "
            f"| {percent(counts['flagged'] / counts['good'])} ({percent(low)} to {percent(high)}) "
            f"| {percent(min(flagged))} to {percent(max(flagged))} | {percent(1 - counts['missed'] / counts['bad'])} "
            f"| {percent(min(found))} to {percent(max(found))} |"
        )
    return lines


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
    runner.add_argument("--judged", type=int, default=50, help="good and bad tiles of each level (default: 50)")
    printer.set_defaults(verb=table)
    printer.add_argument("out", type=Path)
    arguments = parser.parse_args()
    arguments.verb(arguments)


if __name__ == "__main__":
    main()
