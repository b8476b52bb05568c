"""The preset default in every precision that is here: how fast beside fast in float32, and how far its verdicts agree.

Each product is learned in float32 from some of its normals; unseen normals and defects are then inspected in each
precision with that store. Times are processor time on one thread, because they hardly depend on what else the machine
does.

    python -m benchmarks.inspecting_precision run --data DIR/mvtec_ad --out results/inspecting_precision.json
    python -m benchmarks.inspecting_precision table results/inspecting_precision.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine
from dinosaur_ad import Dinosaur
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.datasets import Task, mvtec_scenario
from dinosaur_ad.encoders.options import EncoderOptions
from dinosaur_ad.encoders.providers import available

WAYS = (("onnx-cpu", "float32"), ("openvino", "bfloat16"), ("openvino", "int8"), ("onnx-cpu", "int8"))
PRODUCTS = ("cable", "transistor")
NORMALS, UNSEEN, DEFECTS, TURNS = 15, 12, 12, 5
"""Normals that are learned, normals and defects that are inspected; turns of the timing."""
BASE = "fast, onnx-cpu float32"


def options(way: tuple[str, str]) -> EncoderOptions:
    """A provider and a precision, on one thread and without a fallback."""
    return EncoderOptions(provider=way[0], precision=way[1], threads=1, strict=True)


def measured(task: Task, folder: Path) -> dict[str, Any]:
    """Scores and verdicts of one product in each precision, and processor milliseconds."""
    order = np.random.default_rng(0).permutation(len(task.train))
    train = [task.train[n].image() for n in order[:NORMALS]]
    normals = [task.train[n].image() for n in order[NORMALS : NORMALS + UNSEEN]]
    bad = [sample for sample in task.test if sample.label]
    defects = [bad[n].image() for n in np.linspace(0, len(bad) - 1, DEFECTS).astype(int)]
    Dinosaur(folder / task.name, options=options(WAYS[0])).learn(task.name, train)
    fast = Dinosaur(folder / f"{task.name}-fast", preset="fast", options=options(WAYS[0]))
    fast.learn(task.name, train[:8], force=True)
    here = available()
    detectors = {BASE: fast} | {
        " ".join(way): Dinosaur(folder / task.name, options=options(way)) for way in WAYS if way[1] in here[way[0]]
    }
    found: dict[str, Any] = {"task": task.name, "normals": len(normals), "defects": len(defects), "ways": {}}
    for name, detector in detectors.items():
        results = detector.inspect([*normals, *defects]) if name != BASE else detector.inspect(normals[:1])
        found["ways"][name] = {
            "scores": [round(each.score, 5) for each in results],
            "verdicts": [each.verdict for each in results],
            "threshold": results[0].threshold,
            "ms": [],
        }
        print(f"{task.name}, {name}: done", file=sys.stderr, flush=True)
    for _ in range(TURNS):
        for name, detector in detectors.items():
            started = time.process_time()
            detector.inspect(normals[0])
            found["ways"][name]["ms"].append(round(1e3 * (time.process_time() - started), 2))
    return found


def table(document: dict[str, Any]) -> list[str]:
    """The Markdown table of a stored result, over all products; the fastest turn counts."""
    rows = document["rows"]
    lines = [
        f"| preset and precision | processor time over {BASE} | score over float32, median | least and most | "
        "other verdicts, normals | other verdicts, defects |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name in rows[0]["ways"]:
        speed = np.mean([min(row["ways"][name]["ms"]) / min(row["ways"][BASE]["ms"]) for row in rows])
        if name == BASE:
            lines.append(f"| {name} | {speed:.2f} | – | – | – | – |")
            continue
        lines.append(f"| default, {name} | {speed:.2f} | {' | '.join(agreement(rows, name))} |")
    return lines


def agreement(rows: Sequence[dict[str, Any]], name: str) -> list[str]:
    """How scores and verdicts of a precision agree with those of float32."""
    reference = " ".join(WAYS[0])
    ratios: list[NDArray[np.float64]] = []
    others = {"normals": [0, 0], "defects": [0, 0]}
    for row in rows:
        own, wanted = row["ways"][name], row["ways"][reference]
        ratios.append(np.asarray(own["scores"]) / np.asarray(wanted["scores"]) - 1)
        differ = [a != b for a, b in zip(own["verdicts"], wanted["verdicts"], strict=True)]
        for kind, part in (("normals", differ[: row["normals"]]), ("defects", differ[row["normals"] :])):
            others[kind][0] += sum(part)
            others[kind][1] += len(part)
    ratio = 100 * np.concatenate(ratios)
    verdicts = [f"{count} of {total}" for count, total in others.values()]
    return [f"{np.median(ratio):+.2f} %", f"{ratio.min():+.2f} to {ratio.max():+.2f} %", *verdicts]


def main() -> None:
    """Run the study or print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run")
    run.add_argument("--data", type=Path, required=True, help="a folder of categories in the MVTec-AD layout")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--work", type=Path, required=True, help="an empty folder for the stores")
    run.add_argument("--products", nargs="+", default=PRODUCTS)
    shown = verbs.add_parser("table")
    shown.add_argument("result", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "table":
        print("\n".join(table(json.loads(arguments.result.read_text()))))
        return
    rows: list[dict[str, Any]] = []
    for task in mvtec_scenario(arguments.data).tasks:
        if task.name in arguments.products:
            rows.append(measured(task, arguments.work))
            write_atomic(arguments.out, (json.dumps({"machine": machine.facts(), "rows": rows}) + "\n").encode())
    print("\n".join(table(json.loads(arguments.out.read_text()))))


if __name__ == "__main__":
    main()
