"""Why static int8 is made the way it is: the settings that were tried, on one set of real images.

Each row changes one thing of what ``dinosaur export --precision int8`` does. The rows other than the first are made by
``onnxruntime.quantization`` from the same float32 graph, whose large channels are smoothed unless it says otherwise.

    python -m benchmarks.int8_settings run --data DIR --out results/edge/int8_settings.json
    python -m benchmarks.int8_settings show results/edge/int8_settings.json

32 training images of MTD calibrate, 40 teach a bank in float32, 40 test images (20 of them defects) are scored.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from benchmarks import machine
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.core.features import combine_blocks
from dinosaur_ad.core.memory import remember
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.scoring import patch_distances
from dinosaur_ad.datasets import mtd_scenario
from dinosaur_ad.encoders import DEFAULT_ENCODER, Tokens, compare_tokens, prepare
from dinosaur_ad.encoders.graph.forms import copied
from dinosaur_ad.encoders.graph.vit_graph import build_graph
from dinosaur_ad.encoders.registry import get_spec, token_encoder
from dinosaur_ad.encoders.weights.local import ensure
from dinosaur_ad.export.gate_images import spread
from dinosaur_ad.export.int8 import observe, quantise, smooth
from dinosaur_ad.presets import FAST

Pixels = NDArray[np.uint8]
PARTS = ("q", "k", "v", "o", "up", "down")
TURNS = 10


def named(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with a name for every node: projections are ``block.part``, attention's products ``attention``."""
    model = copied(model)
    constants = {tensor.name for tensor in model.graph.initializer}
    products = [node for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in constants]
    for number, node in enumerate(model.graph.node):
        node.name = f"attention.{number}" if node.op_type == "MatMul" else f"{node.op_type}.{number}"
    for number, node in enumerate(products):
        node.name = "pixels" if number == 0 else f"{(number - 1) // 6}.{PARTS[(number - 1) % 6]}"
    return model


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Images for the calibration, a few at a time."""

    def __init__(self, images: Pixels) -> None:
        self._batches = iter([{"images": images[start : start + 4]} for start in range(0, len(images), 4)])

    def get_next(self) -> dict[str, Pixels] | None:
        """The next batch."""
        return next(self._batches, None)


def static(
    model: onnx.ModelProto,
    images: Pixels,
    in_float: tuple[str, ...] = ("pixels", "attention"),
    method: CalibrationMethod = CalibrationMethod.MinMax,
    per_channel: bool = True,
    activations: QuantType = QuantType.QUInt8,
) -> onnx.ModelProto:
    """ONNX Runtime's own static quantisation; nodes whose name holds one of ``in_float`` stay as they are."""
    excluded = [node.name for node in model.graph.node if any(part in node.name for part in in_float)]
    with tempfile.TemporaryDirectory() as folder:
        quantize_static(
            copied(model),
            f"{folder}/int8.onnx",
            Reader(images),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["MatMul"],
            nodes_to_exclude=excluded,
            per_channel=per_channel,
            activation_type=activations,
            weight_type=QuantType.QInt8,
            calibrate_method=method,
            extra_options={"OpTypesToExcludeOutputQuantization": ["MatMul"]},
        )
        return onnx.load(f"{folder}/int8.onnx")


def dynamic(model: onnx.ModelProto) -> onnx.ModelProto:
    """ONNX Runtime's own dynamic quantisation of the projections."""
    excluded = [node.name for node in model.graph.node if node.name == "pixels" or "attention" in node.name]
    with tempfile.TemporaryDirectory() as folder:
        quantize_dynamic(
            copied(model),
            f"{folder}/int8.onnx",
            op_types_to_quantize=["MatMul"],
            nodes_to_exclude=excluded,
            per_channel=True,
            weight_type=QuantType.QInt8,
        )
        return onnx.load(f"{folder}/int8.onnx")


def settings(model: onnx.ModelProto, images: Pixels) -> dict[str, Callable[[], onnx.ModelProto]]:
    smoothed, _ = smooth(model, observe(model, images))
    return {
        "float32": lambda: model,
        "dinosaur export": lambda: quantise(model, images),
        "the same by onnxruntime.quantization": lambda: static(smoothed, images),
        "without smoothing": lambda: static(model, images),
        "patch projection in int8 too": lambda: static(smoothed, images, ("attention",)),
        "attention in int8 too": lambda: static(smoothed, images, ("pixels",)),
        "last projection of each block in float": lambda: static(smoothed, images, ("pixels", "attention", ".down")),
        "one scale a matrix": lambda: static(smoothed, images, per_channel=False),
        "signed activations": lambda: static(smoothed, images, activations=QuantType.QInt8),
        # These two hold every value of every image: fewer images.
        "percentile (99.999 %)": lambda: static(smoothed, images[:12], method=CalibrationMethod.Percentile),
        "entropy": lambda: static(smoothed, images[:12], method=CalibrationMethod.Entropy),
        "dynamic": lambda: dynamic(smoothed),
        "dynamic, without smoothing": lambda: dynamic(model),
    }


def run(arguments: argparse.Namespace) -> None:
    logging.disable(logging.WARNING)
    task = mtd_scenario(arguments.data / "mtd").tasks[0]
    train = prepare([sample.image() for sample in spread(task.train, 72)], FAST.size)
    chosen = [each for label in (0, 1) for each in spread([s for s in task.test if s.label == label], 20)]
    tests = prepare([sample.image() for sample in chosen], FAST.size)
    weights = ensure(DEFAULT_ENCODER)
    spec = token_encoder(get_spec(DEFAULT_ENCODER))
    model = named(build_graph(spec, weights.tensors(), FAST.layers, FAST.size))
    bank_HWMC = remember(_features(_tokens(_session(model), train[32:])), np.arange(40), 20).vectors_HWMC
    rows: list[dict[str, Any]] = []
    sessions = {}
    wanted, expected = None, None
    for name, make in settings(model, train[:32]).items():
        made = make()
        tokens = _tokens(_session(made), tests)
        score_N = pool(patch_distances(_features(tokens), bank_HWMC, FAST.radius), FAST.top)
        wanted, expected = wanted or tokens, score_N if expected is None else expected
        parity = compare_tokens(wanted, tokens)
        rows.append(
            {
                "settings": name,
                "cosine_min": round(parity.cosine_min, 6),
                "cosine_mean": round(parity.cosine_mean, 6),
                "pearson": round(float(np.corrcoef(score_N, expected)[0, 1]), 6),
                "shift": round(float(np.median(score_N / expected - 1)), 6),
                "megabytes": round(len(made.SerializeToString()) / 1e6, 1),
            }
        )
        print(rows[-1], flush=True)
        sessions[name] = _session(made, threads=1)
    times = _times(sessions, tests[:1])
    document = {"machine": machine.facts(), "rows": [row | {"ms": times[row["settings"]]} for row in rows]}
    write_atomic(arguments.out, (json.dumps(document, indent=1) + "\n").encode())


def _session(model: onnx.ModelProto, threads: int = 0) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _tokens(session: Any, pixels: Pixels) -> Tokens:
    """An image at a time, so that dynamic ranges are those of one image."""
    found = [session.run(["cls", "patches"], {"images": pixels[n : n + 1]}) for n in range(len(pixels))]
    return Tokens(*(np.concatenate(each) for each in zip(*found, strict=True)))


def _features(tokens: Tokens) -> NDArray[np.float32]:
    features: NDArray[np.float32] = combine_blocks(
        tokens.patches, len(FAST.layers), normalise=FAST.normalise, average=FAST.average
    )
    return features


def _times(sessions: dict[str, Any], image: Pixels) -> dict[str, float]:
    """Milliseconds of processor time on one core, in turns, the fastest of each."""
    best = dict.fromkeys(sessions, float("inf"))
    for _ in range(TURNS + 2):
        for name, session in sessions.items():
            started = time.process_time()
            session.run(["cls", "patches"], {"images": image})
            best[name] = min(best[name], time.process_time() - started)
    return {name: round(1e3 * seconds, 1) for name, seconds in best.items()}


def show(arguments: argparse.Namespace) -> None:
    """Print a stored result as Markdown."""
    print("\n".join(_lines(json.loads(arguments.out.read_text())["rows"])))


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "| settings | cosine, least | cosine, mean | Pearson of scores | shift of scores | ms | MB |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        yield (
            f"| {row['settings']} | {row['cosine_min']:.4f} | {row['cosine_mean']:.5f} | {row['pearson']:.4f} "
            f"| {100 * row['shift']:+.2f} % | {row['ms']:.1f} | {row['megabytes']:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runner = verbs.add_parser("run")
    runner.set_defaults(verb=run)
    runner.add_argument("--data", type=Path, required=True)
    runner.add_argument("--out", type=Path, required=True)
    printer = verbs.add_parser("show")
    printer.set_defaults(verb=show)
    printer.add_argument("out", type=Path)
    arguments = parser.parse_args()
    arguments.verb(arguments)


if __name__ == "__main__":
    main()
