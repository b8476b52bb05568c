"""What movement does to each position: parts shifted, turned and scaled, with moved copies alone, registered, or free.

Each product is learned alone from some of its normal images. Some of its test images are inspected as they are and
moved at random by up to 10 of 448 pixels, 3 degrees and 2 % ("moved"), and by up to 10 % of the side, 12 degrees and
4 % ("far").

    python -m benchmarks.moved_parts run --data DIR/mvtec_ad --out results/moved_parts.json
    python -m benchmarks.moved_parts table results/moved_parts.json

On two cores it takes twenty minutes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dinosaur_ad import Dinosaur
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bank.position import Position, measured_movements
from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.core.registration import Movement, edge_images, transform_of
from dinosaur_ad.images.alignment import warped
from dinosaur_ad.images.loading import read_image
from dinosaur_ad.presets import DEFAULT

Pixels = NDArray[np.uint8]

PRODUCTS = ("bottle", "cable", "transistor", "screw")
POSITIONS = ("aligned", "moving", "free")
NORMALS, GOOD, BAD = 40, 15, 20
"""Images of each product that are learned, and good and bad ones that are inspected."""
REACHES = {"as it is": None, "moved": (10 / 448, 3.0, 0.02), "far": (0.10, 12.0, 0.04)}
"""By name of a movement: the largest shift as a share of the side, degrees, share of the size."""


def moved(pixels: Pixels, reach: tuple[float, float, float] | None, generator: np.random.Generator) -> Pixels:
    """An image moved at random within a reach; its border is repeated."""
    if reach is None:
        return pixels
    shift, degrees, scale = reach
    right, down, turn, size = generator.uniform(-1, 1, 4).tolist()
    movement = Movement(right * shift, down * shift, turn * degrees, 1 + size * scale, 1.0, 0.0)
    return warped(pixels, transform_of(movement, 1.0).inverse())


def spread(files: Sequence[Path], count: int) -> list[Pixels]:
    """Some of the images, evenly spread, at the size they are encoded at."""
    chosen = np.unique(np.linspace(0, len(files) - 1, count).round().astype(int)).tolist()
    size = DEFAULT.size, DEFAULT.size
    return [np.asarray(Image.fromarray(read_image(files[n])).resize(size, Image.Resampling.BICUBIC)) for n in chosen]


def measure(folder: Path, product: str, positions: Sequence[str]) -> dict[str, Any]:
    """One product under each position."""
    normals = spread(sorted((folder / product / "train" / "good").iterdir()), NORMALS)
    tests = sorted((folder / product / "test").glob("*/*"))
    good = spread([path for path in tests if path.parent.name == "good"], GOOD)
    bad = spread([path for path in tests if path.parent.name != "good"], BAD)
    rows: dict[str, Any] = {}
    for position in positions:
        detector = Dinosaur(preset="default")
        detector.learn(product, normals, position=position, force=True)
        rows[position] = {"stored": detector.store.record(product).manifest["position"]}
        for name, reach in REACHES.items():
            generator = np.random.default_rng(0)
            found = detector.inspect([moved(each, reach, generator) for each in (*good, *bad)], task=product)
            rows[position][name] = {
                "scores": [round(each.score, 5) for each in found],
                "flagged": [each.verdict != "normal" for each in found],
                "good": len(good),
                "ms": round(float(np.median([each.ms["total"] - each.ms.get("read", 0) for each in found])), 1),
            }
            print(product, position, name, summary(rows[position][name]), flush=True)
    reference, _ = measured_movements(normals, None)
    started = time.perf_counter()
    for each in good:
        reference.find(edge_images(each[None]))
    return {"positions": rows, "registration_ms": round((time.perf_counter() - started) / len(good) * 1e3, 2)}


def summary(row: dict[str, Any]) -> tuple[float, int, int]:
    """AUROC, good parts flagged, bad parts flagged."""
    good = row["good"]
    labels = [n >= good for n in range(len(row["scores"]))]
    return round(float(auroc(row["scores"], labels)), 3), sum(row["flagged"][:good]), sum(row["flagged"][good:])


def table(document: dict[str, Any]) -> list[str]:
    """The Markdown table of a stored result."""
    lines = ["| product | position | " + " | ".join(f"{name}: AUROC, flagged" for name in REACHES) + " |"]
    lines.append("|---|---|" + "---|" * len(REACHES))
    for product, found in document["products"].items():
        for position, row in found["positions"].items():
            stored = str(Position(**row["stored"]))
            cells = []
            for name in REACHES:
                area, good, bad = summary(row[name])
                total = len(row[name]["scores"])
                cells.append(
                    f"{area:.3f}, {good} of {row[name]['good']} good, {bad} of {total - row[name]['good']} bad"
                )
            lines.append(f"| {product} | {position if stored == position else stored} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Run the study or print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run")
    run.add_argument("--data", type=Path, required=True)
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--products", nargs="+", default=PRODUCTS)
    run.add_argument("--positions", nargs="+", default=POSITIONS)
    shown = verbs.add_parser("table")
    shown.add_argument("result", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "table":
        print("\n".join(table(json.loads(arguments.result.read_text()))))
        return
    products: dict[str, Any] = {}
    for product in arguments.products:
        products[product] = measure(arguments.data, product, arguments.positions)
        write_atomic(arguments.out, json.dumps({"preset": "default", "products": products}).encode())


if __name__ == "__main__":
    main()
