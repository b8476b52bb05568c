"""What ``dinosaur bench tune`` chose for each product without it, from the file that it wrote.

dinosaur bench tune --encoder dinov2s-focus --images 40 --tasks-per-scenario 2 --data DIR --out results/tune.json
python -m benchmarks.tune_table results/tune.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from dinosaur_ad.bench.tune_search import TuneSettings


def table(document: dict[str, Any]) -> list[str]:
    """A row a product, and their mean."""
    start = TuneSettings.from_json(document["made_with"]["settings"]["start"])
    lines = [
        "| product | chosen without it | image AUROC | of the default | best by hindsight | false alarms "
        "| of the default |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    mean = document["mean"] | {"product": "mean", "settings": None}
    for row in (*document["products"], mean):
        settings = row["settings"] and TuneSettings.from_json(row["settings"])
        words = "" if settings is None else settings.differences(start) or "the default"
        chosen, usual, best = row["chosen"], row["start"], row["best"]
        lines.append(
            f"| {row['product']} | {words} | {chosen['auroc']:.3f} | {usual['auroc']:.3f} | {best['auroc']:.3f} "
            f"| {100 * chosen['false_alarms']:.1f} % | {100 * usual['false_alarms']:.1f} % |"
        )
    encoder = document["made_with"]["encoder"]
    images, measured = document["made_with"]["images"], len(document["measured"])
    chosen_on_all = TuneSettings.from_json(document["settings"]).differences(start) or "the default"
    return [
        *lines,
        "",
        f"{measured} settings, at most {images} images to learn from and as many to test on, each task alone, seed "
        f"{document['made_with']['seed']}. Chosen on all products: {chosen_on_all}. {encoder['description']}; "
        f"{encoder['provider']} {encoder['precision']}.",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    print("\n".join(table(json.loads(parser.parse_args().result.read_text()))))


if __name__ == "__main__":
    main()
