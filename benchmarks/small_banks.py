"""What a smaller budget costs with the preset default: AUROC and verdicts of products learned with 8 MB and with less.

Each product is learned alone from some of its normal images; all of its test images are inspected. Every image is
encoded once and used for all budgets, so that only the bank differs.

    python -m benchmarks.small_banks run --data DIR/mvtec_ad --out results/small_banks.json
    python -m benchmarks.small_banks table results/small_banks.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.daily_use import SharedFeatures
from dinosaur_ad import Dinosaur, load_encoder
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bench.cache import DEFAULT_LIMIT, DiskCache
from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.datasets import Task, mvtec_scenario
from dinosaur_ad.presets import DEFAULT

BUDGETS = ("8MB", "4MB", "2MB", "1MB")
NORMALS = 60
PRODUCTS = ("cable", "transistor")


def measured(task: Task, shared: SharedFeatures, normals: int) -> list[dict[str, Any]]:
    """One product with each budget."""
    order = sorted(np.random.default_rng(0).permutation(len(task.train))[:normals])
    train, test = [task.train[n].image() for n in order], [sample.image() for sample in task.test]
    rows = []
    for budget in BUDGETS:
        detector = shared.use(Dinosaur(encoder=shared.encoder, budget=budget))
        learned = detector.learn(task.name, train)
        results = detector.inspect(test)
        bank = detector.store.record(task.name).manifest["bank"]
        rows.append(
            {
                "task": task.name,
                "budget": budget,
                "images": learned.images,
                "members": learned.members,
                "channels": bank["channels"],
                "bytes": learned.bytes,
                "labels": [sample.label for sample in task.test],
                "scores": [round(each.score, 5) for each in results],
                "verdicts": [each.verdict for each in results],
            }
        )
        print(f"{task.name}, {budget}: done", file=sys.stderr, flush=True)
    return rows


def table(document: dict[str, Any]) -> list[str]:
    """The Markdown table of a stored result."""
    lines = [
        "| product | budget | members × channels | on disk | AUROC | change | good parts flagged | defects missed |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    whole: dict[str, float] = {}
    for row in document["rows"]:
        area = float(auroc(row["scores"], row["labels"]))
        whole.setdefault(row["task"], area)
        judged = list(zip(row["labels"], row["verdicts"], strict=True))
        flagged = sum(verdict != "normal" for label, verdict in judged if not label)
        missed = sum(verdict == "normal" for label, verdict in judged if label)
        bad = sum(row["labels"])
        lines.append(
            f"| {row['task']} | {row['budget']} | {row['members']} × {row['channels']} | {row['bytes'] / 1e6:.2f} MB | "
            f"{area:.4f} | {area - whole[row['task']]:+.4f} | {flagged} of {len(judged) - bad} | {missed} of {bad} |"
        )
    return lines


def main() -> None:
    """Run the study or print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run")
    run.add_argument("--data", type=Path, required=True, help="a folder of categories in the MVTec-AD layout")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--products", nargs="+", default=PRODUCTS)
    run.add_argument("--normals", type=int, default=NORMALS)
    run.add_argument("--cache", type=Path, default=Path("runs/daily-use-cache"), help="where features are kept")
    run.add_argument("--provider", help="what the encoder runs on (default: onnx-cpu)")
    run.add_argument("--precision", help="of the encoder (default: float32)")
    shown = verbs.add_parser("table")
    shown.add_argument("result", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "table":
        print("\n".join(table(json.loads(arguments.result.read_text()))))
        return
    options = {"provider": arguments.provider, "precision": arguments.precision}
    encoder = load_encoder(layers=DEFAULT.layers, size=DEFAULT.size, **options)
    cache = DiskCache(arguments.cache, DEFAULT_LIMIT)
    rows: list[dict[str, Any]] = []
    for task in mvtec_scenario(arguments.data).tasks:
        if task.name in arguments.products:
            rows += measured(task, SharedFeatures(encoder, cache), arguments.normals)
            document = {"encoder": encoder.info(), "rows": rows}
            write_atomic(arguments.out, (json.dumps(document) + "\n").encode())
    print("\n".join(table(document)))


if __name__ == "__main__":
    main()
