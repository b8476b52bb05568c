"""Whether an image goes to the same task, with the same score, when tasks that have clearly lost are not compared with
at their own brightness (``core/routing.py``).

    python -m benchmarks.rough_scores run --data DIR --set mvtec_ad --out results/rough_scores.json
    python -m benchmarks.rough_scores run --data DIR --set mtd-color --out results/rough_scores.json
    python -m benchmarks.rough_scores table results/rough_scores.json

Good and bad images of products that are lit differently, and of one product in drifting light, under every task of
their set at every exposure that a task has. The rule is applied to what is stored, without its second half (before an
alarm all are compared), which would only add comparisons.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dinosaur_ad import Dinosaur
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bank.bank_set import BankSet
from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.core.exposure import thumbnails
from dinosaur_ad.core.routing import prototype_distances, shortlist, undecided
from dinosaur_ad.datasets import Task, mtd_scenario, mvtec_scenario
from dinosaur_ad.encoders import prepare
from dinosaur_ad.encoders.options import EncoderOptions
from dinosaur_ad.presets import DEFAULT

LEARNED, INSPECTED = 30, 8
"""Normals a task learns, and good and bad images each that are compared. With one moved copy, to save time."""
SETS = ("mvtec_ad", "mtd-color")


def tasks_of(name: str, data: Path) -> Sequence[Task]:
    """All products, or every other level of drift."""
    return mvtec_scenario(data / name).tasks if name == SETS[0] else mtd_scenario(data / "mtd", "color").tasks[::2]


def run(arguments: argparse.Namespace) -> None:
    """Compare the images of a set and add its rows to the stored ones."""
    tasks = tasks_of(arguments.set, arguments.data)
    options = EncoderOptions(provider=arguments.provider, precision=arguments.precision)
    detector = Dinosaur(preset=replace(DEFAULT, copies=1), options=options)
    for task in tasks:
        detector.learn(task.name, [sample.image() for sample in task.train[:LEARNED]], force=True)
    features, banks = FeatureExtractor(detector.preset, lambda: detector.encoder), BankSet(detector.preset, 2**31)
    view = banks.view(detector.store)
    exposures, rng, rows = list(dict.fromkeys(view.exposures)), np.random.default_rng(0), []
    for task in tasks:
        by_label = ([sample for sample in task.test if bool(sample.label) is bad] for bad in (False, True))
        for sample in (some[n] for some in by_label for n in rng.permutation(len(some))[:INSPECTED]):
            pixels = prepare([sample.image()], detector.preset.size)
            guess = prototype_distances(thumbnails(pixels), view.thumbnail_TP)[0]
            at: list[Any] = []
            for exposure in exposures:
                patches_NHWC, descriptor_NC = features.encode(pixels, exposure)
                (found,) = banks.score(detector.store, view, patches_NHWC, [view.names])
                distance = prototype_distances(descriptor_NC, view.prototype_TC)[0]
                at.append({"distances": distance.tolist(), "scores": [found[name].score for name in view.names]})
            rows.append({"task": task.name, "bad": bool(sample.label), "guess": int(guess.argmin()), "at": at})
    known = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    own = [exposures.index(each) for each in view.exposures]
    known[arguments.set] = {"tasks": view.names, "own": own, "encoder": detector.encoder.info(), "rows": rows}
    write_atomic(arguments.out, (json.dumps(known) + "\n").encode())


def judged(row: dict[str, Any], tasks: list[str], own: list[int], *, exactly: bool) -> tuple[str, float, int]:
    """The task of an image, its score, and in how many exposures the image was encoded."""
    at, used = own[row["guess"]], [own[row["guess"]]]
    at = own[int(np.argmin(row["at"][at]["distances"]))]
    used.append(at)
    (chosen,) = shortlist(np.asarray([row["at"][at]["distances"]]), DEFAULT.limit, DEFAULT.margin)
    seen = {t: own[t] if exactly else at for t in chosen}
    while True:
        scores = {tasks[t]: row["at"][exposure]["scores"][t] for t, exposure in seen.items()}
        exact = {tasks[t] for t, exposure in seen.items() if exposure == own[t]}
        more = undecided(scores, exact, dict.fromkeys(tasks, math.inf))
        used += [exposure for exposure in seen.values() if exposure not in used]
        if not more:
            best = min(scores, key=lambda name: scores[name])
            return best, scores[best], len(set(used))
        seen |= {tasks.index(name): own[tasks.index(name)] for name in more}


def table(document: dict[str, Any]) -> list[str]:
    """The Markdown table of a stored result."""
    lines = [
        "| set | images | go to another task | get another score | right task before | now | encodings before | now |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, found in document.items():
        rows, tasks, own = found["rows"], found["tasks"], found["own"]
        before, after = ([judged(row, tasks, own, exactly=exactly) for row in rows] for exactly in (True, False))
        pairs = list(zip(before, after, strict=True))
        cells = [f"{len(rows)}", f"{sum(a[0] != b[0] for a, b in pairs)}", f"{sum(a[1] != b[1] for a, b in pairs)}"]
        for some in (before, after):
            cells.append(f"{sum(each[0] == row['task'] for each, row in zip(some, rows, strict=True)) / len(rows):.0%}")
        cells += [f"{np.mean([each[2] for each in some]):.2f}" for some in (before, after)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Run a set or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    runner = verbs.add_parser("run")
    runner.add_argument("--data", type=Path, required=True, help="a folder with mvtec_ad and mtd")
    runner.add_argument("--set", choices=SETS, required=True)
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--provider", help="what the encoder runs on (default: onnx-cpu)")
    runner.add_argument("--precision", help="of the encoder (default: float32)")
    verbs.add_parser("table").add_argument("out", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "run":
        run(arguments)
    print("\n".join(table(json.loads(arguments.out.read_text()))))


if __name__ == "__main__":
    main()
