"""What precision costs and gains: token cosine, scores, AUROC and time of float32, bfloat16 and int8.

Every set of real images is learned and tested once per way of running the default encoder, with the default preset.
"Its bank by float32" is how an export is used with a store that exists: float32 taught the bank and its threshold, and
the other precision inspects. "Its bank by itself" learns and inspects in the same precision. The static int8 exports
are made by ``dinosaur export`` and calibrated on the set's own training images.

    python -m benchmarks.precision run --data DIR --out results/edge/precision.json
    python -m benchmarks.precision show results/edge/precision.json

``DIR`` holds ``mtd/`` and ``mvtec_ad/``. Of each set at most 150 training images, 200 normals and 200 defects are
used, evenly spread over the files. A set that is in the result already is not measured again.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine
from dinosaur_ad import Dinosaur
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.datasets import FileSample, mtd_scenario, mvtec_scenario
from dinosaur_ad.datasets.tasks import Task
from dinosaur_ad.encoders import Encoder, Tokens, compare_tokens, load_encoder
from dinosaur_ad.encoders.backends.exported import open_exported
from dinosaur_ad.export.exporting import export
from dinosaur_ad.export.gate_images import spread
from dinosaur_ad.presets import FAST

MOST_TRAIN, MOST_EACH = 150, 200
REFERENCE = "onnx-cpu float32"
OTHER_SEEDS = (1, 2, 3)
TURNS = 15


class Remembering(Encoder):
    """An encoder that encodes an image once, whoever asks again."""

    def __init__(self, inner: Encoder) -> None:
        self.__dict__.update(inner.__dict__)
        self.backend, self.provider, self.precision = inner.backend, inner.provider, inner.precision
        self.inner = inner
        self._known: dict[bytes, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}

    def _run(self, pixels: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        keys = [image.tobytes() for image in pixels]
        new = [n for n, key in enumerate(keys) if key not in self._known]
        if new:
            tokens = self.inner.encode_prepared(pixels[new])
            self._known |= {keys[n]: (tokens.cls[i], tokens.patches[i]) for i, n in enumerate(new)}
        found = [self._known[key] for key in keys]
        return np.stack([cls for cls, _ in found]), np.stack([patches for _, patches in found])


def ways(images: list[Path]) -> dict[str, Callable[[Path], Encoder]]:
    """How the encoder can be run, each opened with a folder for its files; the exports are calibrated on ``images``."""

    def plain(**options: Any) -> Callable[[Path], Encoder]:
        return lambda folder: load_encoder(layers=FAST.layers, size=FAST.size, strict=True, **options)

    def exported(kind: str, precision: str) -> Callable[[Path], Encoder]:
        def make(folder: Path) -> Encoder:
            out = folder / f"{kind}-{precision}"
            return open_exported(export(out, kind=kind, precision=precision, images=images).folder)

        return make

    return {
        REFERENCE: plain(),
        "openvino bfloat16": plain(provider="openvino", precision="bfloat16"),
        "onnx int8 static, export": exported("onnx", "int8"),
        "openvino int8 static, export": exported("openvino", "int8"),
        "onnx-cpu int8 dynamic": plain(provider="onnx-cpu", precision="int8"),
        "openvino int8 dynamic": plain(provider="openvino", precision="int8"),
    }


def tasks(data: Path) -> dict[str, Task]:
    return {"mtd": mtd_scenario(data / "mtd").tasks[0]} | {
        task.name: task for task in mvtec_scenario(data / "mvtec_ad").tasks
    }


def measure_set(name: str, task: Task) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """One row a way, and the scores they follow from."""
    train = spread(task.train, MOST_TRAIN)
    tests = [each for label in (0, 1) for each in spread([s for s in task.test if s.label == label], MOST_EACH)]
    train_images, test_images = ([sample.image() for sample in samples] for samples in (train, tests))
    labels = np.asarray([sample.label for sample in tests], np.uint8)
    rows: list[dict[str, Any]] = []
    scores: dict[str, NDArray[Any]] = {f"{name}|labels": labels}
    with tempfile.TemporaryDirectory() as temporary:
        folder, wanted = Path(temporary), None
        paths = [sample.path for sample in train if isinstance(sample, FileSample)]
        for way, opened in ways(paths).items():
            started = time.perf_counter()
            encoder = Remembering(opened(folder))
            tokens = encoder.encode(test_images)
            if way == REFERENCE:
                wanted = tokens
                Dinosaur(folder / "store", encoder=encoder).learn(name, train_images)
                for seed in OTHER_SEEDS:  # what the choice of patches alone does to AUROC
                    other = Dinosaur(encoder=encoder, seed=seed)
                    other.learn(name, train_images)
                    found_N = np.asarray([each.score for each in other.inspect(test_images)], np.float32)
                    scores[f"{name}|{way}|seed {seed}"] = found_N
            assert wanted is not None
            own = Dinosaur(encoder=encoder)
            own.learn(name, train_images)
            found = {
                "float32": Dinosaur(folder / "store", encoder=encoder).inspect(test_images),
                "own": own.inspect(test_images),
            }
            for bank, inspections in found.items():
                scores[f"{name}|{way}|{bank}"] = np.asarray([each.score for each in inspections], np.float32)
            flagged = np.asarray([each.anomalous for each in found["float32"]])
            rows.append(
                {"set": name, "way": way, "train": len(train)}
                | _cosines(wanted, tokens)
                | figures(scores, name, way)
                | {
                    "false_alarms": round(float(flagged[labels == 0].mean()), 5),
                    "recall": round(float(flagged[labels == 1].mean()), 5),
                }
            )
            print(f"{name} | {way}: {rows[-1]} ({time.perf_counter() - started:.0f} s)", file=sys.stderr, flush=True)
    return rows, scores


def _cosines(wanted: Tokens, found: Tokens) -> dict[str, float]:
    parity = compare_tokens(wanted, found)
    assert parity.finite
    return {"cosine_min": round(parity.cosine_min, 6), "cosine_mean": round(parity.cosine_mean, 6)}


def figures(scores: dict[str, NDArray[Any]], name: str, way: str) -> dict[str, Any]:
    """What follows from stored scores alone."""
    labels, reference = scores[f"{name}|labels"], scores[f"{name}|{REFERENCE}|float32"]
    mixed, own = (scores[f"{name}|{way}|{bank}"] for bank in ("float32", "own"))
    return {
        "normals": int((labels == 0).sum()),
        "anomalies": int(labels.sum()),
        "auroc": round(auroc(mixed, labels), 5),
        "auroc_own": round(auroc(own, labels), 5),
        "pearson": round(float(np.corrcoef(mixed, reference)[0, 1]), 6),
        "shift": round(float(np.median(mixed / reference - 1)), 6),
        "auroc_seeds": [
            round(auroc(scores[key], labels), 5)
            for seed in OTHER_SEEDS
            if (key := f"{name}|{way}|seed {seed}") in scores
        ],
    }


def measure_times(data: Path) -> dict[str, float]:
    """Milliseconds of processor time for one image on one core, in turns, the fastest of each way."""
    task = tasks(data)["mtd"]
    paths = [sample.path for sample in spread(task.train, 16) if isinstance(sample, FileSample)]
    pixels = np.zeros((1, FAST.size, FAST.size, 3), np.uint8)
    with tempfile.TemporaryDirectory() as temporary:
        opened = {way: _one_thread(make(Path(temporary))) for way, make in ways(paths).items()}
        best = dict.fromkeys(opened, float("inf"))
        for _ in range(TURNS + 2):
            for way, encoder in opened.items():
                started = time.process_time()
                encoder.encode_prepared(pixels)
                best[way] = min(best[way], time.process_time() - started)
    return {way: round(1e3 * seconds, 2) for way, seconds in best.items()}


def _one_thread(encoder: Encoder) -> Encoder:
    if hasattr(encoder, "folder"):
        return open_exported(encoder.folder, threads=1)
    options = {"provider": encoder.provider, "precision": encoder.precision}
    return load_encoder(layers=FAST.layers, size=FAST.size, threads=1, strict=True, **options)


def run(arguments: argparse.Namespace) -> None:
    document: dict[str, Any] = {"machine": machine.facts(), "encoder": "dinov2s-focus", "ms": {}, "rows": []}
    scores: dict[str, NDArray[Any]] = {}
    if arguments.out.exists():
        document = json.loads(arguments.out.read_text())
        scores = dict(np.load(arguments.out.with_suffix(".npz")))
    done = {row["set"] for row in document["rows"]}
    for name, task in tasks(arguments.data).items():
        if name not in done and name in (arguments.sets or [name]):
            rows, found = measure_set(name, task)
            document["rows"] += rows
            scores |= found
            _write(arguments.out, document, scores)
    if arguments.times or not document["ms"]:
        document["ms"] = measure_times(arguments.data)
    _write(arguments.out, document, scores)


def _write(path: Path, document: dict[str, Any], scores: dict[str, NDArray[Any]]) -> None:
    packed = io.BytesIO()
    np.savez_compressed(packed, **scores)  # type: ignore[arg-type]
    write_atomic(path.with_suffix(".npz"), packed.getvalue())
    write_atomic(path, (json.dumps(document, indent=1) + "\n").encode())


def show(arguments: argparse.Namespace) -> None:
    """Print a stored result as Markdown."""
    print("\n".join(_lines(json.loads(arguments.out.read_text()))))


def _lines(document: dict[str, Any]) -> Iterator[str]:
    rows, ms = document["rows"], document["ms"]
    by_way: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_way.setdefault(row["way"], []).append(row)
    reference = {row["set"]: row for row in by_way[REFERENCE]}
    cpu = f"{document['machine']['cpu']}, {document['machine']['cores']} cores"
    yield f"Over all {len(reference)} sets: {', '.join(reference)} ({cpu}; {document['encoder']}, preset default)\n"
    yield (
        "| way | ms | cosine, least | cosine, mean | Pearson, least | shift, largest | AUROC, mean | change, mean "
        "| change, worst | change with its own bank, mean | false alarms, mean |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for way, found in by_way.items():
        changes = [row["auroc"] - reference[row["set"]]["auroc"] for row in found]
        own = [row["auroc_own"] - reference[row["set"]]["auroc_own"] for row in found]
        cells = [
            f"{ms[way]:.1f}" if way in ms else "–",
            f"{min(row['cosine_min'] for row in found):.4f}",
            f"{np.mean([row['cosine_mean'] for row in found]):.5f}",
            f"{min(row['pearson'] for row in found):.4f}",
            f"{100 * max((row['shift'] for row in found), key=abs):+.2f} %",
            f"{np.mean([row['auroc'] for row in found]):.4f}",
            f"{np.mean(changes):+.4f}",
            f"{min(changes):+.4f}",
            f"{np.mean(own):+.4f}",
            f"{100 * np.mean([row['false_alarms'] for row in found]):.1f} %",
        ]
        yield f"| {way} | {' | '.join(cells)} |"
    seeds = [value - row["auroc_own"] for row in reference.values() for value in row["auroc_seeds"]]
    yield (
        f"\nFor comparison, float32 taught with {len(OTHER_SEEDS)} other seeds, which pick other patches: AUROC "
        f"changes by {min(seeds):+.4f} to {max(seeds):+.4f} in single sets, by {np.mean(np.abs(seeds)):.4f} in size on "
        "average."
    )
    yield "\nAUROC, bank by float32 / bank by itself\n"
    yield f"| set | train, normals, defects | {' | '.join(by_way)} |\n|---|---|{'---|' * len(by_way)}"
    for name, row in reference.items():
        values = [
            next((f"{each['auroc']:.4f} / {each['auroc_own']:.4f}" for each in found if each["set"] == name), "–")
            for found in by_way.values()
        ]
        yield f"| {name} | {row['train']}, {row['normals']}, {row['anomalies']} | {' | '.join(values)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runner = verbs.add_parser("run")
    runner.set_defaults(verb=run)
    runner.add_argument("--data", type=Path, required=True)
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--sets", nargs="+", help="only these")
    runner.add_argument("--times", action="store_true", help="measure the times again")
    printer = verbs.add_parser("show")
    printer.set_defaults(verb=show)
    printer.add_argument("out", type=Path)
    arguments = parser.parse_args()
    arguments.verb(arguments)


if __name__ == "__main__":
    main()
