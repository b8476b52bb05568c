"""Inspecting a product that is alone in its store, and among many others: the preset default, in turns.

One product is learned. The others are tasks with a bank of another product, and with the prototype, the thumbnail and
the exposure of pictures of their own: random parts of photos of all products, their colours exchanged, two mixed for
each task. So some are near the product and are compared with, and others are lit otherwise and are not.

    python -m benchmarks.many_tasks run --data DIR/mvtec_ad --out results/many_tasks.json
    python -m benchmarks.many_tasks table results/many_tasks.json

The stores take turns on the same images, so that what else the machine does falls on all of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine
from dinosaur_ad import Dinosaur
from dinosaur_ad._atomic import write_atomic
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
NORMALS, INSPECTED, TURNS = 10, 4, 5
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


def measured(detectors: dict[int, Dinosaur], images: Sequence[Pixels]) -> list[dict[str, Any]]:
    """Milliseconds of each turn, by how many tasks there are; every turn inspects the images one by one."""
    rows: dict[int, dict[str, Any]] = {}
    for tasks, detector in detectors.items():
        started = time.perf_counter()
        detector.store.snapshot()
        found = detector.inspect(list(images))
        first = time.perf_counter() - started
        asked = [len(each.asked) for each in found]
        named = sum(each.task == PRODUCT for each in found)
        rows[tasks] = {"tasks": tasks, "asked": asked, "right": named, "first_s": first, "ms": []}
    for turn in range(TURNS):
        for image in images:
            for tasks in detectors:
                started = time.perf_counter()
                detectors[tasks].inspect(image)
                rows[tasks]["ms"].append(round(1e3 * (time.perf_counter() - started), 2))
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


def table(document: dict[str, Any]) -> list[str]:
    """The Markdown table of a stored result. Each image's fastest turn counts."""
    lines = [
        "| tasks in the store | an image, over one task | banks asked an image | right product named |",
        "|--:|--:|--:|--:|",
    ]
    fastest = [np.reshape(row["ms"], (TURNS, -1)).min(axis=0).mean() for row in document["rows"]]
    for row, each in zip(document["rows"], fastest, strict=True):
        asked, count = np.mean(row["asked"]), len(row["asked"])
        lines.append(f"| {row['tasks']:,} | {each / fastest[0]:.2f} | {asked:.1f} | {row['right']} of {count} |")
    return lines


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
