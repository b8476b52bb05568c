"""What each preset costs: the whole inspection of an image beside its bare encoder, and learning, in one run.

    python -m benchmarks.presets run --data DIR/mvtec_ad --out results/preset_speed.json [--before SRC]
    python -m benchmarks.presets table results/preset_speed.json
    python -m benchmarks.presets learning --out results/preset_learning.json
    python -m benchmarks.presets learning-table results/preset_learning.json

Every row is a process of its own. They learn one after another, and then take turns on the same images, so that what
else the machine does falls on all of them; the median turn of each counts, in processor time of all threads. With
``--before`` (the folder ``src`` of an earlier version) the preset fast of that version takes its turns too.

``learning`` teaches the default a drawn product of 100 and of 443 images, which are encoded once, with the folds that
its threshold comes from and with those of before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import machine
from benchmarks.images import products
from dinosaur_ad import Dinosaur, load_encoder
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bank.building import BankBuilder
from dinosaur_ad.bench.cache import DEFAULT_LIMIT, DiskCache
from dinosaur_ad.datasets import mvtec_scenario
from dinosaur_ad.encoders import prepare
from dinosaur_ad.encoders.options import EncoderOptions
from dinosaur_ad.presets import DEFAULT, PRESETS

LEARNED, INSPECTED, TURNS = 100, 4, 4
MANY = 443
"""Images of a task of the magnetic tiles."""


class Row(NamedTuple):
    """A preset on a provider (None: the usual one), of this version or of the one ``before``; of how it inspects alone
    a few images learned are enough."""

    label: str
    preset: str
    provider: str | None = None
    before: bool = False
    learned: int = LEARNED


ROWS = (
    Row("fast", "fast"),
    Row("fast, earlier version", "fast", before=True),
    Row("default", "default"),
    Row("default, `--provider auto`", "default", "auto", learned=20),
)


class Spent(NamedTuple):
    """Seconds on the clock, and of the processor in all threads."""

    clock: float
    processor: float

    @classmethod
    def now(cls) -> Spent:
        """Until now."""
        return cls(time.perf_counter(), time.process_time())

    def since(self) -> dict[str, float]:
        """From then until now."""
        now = Spent.now()
        return {"clock_s": round(now.clock - self.clock, 3), "processor_s": round(now.processor - self.processor, 3)}


def timed(work: Callable[[], Any]) -> dict[str, float]:
    """What some work takes."""
    started = Spent.now()
    work()
    return started.since()


class Building:
    """Processor seconds that memories and thresholds take from now on."""

    def __init__(self) -> None:
        self.seconds = 0.0
        for name in ("add", "score_controls", "files"):
            setattr(BankBuilder, name, self._timed(getattr(BankBuilder, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            begun = time.process_time()
            try:
                return method(*given, **named)
            finally:
                self.seconds += time.process_time() - begun

        return call


# --- a row: a process that learns, and then inspects or encodes whenever it is told to ---


def work(arguments: argparse.Namespace) -> None:
    """Learn, then do what each line of stdin says; every answer is a line of JSON."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a run time prints must not mix with the answers
    task = next(task for task in mvtec_scenario(arguments.data).tasks if task.name == arguments.task)
    train = [sample.image() for sample in task.train[: arguments.learned]]
    test = [sample.image() for sample in task.test[:INSPECTED]]
    detector = Dinosaur(preset=arguments.preset, options=EncoderOptions(provider=arguments.provider))
    detector.encoder.encode_prepared(prepare(test[:1], PRESETS[arguments.preset].size))
    usable: list[dict[str, float]] = []
    put = detector.store.put

    def watched(*given: Any, **named: Any) -> Any:
        done = put(*given, **named)
        usable.append(started.since())
        return done

    detector.store.put = watched  # type: ignore[method-assign]
    building = Building()
    started = Spent.now()
    learned = detector.learn("part", train)
    row = {
        "encoder": detector.encoder.info(),
        "learn_seconds": learned.seconds,
        "learn": started.since(),
        "building_s": building.seconds,
        "usable": usable[0],
        "images": learned.images,
        "bytes": learned.bytes,
        "threshold": learned.threshold,
    }
    print(json.dumps(row), file=out, flush=True)
    pixels = prepare(test, PRESETS[arguments.preset].size)
    jobs = {"encode": lambda: detector.encoder.encode_prepared(pixels), "inspect": lambda: detector.inspect(test)}
    for line in sys.stdin:
        print(json.dumps(timed(jobs[line.strip()])), file=out, flush=True)


class Worker:
    """The process of a row."""

    def __init__(self, row: Row, arguments: argparse.Namespace) -> None:
        root = Path(__file__).resolve().parents[1]
        source = arguments.before if row.before else root / "src"
        command = [sys.executable, "-m", "benchmarks.presets", "work", "--data", str(arguments.data)]
        command += ["--task", arguments.task, "--preset", row.preset, "--learned", str(row.learned)]
        command += ["--provider", row.provider] if row.provider else []
        paths = os.pathsep.join([str(Path(source).resolve()), str(root)])
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": paths}
        )
        self.row = {"label": row.label, "preset": row.preset} | self._answer()
        print(f"{row.label}: learned {json.dumps(self.row['learn'])}", file=sys.stderr, flush=True)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args!r} ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def do(self, job: str) -> dict[str, Any]:
        """One turn."""
        assert self._process.stdin
        print(job, file=self._process.stdin, flush=True)
        return self._answer()

    def end(self) -> None:
        """No more turns."""
        self._process.communicate()


def run(arguments: argparse.Namespace) -> None:
    """Measure and store."""
    facts = machine.facts()
    workers = [Worker(row, arguments) for row in ROWS if arguments.before or not row.before]
    jobs = ("encode", "inspect")
    for worker in workers:
        worker.do("inspect")
        worker.row |= {job: [] for job in jobs}
    for turn in range(TURNS):
        for job in jobs:
            for worker in workers:
                worker.row[job].append(worker.do(job))
        print(f"turn {turn + 1} of {TURNS}: done", file=sys.stderr, flush=True)
    for worker in workers:
        worker.end()
    document = {"machine": facts, "inspected": INSPECTED, "rows": [worker.row for worker in workers]}
    write_atomic(arguments.out, (json.dumps(document) + "\n").encode())
    table(arguments)


def usual(row: dict[str, Any], job: str) -> float:
    """Processor seconds of the median turn: ONNX Runtime's threads wait busily, and on a busy machine turns scatter."""
    return float(np.median([turn["processor_s"] for turn in row[job]]))


def table(arguments: argparse.Namespace) -> None:
    """Print the stored result as Markdown."""
    document = json.loads(arguments.out.read_text())
    print(
        "| preset | encoder | an image | over its bare encoder | over `fast` "
        "| learning 100 images | of it memory and calibration | until the product can be inspected | on disk |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    first = usual(document["rows"][0], "inspect")
    for row in document["rows"]:
        inspect, learning = usual(row, "inspect"), row["learn"]["processor_s"]
        learned = [f"{learning:.0f} s", f"{100 * row['building_s'] / learning:.0f} %"]
        learned += [f"{row['usable']['processor_s']:.0f} s", f"{row['bytes'] / 1e6:.1f} MB"]
        learned = learned if row["images"] == LEARNED else ["–"] * len(learned)
        print(
            f"| {row['label']} | {row['encoder']['provider']} {row['encoder']['precision']} "
            f"| {1e3 * inspect / document['inspected']:.0f} ms | {inspect / usual(row, 'encode'):.2f} "
            f"| {inspect / first:.2f} | "
            + " | ".join(learned if row["images"] == LEARNED else "–" * len(learned))
            + " |"
        )


# --- many images of one product ---


def learning(arguments: argparse.Namespace) -> None:
    """Measure what memory and threshold take of learning many images, and store it."""
    from benchmarks.daily_use import EARLIER, SharedFeatures  # an earlier version, which takes turns in `run`, lacks it

    encoder = load_encoder(layers=DEFAULT.layers, size=DEFAULT.size, threads=arguments.threads)
    building, rows = Building(), []
    for count in arguments.learned:
        images = products("gear", count)
        with tempfile.TemporaryDirectory() as folder:
            shared = SharedFeatures(encoder, DiskCache(Path(folder), DEFAULT_LIMIT))
            shared.use(Dinosaur(encoder=encoder)).learn("warm", images)
            encoding = shared.seconds
            for label, preset in (("before", EARLIER), ("now", DEFAULT)):
                already = building.seconds
                detector = shared.use(Dinosaur(encoder=encoder, preset=preset))
                learned = detector.learn("part", images)
                row = {"label": label, "folds": preset.folds, "images": learned.images, "bytes": learned.bytes}
                scored = detector.store.record("part").manifest["calibration"]["scores"]
                spent = {"encode_s": round(encoding, 1), "building_s": round(building.seconds - already, 2)}
                rows.append(row | {"scored": scored, "threshold": learned.threshold} | spent)
    document = {"machine": machine.facts(), "encoder": encoder.info(), "rows": rows}
    write_atomic(arguments.out, (json.dumps(document) + "\n").encode())
    learning_table(arguments)


def learning_table(arguments: argparse.Namespace) -> None:
    """Print the stored result as Markdown."""
    print("| images | thresholds | encoding | memory and calibration | of learning |\n|--:|---|--:|--:|--:|")
    for row in json.loads(arguments.out.read_text())["rows"]:
        folds = f"{row['folds']} folds" if row["folds"] else "5 to 20 folds (before)"
        share = row["building_s"] / (row["building_s"] + row["encode_s"])
        print(
            f"| {row['images']} | {row['scored']} unseen normals, {folds} | {row['encode_s']:.0f} s "
            f"| {row['building_s']:.1f} s | {100 * share:.1f} % |"
        )


def main() -> None:
    """Measure, print the table, or be the process of a row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    names = ("run", "work", "table", "learning", "learning-table")
    runner, worker, printer, many, many_printer = (verbs.add_parser(name) for name in names)
    for verb, of in (
        *((run, runner), (work, worker), (table, printer)),
        *((learning, many), (learning_table, many_printer)),
    ):
        of.set_defaults(verb=verb)
    many.add_argument("--out", type=Path, required=True)
    many.add_argument("--learned", type=int, nargs="+", default=[LEARNED, MANY])
    many.add_argument("--threads", type=int, help="of the encoder (default: one a core)")
    many_printer.add_argument("out", type=Path)
    for of in (runner, worker):
        of.add_argument("--data", type=Path, required=True, help="a folder of categories in the MVTec-AD layout")
        of.add_argument("--task", default="cable")
    runner.add_argument("--out", type=Path, required=True)
    runner.add_argument("--before", type=Path, help="the folder src of an earlier version")
    worker.add_argument("--preset", required=True)
    worker.add_argument("--provider")
    worker.add_argument("--learned", type=int, default=LEARNED)
    printer.add_argument("out", type=Path)
    arguments = parser.parse_args()
    arguments.verb(arguments)


if __name__ == "__main__":
    main()
