"""The search that DINOSaur's settings had, for PatchCore: 360 combinations on the same nine sets.

    python -m benchmarks.patchcore_tuned run --data DIR --weights FILE --out results/patchcore_tuned.json
    python -m benchmarks.patchcore_tuned table results/patchcore_tuned.json

Nine sets: five products of MVTec-AD, one of MVTec-LOCO, one level of each drift of magnetic tiles (one product). Each
is learned alone. For every product the settings are chosen on the others, by the mean image AUROC over products; means
that agree to three decimals are a tie, which the smaller memory wins. The picks of a greedy coreset come in an order,
so that one coreset gives the memories of all shares.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bench.cache import DiskCache
from dinosaur_ad.bench.environment import environment
from dinosaur_ad.bench.lessons import lesson, photo
from dinosaur_ad.bench.metrics import ranked_auroc
from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.bench.tune import draw_task
from dinosaur_ad.core.coreset import coreset_size, greedy_coreset
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.methods import Photo, Workbench, get_method
from dinosaur_ad.methods.patchcore import PatchCoreConfig
from dinosaur_ad.methods.patchcore.patch_features import PatchFeatures
from dinosaur_ad.methods.shared.flat_memory import FlatMemory, build_memory

SETS = {
    "mvtec-ad": ("bottle", "cable", "grid", "screw", "transistor"),
    "mvtec-loco": ("juice_bottle",),
    "mtd-color": ("mtd-color-05",),
    "mtd-geo": ("mtd-geo-05",),
    "mtd-blur": ("mtd-blur-05",),
}
LEARNED, TESTED = 20, 40
BATCH = 16
# What the paper's form has, and around it.
NETWORKS = (("resnet50-v1", 224, (5, 8)), ("dinov2s-focus", 224, (5, 8)))
AVERAGES = (1, 3, 5)
RATIOS = (0.01, 0.02, 0.03, 0.05, 0.1)
NEIGHBOURS = (1, 3, 5, 9)
SHARES = (0.0, 0.01, 0.03)
START = ("patchcore:resnet50-v1", "patchcore:vit")
"""What PatchCore's rows were measured with until now."""


@dataclass(frozen=True, order=True)
class Choice:
    """One combination; with one neighbour nothing is re-weighted. Smaller is cheaper."""

    size: int
    ratio: float
    average: int
    neighbours: int
    image_share: float
    backbone: str
    layers: tuple[int, ...]

    def config(self, weights: str = "") -> PatchCoreConfig:
        """The settings of the method."""
        settings = asdict(self) | {"weights": weights if self.backbone == "resnet50-v1" else ""}
        return PatchCoreConfig(**settings, reweight=self.neighbours > 1, coreset_dim=128)


@dataclass(frozen=True)
class Set:
    """What is learned and tested together, and of which product."""

    name: str
    product: str
    scenario: Scenario

    @property
    def task(self) -> Task:
        """Its one task."""
        return self.scenario.tasks[0]


class KeptMaps:
    """The maps of all batches of one network, so that it runs once for all averages."""

    def __init__(self, features: PatchFeatures, photos: Sequence[Photo], cache: DiskCache, size: int) -> None:
        self._real, self.channels = features.maps, features.maps.channels
        self._kept = [self._real(cache.prepared(group, size)) for group in _groups(photos)]

    def points(self, features: PatchFeatures) -> torch.Tensor:
        """The features (images, places, dim) of all images."""
        waiting = iter(self._kept)
        features.maps = _Replay(waiting, self.channels)  # type: ignore[assignment]
        made = [features(np.empty(0, np.uint8)) for _ in self._kept]
        images = sum(len(maps[0]) for maps in self._kept)
        return torch.cat(made).reshape(images, -1, made[0].shape[1])


class _Replay:
    def __init__(self, waiting: Iterator[Any], channels: int) -> None:
        self._waiting, self.channels = waiting, channels

    def __call__(self, pixels: object) -> Any:
        return next(self._waiting)


def _groups(photos: Sequence[Photo]) -> list[Sequence[Photo]]:
    return [photos[start : start + BATCH] for start in range(0, len(photos), BATCH)]


def sets_of(data: Path, seed: int) -> list[Set]:
    """The nine sets, drawn to few images."""
    found = []
    for name, wanted in SETS.items():
        scenario = open_scenario(name, data, seed)
        for task in scenario.tasks:
            if task.name in wanted:
                drawn = replace(
                    draw_task(task, TESTED, seed), train=draw_task(replace(task, test=()), LEARNED, seed).train
                )
                one = replace(scenario, tasks=(drawn,))
                found.append(Set(f"{name}/{task.name}", task.product or task.name, one))
    return found


def measure_set(where: Set, options: argparse.Namespace, cache: DiskCache) -> dict[Choice, float]:
    """The image AUROC of every combination on one set."""
    photos = [*lesson(where.scenario, 0).train, *(photo(sample) for sample in where.task.test)]
    labels, learned = [sample.label for sample in where.task.test], len(where.task.train)
    found: dict[Choice, float] = {}
    for backbone, size, layers in NETWORKS:
        first = Choice(size, max(RATIOS), 1, 1, 0.0, backbone, layers)
        bench = Workbench(options.seed, "cpu", cache)
        kept = KeptMaps(PatchFeatures(first.config(options.weights), bench), photos, cache, size)
        for average in AVERAGES:
            config = replace(first, average=average).config(options.weights)
            features = PatchFeatures(config, bench)
            points_NPC = kept.points(features)
            own_PC = points_NPC[:learned].flatten(0, 1)
            most = coreset_size(len(own_PC), max(RATIOS), config.minimum)
            start = int(np.random.default_rng([options.seed, 0]).integers(len(own_PC)))
            picks_M = greedy_coreset(features.for_coreset(own_PC)[None], most, first=start)[0]
            tests_PC, images = points_NPC[learned:].flatten(0, 1), len(labels)
            for ratio in RATIOS:
                bank = own_PC[picks_M[: coreset_size(len(own_PC), ratio, config.minimum)]]
                raw_NP, around_NPB = _distances(build_memory(bank, max(NEIGHBOURS)), tests_PC, images)
                for neighbours, share in product(NEIGHBOURS, SHARES):
                    scores = _image_scores(raw_NP, around_NPB[:, :, :neighbours], share)
                    choice = Choice(size, ratio, average, neighbours, share, backbone, layers)
                    found[choice] = ranked_auroc(scores.numpy(), labels).auroc
    return found


def _distances(memory: FlatMemory, points_PC: torch.Tensor, images: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each patch, the distance (N, P) to its nearest vector, and those (N, P, B) to that vector's neighbours."""
    raw, around = [], []
    norms_M = (memory.bank_MC**2).sum(1)
    for block_PC in points_PC.split(2048):
        nearest_P = torch.addmm(norms_M, block_PC, memory.bank_MC.T, alpha=-2).argmin(1)
        around_PBC = memory.bank_MC[memory.neighbours_MB[nearest_P]]
        raw.append(torch.linalg.vector_norm(block_PC - memory.bank_MC[nearest_P], dim=1))
        around.append(torch.linalg.vector_norm(block_PC[:, None] - around_PBC, dim=2))
    return torch.cat(raw).reshape(images, -1), torch.cat(around).reshape(images, -1, around[0].shape[1])


def _image_scores(raw_NP: torch.Tensor, around_NPB: torch.Tensor, share: float) -> torch.Tensor:
    """As the method scores: re-weighted by the neighbours, and the largest patch or the mean of the largest ones."""
    weighted_NP = raw_NP
    if around_NPB.shape[2] > 1:
        weighted_NP = -torch.expm1((raw_NP - torch.logsumexp(around_NPB, dim=2)).clamp(max=0)) * raw_NP
    if share:
        return weighted_NP.topk(max(1, round(share * weighted_NP.shape[1]))).values.mean(1)
    return weighted_NP.gather(1, raw_NP.argmax(1, keepdim=True))[:, 0]


def by_product(result: dict[str, Any]) -> dict[Choice, dict[str, float]]:
    """The AUROC of each combination on each product, the mean over the product's sets."""
    products, table = result["products"], {}
    for entry in result["measured"]:
        choice = Choice(**entry["settings"] | {"layers": tuple(entry["settings"]["layers"])})
        found: dict[str, list[float]] = defaultdict(list)
        for name, value in entry["auroc"].items():
            found[products[name]].append(value)
        table[choice] = {name: float(np.mean(values)) for name, values in found.items()}
    return table


def best_of(table: dict[Choice, dict[str, float]], products: Sequence[str]) -> Choice:
    """The combination with the highest mean over these products; the cheapest of equals to three decimals.

    >>> one, two = (Choice(224, ratio, 3, 3, 0.0, "vit", (5, 8)) for ratio in (0.1, 0.05))
    >>> best_of({one: {"a": 0.9001}, two: {"a": 0.9002}}, ["a"]) is two
    True
    """
    return min(table, key=lambda each: (-round(float(np.mean([table[each][name] for name in products])), 3), each))


def chosen_without(table: dict[Choice, dict[str, float]]) -> dict[str, Choice]:
    """By product, the combination chosen on all others."""
    products = list(next(iter(table.values())))
    return {left: best_of(table, [name for name in products if name != left]) for left in products}


def start_of(table: dict[Choice, dict[str, float]], name: str) -> Choice:
    """The combination with the settings of a variant that was measured before."""
    config = get_method(name).config
    assert isinstance(config, PatchCoreConfig)
    names = ("size", "ratio", "average", "neighbours", "image_share", "backbone")
    wanted = [getattr(config, each) for each in names]
    return next(
        each for each in table if [getattr(each, name) for name in names] == wanted and each.layers == config.layers
    )


def words(choice: Choice) -> str:
    """A combination in words.

    >>> words(Choice(224, 0.05, 3, 3, 0.0, "resnet50-v1", (5, 8)))
    'resnet50-v1, 224 px, average 3, 5 %, 3 neighbours, largest patch'
    """
    layers = "" if choice.backbone.startswith("resnet") else f" blocks {'+'.join(map(str, choice.layers))}"
    share = f"mean of the top {choice.image_share:.0%}".replace("%", " %") if choice.image_share else "largest patch"
    ratio = f"{choice.ratio * 100:g} %"
    near = f"{choice.neighbours} neighbours" if choice.neighbours > 1 else "not re-weighted"
    return f"{choice.backbone}{layers}, {choice.size} px, average {choice.average}, {ratio}, {near}, {share}"


def table_lines(result: dict[str, Any]) -> list[str]:
    """A row a product: what was chosen without it, and what that reaches on it."""
    table = by_product(result)
    left_out, starts = chosen_without(table), [start_of(table, name) for name in START]
    overall, starts_named = best_of(table, list(left_out)), " | ".join(f"`{name}`" for name in START)
    lines = [
        f"| product | chosen on the other products | on it | {starts_named} | best on it |",
        f"|---|---|--:|{'--:|' * len(START)}--:|",
    ]
    rows = []
    for name, choice in left_out.items():
        best = max(each[name] for each in table.values())
        rows.append([table[choice][name], *(table[each][name] for each in starts), best])
        lines.append(f"| {name} | {words(choice)} | " + " | ".join(f"{value:.3f}" for value in rows[-1]) + " |")
    means = np.mean(np.asarray(rows), axis=0)
    lines.append("| mean | | " + " | ".join(f"{value:.3f}" for value in means) + " |")
    on_all = float(np.mean(list(table[overall].values())))
    return [
        *lines,
        "",
        f"{len(table)} combinations on {len(result['products'])} sets, {LEARNED} images learned and at most {TESTED} "
        f"tested, each set alone, seed {result['seed']}. Chosen on all products: {words(overall)} (mean {on_all:.3f}).",
    ]


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all combinations on all sets; a set that the file has is not measured again."""
    cache = DiskCache(options.cache, 40 * 10**9)
    found: dict[Choice, dict[str, float]] = defaultdict(dict)
    result: dict[str, Any] = {}
    sets, done = sets_of(options.data, options.seed), set()
    if options.out.exists():
        result = json.loads(options.out.read_text())
        for entry in result["measured"]:
            choice = Choice(**entry["settings"] | {"layers": tuple(entry["settings"]["layers"])})
            found[choice] = entry["auroc"]
            done |= entry["auroc"].keys()
    for where in sets:
        if where.name in done:
            continue
        began = time.monotonic()
        for choice, value in measure_set(where, options, cache).items():
            found[choice][where.name] = round(value, 5)
        done.add(where.name)
        result = {
            "products": {each.name: each.product for each in sets if each.name in done},
            "seed": options.seed,
            "environment": environment("cpu"),
            "measured": [{"settings": asdict(choice), "auroc": values} for choice, values in sorted(found.items())],
        }
        rows = ",\n".join(json.dumps(entry) for entry in result["measured"])
        head = json.dumps({key: value for key, value in result.items() if key != "measured"}, indent=1)
        write_atomic(options.out, f'{head[:-2]},\n "measured": [\n{rows}\n]}}\n'.encode())
        print(f"{where.name}: {time.monotonic() - began:.0f} s", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    make = verbs.add_parser("run")
    make.add_argument("--data", type=Path, required=True)
    make.add_argument("--weights", default="", help="the file of resnet50-v1")
    make.add_argument("--out", type=Path, required=True)
    make.add_argument("--cache", type=Path, required=True)
    make.add_argument("--seed", type=int, default=0)
    verbs.add_parser("table").add_argument("result", type=Path)
    options = parser.parse_args()
    if options.verb == "run":
        with torch.inference_mode():
            result = run(options)
    else:
        result = json.loads(options.result.read_text())
    print("\n".join(table_lines(result)))


if __name__ == "__main__":
    main()
