"""How close pictures of one product lie to each other, and to those of other products: what the watch groups by.

    python -m benchmarks.grouping run --data DIR --out results/grouping.json
    python -m benchmarks.grouping table results/grouping.json

Distances are in the unit of :mod:`dinosaur_ad.core.grouping`: that of a picture to the nearest one without a product.
``DIR`` holds ``mvtec_ad``, ``mvtec_loco`` and ``mtd``. The limit is chosen on the drawn products, the bottles of MVTec
LOCO and the tiles; the products of MVTec AD, on which the watch is measured, are only shown.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bank.image_features import FeatureExtractor, control_images
from dinosaur_ad.bench.cached_encoder import CachedEncoder
from dinosaur_ad.bench.environment import environment
from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.core.grouping import LINK, reach
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.encoders import load_encoder, prepare
from dinosaur_ad.presets import preset_for
from dinosaur_ad.watch.watcher import ENOUGH

Floats = NDArray[np.float32]

WITHIN = 30
"""Pictures of a product by which it is to be noticed."""
SCENARIOS = {"synthetic": "", "mvtec-loco": "mvtec_loco", "mtd-color": "mtd", "mvtec-ad": "mvtec_ad"}
"""The scenarios, and the folder of each below the data."""
REPORTED_ONLY = "mvtec-ad"
"""The scenario that the limit is not chosen on."""


def tasks_of(scenario: Scenario) -> list[Task]:
    """Its products; of one that drifts, the first and the last level."""
    if scenario.tasks[0].product:
        return [scenario.tasks[0], scenario.tasks[-1]]
    return list(scenario.tasks)


def links(first_NC: Floats, second_MC: Floats, control_KC: Floats) -> Floats:
    """The limit at which pictures are linked, ``(N, M)``."""
    apart_NM = np.linalg.norm(first_NC[:, None, :] - second_MC[None, :, :], axis=2)
    reach_N, reach_M = reach(first_NC, control_KC), reach(second_MC, control_KC)
    found: Floats = apart_NM / np.minimum(reach_N[:, None], reach_M[None, :]) * LINK
    return found


def needed(unit_NN: Floats, enough: int = ENOUGH) -> float:
    """The smallest limit at which ``enough`` pictures are linked, directly or over others.

    >>> needed(np.float32([[0, 1, 5], [1, 0, 3], [5, 3, 0]]), 3)
    3.0
    """
    group_N = np.arange(len(unit_NN))
    first_E, second_E = np.triu_indices(len(unit_NN), 1)
    for edge in np.argsort(unit_NN[first_E, second_E], kind="stable").tolist():
        one, other = group_N[first_E[edge]], group_N[second_E[edge]]
        group_N[group_N == other] = one
        if (group_N == one).sum() >= enough:
            return float(unit_NN[first_E[edge], second_E[edge]])
    return float("inf")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The limit that each product needs, and the closest picture of another one."""
    preset = preset_for("fast", options.encoder)
    encoder = load_encoder(
        options.encoder,
        layers=preset.layers,
        size=preset.size,
        provider=options.provider,
        precision=options.precision,
        strict=True,
    )
    settings = {"encoder": encoder.info(), "preset": preset.name, "draws": options.draws, "pictures": options.pictures}
    if options.cache:
        encoder = CachedEncoder(encoder, options.cache)
    features = FeatureExtractor(preset, lambda: encoder)
    control_KC = features.encode(control_images(preset.size))[1]
    described: dict[tuple[str, str], Floats] = {}
    for scenario, folder in SCENARIOS.items():
        for task in tasks_of(open_scenario(scenario, options.data / folder if folder else None, 0)):
            chosen = np.random.default_rng(options.seed).permutation(len(task.train))[: options.pictures]
            pixels = [prepare([task.train[n].image()], preset.size) for n in chosen]
            described[scenario, task.name] = np.concatenate([features.encode(each)[1] for each in pixels])
            print(scenario, task.name, flush=True)
    rows = []
    for (scenario, name), own_NC in described.items():
        unit_NN = links(own_NC, own_NC, control_KC)
        draws = [
            np.random.default_rng([options.seed, n]).permutation(len(own_NC))[:WITHIN] for n in range(options.draws)
        ]
        limits = [needed(unit_NN[np.ix_(draw, draw)]) for draw in draws]
        others = {
            other: float(links(own_NC, other_MC, control_KC).min())
            for (where, other), other_MC in described.items()
            if (where, other) != (scenario, name) and not (where == scenario == "mtd-color")
        }
        nearest = min(others, key=lambda each: others[each])
        rows.append(
            {"scenario": scenario, "product": name, "needed": limits, "nearest": nearest, "apart": others[nearest]}
        )
    return settings | {"seed": options.seed, "rows": rows, "environment": environment("cpu")}


def table(result: dict[str, Any]) -> list[str]:
    """A row a product, and the limit in the middle of the chosen sets."""
    lines = [
        "| set | product | limit needed, median draw | every draw | nearest picture of another product |",
        "|---|---|--:|--:|---|",
    ]
    for row in result["rows"]:
        limits = row["needed"]
        lines.append(
            f"| {row['scenario']} | {row['product']} | {np.median(limits):.2f} | {max(limits):.2f} | "
            f"{row['apart']:.2f} ({row['nearest']}) |"
        )
    chosen = [row for row in result["rows"] if row["scenario"] != REPORTED_ONLY]
    most = max(max(row["needed"]) for row in chosen)
    least = min(row["apart"] for row in chosen)
    return [
        *lines,
        "",
        f"{result['draws']} draws of {WITHIN} of {result['pictures']} normal pictures of each product; each needs the "
        f"limit at which {ENOUGH} of its pictures are linked. Without `{REPORTED_ONLY}`, draws need up to {most:.2f}, "
        f"and pictures of two products begin at {least:.2f}. The limit is {LINK}.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    run = verbs.add_parser("run")
    run.add_argument("--data", type=Path, required=True)
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--cache", type=Path)
    run.add_argument("--encoder", default="dinov2s-focus")
    run.add_argument("--provider")
    run.add_argument("--precision")
    run.add_argument("--pictures", type=int, default=40)
    run.add_argument("--draws", type=int, default=20)
    run.add_argument("--seed", type=int, default=0)
    verbs.add_parser("table").add_argument("result", type=Path)
    options = parser.parse_args()
    if options.verb == "run":
        result = measure(options)
        write_atomic(options.out, f"{json.dumps(result, indent=1)}\n".encode())
    else:
        result = json.loads(options.result.read_text())
    print("\n".join(table(result)))


if __name__ == "__main__":
    main()
