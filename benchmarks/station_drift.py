"""After how many parts a station notices that the light of a line changed, and how often it warns without a reason.

A product is learned from 100 magnetic tiles as they are (level 1 of the paper's colour drift). Then other normal tiles
come: as they are, and after that at a stronger level, at once or rising slowly. Every picture is inspected once and
its numbers are stored; the streams are drawn from these, many times, in random order.

    python -m benchmarks.station_drift run --data DIR/mtd --out results/station_drift.json
    python -m benchmarks.station_drift replay results/station_drift.json
    python -m benchmarks.station_drift table results/station_drift.json

``replay`` draws the streams again from the stored numbers, without pictures. On two cores ``run`` takes ten minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dinosaur_ad import Dinosaur
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bank.bank_files import read_bank
from dinosaur_ad.core.exposure import measure_exposure
from dinosaur_ad.datasets import Sample
from dinosaur_ad.datasets.mtd import mtd_scenario
from dinosaur_ad.station.product_watch import ProductWatch, Sighting

LEARNED, CALM, CHANGED, DEFECTS, AGAIN = 100, 250, 150, 60, 150
"""Tiles to learn from; normal ones as they are; of each stronger level; defects; to recalibrate with."""
STRONGER = (5, 8, 10)
LEVELS = 10
BEFORE = 150
"""Parts of a stream before the change."""
STREAMS = 40
"""Streams that are drawn for each figure."""
FALSE_WARNINGS = 1e-4
"""One in 10,000 parts."""
LONG = 10_000


def measured(detector: Dinosaur, samples: Iterable[Sample], level: int) -> list[dict[str, Any]]:
    """The numbers of a row of pictures."""
    rows = []
    for sample in samples:
        pixels = sample.image()
        found = detector.inspect(pixels)
        rows.append(
            {
                "name": sample.name,
                "level": level,
                "score": round(found.score, 5),
                "median": round(found.level, 6),
                "verdict": found.verdict,
                "contrast": round(float(measure_exposure(pixels[None])[0, 1]), 3),
                "gain": found.gain,
            }
        )
    print(f"level {level}: {len(rows)} pictures inspected", file=sys.stderr, flush=True)
    return rows


def run(arguments: argparse.Namespace) -> None:
    """Inspect all pictures, store their numbers, replay the streams."""
    scenario = mtd_scenario(arguments.data, "color")
    by_level = [task.test for task in scenario.tasks]
    random = np.random.default_rng(0)
    train = random.permutation(len(scenario.tasks[0].train)).tolist()
    normal = random.permutation([n for n, each in enumerate(by_level[0]) if not each.label]).tolist()
    defects = random.permutation([n for n, each in enumerate(by_level[0]) if each.label]).tolist()
    detector = Dinosaur(preset=arguments.preset)
    detector.learn("tile", [scenario.tasks[0].train[n].image() for n in train[:LEARNED]])
    arrays = read_bank(detector.store, detector.store.record("tile"))[0]
    calm, rest = normal[:CALM], normal[CALM:]
    slow = rest[CHANGED:]
    rising = [1 + position * LEVELS // len(slow) for position in range(len(slow))]
    document: dict[str, Any] = {
        "info": detector.info(),
        "learned": LEARNED,
        "calibration": {name: arrays[name].tolist() for name in ("scores", "levels")},
        "calm": measured(detector, [by_level[0][n] for n in calm], 1),
        "defects": measured(detector, [by_level[0][n] for n in defects[:DEFECTS]], 1),
        "rising": [
            row
            for level in range(1, LEVELS + 1)
            for row in measured(
                detector, [by_level[level - 1][n] for n, at in zip(slow, rising, strict=True) if at == level], level
            )
        ],
        "changed": {},
        "recalibrated": {},
    }
    for level in STRONGER:
        after = [by_level[level - 1][n] for n in rest[:CHANGED]]
        document["changed"][str(level)] = measured(detector, after, level)
    for level in STRONGER:
        again = [scenario.tasks[level - 1].train[n].image() for n in train[LEARNED : LEARNED + AGAIN]]
        detector.recalibrate("tile", again)
        # With one reading the scores stay, and the threshold alone changes.
        after = document["changed"][str(level)]
        if len(detector.preset.readings) > 1:
            after = measured(detector, [by_level[level - 1][n] for n in rest[:CHANGED]], level)
        threshold = detector.threshold("tile")
        alarms = sum(row["score"] > threshold or row["verdict"] == "unknown" for row in after)
        document["recalibrated"][str(level)] = {"with": AGAIN, "alarms": alarms, "parts": len(after)}
        detector.undo("tile")
    write_atomic(arguments.out, (json.dumps(document) + "\n").encode())
    replay(arguments)


def seen(row: dict[str, Any]) -> Sighting:
    """The numbers of a picture as the watch takes them."""
    light = -math.log(row["gain"]) if row["gain"] is not None else math.log(row["contrast"])
    return Sighting(row["name"], row["score"], row["median"], light, row["verdict"])


def warned_at(watch: ProductWatch, rows: Iterable[Sighting]) -> int | None:
    """The number of the part, from 1, with which a stream reaches the limit."""
    for number, each in enumerate(rows, start=1):
        watch.take(each)
        if watch.log_evidence >= -math.log(FALSE_WARNINGS):
            return number
    return None


def replay(arguments: argparse.Namespace) -> None:
    """Draw the streams from the stored numbers, and store when they are noticed."""
    document = json.loads(arguments.out.read_text())
    scores, levels = (np.asarray(document["calibration"][name]) for name in ("scores", "levels"))
    calm = [seen(row) for row in document["calm"]]
    defects = [seen(row) for row in document["defects"]]
    random = np.random.default_rng(1)

    def drawn(rows: Sequence[Sighting], count: int | None = None) -> list[Sighting]:
        return [rows[n] for n in random.permutation(len(rows))[:count]]

    def watch() -> ProductWatch:
        return ProductWatch(scores, levels)

    noticed: dict[str, list[int | None]] = {}
    streams = {f"level {level}": [seen(row) for row in rows] for level, rows in document["changed"].items()}
    for name, after in streams.items():
        noticed[name] = [_after_calm(watch(), drawn(calm, BEFORE), drawn(after)) for _ in range(STREAMS)]
        mixed = [*after, *defects[: len(after) // 4]]
        noticed[f"{name}, a fifth defects"] = [
            _after_calm(watch(), drawn(calm, BEFORE), drawn(mixed)) for _ in range(STREAMS)
        ]
    rising = [seen(row) for row in document["rising"]]
    noticed["rising from 1 to 10"] = [_after_calm(watch(), drawn(calm, BEFORE), rising) for _ in range(STREAMS)]
    document["noticed"] = noticed
    document["false"] = {
        "as learned, in 40 random orders": _false(watch() for _ in range(STREAMS))(lambda: drawn(calm)),
        "as learned, a fifth defects, in 40 random orders": _false(watch() for _ in range(STREAMS))(
            lambda: drawn([*calm, *defects])
        ),
        "calibrated with 100 others of them, 400 draws": _exchangeable(calm, random),
        "10,000 parts drawn again and again, 5 streams": _false(watch() for _ in range(5))(
            lambda: [calm[n] for n in random.integers(0, len(calm), LONG)]
        ),
    }
    write_atomic(arguments.out, (json.dumps(document) + "\n").encode())
    table(arguments)


def _after_calm(watch: ProductWatch, before: Sequence[Sighting], after: Sequence[Sighting]) -> int | None:
    """After how many parts of a change it is noticed; 0 if there was a warning before it."""
    return 0 if warned_at(watch, before) else warned_at(watch, after)


def _false(watches: Iterable[ProductWatch]) -> Callable[[Callable[[], Sequence[Sighting]]], dict[str, int]]:
    """Count warnings and parts of streams without a change; a watch begins anew after a warning."""

    def count(stream: Callable[[], Sequence[Sighting]]) -> dict[str, int]:
        warnings = parts = 0
        for watch in watches:
            rows = stream()
            at = warned_at(watch, rows)
            warnings += at is not None
            parts += at or len(rows)
        return {"warnings": warnings, "parts": parts}

    return count


def _exchangeable(calm: Sequence[Sighting], random: np.random.Generator) -> dict[str, int]:
    """The bound itself: calibration and parts are drawn from the same tiles."""
    warnings = parts = 0
    for _ in range(400):
        order = [calm[n] for n in random.permutation(len(calm))]
        usual, rows = order[:LEARNED], order[LEARNED:]
        watch = ProductWatch(np.asarray([each.score for each in usual]), np.asarray([each.level for each in usual]))
        at = warned_at(watch, rows)
        warnings += at is not None
        parts += at or len(rows)
    return {"warnings": warnings, "parts": parts}


def table(arguments: argparse.Namespace) -> None:
    """Print the stored result as Markdown."""
    document = json.loads(arguments.out.read_text())
    parts = {"noticed": _noticed_table, "false": _false_table, "recalibrated": _recalibrated_table}
    only = getattr(arguments, "only", None)
    print("\n\n".join(make(document) for name, make in parts.items() if only in (None, name)))


def _noticed_table(document: dict[str, Any]) -> str:
    lines = [
        "| the stream changes to | noticed after (median) | 9 of 10 within | within 50 parts | not noticed |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, delays in document["noticed"].items():
        found = np.asarray([math.inf if each is None else each for each in delays])
        soon, none = f"{(found <= 50).mean():.0%}", f"{np.isinf(found).mean():.0%}"
        middle, most = (_number(float(np.quantile(found, q, method="higher"))) for q in (0.5, 0.9))
        lines.append(f"| {name} | {middle} | {most} | {soon} | {none} |")
    return "\n".join(lines)


def _false_table(document: dict[str, Any]) -> str:
    lines = ["| parts without a change | warnings | parts |", "|---|--:|--:|"]
    for name, row in document["false"].items():
        lines.append(f"| {name} | {row['warnings']} | {row['parts']:,} |")
    return "\n".join(lines)


def _recalibrated_table(document: dict[str, Any]) -> str:
    lines = [
        "| colour drift | good parts flagged before | after recalibrating | of parts |",
        "|---|--:|--:|--:|",
        f"| level 1, as learned | {_alarms(document['calm'])} | – | {len(document['calm'])} |",
    ]
    for level, row in document["recalibrated"].items():
        share = f"{100 * row['alarms'] / row['parts']:.1f} %"
        lines.append(f"| level {level} | {_alarms(document['changed'][level])} | {share} | {row['parts']} |")
    return "\n".join(lines)


def _alarms(rows: list[dict[str, Any]]) -> str:
    return f"{100 * float(np.mean([row['verdict'] != 'normal' for row in rows])):.1f} %"


def _number(value: float) -> str:
    return "–" if math.isinf(value) else f"{value:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runner = verbs.add_parser("run")
    runner.set_defaults(verb=run)
    runner.add_argument("--data", type=Path, required=True, help="the folder of Magnetic Tile Defects")
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--preset", default="fast")
    for name, verb in (("replay", replay), ("table", table)):
        reader = verbs.add_parser(name)
        reader.set_defaults(verb=verb)
        reader.add_argument("out", type=Path)
        reader.add_argument("--only", choices=("noticed", "false", "recalibrated"))
    arguments = parser.parse_args()
    arguments.verb(arguments)


if __name__ == "__main__":
    main()
