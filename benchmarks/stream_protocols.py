"""The protocols ``stream-*`` on the command line, and how the memory of a stream compares with the bank's own update.

    python -m benchmarks.stream_protocols run stream-mvtec-ad --data DIR --defects 0 0.02 0.05 0.1 --out FILE
    python -m benchmarks.stream_protocols table FILE
    python -m benchmarks.stream_protocols products FILE
    python -m benchmarks.stream_protocols chart FILE > SVG
    python -m benchmarks.stream_protocols curves FILE > SVG
    python -m benchmarks.stream_protocols memory --out results/stream_memory.json
    python -m benchmarks.stream_protocols memory-table results/stream_memory.json

``run`` compares DINOSaur told nothing (``watch``), told the tasks (``told``), learning blindly every 20 pictures
(``blind``) and one flat memory for all products (``flat``); ``--method patchcore:vit`` adds a method of the benchmark.
Each finished row is stored at once, and those that FILE has are not run again, unless ``--again`` names their learner.
With ``--returning``, images of a drift may come again in another condition; on a line no part comes twice.
With ``--cache DIR``, learners and later runs encode each picture once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.line_chart import Panel, Points, line_charts
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.bench.cached_encoder import CachedEncoder
from dinosaur_ad.bench.environment import environment
from dinosaur_ad.bench.hidden_stream import STREAMS, HiddenStream, StreamPlan, make_hidden_stream
from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.bench.stream_learners import FlatLearner, MethodLearner, StreamLearner, ToldLearner, WatchLearner
from dinosaur_ad.bench.stream_protocol import CurvePoint, ProductDelay, StreamResult, run_stream, stream_table
from dinosaur_ad.core.coreset import covering_radius
from dinosaur_ad.core.memory import Coreset, remember
from dinosaur_ad.core.stream_memory import begin_stream, follow_stream
from dinosaur_ad.encoders import Encoder, load_encoder, prepare
from dinosaur_ad.methods import Workbench, get_method
from dinosaur_ad.methods.dinosaur import DinosaurMethod
from dinosaur_ad.presets import Preset, preset_for

LEARNERS = ("watch", "told", "blind", "flat")


def make_learner(
    name: str, stream: HiddenStream, encoder: Encoder, preset: Preset, seed: int, folder: Path
) -> StreamLearner:
    """A learner by its name; ``folder`` is for what it keeps on disk."""
    if name == "watch":
        return WatchLearner(folder, encoder, preset, seed)
    if name == "told":
        return ToldLearner(encoder, preset, [(each.task, each.label) for each in stream.pictures], seed)
    if name == "flat":
        return FlatLearner(encoder, preset)
    choice = get_method(f"dinosaur:{preset.name}" if name == "blind" else name)
    if name == "blind":
        choice = choice.with_settings({"encoder": encoder.name})
    method = choice.build(Workbench(seed))
    if isinstance(method, DinosaurMethod) and method.encoder.fingerprint == encoder.fingerprint:
        method.encoder = encoder
    return MethodLearner(method)


class StreamMeasurement:
    """The rows of one file: a stream, and how it is measured. Rows of other settings are refused."""

    def __init__(self, file: Path, settings: dict[str, Any]) -> None:
        self._file = file
        self.document: dict[str, Any] = {"settings": settings, "rows": []}
        if file.exists():
            self.document = json.loads(file.read_text())
            different = [key for key, value in settings.items() if self.document["settings"].get(key) != value]
            if different:
                sys.exit(f"{file} was made with another {' and '.join(different)}; choose another --out, or remove it.")

    def has(self, defects: float, learner: str) -> bool:
        """Whether a row has been measured."""
        return any(_is_row(row, defects, learner) for row in self.document["rows"])

    def add(self, result: StreamResult) -> None:
        """Store a row, in the place of an older one if there is one."""
        defects = result.plan["defects"]
        rows = [row for row in self.document["rows"] if not _is_row(row, defects, result.learner)]
        rows.append(result.to_json() | {"environment": environment("cpu")})
        self.document["rows"] = sorted(rows, key=lambda row: row["plan"]["defects"])
        write_atomic(self._file, f"{json.dumps(self.document, indent=1)}\n".encode())


def _is_row(row: dict[str, Any], defects: float, learner: str) -> bool:
    return bool(row["plan"]["defects"] == defects and row["learner"] == learner)


def run(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure what the file does not have yet."""
    scenario_name, plan = STREAMS[options.stream]
    preset = preset_for(options.preset, options.encoder)
    encoder = load_encoder(
        options.encoder,
        layers=preset.layers,
        size=preset.size,
        provider=options.provider,
        precision=options.precision,
        strict=True,
    )
    settings = {"stream": options.stream, "preset": preset.name, "seed": options.seed, "encoder": encoder.info()}
    if options.cache:
        encoder = CachedEncoder(encoder, options.cache)
    plan = replace(plan, seed=options.seed, segment=options.segment or plan.segment, tests=options.tests)
    plan = replace(plan, apart=plan.apart and not options.returning)
    limits: dict[str, Any] = {"segment": plan.segment, "turns": plan.turns, "tests": plan.tests}
    if STREAMS[options.stream][1].apart:
        limits["apart"] = plan.apart
    measured = StreamMeasurement(options.out, settings | limits)
    scenario = open_scenario(scenario_name, options.data, options.seed)
    for defects in options.defects:
        for name in options.learner + options.method:
            if measured.has(defects, name) and name not in options.again:
                continue

            def tell(text: str, share: float = defects) -> None:
                say(f"{share} {text}")

            stream = make_hidden_stream(replace(scenario, name=options.stream), replace(plan, defects=defects))
            with tempfile.TemporaryDirectory() as folder:
                learner = make_learner(name, stream, encoder, preset, options.seed, Path(folder))
                measured.add(run_stream(name, stream, learner, tell))
            say(f"{defects} {name}: stored in {options.out}")
    return measured.document


def read_row(document: dict[str, Any]) -> StreamResult:
    """A row of a stored result."""
    fields = {key: value for key, value in document.items() if key not in ("final_mean", "environment")}
    fields["products"] = [ProductDelay(**each) for each in document["products"]]
    fields["curve"] = [CurvePoint(**each) for each in document["curve"]]
    return StreamResult(**fields)


def table(document: dict[str, Any]) -> list[str]:
    """All rows, and what they were measured on."""
    settings, rows = document["settings"], document["rows"]
    encoder = settings["encoder"]
    tests = f"at most {settings['tests']} good and {settings['tests']} bad" if settings["tests"] else "all"
    drift = settings["stream"] in STREAMS and STREAMS[settings["stream"]][1].apart
    again = ", which may come again in another condition" if drift and not settings.get("apart") else ""
    return [
        *stream_table([read_row(row) for row in rows]),
        "",
        f"`{settings['stream']}`, {settings['segment']} normal pictures of each task in each of {settings['turns']} "
        f"{'turns' if settings['turns'] > 1 else 'turn'}{again}, {tests} test images of a task that are in no stream. "
        f"Preset {settings['preset']}, {encoder['encoder']}, {encoder['provider']}, {encoder['precision']}, seed "
        f"{settings['seed']}.",
    ]


def products_table(document: dict[str, Any]) -> list[str]:
    """With how many of its pictures each product was noticed by the watch, and how often it was proposed."""
    rows = sorted(
        (row for row in document["rows"] if row["learner"] == "watch"), key=lambda row: float(row["plan"]["defects"])
    )
    names = [each["product"] for each in rows[0]["products"]]
    head = " | ".join(f"{100 * row['plan']['defects']:.0f} % defects | proposals" for row in rows)
    lines = [f"| product | {head} |", f"|---|{'--:|--:|' * len(rows)}"]
    for n, name in enumerate(names):
        found = [row["products"][n] for row in rows]
        cells = [f"{each['noticed'] or 'never'} | {each['proposals']}" for each in found]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def chart(document: dict[str, Any]) -> list[str]:
    """What holds at the end against the share of defects."""
    rows = document["rows"]

    def lines(key: str, factor: float) -> dict[str, Points]:
        return {
            name: [(100 * row["plan"]["defects"], factor * row[key]) for row in rows if row["learner"] == name]
            for name in dict.fromkeys(row["learner"] for row in rows)
        }

    panels = [
        Panel("AUROC at the end", lines("final_mean", 1), top=1.0, bottom=0.5),
        Panel("% of defects found at the end", lines("final_recall", 100), top=100),
        Panel("% of good parts flagged at the end", lines("final_false_alarms", 100)),
    ]
    return [line_charts(f"{document['settings']['stream']}: what defects in the stream cost", panels, "% defects")]


def curves(document: dict[str, Any]) -> list[str]:
    """What holds as the stream goes by, at the first share of defects that was measured."""
    share = document["rows"][0]["plan"]["defects"]
    rows = [row for row in document["rows"] if row["plan"]["defects"] == share]

    def lines(key: str, factor: float) -> dict[str, Points]:
        return {
            row["learner"]: [(at["pictures"], factor * at[key]) for at in row["curve"] if at[key] is not None]
            for row in rows
        }

    panels = [
        Panel("memory, MiB", lines("storage_bytes", 2**-20)),
        Panel("AUROC of each hundred", lines("auroc", 1), top=1.0, bottom=0.5),
        Panel("% of good parts flagged", lines("false_alarms", 100)),
    ]
    return [line_charts(f"{document['settings']['stream']}, {100 * share:g} % defects", panels, "pictures")]


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


TABLES = {
    "table": table,
    "products": products_table,
    "chart": chart,
    "curves": curves,
    "memory-table": memory_table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    measure = verbs.add_parser("run")
    measure.add_argument("stream", choices=STREAMS)
    measure.add_argument("--data", type=Path)
    measure.add_argument("--out", type=Path, required=True)
    measure.add_argument("--defects", type=float, nargs="+", default=[0.05])
    measure.add_argument("--learner", nargs="*", default=list(LEARNERS), choices=LEARNERS)
    measure.add_argument("--method", nargs="*", default=[], help="further methods of the benchmark, in blind lessons")
    measure.add_argument("--again", nargs="*", default=[], help="learners whose rows are measured again")
    measure.add_argument("--preset", default="fast")
    measure.add_argument("--provider", help="what the encoder runs on, such as openvino")
    measure.add_argument("--precision", help="of the encoder, such as bfloat16")
    measure.add_argument("--segment", type=int, help="normal pictures of a task in a turn")
    measure.add_argument("--tests", type=int, help="good, and bad, test images of a task at the most")
    measure.add_argument("--returning", action="store_true", help="images may come again in another condition")
    measure.add_argument("--cache", type=Path, help="a folder for the tokens of pictures")
    memory = verbs.add_parser("memory")
    memory.add_argument("--out", type=Path, required=True)
    memory.add_argument("--members", type=int, default=20)
    for each in (measure, memory):
        each.add_argument("--encoder", default="dinov2s-focus")
        each.add_argument("--seed", type=int, default=0)
    for name in TABLES:
        verbs.add_parser(name).add_argument("result", type=Path)
    options = parser.parse_args()
    if options.verb == "run":
        print("\n".join(table(run(options, partial(print, file=sys.stderr, flush=True)))))
    elif options.verb == "memory":
        result = compare_memories(options.encoder, options.members, options.seed)
        write_atomic(options.out, f"{json.dumps(result, indent=1)}\n".encode())
        print("\n".join(memory_table(result)))
    else:
        print("\n".join(TABLES[options.verb](json.loads(options.result.read_text()))))


if __name__ == "__main__":
    main()
