"""What each preset costs: the whole inspection of an image beside its bare encoder, and learning, in one run.

    python -m benchmarks.presets run --data DIR/mvtec_ad --out results/preset_speed.json
    python -m benchmarks.presets table results/preset_speed.json

The encoder alone and the whole inspection take turns on the same images, so that what else the machine does falls on
both. The fastest turn of each counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine
from dinosaur_ad import Dinosaur
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.datasets import mvtec_scenario
from dinosaur_ad.encoders import prepare
from dinosaur_ad.encoders.options import EncoderOptions
from dinosaur_ad.presets import PRESETS

LEARNED, INSPECTED, TURNS = 100, 16, 5
SHOWN = ("fast", "default")


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measured(name: str, train: list[Any], test: list[Any], options: EncoderOptions) -> dict[str, Any]:
    """Milliseconds an image of a preset, and the seconds and bytes of learning."""
    detector = Dinosaur(preset=name, options=options)
    learned = detector.learn("part", train)
    pixels = prepare(test, PRESETS[name].size)
    encode, inspect = [], []
    detector.inspect(test)
    for _ in range(TURNS):
        encode.append(seconds(lambda: detector.encoder.encode_prepared(pixels)))
        inspect.append(seconds(lambda: detector.inspect(test)))
    return {
        "preset": name,
        "encoder": detector.encoder.info(),
        "encode_ms": 1e3 * min(encode) / len(test),
        "inspect_ms": 1e3 * min(inspect) / len(test),
        "learn_seconds": learned.seconds,
        "images": learned.images,
        "bytes": learned.bytes,
    }


def run(arguments: argparse.Namespace) -> None:
    """Measure and store."""
    task = next(task for task in mvtec_scenario(arguments.data).tasks if task.name == arguments.task)
    train = [sample.image() for sample in task.train[:LEARNED]]
    test = [sample.image() for sample in task.test[:INSPECTED]]
    options = EncoderOptions(provider=arguments.provider, precision=arguments.precision)
    document = {"machine": machine.facts(), "rows": [measured(name, train, test, options) for name in SHOWN]}
    write_atomic(arguments.out, (json.dumps(document) + "\n").encode())
    table(arguments)


def table(arguments: argparse.Namespace) -> None:
    """Print the stored result as Markdown."""
    document = json.loads(arguments.out.read_text())
    print(
        "| preset | whole inspection over bare encoder | over `fast` | share of learning spent on encoding | on disk |"
    )
    print("|---|--:|--:|--:|--:|")
    fastest = document["rows"][0]["inspect_ms"]
    for row in document["rows"]:
        spent = row["learn_seconds"]
        encoding = (spent["read"] + spent["encode"]) / sum(spent.values())
        print(
            f"| {row['preset']} | {row['inspect_ms'] / row['encode_ms']:.2f} | {row['inspect_ms'] / fastest:.1f} | "
            f"{100 * encoding:.0f} % | {row['bytes'] / 1e6:.1f} MB |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runner = verbs.add_parser("run")
    runner.set_defaults(verb=run)
    runner.add_argument("--data", type=Path, required=True, help="a folder of categories in the MVTec-AD layout")
    runner.add_argument("--task", default="cable")
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--provider", help="what the encoder runs on (default: onnx-cpu)")
    runner.add_argument("--precision", help="of the encoder (default: float32)")
    printer = verbs.add_parser("table")
    printer.set_defaults(verb=table)
    printer.add_argument("out", type=Path)
    arguments = parser.parse_args()
    arguments.verb(arguments)


if __name__ == "__main__":
    main()
