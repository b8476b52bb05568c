"""What a user of the default settings can expect: how many images are enough, and what movement and light do.

All categories of an MVTec-AD folder are learned one after another, from a few of their normal images or from all, and
every test image is inspected without naming its product. Then some good test parts are moved, turned, darkened and
blurred.

    python -m benchmarks.daily_use run --data DIR/mvtec_ad --out results/daily_use.json
    python -m benchmarks.daily_use table results/daily_use.json --only images

Random draws of 5 and 20 images are repeated. Each image is encoded once. On two cores it takes about ten minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from dinosaur_ad import Dinosaur, Inspection, load_encoder
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.datasets import Scenario, mvtec_scenario
from dinosaur_ad.encoders.base import Tokens
from dinosaur_ad.presets import DEFAULT

Pixels = NDArray[np.uint8]

COUNTS: dict[str, int] = {"5": 5, "20": 20, "all": sys.maxsize}
DRAWS = 3
PARTS = 5
"""Good test parts of each product that are changed."""


def shifted(pixels: Pixels) -> Pixels:
    """To the right and down by 10 of 448 pixels; the border is repeated."""
    step = round(10 * pixels.shape[0] / 448)
    return np.pad(pixels, ((step, 0), (step, 0), (0, 0)), mode="edge")[: pixels.shape[0], : pixels.shape[1]]


def turned(degrees: float) -> Callable[[Pixels], Pixels]:
    """Around the centre; what comes in at the corners repeats the border."""

    def turn(pixels: Pixels) -> Pixels:
        height, width, _ = pixels.shape
        margin = max(height, width)
        wide = np.pad(pixels, ((margin, margin), (margin, margin), (0, 0)), mode="edge")
        image = Image.fromarray(wide).rotate(degrees, Image.Resampling.BICUBIC)
        return np.asarray(image)[margin : margin + height, margin : margin + width]

    return turn


def lit(share: float) -> Callable[[Pixels], Pixels]:
    """At a share of the light."""
    return lambda pixels: np.round(pixels * share).astype(np.uint8)


def blurred(pixels: Pixels) -> Pixels:
    """Gaussian, radius 2."""
    return np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(2)))


CONDITIONS: dict[str, Callable[[Pixels], Pixels]] = {
    "as photographed": lambda pixels: pixels,
    "shifted by 10 of 448 pixels": shifted,
    "turned by 3 degrees": turned(3),
    "turned by 90 degrees": turned(90),
    "80 % of the light": lit(0.8),
    "60 % of the light": lit(0.6),
    "50 % of the light": lit(0.5),
    "blurred, radius 2": blurred,
}


def cached_encoder() -> Any:
    """The default encoder; it keeps the tokens of every image it has seen."""
    encoder = load_encoder(layers=DEFAULT.layers, size=DEFAULT.size)
    encode, known = encoder.encode_prepared, dict[bytes, tuple[Any, Any]]()

    def encode_once(pixels_NHWC: Pixels) -> Tokens:
        keys = [hashlib.sha256(pixels.tobytes()).digest() for pixels in pixels_NHWC]
        new = [n for n, key in enumerate(keys) if key not in known]
        if new:
            tokens = encode(pixels_NHWC[new])
            known.update({keys[n]: (tokens.cls[i], tokens.patches[i]) for i, n in enumerate(new)})
        return Tokens(*(np.stack(part) for part in zip(*(known[key] for key in keys), strict=True)))

    encoder.encode_prepared = encode_once  # type: ignore[method-assign]
    return encoder


def taught(scenario: Scenario, encoder: Any, count: int, draw: int) -> Dinosaur:
    """All products learned in sequence, from so many of their normal images."""
    detector = Dinosaur(encoder=encoder)
    for task in scenario.tasks:
        order = np.random.default_rng(draw).permutation(len(task.train))[:count]
        detector.learn(task.name, [task.train[n].image() for n in sorted(order)])
    return detector


def inspected(detector: Dinosaur, images: Sequence[Pixels]) -> list[Inspection]:
    """The results, in order; none of the images may be unreadable."""
    return detector.inspect(list(images))


def run(arguments: argparse.Namespace) -> None:
    """Measure and store every verdict."""
    scenario, encoder = mvtec_scenario(arguments.data), cached_encoder()
    rows: list[dict[str, Any]] = []
    conditions: list[dict[str, Any]] = []
    for name, count in COUNTS.items():
        for draw in range(1 if name == "all" else DRAWS):
            detector = taught(scenario, encoder, count, draw)
            for task in scenario.tasks:
                results = inspected(detector, [sample.image() for sample in task.test])
                rows.append(
                    {
                        "learned_from": name,
                        "draw": draw,
                        "task": task.name,
                        "train": min(count, len(task.train)),
                        "labels": [sample.label for sample in task.test],
                        "verdicts": [each.verdict for each in results],
                        "scores": [round(each.score, 5) for each in results],
                        "routes": [each.task for each in results],
                    }
                )
                print(f"{name} images, draw {draw}, {task.name}: done", file=sys.stderr, flush=True)
    for task in scenario.tasks:  # with the detector that learned from all images
        good = [sample.image() for sample in task.test if not sample.label][:PARTS]
        for name, change in CONDITIONS.items():
            results = inspected(detector, [change(pixels) for pixels in good])
            conditions.append({"condition": name, "task": task.name, "verdicts": [each.verdict for each in results]})
    document = {"info": detector.info(), "images": rows, "conditions": conditions}
    write_atomic(arguments.out, (json.dumps(document) + "\n").encode())
    arguments.only = None
    table(arguments)


def table(arguments: argparse.Namespace) -> None:
    """Print the stored result as Markdown."""
    document = json.loads(arguments.out.read_text())
    parts = {"images": _images_table, "products": _products_table, "conditions": _conditions_table}
    texts = [make(document) for name, make in parts.items() if arguments.only in (None, name)]
    print("\n\n".join(texts))


def _images_table(document: dict[str, Any]) -> str:
    lines = ["| learned from | good parts flagged | defects missed | cannot be judged yet |", "|---|--:|--:|--:|"]
    for name in COUNTS:
        rows = [row for row in document["images"] if row["learned_from"] == name]
        counts = sorted(row["train"] for row in rows)
        what = f"all ({counts[0]} to {counts[-1]})" if name == "all" else f"{name} images"
        lines.append(f"| {what} | {' | '.join(_figures(rows))} |")
    return "\n".join(lines)


def _products_table(document: dict[str, Any]) -> str:
    heads = [f"{'all' if name == 'all' else name} images" for name in COUNTS]
    lines = [f"| flagged, missed | {' | '.join(heads)} | right product named |", f"|---|{'--:|' * (len(heads) + 1)}"]
    for task in dict.fromkeys(row["task"] for row in document["images"]):
        rows = [row for row in document["images"] if row["task"] == task]
        cells = [_figures([row for row in rows if row["learned_from"] == name]) for name in COUNTS]
        routes = [route == task for row in rows for route in row["routes"]]
        lines.append(
            f"| {task} | {' | '.join(f'{flagged}, {missed}' for flagged, missed, _ in cells)} | {_percent(routes)} |"
        )
    return "\n".join(lines)


def _figures(rows: list[dict[str, Any]]) -> tuple[str, str, str]:
    """Good parts flagged and defects missed, of those that were judged, and the share that was not."""
    pairs = [pair for row in rows for pair in zip(row["labels"], row["verdicts"], strict=True)]
    judged = [(label, verdict) for label, verdict in pairs if verdict != "not ready"]
    flagged = [verdict == "anomalous" for label, verdict in judged if not label]
    missed = [verdict == "normal" for label, verdict in judged if label]
    return _percent(flagged), _percent(missed), _percent([verdict == "not ready" for _, verdict in pairs])


def _conditions_table(document: dict[str, Any]) -> str:
    lines = ["| good parts, learned from all images | flagged |", "|---|--:|"]
    for name in CONDITIONS:
        verdicts = [each for row in document["conditions"] if row["condition"] == name for each in row["verdicts"]]
        lines.append(f"| {name} | {sum(each == 'anomalous' for each in verdicts)} of {len(verdicts)} |")
    return "\n".join(lines)


def _percent(values: list[bool]) -> str:
    return f"{100 * float(np.mean(values)):.1f} %" if values else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runner = verbs.add_parser("run")
    runner.set_defaults(verb=run)
    runner.add_argument("--data", type=Path, required=True, help="a folder of categories in the MVTec-AD layout")
    runner.add_argument("--out", type=Path, required=True)
    printer = verbs.add_parser("table")
    printer.set_defaults(verb=table)
    printer.add_argument("out", type=Path)
    printer.add_argument("--only", choices=("images", "products", "conditions"))
    arguments = parser.parse_args()
    arguments.verb(arguments)


if __name__ == "__main__":
    main()
