"""Inspecting a product that is alone in its store, and among many others: the preset default, in turns.

One product is learned. The others are tasks with a bank of another product, and with the prototype, the thumbnail and
the exposure of pictures of their own: random parts of photos of all products, their colours exchanged, two mixed for
each task. So some are near the product and are compared with, and others are lit otherwise and are not.

    python -m benchmarks.many_tasks run --data DIR/mvtec_ad --out results/many_tasks.json
    python -m benchmarks.many_tasks table results/many_tasks.json

The stores take turns on the same images, so that what else the machine does falls on all of them; an image's fastest
turn counts, in processor time of all threads. What of it is spent on which part is measured in the same turns.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine
from dinosaur_ad import Dinosaur
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bank import bank_set
from dinosaur_ad.bank.bank_set import BankSet
from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.core.exposure import measure_exposure, thumbnails, usual_exposure
from dinosaur_ad.datasets import Task, mvtec_scenario
from dinosaur_ad.encoders import prepare
from dinosaur_ad.encoders.options import EncoderOptions
from dinosaur_ad.presets import DEFAULT
from dinosaur_ad.store import Store

Pixels = NDArray[np.uint8]
Arrays = dict[str, NDArray[np.float32]]

PRODUCT, OTHER = "cable", "transistor"
NORMALS, INSPECTED, TURNS = 40, 10, 5
PICTURES = 60
"""Parts of photos whose descriptors, two at a time, become the prototypes of the other tasks."""
SMALL = "500kB"
"""The budget of the other tasks, so that a thousand of them fit on a disk."""


def pictures(tasks: Sequence[Task], count: int) -> Iterator[Pixels]:
    """Random parts of photos of all products, with their colours exchanged."""
    rng = np.random.default_rng(0)
    for number in range(count):
        train = tasks[number % len(tasks)].train
        photo = train[int(rng.integers(len(train)))].image()
        side = int(min(photo.shape[:2]) * rng.uniform(0.3, 1.0))
        top, left = (int(rng.integers(length - side + 1)) for length in photo.shape[:2])
        part = photo[top : top + side, left : left + side][:, :, rng.permutation(3)]
        yield prepare([np.ascontiguousarray(part)], DEFAULT.size)[0]


def prototypes(detector: Dinosaur, tasks: Sequence[Task], count: int) -> Iterator[Arrays]:
    """What routing knows of so many products."""
    features, rng = FeatureExtractor(DEFAULT, lambda: detector.encoder), np.random.default_rng(1)
    exposures, known = [], []
    for pixels in pictures(tasks, PICTURES):
        exposures.append(measure_exposure(pixels[None]))
        _, descriptor_NC = features.encode(pixels[None], usual_exposure(exposures[-1]))
        known.append((descriptor_NC[0], thumbnails(pixels[None])[0]))
    for _ in range(count):
        (one, other), share = rng.choice(PICTURES, 2, replace=False), np.float32(rng.uniform(0.5, 1.0))
        mixed = [share * a + (1 - share) * b for a, b in zip(known[one], known[other], strict=True)]
        exposure = np.asarray(usual_exposure(exposures[one]), np.float32)
        yield {"prototype": mixed[0], "thumbnail": mixed[1], "exposure": exposure}


def fill(path: Path, small: Path, own: Sequence[Arrays]) -> None:
    """Put the task of a small store under many names, each with what routing knows of a product of its own."""
    store, source = Store.open(path), Store.open(small)
    record = source.record(OTHER)
    files = {file: dict(source.arrays(record, file)) for file in record.files}
    for number, arrays in enumerate(own):
        store.put(f"other-{number}", files | {"prototype": arrays}, record.manifest, action="learn")


PARTS: dict[str, list[tuple[Any, str]]] = {
    "looking whether the store changed": [(BankSet, "view")],
    "choosing the exposure": [(bank_set, "thumbnails"), (BankSet, "_first_tasks")],
    "encoding": [(FeatureExtractor, "encode")],
    "routing": [(BankSet, "_nearest_tasks"), (BankSet, "route")],
    "opening banks": [(bank_set, "open_bank")],
    "comparing with banks": [(BankSet, "score")],
}
"""What is timed apart: functions that do not call each other, but for the opening of a bank, which comparing calls."""


@contextmanager
def parts_timed(spent: defaultdict[str, float], calls: Counter[str]) -> Iterator[None]:
    """Processor seconds and calls of each part are added up."""

    def watched(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            started = time.process_time()
            try:
                return function(*given, **named)
            finally:
                spent[part] += time.process_time() - started
                calls[part] += 1

        return call

    with ExitStack() as stack:
        for part, functions in PARTS.items():
            for owner, name in functions:
                stack.enter_context(mock.patch.object(owner, name, watched(part, getattr(owner, name))))
        yield


def measured(detectors: dict[int, Dinosaur], images: Sequence[Pixels]) -> list[dict[str, Any]]:
    """Milliseconds of each turn, by how many tasks there are; every turn inspects the images one by one."""
    rows: dict[int, dict[str, Any]] = {}
    for tasks, detector in detectors.items():
        spent: defaultdict[str, float] = defaultdict(float)
        started, processor = time.perf_counter(), time.process_time()
        detector.store.snapshot()
        with parts_timed(spent, Counter()):
            found = detector.inspect(list(images))
        rows[tasks] = {
            "tasks": tasks,
            "asked": [len(each.asked) for each in found],
            "right": sum(each.task == PRODUCT for each in found),
            "first": {"clock_s": time.perf_counter() - started, "processor_s": time.process_time() - processor},
            "opening_s": spent["opening banks"],
            "encodings": [],
            "turns": [],
        }
    for turn in range(TURNS):
        for image in images:
            for tasks in detectors:
                spent, calls = defaultdict(float), Counter[str]()
                started, processor = time.perf_counter(), time.process_time()
                with parts_timed(spent, calls):
                    detectors[tasks].inspect(image)
                took = {"clock": time.perf_counter() - started, "processor": time.process_time() - processor}
                rows[tasks]["turns"].append({part: round(1e3 * s, 2) for part, s in (took | spent).items()})
                if not turn:
                    rows[tasks]["encodings"].append(calls["encoding"])
        print(f"turn {turn + 1} of {TURNS}: done", file=sys.stderr, flush=True)
    return list(rows.values())


def run(arguments: argparse.Namespace) -> None:
    """Make the stores and measure."""
    tasks = mvtec_scenario(arguments.data).tasks
    by_name = {task.name: task for task in tasks}
    options = EncoderOptions(provider=arguments.provider, precision=arguments.precision)
    train = [sample.image() for sample in by_name[PRODUCT].train[:NORMALS]]
    images = [sample.image() for sample in by_name[PRODUCT].test if not sample.label][:INSPECTED]
    counts = sorted(arguments.tasks)
    with tempfile.TemporaryDirectory() as folder:
        alone, small = Path(folder, "alone"), Path(folder, "small")
        teacher = Dinosaur(alone, options=options)
        teacher.learn(PRODUCT, train)
        few = [sample.image() for sample in by_name[OTHER].train[:4]]
        Dinosaur(small, encoder=teacher.encoder, budget=SMALL).learn(OTHER, few)
        own = list(prototypes(teacher, tasks, counts[-1] - 1))
        detectors = {}
        for count in counts:
            place = Path(folder, str(count))
            shutil.copytree(alone, place)
            fill(place, small, own[: count - 1])
            detectors[count] = Dinosaur(place, encoder=teacher.encoder)
            print(f"{count} tasks: made", file=sys.stderr, flush=True)
        rows = measured(detectors, images)
    document = {"machine": machine.facts(), "encoder": teacher.encoder.info(), "rows": rows}
    write_atomic(arguments.out, (json.dumps(document) + "\n").encode())


def fastest(row: dict[str, Any], part: str = "processor") -> float:
    """Milliseconds of a part, or of all: the mean over images, of each of which the fastest turn counts."""
    turns = np.reshape([turn.get(part, 0.0) for turn in row["turns"]], (TURNS, -1))
    return float(turns.min(axis=0).mean())


def table(document: dict[str, Any]) -> list[str]:
    """The Markdown tables of a stored result."""
    rows = document["rows"]
    lines = [
        "| tasks in the store | an image, over one task | encodings an image | banks asked an image "
        "| right product named |",
        "|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        ratio, count = fastest(row) / fastest(rows[0]), len(row["asked"])
        lines.append(
            f"| {row['tasks']:,} | {ratio:.2f} | {np.mean(row['encodings']):.1f} | {np.mean(row['asked']):.1f} "
            f"| {row['right']} of {count} |"
        )
    lines += [
        "",
        "| processor time of an image, ms | " + " | ".join(f"{row['tasks']:,} tasks" for row in rows) + " |",
        "|---|" + "--:|" * len(rows),
    ]
    for part in PARTS:
        if part != "opening banks":
            lines.append(f"| {part} | " + " | ".join(f"{fastest(row, part):.1f}" for row in rows) + " |")
    lines.append("| everything | " + " | ".join(f"{fastest(row):.1f}" for row in rows) + " |")
    opened = " | ".join(f"{1e3 * row['opening_s'] / len(row['asked']):.1f}" for row in rows)
    return [*lines, f"| once, before: opening banks | {opened} |"]


def main() -> None:
    """Run the study or print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    runner = verbs.add_parser("run")
    runner.add_argument("--data", type=Path, required=True, help="a folder of categories in the MVTec-AD layout")
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--tasks", type=int, nargs="+", default=[1, 1000])
    runner.add_argument("--provider", help="what the encoder runs on (default: onnx-cpu)")
    runner.add_argument("--precision", help="of the encoder (default: float32)")
    shown = verbs.add_parser("table")
    shown.add_argument("result", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "run":
        run(arguments)
    result = arguments.out if arguments.verb == "run" else arguments.result
    print("\n".join(table(json.loads(result.read_text()))))


if __name__ == "__main__":
    main()
