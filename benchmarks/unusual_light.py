"""How often the light of an image is called unusual: of good test parts as photographed and darkened, and of defects.

Nothing is encoded. The exposures of a few normal images of a product, or of all, are what is usual for it.

    python -m benchmarks.unusual_light run --data DIR --out results/unusual_light.json
    python -m benchmarks.unusual_light table results/unusual_light.json

``DIR`` has the folders mvtec_ad, mvtec_loco and mtd. On two cores it takes two minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.daily_use import lit
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.core.exposure import FAR, FAR_OF_FEW, FEW, ExposureRange, measure_exposure, unusual_light
from dinosaur_ad.datasets import Task
from dinosaur_ad.datasets.mtd import mtd_scenario
from dinosaur_ad.encoders.base import prepare
from dinosaur_ad.presets import DEFAULT

Exposures = NDArray[np.float32]

COUNTS = {"5": 5, "20": 20, "all": sys.maxsize}
DRAWS = 30
"""Random draws of few images."""
LIGHT = {"as photographed": 1.0, "80 % of the light": 0.8, "60 %": 0.6, "50 %": 0.5, "30 %": 0.3}
DEFECTS = "defects"


def tasks(data: Path) -> Iterator[Task]:
    """The products: those of MVTec-AD and MVTec-LOCO, and magnetic tiles."""
    for name in ("mvtec-ad", "mvtec-loco"):
        yield from open_scenario(name, data).tasks
    yield from mtd_scenario(data / "mtd").tasks


def exposures(images: Iterable[NDArray[np.uint8]]) -> Exposures:
    """Mean and spread of each image (N, 2), at the size it is encoded at."""
    return np.concatenate([measure_exposure(prepare([image], DEFAULT.size)) for image in images])


def measure(task: Task) -> list[dict[str, Any]]:
    """By how many images were learned and what was shown: how many images there were, and how many were in unusual
    light."""
    train_N2 = exposures(sample.image() for sample in task.train)
    good = [sample for sample in task.test if not sample.label]
    shown = {name: exposures(lit(share)(each.image()) for each in good) for name, share in LIGHT.items()}
    shown[DEFECTS] = exposures(sample.image() for sample in task.test if sample.label)
    rows = []
    for learned_from, count in COUNTS.items():
        draws = DRAWS if count < len(train_N2) else 1
        order = [np.random.default_rng(draw).permutation(len(train_N2))[:count] for draw in range(draws)]
        for name, shown_N2 in shown.items():
            told = [unusual_light(each, ExposureRange.of(train_N2[n]), len(n)) for n in order for each in shown_N2]
            found = {"images": len(told), "unusual": sum(each is not None for each in told)}
            rows.append({"task": task.name, "learned_from": learned_from, "shown": name} | found)
    return rows


def table(document: dict[str, Any]) -> list[str]:
    """The Markdown table of a stored result: means over the products, and the most of any product."""
    names = (*LIGHT, DEFECTS)
    lines = [f"| learned from | {' | '.join(names)} |", f"|---|{'--:|' * len(names)}"]
    for learned_from in COUNTS:
        cells = []
        for name in names:
            rows = [row for row in document["rows"] if (row["learned_from"], row["shown"]) == (learned_from, name)]
            shares = [row["unusual"] / row["images"] for row in rows]
            cells.append(f"{np.mean(shares):.1%}, {max(shares):.1%}".replace("%", " %"))
        lines.append(f"| {learned_from} images | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Run the study or print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run")
    run.add_argument("--data", type=Path, required=True)
    run.add_argument("--out", type=Path, required=True)
    shown = verbs.add_parser("table")
    shown.add_argument("result", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "table":
        print("\n".join(table(json.loads(arguments.result.read_text()))))
        return
    rows = [row for task in tasks(arguments.data) for row in measure(task)]
    limits = {"far": FAR, "far_of_few": FAR_OF_FEW, "few": FEW}
    document = {"limits": limits, "draws": DRAWS, "size": DEFAULT.size, "rows": rows}
    write_atomic(arguments.out, (json.dumps(document, indent=1) + "\n").encode())
    print("\n".join(table(document)))


if __name__ == "__main__":
    main()
