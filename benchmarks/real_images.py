"""What the detector reaches on real images, and what each step from the paper's settings to ours is worth.

Every cell learns the tasks of one scenario in sequence through the public API, then inspects all test images
without naming the task. The steps are cumulative: each changes one thing of the paper's preset, the last one is the
default preset.

    python -m benchmarks.real_images run --data DIR --out results/real_images.json [--device cuda --jobs 8]
    python -m benchmarks.real_images table results/real_images.json

``DIR`` holds ``mtd/``, ``mvtec_ad/`` and ``mvtec_loco/``. On two cores the whole takes hours; with a GPU, minutes.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dinosaur_ad import Dinosaur, Preset, load_encoder
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.datasets import Scenario, Task, loco_scenario, mtd_scenario, mvtec_scenario
from dinosaur_ad.inspection import Inspection
from dinosaur_ad.presets import FAST, PAPER

DRIFTS = {"mtd-color": "color", "mtd-blur": "blur", "mtd-geo": "geo", "mtd-geo-literal": "geo-literal"}
SCENARIOS = (*DRIFTS, "mvtec-ad", "mvtec-loco")


def steps() -> dict[str, Preset]:
    """From the paper's preset to the default one, one change at a time."""
    ladder = {"paper": PAPER}

    def change(name: str, **settings: Any) -> None:
        ladder[name] = replace(list(ladder.values())[-1], name=name, **settings)

    change("middle blocks, L2-normalised, averaged", layers=FAST.layers, normalise=True, average=True)
    change("radius 1 instead of 3", radius=FAST.radius)
    change("20 % a location, as float16", ratio=FAST.ratio, precision=FAST.precision, reserve=FAST.reserve)
    change("mean of the top 1 %", top=FAST.top)
    change("shortlist, banks decide", describe_patches=True, limit=FAST.limit, margin=FAST.margin)
    change("thresholds from unseen normals", calibration="unseen")
    assert replace(ladder.popitem()[1], name="fast") == FAST
    return ladder | {"fast": FAST}


def open_scenario(name: str, data: Path, seed: int) -> Scenario:
    if name in DRIFTS:
        return mtd_scenario(data / "mtd", DRIFTS[name], seed)  # type: ignore[arg-type]
    return mvtec_scenario(data / "mvtec_ad") if name == "mvtec-ad" else loco_scenario(data / "mvtec_loco")


def run_cell(scenario_name: str, step: str, data: Path, seed: int, device: str) -> dict[str, Any]:
    """Learn in sequence, then inspect everything; one row a task."""
    started = time.perf_counter()
    preset = steps()[step]
    scenario = open_scenario(scenario_name, data, seed)
    backend = "onnx" if device == "cpu" else "torch"
    encoder = load_encoder(layers=preset.layers, size=preset.size, backend=backend, device=device)
    encoder.batch_size = 8 if device == "cpu" else 64
    detector = Dinosaur(encoder=encoder, preset=preset, seed=seed)
    for task in scenario.tasks:
        detector.learn(task.name, (sample.image() for sample in task.train))
    rows = [_test(detector, task) for task in scenario.tasks]
    seconds = round(time.perf_counter() - started, 1)
    return {
        "scenario": scenario_name,
        "step": step,
        "seed": seed,
        "tasks": rows,
        "info": detector.info(),
        "seconds": seconds,
    }


def _test(detector: Dinosaur, task: Task) -> dict[str, Any]:
    def results() -> Iterator[Inspection]:
        for result in detector.stream(sample.image() for sample in task.test):
            assert isinstance(result, Inspection)
            yield result

    inspections = list(results())
    labels = np.asarray([sample.label for sample in task.test])
    flagged = np.asarray([each.anomalous for each in inspections])
    return {
        "task": task.name,
        "auroc": round(auroc(np.asarray([each.score for each in inspections]), labels), 5),
        "false_alarms": round(float(flagged[labels == 0].mean()), 5),
        "recall": round(float(flagged[labels == 1].mean()), 5),
        "routed_right": round(float(np.mean([each.task == task.name for each in inspections])), 5),
        "normals": int((labels == 0).sum()),
        "anomalies": int(labels.sum()),
        "scores": [round(each.score, 5) for each in inspections],
        "labels": labels.tolist(),
    }


def run(arguments: argparse.Namespace) -> None:
    names = arguments.scenarios.split(",")
    wanted = set(arguments.steps.split(";")) if arguments.steps else set(steps())
    if unknown := (wanted - set(steps())) | (set(names) - set(SCENARIOS)):
        sys.exit(
            f"Unknown: {', '.join(unknown)}; steps are {'; '.join(steps())}; scenarios are {', '.join(SCENARIOS)}."
        )
    cells = [(name, step) for name in names for step in steps() if step in wanted]
    done = json.loads(arguments.out.read_text())["cells"] if arguments.out.exists() else []
    scores = dict(np.load(arguments.out.with_suffix(".npz"))) if arguments.out.exists() else {}
    finished = {(cell["scenario"], cell["step"]) for cell in done}
    cells = [cell for cell in cells if cell not in finished]
    # One thread a process: the cells are many, and threads that fight for cores help nobody.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1") if arguments.jobs > 1 else None
    with ProcessPoolExecutor(arguments.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {
            pool.submit(run_cell, name, step, arguments.data, arguments.seed, arguments.device): (name, step)
            for name, step in cells
        }
        for future in as_completed(futures):
            done.append(future.result())
            cell = done[-1]
            print(
                f"{cell['scenario']} | {cell['step']}: {_mean(cell, 'auroc'):.4f}",
                file=sys.stderr,
            )
            done.sort(key=lambda each: (SCENARIOS.index(each["scenario"]), list(steps()).index(each["step"])))
            for row in cell["tasks"]:
                key = f"{cell['scenario']}|{row['task']}"
                scores[f"{key}|{cell['step']}"] = np.asarray(row.pop("scores"), np.float32)
                scores[f"{key}|labels"] = np.asarray(row.pop("labels"), np.uint8)
            write(arguments.out, done, scores)
    table(arguments)


def write(path: Path, cells: list[dict[str, Any]], scores: dict[str, np.ndarray]) -> None:
    """The figures as JSON, and beside it every score they can be recomputed from."""
    packed = io.BytesIO()
    np.savez_compressed(packed, **scores)  # type: ignore[arg-type]
    write_atomic(path.with_suffix(".npz"), packed.getvalue())
    write_atomic(path, (json.dumps({"cells": cells}, indent=1) + "\n").encode())


def _mean(cell: dict[str, Any], key: str) -> float:
    return float(np.mean([row[key] for row in cell["tasks"]]))


def table(arguments: argparse.Namespace) -> None:
    """Print the stored result as Markdown: AUROC, then false alarms / recall, then routing."""
    document = json.loads(arguments.out.read_text())
    wanted = arguments.steps.split(";") if arguments.steps else list(steps())
    cells = {(cell["scenario"], cell["step"]): cell for cell in document["cells"] if cell["step"] in wanted}
    names = list(dict.fromkeys(scenario for scenario, _ in cells))
    keys = ("description", "backend", "provider", "precision", "seed")
    for made_by in sorted({tuple(str(cell["info"][key]) for key in keys) for cell in cells.values()}):
        count = sum(tuple(str(cell["info"][key]) for key in keys) == made_by for cell in cells.values())
        description, backend, provider, precision, seed = made_by
        print(f"- {count} cells: {description}; {backend} on {provider}, {precision}, seed {seed}")
    texts: dict[str, Callable[[dict[str, Any]], str]] = {
        "Mean image AUROC": lambda cell: f"{_mean(cell, 'auroc'):.3f}",
        "False alarms on unseen normals (2.5 % asked for) / recall": lambda cell: (
            f"{100 * _mean(cell, 'false_alarms'):.1f} % / {100 * _mean(cell, 'recall'):.0f} %"
        ),
        "Images that went to their own task's bank": lambda cell: f"{100 * _mean(cell, 'routed_right'):.0f} %",
    }
    for title, text in texts.items():
        print(f"\n{title}\n\n| step | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
        for step in wanted:
            if any((name, step) in cells for name in names):
                values = (text(cells[name, step]) if (name, step) in cells else "–" for name in names)
                print(f"| {step} | {' | '.join(values)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runner = verbs.add_parser("run")
    runner.set_defaults(verb=run)
    runner.add_argument("--data", type=Path, required=True)
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--scenarios", default=",".join(SCENARIOS))
    runner.add_argument("--steps", help="only these, divided by semicolons: 'paper;default'")
    runner.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    runner.add_argument("--jobs", type=int, default=1)
    runner.add_argument("--seed", type=int, default=0)
    printer = verbs.add_parser("table")
    printer.set_defaults(verb=table)
    printer.add_argument("out", type=Path)
    printer.add_argument("--steps", help="only these, divided by semicolons: 'paper;default'")
    arguments = parser.parse_args()
    arguments.verb(arguments)


if __name__ == "__main__":
    main()
