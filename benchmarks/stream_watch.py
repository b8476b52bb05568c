"""What a watch finds in a stream that is not cut into products, against a detector that is told the products.

Training normals of all categories of an MVTec-AD folder come in segments, shuffled, each product twice, with a share
of defects among them. Nothing is told (``dinosaur watch --adopt auto``). Then test images that were not in the stream
are inspected, by the detector that watched and by one that was told which normal pictures of the stream belong to
which product.

    python -m benchmarks.stream_watch run --data DIR/mvtec_ad --out results/stream_watch.json
    python -m benchmarks.stream_watch table results/stream_watch.json
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from dinosaur_ad import Dinosaur
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.core.metrics import auroc

TEST_IMAGES = 20
"""Good and bad test images of each product, at the most."""


def files_of(category: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Training normals, good and bad test images."""
    bad = [path for path in sorted((category / "test").glob("*/*.*")) if path.parent.name != "good"]
    return sorted((category / "train" / "good").glob("*.*")), sorted((category / "test" / "good").glob("*.*")), bad


def make_stream(data: Path, segment: int, defects: float, seed: int) -> tuple[list[tuple[Path, str, bool]], set[Path]]:
    """Pictures in order, each with its product and whether it is a defect; and the defects that are used up."""
    random = np.random.default_rng(seed)
    segments: list[list[tuple[Path, str, bool]]] = []
    used: set[Path] = set()
    categories = sorted(path for path in data.iterdir() if path.is_dir())
    for turn in range(2):
        for index in random.permutation(len(categories)).tolist():
            category = categories[index]
            normals, _, bad = files_of(category)
            order = np.random.default_rng(seed + index).permutation(len(normals))
            pictures = [(normals[n], category.name, False) for n in order[turn * segment : (turn + 1) * segment]]
            for n in random.permutation(len(bad))[: round(defects * segment)].tolist():
                pictures.insert(int(random.integers(len(pictures))), (bad[n], category.name, True))
                used.add(bad[n])
            segments.append(pictures)
    return [picture for pictures in segments for picture in pictures], used


def measure(data: Path, segment: int, defects: float, seed: int) -> dict[str, Any]:
    """Watch the stream, then inspect test images."""
    stream, used = make_stream(data, segment, defects, seed)
    product_of = {str(path): product for path, product, _ in stream}
    products = sorted(set(product_of.values()))
    folder = Path(tempfile.mkdtemp())
    watcher = Dinosaur(folder / "store", preset="fast", seed=seed)
    seen: Counter[str] = Counter()
    noticed: dict[str, int] = {}
    proposals: list[dict[str, Any]] = []
    kinds: Counter[str] = Counter()
    alarms = judged = mistaken = 0
    defect_of = {str(path): defect for path, _, defect in stream}
    task_of: dict[str, str] = {}
    for event in watcher.watch([path for path, _, _ in stream], adopt="auto"):
        kinds[event.kind] += 1
        if event.kind in ("inspected", "unknown", "left out") and event.path:
            product = product_of[event.path]
            seen[product] += 1
            if event.inspection:
                judged += not defect_of[event.path]
                alarms += not defect_of[event.path] and event.inspection.verdict == "anomalous"
                mistaken += task_of.get(event.task) != product
        elif event.kind == "proposed":
            counts = Counter(product_of[path] for path in event.pictures)
            product, most = counts.most_common(1)[0]
            learned_defects = sum(defect_of[path] for path in event.pictures)
            proposals.append(
                {
                    "product": product,
                    "pictures": len(event.pictures),
                    "purity": most / len(event.pictures),
                    "suspects": len(event.suspects),
                    "defects": learned_defects,
                }
            )
            noticed.setdefault(product, seen[product])
        elif event.kind == "adopted":
            task_of[event.task] = Counter(product_of[path] for path in event.pictures).most_common(1)[0][0]
        if event.kind in ("proposed", "adopted", "updated", "refused"):
            print(event.kind, event.task, event.reason, flush=True)
    told = Dinosaur(preset="fast", seed=seed, encoder=watcher.encoder)
    for product in products:
        told.learn(product, [path for path, own, defect in stream if own == product and not defect], force=True)
    results = {}
    for product in products:
        _, good, bad = files_of(data / product)
        bad = [path for path in bad if path not in used]
        good, bad = good[:TEST_IMAGES], bad[:: max(1, len(bad) // TEST_IMAGES)][:TEST_IMAGES]
        row: dict[str, Any] = {"noticed": noticed.get(product), "pictures": seen[product]}
        row["proposals"] = sum(each["product"] == product for each in proposals)
        for name, detector in (("watch", watcher), ("told", told)):
            found = detector.inspect([*good, *bad])
            score_N = np.asarray([each.score / each.threshold for each in found])
            label_N = np.asarray([0] * len(good) + [1] * len(bad))
            row[f"auroc_{name}"] = float(auroc(score_N, label_N))
            row[f"false_alarms_{name}"] = sum(each.verdict != "normal" for each in found[: len(good)])
            row["good"], row["bad"] = len(good), len(bad)
        results[product] = row
        print(product, row, flush=True)
    shutil.rmtree(folder)
    return {
        "segment": segment,
        "defects": defects,
        "seed": seed,
        "encoder": told.info(),
        "images": len(stream),
        "events": dict(kinds),
        "proposals": proposals,
        "stream": {"judged_normals": judged, "false_alarms": alarms, "taken_for_another_product": mistaken},
        "products": results,
    }


def table(result: dict[str, Any]) -> list[str]:
    """The result as Markdown."""
    lines = [
        "| product | pictures | noticed with its picture | proposals | AUROC, told nothing | AUROC, told | "
        "good parts flagged, told nothing | told |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    rows = result["products"]
    for product, row in rows.items():
        flagged = [f"{row[f'false_alarms_{name}']} of {row['good']}" for name in ("watch", "told")]
        lines.append(
            f"| {product} | {row['pictures']} | {row['noticed'] or 'never'} | {row['proposals']} | "
            f"{row['auroc_watch']:.3f} | {row['auroc_told']:.3f} | {' | '.join(flagged)} |"
        )
    means = [float(np.mean([row[f"auroc_{name}"] for row in rows.values()])) for name in ("watch", "told")]
    sums = [sum(row[f"false_alarms_{name}"] for row in rows.values()) for name in ("watch", "told")]
    good = sum(row["good"] for row in rows.values())
    total = sum(row["proposals"] for row in rows.values())
    flagged = [f"{count} of {good}" for count in sums]
    lines.append(f"| all | {result['images']} | | {total} | {means[0]:.3f} | {means[1]:.3f} | {' | '.join(flagged)} |")
    purity = min((each["purity"] for each in result["proposals"]), default=0.0)
    learned = sum(each["defects"] for each in result["proposals"])
    stream = result["stream"]
    share = 1 - 2 * result["segment"] * len(rows) / result["images"]
    lines += [
        "",
        f"{result['images']} pictures, {100 * share:.1f} % of them defects, in segments of {result['segment']} normal "
        f"pictures. The least pure proposal has {100 * purity:.0f} % pictures of one product; {learned} "
        f"defects were among the pictures proposed as normal. While the stream ran, {stream['false_alarms']} of "
        f"{stream['judged_normals']} good parts of adopted products were called anomalous, and "
        f"{stream['taken_for_another_product']} pictures were taken for another product.",
    ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    run = verbs.add_parser("run")
    run.add_argument("--data", type=Path, required=True)
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--segment", type=int, default=40)
    run.add_argument("--defects", type=float, default=0.05)
    run.add_argument("--seed", type=int, default=0)
    show = verbs.add_parser("table")
    show.add_argument("result", type=Path)
    options = parser.parse_args()
    if options.verb == "run":
        result = measure(options.data, options.segment, options.defects, options.seed)
        write_atomic(options.out, (json.dumps(result, indent=1) + "\n").encode())
    else:
        result = json.loads(options.result.read_text())
    print("\n".join(table(result)))


if __name__ == "__main__":
    main()
