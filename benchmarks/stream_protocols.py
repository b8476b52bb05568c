"""The protocols ``stream-*`` on the command line, and how the memory of a stream compares with the bank's own update.

    python -m benchmarks.stream_protocols run stream-mvtec-ad --data DIR --defects 0 0.02 0.05 0.1 --out FILE
    python -m benchmarks.stream_protocols table FILE
    python -m benchmarks.stream_protocols memory --out results/stream_memory.json
    python -m benchmarks.stream_protocols memory-table results/stream_memory.json

``run`` compares DINOSaur told nothing (``watch``), told the products (``told``), learning blindly every 20 pictures
(``blind``) and one flat memory for all products (``flat``); ``--method patchcore:vit`` adds a method of the benchmark.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.bench.hidden_stream import STREAMS, HiddenStream, StreamPlan, make_hidden_stream
from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.bench.stream_learners import FlatLearner, MethodLearner, StreamLearner, WatchLearner
from dinosaur_ad.bench.stream_protocol import CurvePoint, ProductDelay, StreamResult, run_stream, stream_table
from dinosaur_ad.core.coreset import covering_radius
from dinosaur_ad.core.memory import Coreset, remember
from dinosaur_ad.core.stream import begin_stream, follow_stream
from dinosaur_ad.encoders import Encoder, load_encoder, prepare
from dinosaur_ad.methods import Workbench, get_method
from dinosaur_ad.presets import Preset, preset_for


def learners(
    names: list[str], stream: HiddenStream, encoder: Encoder, preset: Preset, seed: int, folder: Path
) -> dict[str, StreamLearner]:
    truth = [(each.product, each.label) for each in stream.pictures]
    found: dict[str, StreamLearner] = {}
    for name in names:
        if name == "watch":
            found[name] = WatchLearner(folder / name, encoder, preset, seed)
        elif name == "flat":
            found[name] = FlatLearner(encoder, preset)
        else:
            choice = get_method(f"dinosaur:{preset.name}" if name in ("told", "blind") else name)
            if name in ("told", "blind"):
                choice = choice.with_settings({"encoder": encoder.name})
            found[name] = MethodLearner(choice.build(Workbench(seed)), truth if name == "told" else None)
    return found


def run(options: argparse.Namespace) -> list[StreamResult]:
    scenario_name, plan = STREAMS[options.stream]
    preset = preset_for(options.preset, options.encoder)
    encoder = load_encoder(options.encoder, layers=preset.layers, size=preset.size)
    results = []
    for defects in options.defects:
        chosen = replace(plan, defects=defects, seed=options.seed, segment=options.segment or plan.segment)
        scenario = open_scenario(scenario_name, options.data, options.seed)
        stream = make_hidden_stream(replace(scenario, name=options.stream), chosen)
        with tempfile.TemporaryDirectory() as folder:
            for name, learner in learners(
                options.learner + options.method, stream, encoder, preset, options.seed, Path(folder)
            ).items():
                results.append(run_stream(name, stream, learner))
                print(stream_table(results)[-1], flush=True)
    return results


def read_result(document: dict[str, Any]) -> StreamResult:
    fields = {key: value for key, value in document.items() if key != "final_mean"}
    fields["products"] = [ProductDelay(**each) for each in document["products"]]
    fields["curve"] = [CurvePoint(**each) for each in document["curve"]]
    return StreamResult(**fields)


def compare_memories(encoder_name: str, members: int, seed: int) -> dict[str, Any]:
    """Covering radius, mean over the places, of three memories of equal size on a product whose light drifts."""
    preset = preset_for("fast", encoder_name)
    features = FeatureExtractor(preset, lambda: load_encoder(encoder_name, layers=preset.layers, size=preset.size))
    stream = make_hidden_stream(
        open_scenario("synthetic-color", None, seed),
        StreamPlan(segment=40, turns=1, defects=0.0, shuffled=False, seed=seed),
    )
    patches_NHWC = np.concatenate(
        [features.encode(prepare([each.photo.pixels()], preset.size))[0] for each in stream.pictures]
    )
    count, height, width, channels = patches_NHWC.shape
    points_LNC = patches_NHWC.reshape(count, height * width, channels).transpose(1, 0, 2)
    last_LNC = points_LNC[:, -40:]
    known: Coreset | None = None
    for start in range(0, count, 10):  # as the watch updates a bank
        source_N = np.arange(start, min(start + 10, count))
        known = remember(patches_NHWC[start : start + 10], source_N, members, known=known, seed=seed)
    assert known is not None
    offline = remember(patches_NHWC, np.arange(count), members, seed=seed)
    followed = {
        name: follow_stream(begin_stream(patches_NHWC[0], members), patches_NHWC, patience=patience)
        for name, patience in (("stream memory", None), ("stream memory, patience 40", 40))
    }
    radii = {}
    for name, coreset in (("all at once", offline), ("update of the bank, 10 at a time", known)):
        centres_LMC = coreset.vectors_HWMC.reshape(height * width, -1, channels)
        radii[name] = [float(covering_radius(each, centres_LMC).mean()) for each in (points_LNC, last_LNC)]
    for name, memory in followed.items():
        # A free slot takes the place of a member that is there, which changes no radius.
        taken_LK = memory.support_LK > 0
        filled_LKC = np.where(
            taken_LK[:, :, None],
            memory.vectors_LKC,
            memory.vectors_LKC[np.arange(len(taken_LK)), taken_LK.argmax(axis=1)][:, None, :],
        )
        radii[name] = [float(covering_radius(each, filled_LKC).mean()) for each in (points_LNC, last_LNC)]
    return {"images": count, "members": members, "encoder": encoder_name, "seed": seed, "radii": radii}


def memory_table(result: dict[str, Any]) -> list[str]:
    lines = [
        "| memory | covering radius, all pictures | the last 40 |",
        "|---|--:|--:|",
        *(f"| {name} | {both[0]:.3f} | {both[1]:.3f} |" for name, both in result["radii"].items()),
    ]
    return [
        *lines,
        "",
        f"{result['images']} drawn pictures of `synthetic-color` in the order of their light, {result['members']} "
        f"members for each place, {result['encoder']}, one seed; mean over the places.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    measure = verbs.add_parser("run")
    measure.add_argument("stream", choices=STREAMS)
    measure.add_argument("--data", type=Path)
    measure.add_argument("--out", type=Path, required=True)
    measure.add_argument("--defects", type=float, nargs="+", default=[0.05])
    measure.add_argument("--learner", nargs="+", default=["watch", "told", "blind", "flat"])
    measure.add_argument("--method", nargs="*", default=[], help="further methods of the benchmark, in blind lessons")
    measure.add_argument("--preset", default="fast")
    measure.add_argument("--segment", type=int)
    memory = verbs.add_parser("memory")
    memory.add_argument("--out", type=Path, required=True)
    memory.add_argument("--members", type=int, default=20)
    for each in (measure, memory):
        each.add_argument("--encoder", default="dinov2s-focus")
        each.add_argument("--seed", type=int, default=0)
    for name in ("table", "memory-table"):
        verbs.add_parser(name).add_argument("result", type=Path)
    options = parser.parse_args()
    if options.verb == "run":
        results = run(options)
        document = json.dumps([each.to_json() for each in results], indent=1)
        write_atomic(options.out, f"{document}\n".encode())
        print("\n".join(stream_table(results)))
    elif options.verb == "memory":
        result = compare_memories(options.encoder, options.members, options.seed)
        write_atomic(options.out, f"{json.dumps(result, indent=1)}\n".encode())
        print("\n".join(memory_table(result)))
    elif options.verb == "table":
        print("\n".join(stream_table([read_result(each) for each in json.loads(options.result.read_text())])))
    else:
        print("\n".join(memory_table(json.loads(options.result.read_text()))))


if __name__ == "__main__":
    main()
