"""What movement and light do to each position: with moved copies alone, registered, or free.

Each product is learned alone from all of its normal images. Some of its test images are inspected as they are, changed
in one way at a time, and moved at random by up to 10 of 448 pixels, 3 degrees and 2 % ("moved") and by up to 10 % of
the side, 12 degrees and 4 % ("far"). A product whose images are not registered under ``moving`` is the same as under
``aligned`` with at least three copies of each image, which the default preset has: it is not measured twice.

    python -m benchmarks.moved_parts run --data DIR/mvtec_ad --out results/moved_parts.json
    python -m benchmarks.moved_parts table results/moved_parts.json
    python -m benchmarks.moved_parts cost results/moved_parts.json

On two cores it takes about half an hour. What the file has already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.daily_use import lit, scaled, shifted, turned
from dinosaur_ad import Dinosaur
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bank.position import Position, find_position, measured_movements
from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.core.registration import Movement, edge_images, transform_of
from dinosaur_ad.encoders.options import EncoderOptions
from dinosaur_ad.images.alignment import warped
from dinosaur_ad.images.loading import read_image
from dinosaur_ad.presets import DEFAULT

Pixels = NDArray[np.uint8]

PRODUCTS = ("bottle", "cable", "transistor", "screw")
POSITIONS = ("aligned", "moving", "free")
NORMALS, GOOD, BAD = sys.maxsize, 60, 60
"""Images of each product that are learned (all), and good and bad ones that are inspected, evenly spread."""
COSTED = 20
"""Images that the cost is measured on."""
REACHES = {"moved": (10 / 448, 3.0, 0.02), "far": (0.10, 12.0, 0.04)}
"""By name of a random movement: the largest shift as a share of the side, degrees, share of the size."""


def moved(pixels: Pixels, reach: tuple[float, float, float], generator: np.random.Generator) -> Pixels:
    """An image moved at random within a reach; its border is repeated."""
    shift, degrees, scale = reach
    right, down, turn, size = generator.uniform(-1, 1, 4).tolist()
    movement = Movement(right * shift, down * shift, turn * degrees, 1 + size * scale, 1.0, 0.0)
    return warped(pixels, transform_of(movement, 1.0).inverse())


def changes() -> dict[str, Callable[[Pixels], Pixels]]:
    """By name: what is done to each image, the same to each position."""
    found: dict[str, Callable[[Pixels], Pixels]] = {
        "as it is": lambda pixels: pixels,
        "10 px right": shifted(10, 0),
        "10 px down": shifted(0, 10),
        "both": shifted(10, 10),
        "turned 3°": turned(3),
        "scaled 2 %": scaled(1.02),
        "60 % of the light": lit(0.6),
    }
    for name, reach in REACHES.items():
        generator = np.random.default_rng(0)
        found[name] = lambda pixels, reach=reach, generator=generator: moved(pixels, reach, generator)  # type: ignore[misc]
    return found


def spread(files: Sequence[Path], count: int) -> list[Pixels]:
    """Some of the images, evenly spread."""
    chosen = np.unique(np.linspace(0, len(files) - 1, min(count, len(files))).round().astype(int)).tolist()
    return [read_image(files[n]) for n in chosen]


def prepared(pixels: Sequence[Pixels]) -> list[Pixels]:
    """Images at the size they are encoded at."""
    size = DEFAULT.size, DEFAULT.size
    return [np.asarray(Image.fromarray(each).resize(size, Image.Resampling.BICUBIC)) for each in pixels]


def measure(
    folder: Path,
    product: str,
    positions: Sequence[str],
    options: EncoderOptions,
    found: dict[str, Any],
    keep: Callable[[], None],
) -> None:
    """One product under each position that was not ``found`` before; ``keep`` is called after each."""
    normals = spread(sorted((folder / product / "train" / "good").iterdir()), NORMALS)
    tests = sorted((folder / product / "test").glob("*/*"))
    good = spread([path for path in tests if path.parent.name == "good"], GOOD)
    bad = spread([path for path in tests if path.parent.name != "good"], BAD)
    if not found:
        found |= {"normals": len(normals), "positions": {}}
    rows = found["positions"]
    for position in positions:
        same = position == "moving" and find_position("moving", DEFAULT, prepared(normals), None)[1] is None
        if position in rows or same:
            continue
        detector = Dinosaur(preset="default", options=options)
        detector.learn(product, normals, position=position, force=True)
        encoder = {key: detector.encoder.info()[key] for key in ("description", "provider", "precision")}
        row = {"stored": detector.store.record(product).manifest["position"], "encoder": encoder}
        for name, change in changes().items():
            results = detector.inspect([change(each) for each in (*good, *bad)], task=product)
            row[name] = {
                "scores": [round(each.score, 5) for each in results],
                "flagged": [each.verdict != "normal" for each in results],
                "good": len(good),
                "ms": round(float(np.median([each.ms["total"] - each.ms.get("read", 0) for each in results])), 1),
            }
            print(product, position, name, cell(row[name]), flush=True)
        rows[position] = row
        keep()


def cost(folder: Path, product: str, options: EncoderOptions) -> dict[str, Any]:
    """Milliseconds of the processor for an inspection, and for finding and taking back the movement of an image."""
    normals = prepared(spread(sorted((folder / product / "train" / "good").iterdir()), COSTED))
    images = prepared(spread(sorted((folder / product / "test" / "good").iterdir()), COSTED))
    detector = Dinosaur(preset="default", options=options)
    detector.learn(product, normals, force=True)
    reference, _ = measured_movements(normals, None)
    movement = Movement(0.01, 0.01, 2.0, 1.01, 1.0, 0.0)
    begun = time.process_time()
    results = detector.inspect(images, task=product)
    inspected = time.process_time()
    for each in images:
        reference.find(edge_images(each[None]))
        warped(each, transform_of(movement, 1.0))
    registered = time.process_time()
    spent = {"inspection_ms": inspected - begun, "registration_ms": registered - inspected}
    found: dict[str, Any] = {key: round(1000 * seconds / len(images), 2) for key, seconds in spent.items()}
    return found | {"provider": results[0].provider, "precision": results[0].precision}


def cell(row: dict[str, Any]) -> str:
    """AUROC, and the shares of good and of bad parts that are flagged."""
    good = row["good"]
    labels = [n >= good for n in range(len(row["scores"]))]
    shares = float(np.mean(row["flagged"][:good])), float(np.mean(row["flagged"][good:]))
    return f"{auroc(row['scores'], labels):.3f}, {shares[0]:.0%}, {shares[1]:.0%}"


def table(document: dict[str, Any]) -> list[str]:
    """AUROC and the shares of good and bad parts that are flagged, for each product, position and change."""
    names, ran = list(changes()), set()
    lines = ["| product | position | " + " | ".join(names) + " |", "|---|---|" + "--:|" * len(names)]
    for product, found in document["products"].items():
        for position, row in found["positions"].items():
            stored = str(Position(**row["stored"]))
            both = position == "aligned" and "moving" not in found["positions"]
            words = "aligned, moving" if both else stored
            lines.append(f"| {product} | {words} | {' | '.join(cell(row[name]) for name in names)} |")
            ran.add("{description}; {provider} {precision}".format(**row["encoder"]))
    return [*lines, "", f"{'; '.join(sorted(ran))}."]


def cost_table(document: dict[str, Any]) -> list[str]:
    """What finding the movement and taking it back costs of an inspection."""
    lines = ["| product | an inspection | registering the image | share |", "|---|--:|--:|--:|"]
    for product, found in document["products"].items():
        whole, spent = found["cost"]["inspection_ms"], found["cost"]["registration_ms"]
        lines.append(f"| {product} | {whole:.0f} ms | {spent:.1f} ms | {spent / whole:.1%} |")
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
    run.add_argument("--provider", help="what the encoder runs on (default: onnx-cpu)")
    run.add_argument("--precision", help="of the encoder (default: float32)")
    tables = {"table": table, "cost": cost_table}
    for name in tables:
        verbs.add_parser(name).add_argument("result", type=Path)
    arguments = parser.parse_args()
    if arguments.verb in tables:
        print("\n".join(tables[arguments.verb](json.loads(arguments.result.read_text()))))
        return
    document: dict[str, Any] = {"preset": "default", "products": {}}
    if arguments.out.exists():
        document = json.loads(arguments.out.read_text())
    options = EncoderOptions(provider=arguments.provider, precision=arguments.precision)
    for product in arguments.products:
        found = document["products"].setdefault(product, {})
        measure(
            arguments.data,
            product,
            arguments.positions,
            options,
            found,
            lambda: write_atomic(arguments.out, json.dumps(document).encode()),
        )
        if "cost" not in found:
            found["cost"] = cost(arguments.data, product, options)
        write_atomic(arguments.out, json.dumps(document).encode())


if __name__ == "__main__":
    main()
