"""What runs the default encoder, side by side: latency of one image, DINOSaur around it, the floor, and throughput.

Every way to run it is timed in the same turns, in another order each turn. "Encoder alone" is the bare session of the
run time on pixels that lie ready; "end to end" is ``inspect`` of an image in memory (resize, encode, route, score,
verdict) against one task of 443 images, "from a file" also reads and decodes a JPEG. All use the same store, which was
taught in float32.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.images import products
from benchmarks.measure import Section, Table, Target, Timing, at_least, at_most, milliseconds
from dinosaur_ad import Dinosaur, EncoderOptions
from dinosaur_ad.encoders import Encoder, compare_tokens, load_encoder, prepare
from dinosaur_ad.encoders.auto import sample_images
from dinosaur_ad.encoders.providers import available
from dinosaur_ad.presets import FAST
from dinosaur_ad.profile.machine import matmul_rate
from dinosaur_ad.profile.stages import encoder_flops

Pixels = NDArray[np.uint8]
Way = tuple[str, str]

EAGER: Way = ("torch", "float32")
REFERENCE: Way = ("onnx-cpu", "float32")
# Seconds between two pieces of work: run times keep their threads awake for a moment, in case more comes.
PAUSE = 0.02


def run(quick: bool) -> Section:
    """Open every way, let them take turns, and compare."""
    turns, taught, many = (5, 60, 32) if quick else (40, 443, 256)
    images = products("gear", taught)
    with tempfile.TemporaryDirectory() as folder:
        store, file = Path(folder) / "store", Path(folder) / "gear.jpg"
        Image.fromarray(images[0]).save(file, quality=95)
        Dinosaur(store).learn("gear", images)
        detectors = {way: _detector(store, way) for way in _ways()}
        encoders = {way: detector.encoder for way, detector in detectors.items()}
        pixels = prepare(images[:1], FAST.size)
        work: dict[tuple[Way, str], Callable[[], object]] = {}
        for way, detector in detectors.items():
            work[way, "alone"] = _session(encoders[way], pixels)
            work[way, "memory"] = partial(detector.inspect, images[0])
            work[way, "file"] = partial(detector.inspect, file)
        times = _in_random_turns(work, turns)
        throughput = _throughput(detectors, images, Path(folder), many)
    floors = _floors(times)
    return Section(
        "Run time",
        [
            Table(
                "One image at 224 px, all ways in the same turns",
                (
                    "run time",
                    "encoder alone ms, median",
                    "fastest",
                    "end to end ms, median",
                    "fastest",
                    "times the encoder",
                    "from a file ms, fastest",
                    "times faster than eager torch",
                ),
                [_latency(way, times) for way in encoders],
            ),
            Table(
                "Tokens against onnx-cpu float32: cosine over CLS and patches of 4 made-up and 40 drawn images",
                ("run time", "least", "mean"),
                _parity(encoders, images),
            ),
            Table(
                "The floor: operations of the matrix products over the rate this machine multiplies square matrices at",
                (
                    "precision",
                    "GFLOP an image",
                    "GFLOP/s measured",
                    "floor ms",
                    "fastest encoder ms",
                    "share of the rate",
                ),
                floors,
            ),
            Table(
                f"Throughput over {many} images: the encoder alone, and inspecting JPEG files from reading to verdict",
                ("run time", "encoder alone, images/s", "files, images/s", "files over encoder"),
                throughput,
            ),
        ],
        _targets(times),
    )


def _ways() -> list[Way]:
    """Everything here that runs on the CPU."""
    wanted = ("torch", "onnx-cpu", "openvino")
    return [(name, precision) for name in wanted for precision in available().get(name, ())]


def _detector(store: Path, way: Way) -> Dinosaur:
    provider, precision = way
    return Dinosaur(store, options=EncoderOptions(provider=provider, precision=precision, strict=True))


def _session(encoder: Encoder, pixels: Pixels) -> Callable[[], object]:
    """The bare run of one image, without anything of ours around it where the run time can be called directly."""
    inner: Any = encoder
    if encoder.backend == "onnx":
        return partial(inner._session.run, ["cls", "patches"], {"images": pixels})
    if encoder.backend == "openvino":
        return partial(inner._runner._single.infer, {"images": pixels}, share_inputs=True, share_outputs=True)
    return partial(inner._run, pixels)


def _in_random_turns(work: Mapping[Any, Callable[[], object]], turns: int) -> dict[Any, Timing]:
    """Like :func:`~benchmarks.measure.in_turns`, in another order every turn and with a pause before each."""
    for each in work.values():
        each(), each()
    seconds: dict[Any, list[float]] = {name: [] for name in work}
    order, shuffler = list(work), random.Random(0)
    for _ in range(turns):
        shuffler.shuffle(order)
        for name in order:
            time.sleep(PAUSE)
            started = time.perf_counter()
            work[name]()
            seconds[name].append(time.perf_counter() - started)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def _name(way: Way) -> str:
    return "eager torch float32" if way == EAGER else " ".join(way)


def _latency(way: Way, times: Mapping[Any, Timing]) -> tuple[object, ...]:
    alone, memory, file = (times[way, what] for what in ("alone", "memory", "file"))
    eager = times[EAGER, "alone"].fastest / alone.fastest if (EAGER, "alone") in times else "torch is not here"
    return (
        _name(way),
        *milliseconds(alone),
        *milliseconds(memory),
        memory.fastest / alone.fastest,
        file.fastest * 1e3,
        eager,
    )


def _parity(encoders: Mapping[Way, Encoder], images: list[Pixels]) -> list[tuple[object, ...]]:
    pixels = np.concatenate([sample_images(FAST.size), prepare(images[:40], FAST.size)])
    reference = encoders[REFERENCE].encode_prepared(pixels)
    rows: list[tuple[object, ...]] = []
    for way, encoder in encoders.items():
        parity = compare_tokens(reference, encoder.encode_prepared(pixels))
        rows.append((_name(way), f"{parity.cosine_min:.6f}", f"{parity.cosine_mean:.6f}"))
    return rows


def _floors(times: Mapping[Any, Timing]) -> list[tuple[object, ...]]:
    spec = load_encoder(layers=FAST.layers, size=FAST.size).spec
    operations = encoder_flops(spec, FAST.size, FAST.layers)
    rows: list[tuple[object, ...]] = []
    for precision, rate in {"float32": matmul_rate(seconds=1.0), "bfloat16": _bfloat16_rate()}.items():
        fastest = [
            timing.fastest for ((_, each), what), timing in times.items() if each == precision and what == "alone"
        ]
        if rate and fastest:
            floor = operations / rate
            figures = (operations / 1e9, rate / 1e9, floor * 1e3, min(fastest) * 1e3, floor / min(fastest))
            rows.append((precision, *figures))
    return rows


def _bfloat16_rate(side: int = 1024, seconds: float = 2.0) -> float | None:
    """Operations a second of OpenVINO's bfloat16 product of square matrices; None where it has none."""
    if "bfloat16" not in available().get("openvino", ()):
        return None
    import openvino
    from openvino import opset13

    left = opset13.parameter([side, side], np.float32, name="left")
    right = opset13.constant(np.random.default_rng(0).standard_normal((side, side)).astype(np.float32))
    model = openvino.Model([opset13.matmul(left, right, False, False)], [left])
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "bf16"}
    request = openvino.Core().compile_model(model, "CPU", hints).create_infer_request()
    given = np.random.default_rng(1).standard_normal((side, side)).astype(np.float32)
    taken: list[float] = []
    while len(taken) < 5 or sum(taken) < seconds:
        started = time.perf_counter()
        request.infer([given], share_inputs=True, share_outputs=True)
        taken.append(time.perf_counter() - started)
    return 2 * side**3 / min(taken)


def _throughput(
    detectors: Mapping[Way, Dinosaur], images: list[Pixels], folder: Path, many: int
) -> list[tuple[object, ...]]:
    """Images a second, the faster of two turns, after one that lets a run time prepare for many."""
    chosen = [images[n % len(images)] for n in range(many)]
    pixels = prepare(chosen, FAST.size)
    paths = [folder / f"{n:04d}.jpg" for n in range(many)]
    for path, image in zip(paths, chosen, strict=True):
        Image.fromarray(image).save(path, quality=95)
    rows: list[tuple[object, ...]] = []
    for way, detector in detectors.items():
        detector.encoder.encode_prepared(pixels[:72])
        alone = many / min(_seconds(partial(detector.encoder.encode_prepared, pixels)) for _ in range(2))
        files = many / min(_seconds(partial(detector.inspect, paths)) for _ in range(2))
        rows.append((_name(way), alone, files, files / alone))
    return rows


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _targets(times: Mapping[Any, Timing]) -> list[Target]:
    ways = [way for way, what in times if what == "alone" and way != EAGER]
    targets = [
        at_most(
            f"{_name(way)}: end to end over its bare encoder session",
            times[way, "memory"].fastest / times[way, "alone"].fastest,
            1.25,
        )
        for way in ways
    ]
    if (EAGER, "alone") in times:
        exact = {way: times[way, "alone"].fastest for way in ways if way[1] != "int8"}
        best = min(exact, key=exact.__getitem__)
        faster = times[EAGER, "alone"].fastest / exact[best]
        targets.append(at_least(f"{_name(best)}: times faster than eager torch float32", faster, 1.8))
    return targets
