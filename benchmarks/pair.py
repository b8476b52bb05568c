"""What a second encoder brings and costs: each of two networks alone, and both as a pair, on the same images.

    python -m benchmarks.pair run --data DIR --out results/pair.json
    python -m benchmarks.pair table results/pair.json
    python -m benchmarks.pair weights results/pair.json
    python -m benchmarks.pair costs results/pair.json

``DIR`` holds ``mvtec_ad/``, ``mvtec_loco/`` and ``mtd/``. Every product is learned alone, with the settings of the
preset ``default`` and seed 0, from at most ``--normals`` images; at most ``--tests`` good and as many bad ones are
inspected, evenly spread over the files, with their product given. The pair encodes an image once and is asked four
times: for the first network's part, for the second's, for both, and for both in a bank of 16 instead of 8 MB. A set
that is in the result already is not measured again.

From the stored scores it is also computed what two banks, one for each network, would say whose scores are fused.

The length of the second network's part (its weight) is tried too, on half as many normals without moved copies; the
weight of each product is then the one that is best on the others.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

from benchmarks import machine
from dinosaur_ad import Dinosaur, load_encoder
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bench.environment import environment
from dinosaur_ad.bench.metrics import task_tally
from dinosaur_ad.core.features import combine_blocks
from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.core.readings import SPREAD
from dinosaur_ad.datasets import Sample, mtd_scenario, mvtec_scenario
from dinosaur_ad.datasets.loco import loco_scenario
from dinosaur_ad.datasets.tasks import Task
from dinosaur_ad.encoders import Encoder, Tokens
from dinosaur_ad.encoders.auto import sample_images
from dinosaur_ad.encoders.backends.onnx_backend import session_options
from dinosaur_ad.encoders.base import Floats, Reduce
from dinosaur_ad.encoders.graph.resnet_graph import add_maps
from dinosaur_ad.encoders.graph.vit_graph import IR_VERSION, OPSET, GraphBuilder
from dinosaur_ad.encoders.pair import PairSpec
from dinosaur_ad.encoders.registry import get_spec, residual_network
from dinosaur_ad.encoders.weights.local import ensure
from dinosaur_ad.export.gate_images import spread
from dinosaur_ad.presets import DEFAULT, Preset

PAIR = "dinov2s-focus+resnet50-v1"
WEIGHTS = (0.5, 0.7, 1.0, 1.4, 2.0)
NORMALS, TESTS, TURNS = 60, 40, 15
ROOMY = 16_000_000
"""A budget with room for both parts."""

Pixels = NDArray[np.uint8]


def tasks(data: Path) -> dict[str, Task]:
    """The products by name."""
    found = {task.name: task for task in mvtec_scenario(data / "mvtec_ad").tasks}
    found["juice_bottle"] = loco_scenario(data / "mvtec_loco").tasks[0]
    found["magnetic tiles"] = mtd_scenario(data / "mtd").tasks[0]
    return found


class Remembered:
    """The features of the pair by image: those of the first network and the tail, at length one."""

    def __init__(self, encoder: Encoder, preset: Preset) -> None:
        self.encoder, self._preset = encoder, preset
        assert isinstance(encoder.spec, PairSpec)
        self._weight = encoder.spec.weight
        self._known: dict[bytes, tuple[Floats, Floats]] = {}

    def of(self, pixels: Pixels) -> tuple[Floats, Floats]:
        """CLS (N, C) and patch features (N, H, W, C), the tail behind the rest; every image is encoded once."""
        keys = [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in pixels]
        new = [n for n, key in enumerate(keys) if key not in self._known]
        for n in new:
            tokens = self.encoder.encode_prepared(pixels[n : n + 1])
            self._known[keys[n]] = self._combined(tokens.cls)[0], self._combined(tokens.patches)[0]
        cls, patches = zip(*(self._known[key] for key in keys), strict=True)
        return np.stack(cls), np.stack(patches)

    def _combined(self, token_C: Floats) -> Floats:
        preset, tail = self._preset, self.encoder.tail
        combined: Floats = combine_blocks(
            token_C, len(preset.layers), normalise=preset.normalise, average=preset.average, tail=tail
        )
        combined[..., -tail:] /= self._weight
        return combined


class Part(Encoder):
    """What is left of a pair's features when its parts count ``first`` and ``second`` times; none of a part at zero.

    Its tokens are features already.
    """

    def __init__(self, known: Remembered, first: float, second: float) -> None:
        inner = known.encoder
        vars(self).update(vars(inner))
        self.backend, self.provider, self.precision = inner.backend, inner.provider, inner.precision
        self._features, self._first, self._second = known, first, second

    def _run(self, pixels: Pixels) -> tuple[Floats, Floats]:
        cls, patches = map(self._chosen, self._features.of(pixels))
        return cls, patches

    def encode_prepared(self, pixels: Pixels, reduce: Reduce | None = None) -> Tokens:
        """The features as they are: combined before they were remembered."""
        return Tokens(*self._run(pixels))

    def _chosen(self, feature_C: Floats) -> Floats:
        split = -self._features.encoder.tail
        parts = (self._first, feature_C[..., :split]), (self._second, feature_C[..., split:])
        return np.concatenate([np.float32(times) * part for times, part in parts if times], axis=-1)


# --- measuring ---


def measure_set(name: str, task: Task, normals: int, tests: int, encoder: Encoder) -> dict[str, Any]:
    """Every way on one product."""
    preset = DEFAULT
    known = Remembered(encoder, preset)
    train = [sample.image() for sample in spread(task.train, normals)]
    chosen = [each for label in (0, 1) for each in spread([s for s in task.test if s.label == label], tests)]
    images = [sample.image() for sample in chosen]
    weight = known._weight
    ways = {
        "first": (1.0, 0.0, preset),
        "second": (0.0, 1.0, preset),
        "pair": (1.0, weight, preset),
        "roomy": (1.0, weight, replace(preset, budget=ROOMY)),
    }
    found = {"normals": len(train), "tests": [sum(s.label == label for s in chosen) for label in (0, 1)]}
    rows: dict[str, Any] = {}
    for way, (first, second, own) in ways.items():
        rows[way] = measure(name, Part(known, first, second), own, train, (chosen, images))
        say(f"{name}, {way}: {rows[way]['auroc']:.3f}")
    fewer = train[::2]
    alone = replace(preset, copies=0)
    tried = {}
    for each in WEIGHTS:
        tried[str(each)] = measure(name, Part(known, 1.0, each), alone, fewer, (chosen, images))["auroc"]
        say(f"{name}, weight {each}: {tried[str(each)]:.3f}")
    return found | {"ways": rows, "weights": tried}


def measure(
    name: str, part: Encoder, preset: Preset, train: list[Any], tests: tuple[Sequence[Sample], list[Any]]
) -> dict[str, Any]:
    """Learn and inspect one product in one way."""
    samples, images = tests
    detector = Dinosaur(encoder=part, preset=preset, seed=0)
    learned = detector.learn(name, train, force=True)
    results = detector.inspect(images, task=name)
    labels = np.asarray([sample.label for sample in samples])
    flagged = np.asarray([each.verdict != "normal" for each in results])
    pixels = task_tally(np.stack([each.map for each in results]), samples)
    return {
        "auroc": round(float(auroc([each.score for each in results], labels)), 5),
        "pixel_auroc": round(float(pixels.auroc().value), 5),
        "false_alarms": round(float(flagged[labels == 0].mean()), 4),
        "recall": round(float(flagged[labels == 1].mean()), 4),
        "bank_bytes": learned.bytes,
        "score_ms": round(float(np.median([each.ms["score"] for each in results])), 2),
        "scores": [round(each.score, 5) for each in results],
    }


def costs(size: int, layers: Sequence[Any]) -> dict[str, Any]:
    """Processor time of one image through each network and through the pair, the median of turns."""
    first, second = (part.name for part in get_spec(PAIR).parts)  # type: ignore[attr-defined]
    alone = load_encoder(first, layers=layers, size=size, threads=1)
    both = load_encoder(PAIR, layers=layers, size=size, threads=1)
    maps = _maps_alone(second, size)
    image = sample_images(size)[:1]
    jobs: dict[str, Callable[[], Any]] = {
        "first": lambda: alone.encode_prepared(image),
        "second": lambda: maps.run(None, {"images": image}),
        "pair": lambda: both.encode_prepared(image),
    }
    spent: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(TURNS + 1):
        for name, job in jobs.items():
            started = time.process_time()
            job()
            if turn:  # the first warms up
                spent[name].append(1e3 * (time.process_time() - started))
    return {name: round(float(np.median(each)), 1) for name, each in spent.items()}


def _maps_alone(name: str, size: int) -> onnxruntime.InferenceSession:
    """The residual network on its own."""
    spec, graph = residual_network(get_spec(name)), GraphBuilder()
    names = add_maps(graph, spec, ensure(name).tensors())
    value = helper.make_tensor_value_info
    inputs = [value("images", TensorProto.UINT8, ["N", size, size, 3])]
    outputs = [value(each, TensorProto.FLOAT, None) for each in names]
    whole = helper.make_graph(graph.nodes, name, inputs, outputs, graph.constants)
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), session_options(1), providers=["CPUExecutionProvider"]
    )


def say(line: str) -> None:
    """Progress, beside the result."""
    print(line, file=sys.stderr, flush=True)


def run(arguments: argparse.Namespace) -> None:
    """Measure what is not in the result yet, and store it."""
    preset = DEFAULT
    encoder = load_encoder(PAIR, layers=preset.layers, size=preset.size)
    document: dict[str, Any] = {"sets": {}}
    if arguments.out.exists():
        document = json.loads(arguments.out.read_text())
    document |= {
        "environment": environment("cpu"),
        "machine": machine.facts(),
        "encoder": {key: value for key, value in encoder.info().items() if key != "threads"},
        "preset": preset.to_json(),
        "encode_ms": costs(preset.size, preset.layers),
    }
    for name, task in tasks(arguments.data).items():
        if name in document["sets"] or (arguments.sets and name not in arguments.sets):
            continue
        document["sets"][name] = measure_set(name, task, arguments.normals, arguments.tests, encoder)
        write_atomic(arguments.out, (json.dumps(document) + "\n").encode())


# --- printing ---


WORDS = {"first": "dinov2s-focus", "second": "resnet50-v1", "pair": "pair", "roomy": "pair, 16 MB"}


def table(document: Mapping[str, Any]) -> list[str]:
    """Image and pixel AUROC of each product, their means, and those without the product that gains most."""
    sets = document["sets"]
    image = [*WORDS.values(), "both scores fused"]
    pixel = [WORDS[way] for way in ("first", "second", "pair")]
    lines = [f"| product | normals | good, bad | {' | '.join([*image, *(f'{each}: pixel' for each in pixel)])} |"]
    lines.append("|---|--:|--:|" + "--:|" * (len(image) + len(pixel)))
    rows = []
    for name, found in sets.items():
        ways = found["ways"]
        row = [ways[way]["auroc"] for way in WORDS] + [fused_auroc(found)]
        row += [ways[way]["pixel_auroc"] for way in ("first", "second", "pair")]
        rows.append(row)
        tests = ", ".join(map(str, found["tests"]))
        lines.append(f"| {name} | {found['normals']} | {tests} | {' | '.join(f'{each:.3f}' for each in row)} |")
    values, names = np.asarray(rows), list(sets)
    most = int((values[:, 2] - values[:, 0]).argmax())
    for words, kept in (("mean", values), (f"mean without {names[most]}", np.delete(values, most, axis=0))):
        lines.append(f"| **{words}** | | | {' | '.join(f'**{each:.3f}**' for each in kept.mean(axis=0))} |")
    return lines


def fused_auroc(found: Mapping[str, Any]) -> float:
    """Image AUROC where each network has a bank of its own and their scores are fused as readings are."""
    labels = np.repeat([0, 1], found["tests"])
    first, second = (np.log(found["ways"][way]["scores"]) / SPREAD for way in ("first", "second"))
    return float(auroc(np.logaddexp(first, second), labels))


def cost_table(document: Mapping[str, Any]) -> list[str]:
    """Time and memory of each way, and what is flagged, over all products."""
    lines = ["| encoder | an image encoded | compared with its bank | bank on disk | good flagged | bad flagged |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    for way, words in WORDS.items():
        rows = [found["ways"][way] for found in document["sets"].values()]
        mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0] if key != "scores"}
        encoding = document["encode_ms"].get(way, document["encode_ms"]["pair"])
        lines.append(
            f"| {words} | {encoding:.0f} ms | {mean['score_ms']:.0f} ms "
            f"| {mean['bank_bytes'] / 1e6:.1f} MB | {mean['false_alarms']:.1%} | {mean['recall']:.1%} |"
        )
    return lines


def weight_table(document: Mapping[str, Any]) -> list[str]:
    """Image AUROC by the weight of the second network, and of the weight that is best on the other products."""
    sets = document["sets"]
    area = np.asarray([[found["weights"][str(each)] for each in WEIGHTS] for found in sets.values()])
    lines = [f"| product | {' | '.join(map(str, WEIGHTS))} | weight best on the others: AUROC |"]
    lines.append("|---|" + "--:|" * (len(WEIGHTS) + 1))
    held_out = []
    for n, name in enumerate(sets):
        best = int(np.delete(area, n, axis=0).mean(axis=0).argmax())
        held_out.append(area[n, best])
        cells = " | ".join(f"{each:.3f}" for each in area[n])
        lines.append(f"| {name} | {cells} | {WEIGHTS[best]}: {area[n, best]:.3f} |")
    cells = " | ".join(f"**{each:.3f}**" for each in area.mean(axis=0))
    lines.append(f"| **mean** | {cells} | **{np.mean(held_out):.3f}** |")
    return lines


def main() -> None:
    """Measure, or print a table of a stored result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    runner = verbs.add_parser("run")
    runner.add_argument("--data", type=Path, required=True)
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--normals", type=int, default=NORMALS)
    runner.add_argument("--tests", type=int, default=TESTS)
    runner.add_argument("--sets", nargs="+", default=())
    printers = {"table": table, "costs": cost_table, "weights": weight_table}
    for name in printers:
        verbs.add_parser(name).add_argument("result", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "run":
        run(arguments)
    else:
        print("\n".join(printers[arguments.verb](json.loads(arguments.result.read_text()))))


if __name__ == "__main__":
    main()
