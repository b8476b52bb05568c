"""What a user of the default settings can expect: how many images are enough, what movement and light do, and what is
said of pictures that show none of the products.

All categories of an MVTec-AD folder are learned one after another, from a few of their normal images or from all, and
every test image is inspected without naming its product. Then some good test parts are moved, turned, darkened and
blurred. Each product is forgotten in turn and its test images are inspected; so are pictures without a product.

    python -m benchmarks.daily_use run --data DIR/mvtec_ad --out results/daily_use.json
    python -m benchmarks.daily_use table results/daily_use.json --only images

Random draws of 2, 5, 10 and 20 images are repeated, and all images with several seeds; those also with the thresholds
and maps that a preset had before (``--before``). Each image is encoded once for each exposure, and once only if the run
is stopped and started again. On two cores it takes half an hour.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from dinosaur_ad import Dinosaur, Inspection, load_encoder
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bench.cache import DEFAULT_LIMIT, DiskCache
from dinosaur_ad.core.exposure import Exposure
from dinosaur_ad.datasets import Scenario, mvtec_scenario
from dinosaur_ad.encoders import Encoder
from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.methods.photo import Photo
from dinosaur_ad.presets import DEFAULT, GAINED, Preset

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]

COUNTS: dict[str, int] = {"2": 2, "5": 5, "10": 10, "20": 20, "all": sys.maxsize}
DRAWS = {"2": 3, "5": 10, "10": 10, "20": 10, "all": 3}
"""Of all images the same ones each time, with another seed."""
ORDER = ("all", "20", "10", "5", "2")
"""What is measured first."""
EARLIER = replace(DEFAULT, folds=GAINED["folds"], map_softness=GAINED["map_softness"])
"""The default before its thresholds came from 40 folds. Of 20 images and fewer they are the same: each is left out."""
PARTS = 10
"""Good test parts of each product that are changed."""
JUNK = 300
"""Pictures without a product that each detector is shown (of those that learned from few images, the first draw)."""


def shifted(right: float, down: float) -> Callable[[Pixels], Pixels]:
    """By so many of 448 pixels, none of them negative; the border is repeated."""

    def shift(pixels: Pixels) -> Pixels:
        height, width, _ = pixels.shape
        left, top = round(right * width / 448), round(down * height / 448)
        return np.pad(pixels, ((top, 0), (left, 0), (0, 0)), mode="edge")[:height, :width]

    return shift


def turned(degrees: float) -> Callable[[Pixels], Pixels]:
    """Around the centre; what comes in at the corners repeats the border."""

    def turn(pixels: Pixels) -> Pixels:
        height, width, _ = pixels.shape
        margin = max(height, width)
        wide = np.pad(pixels, ((margin, margin), (margin, margin), (0, 0)), mode="edge")
        image = Image.fromarray(wide).rotate(degrees, Image.Resampling.BICUBIC)
        return np.asarray(image)[margin : margin + height, margin : margin + width]

    return turn


def scaled(factor: float) -> Callable[[Pixels], Pixels]:
    """Larger or smaller around the centre; what comes in at the border repeats it."""

    def scale(pixels: Pixels) -> Pixels:
        height, width, _ = pixels.shape
        margin = max(height, width) // 4
        wide = Image.fromarray(np.pad(pixels, ((margin, margin), (margin, margin), (0, 0)), mode="edge"))
        left, top = width / 2 * (1 - 1 / factor) + margin, height / 2 * (1 - 1 / factor) + margin
        box = (left, top, left + width / factor, top + height / factor)
        return np.asarray(wide.resize((width, height), Image.Resampling.BICUBIC, box=box))

    return scale


def lit(share: float) -> Callable[[Pixels], Pixels]:
    """At a share of the light."""
    return lambda pixels: np.round(pixels * share).astype(np.uint8)


def blurred(pixels: Pixels) -> Pixels:
    """Gaussian, radius 2."""
    return np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(2)))


CONDITIONS: dict[str, Callable[[Pixels], Pixels]] = {
    "as photographed": lambda pixels: pixels,
    "shifted by 10 of 448 pixels": shifted(10, 10),
    "turned by 3 degrees": turned(3),
    "turned by 90 degrees": turned(90),
    "scaled by 2 %": scaled(1.02),
    "80 % of the light": lit(0.8),
    "60 % of the light": lit(0.6),
    "50 % of the light": lit(0.5),
    "blurred, radius 2": blurred,
}


class SharedFeatures:
    """The features of every image that any detector has seen, by its pixels and its exposure, kept on disk: a run that
    was stopped encodes nothing twice."""

    def __init__(self, encoder: Encoder, cache: DiskCache) -> None:
        self.encoder = encoder
        self.seconds = 0.0
        """Of the processor, for what was encoded and reduced to features."""
        self._cache = cache

    def use(self, detector: Dinosaur) -> Dinosaur:
        """Let a detector take its features from here."""
        compute = detector._features.features

        def features(pixels: Pixels, exposure: Exposure | None = None) -> tuple[Floats, Floats]:
            def tokens(photos: Sequence[Photo]) -> Floats:
                begun = time.process_time()
                cls_NC, patches_NHWC = compute(np.stack([photo.pixels() for photo in photos]), exposure)
                self.seconds += time.process_time() - begun
                return np.concatenate([cls_NC[:, None], patches_NHWC.reshape(len(photos), -1, cls_NC.shape[1])], axis=1)

            encoder = self.encoder
            recipe = f"daily-use-{encoder.fingerprint}-{encoder.provider}-{encoder.precision}-{exposure}"
            photos = [photo_of(image) for image in pixels]
            batches = [self._cache.features(recipe, group, tokens) for group in batched(photos, 8)]
            tokens_NTC = np.concatenate(batches)
            return tokens_NTC[:, 0], tokens_NTC[:, 1:].reshape(len(photos), *encoder.grid, -1)

        detector._features.features = features  # type: ignore[method-assign]
        return detector


def photo_of(pixels: Pixels) -> Photo:
    """An image by the hash of its pixels."""
    return Photo(hashlib.sha256(pixels.tobytes()).hexdigest(), lambda: pixels)


def taught(scenario: Scenario, shared: SharedFeatures, count: int, draw: int, preset: Preset = DEFAULT) -> Dinosaur:
    """All products learned in sequence, from so many of their normal images; the draw is also the seed of those that
    learn from all."""
    seed = draw if count == COUNTS["all"] else 0
    detector = shared.use(Dinosaur(encoder=shared.encoder, preset=preset, seed=seed))
    for task in scenario.tasks:
        order = np.random.default_rng(draw).permutation(len(task.train))[:count]
        detector.learn(task.name, [task.train[n].image() for n in sorted(order)])
    return detector


def junk(count: int) -> list[Pixels]:
    """Pictures without a product: noise, blank frames, gradients, stripes, boards, shapes, text-like screens."""
    random, pictures = np.random.default_rng(7), list[Pixels]()
    rows, columns = np.indices((448, 448))
    for index in range(count):
        kind, low, high = index % 7, random.integers(0, 256, 3), random.integers(0, 256, 3)
        if kind == 0:
            side = int(random.choice([448, 112, 28]))
            small = Image.fromarray(random.integers(0, 256, (side, side, 3), np.uint8))
            picture = np.asarray(small.resize((448, 448), Image.Resampling.BICUBIC))
        elif kind == 1:
            picture = np.full((448, 448, 3), low, np.uint8)
        else:
            angle, period = random.uniform(0, np.pi), random.integers(8, 120)
            ramp = np.cos(angle) * rows + np.sin(angle) * columns
            if kind == 2:
                share = (ramp - ramp.min()) / (np.ptp(ramp) + 1)
            elif kind == 3:
                share = (ramp // period % 2).astype(float)
            elif kind == 4:
                share = ((rows // period + columns // period) % 2).astype(float)
            elif kind == 5:
                centre = random.uniform(0, 448, 2)
                share = (np.hypot(rows - centre[0], columns - centre[1]) < random.uniform(40, 200)).astype(float)
            else:
                lines = random.random((28, 112)) < 0.4
                lines[::2] = False
                share = np.repeat(np.repeat(lines, 16, axis=0), 4, axis=1).astype(float)
            picture = (low + share[..., None] * (high - low.astype(float))).astype(np.uint8)
        pictures.append(picture)
    return pictures


def inspected(detector: Dinosaur, images: Sequence[Pixels]) -> list[Inspection]:
    """The results, in order; none of the images may be unreadable."""
    return detector.inspect(list(images))


def judged(detector: Dinosaur, scenario: Scenario, row: dict[str, Any]) -> list[dict[str, Any]]:
    """What is said of every test image, a row a product."""
    rows = []
    for task in scenario.tasks:
        results = inspected(detector, [sample.image() for sample in task.test])
        verdicts = {
            "task": task.name,
            "train": len(detector.store.record(task.name).manifest["images"]),
            "threshold": round(detector.threshold(task.name), 5),
            "labels": [sample.label for sample in task.test],
            "verdicts": [each.verdict for each in results],
            "scores": [round(each.score, 5) for each in results],
            "routes": [each.task for each in results],
        }
        rows.append(row | verdicts)
    print(f"{row}: done", file=sys.stderr, flush=True)
    return rows


def run(arguments: argparse.Namespace) -> None:
    """Measure and store every verdict."""
    scenario = mvtec_scenario(arguments.data)
    options = {"provider": arguments.provider, "precision": arguments.precision, "threads": arguments.threads}
    encoder = load_encoder(layers=DEFAULT.layers, size=DEFAULT.size, **options)
    shared = SharedFeatures(encoder, DiskCache(arguments.cache, DEFAULT_LIMIT))
    document: dict[str, Any] = {"images": [], "before": [], "conditions": [], "foreign": []}
    if arguments.out.exists():  # what is not asked for stays as it was measured
        stored = json.loads(arguments.out.read_text())
        kept = () if "all" in arguments.learned_from else ("before", "conditions")
        document |= {part: stored.get(part, []) for part in kept}
        for part in ("images", "foreign"):
            document[part] = [row for row in stored[part] if row["learned_from"] not in arguments.learned_from]
    rows, before, conditions, foreign = document.values()
    pictures = junk(JUNK)

    def keep() -> None:
        write_atomic(arguments.out, (json.dumps({"info": info} | document) + "\n").encode())

    info: dict[str, Any] = {}
    for name in (each for each in ORDER if each in arguments.learned_from):
        # The first draw is the last: it is asked more below.
        for draw in reversed(range(DRAWS[name])):
            row = {"learned_from": name, "draw": draw}
            if arguments.before and name == "all":
                before += judged(taught(scenario, shared, COUNTS[name], draw, EARLIER), scenario, row)
            detector = taught(scenario, shared, COUNTS[name], draw)
            rows += judged(detector, scenario, row)
            info = detector.info()
            keep()
        verdicts = [each.verdict for each in inspected(detector, pictures)]
        foreign.append({"learned_from": name, "shown": "pictures without a product", "verdicts": verdicts})
        if name == "all":
            conditions += moved_and_lit(detector, scenario)
            foreign += forgotten(detector, scenario)
    order = list(COUNTS)
    rows.sort(key=lambda row: (order.index(row["learned_from"]), row["draw"]))  # stable: products stay in order
    foreign.sort(key=lambda row: order.index(row["learned_from"]))
    keep()
    arguments.only = None
    table(arguments)


def moved_and_lit(detector: Dinosaur, scenario: Scenario) -> list[dict[str, Any]]:
    """What is said of good parts under each condition."""
    rows = []
    for task in scenario.tasks:
        good = [sample.image() for sample in task.test if not sample.label][:PARTS]
        for name, change in CONDITIONS.items():
            results = inspected(detector, [change(pixels) for pixels in good])
            rows.append({"condition": name, "task": task.name, "verdicts": [each.verdict for each in results]})
    return rows


def forgotten(detector: Dinosaur, scenario: Scenario) -> list[dict[str, Any]]:
    """What is said of each product's test images while it is forgotten."""
    rows = []
    for task in scenario.tasks:
        detector.forget(task.name)
        verdicts = [each.verdict for each in inspected(detector, [sample.image() for sample in task.test])]
        rows.append({"learned_from": "all", "shown": task.name, "verdicts": verdicts})
        detector.undo(task.name)
    return rows


def table(arguments: argparse.Namespace) -> None:
    """Print the stored result as Markdown."""
    document = json.loads(arguments.out.read_text())
    parts = {
        "images": _images_table,
        "products": _products_table,
        "ready": _ready_table,
        "before": _before_table,
        "conditions": _conditions_table,
        "foreign": _foreign_table,
    }
    texts = [make(document) for name, make in parts.items() if arguments.only in (None, name)]
    print("\n\n".join(texts))


def _images_table(document: dict[str, Any]) -> str:
    heads = "| learned from | good parts flagged | defects missed | called unknown | cannot be judged yet |"
    lines = [heads, "|---|--:|--:|--:|--:|"]
    for name in _measured(document):
        rows = [row for row in document["images"] if row["learned_from"] == name]
        counts = sorted(row["train"] for row in rows)
        what = f"all ({counts[0]} to {counts[-1]})" if name == "all" else _heading(name)
        lines.append(f"| {what} | {' | '.join(_figures(rows))} |")
    return "\n".join(lines)


def _products_table(document: dict[str, Any]) -> str:
    names = _measured(document)
    heads = [_heading(name) for name in names]
    lines = [f"| flagged, missed | {' | '.join(heads)} | right product named |", f"|---|{'--:|' * (len(heads) + 1)}"]
    for task in dict.fromkeys(row["task"] for row in document["images"]):
        rows = [row for row in document["images"] if row["task"] == task]
        cells = [_figures([row for row in rows if row["learned_from"] == name]) for name in names]
        routes = [route == task for row in rows for route in row["routes"]]
        lines.append(
            f"| {task} | {' | '.join(f'{flagged}, {missed}' for flagged, missed, *_ in cells)} | {_percent(routes)} |"
        )
    return "\n".join(lines)


def _ready_table(document: dict[str, Any]) -> str:
    """In how many of the draws a product was judged."""
    rows, names = document["images"], _measured(document)
    lines = [f"| judged | {' | '.join(_heading(name) for name in names)} |", f"|---|{'--:|' * len(names)}"]
    for task in dict.fromkeys(row["task"] for row in rows):
        cells = []
        for name in names:
            own = [row for row in rows if (row["task"], row["learned_from"]) == (task, name)]
            judged = [2 * row["verdicts"].count("not ready") < len(row["verdicts"]) for row in own]
            cells.append(f"{sum(judged)} of {len(own)}")
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _before_table(document: dict[str, Any]) -> str:
    """All images, with the thresholds of the earlier version and with today's."""
    now = [row for row in document["images"] if row["learned_from"] == "all"]
    lines = [
        "| all images | good parts flagged before | now | defects missed before | now |",
        "|---|--:|--:|--:|--:|",
    ]
    for task in (*dict.fromkeys(row["task"] for row in now), None):
        both = [[row for row in rows if task in (None, row["task"])] for rows in (document["before"], now)]
        (flagged, missed, *_), (flagged_now, missed_now, *_) = map(_figures, both)
        lines.append(f"| {task or 'all five'} | {flagged} | {flagged_now} | {missed} | {missed_now} |")
    return "\n".join(lines)


def _measured(document: dict[str, Any]) -> list[str]:
    """How many images were learned, of what was measured."""
    measured = {row["learned_from"] for row in document["images"]}
    return [name for name in COUNTS if name in measured]


def _heading(name: str) -> str:
    return "all images" if name == "all" else f"{name} images"


def _figures(rows: list[dict[str, Any]]) -> tuple[str, str, str, str]:
    """Good parts flagged and defects missed, of those that were judged, and the shares that were not.

    A good part that is called unknown is flagged; a defect that is called unknown is not missed.
    """
    pairs = [pair for row in rows for pair in zip(row["labels"], row["verdicts"], strict=True)]
    judged = [(label, verdict) for label, verdict in pairs if verdict != "not ready"]
    flagged = [verdict != "normal" for label, verdict in judged if not label]
    missed = [verdict == "normal" for label, verdict in judged if label]
    shares = [_percent([verdict == wanted for _, verdict in pairs]) for wanted in ("unknown", "not ready")]
    return _percent(flagged), _percent(missed), shares[0], shares[1]


def _foreign_table(document: dict[str, Any]) -> str:
    lines = [
        "| learned from | shown | unknown | anomalous | not ready | normal |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in document["foreign"]:
        counts = [row["verdicts"].count(verdict) for verdict in ("unknown", "anomalous", "not ready", "normal")]
        lines.append(f"| {_heading(row['learned_from'])} | {row['shown']} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def _conditions_table(document: dict[str, Any]) -> str:
    lines = ["| good parts, learned from all images | flagged |", "|---|--:|"]
    measured = {row["condition"] for row in document["conditions"]}
    for name in (each for each in CONDITIONS if each in measured):
        verdicts = [each for row in document["conditions"] if row["condition"] == name for each in row["verdicts"]]
        lines.append(f"| {name} | {sum(each != 'normal' for each in verdicts)} of {len(verdicts)} |")
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
    runner.add_argument("--cache", type=Path, default=Path("runs/daily-use-cache"), help="where features are kept")
    runner.add_argument("--provider", help="what the encoder runs on (default: onnx-cpu)")
    runner.add_argument("--precision", help="of the encoder (default: float32)")
    runner.add_argument("--learned-from", nargs="+", choices=ORDER, default=ORDER, help="only these are measured anew")
    runner.add_argument("--threads", type=int, help="of the encoder (default: one a core)")
    runner.add_argument("--before", action="store_true", help="all images with the earlier thresholds too")
    printer = verbs.add_parser("table")
    printer.set_defaults(verb=table)
    printer.add_argument("out", type=Path)
    printer.add_argument("--only", choices=("images", "products", "ready", "before", "conditions", "foreign"))
    arguments = parser.parse_args()
    arguments.verb(arguments)


if __name__ == "__main__":
    main()
