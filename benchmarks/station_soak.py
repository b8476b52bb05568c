"""What a station promises of itself, measured: nothing lost, no growth, verdicts in time, judging undisturbed.

    python -m benchmarks.station_soak kills --count 200
    python -m benchmarks.station_soak soak --encoder small --parts 200000 --minutes 25
    python -m benchmarks.station_soak soak --encoder fast --parts 5000
    python -m benchmarks.station_soak latency
    python -m benchmarks.station_soak strangers
    python -m benchmarks.station_soak shown
    python -m benchmarks.station_soak install
    python -m benchmarks.station_soak table results/station_soak.json

``small`` is an encoder of random parameters, so that everything but the encoder is what is measured; ``fast`` is the
preset of that name with the embedded encoder. Every result is stored beside the others, with the machine and its load.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import threading
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.station_install import install_run
from benchmarks.station_kills import CAMERA, DIFFERENT, kill_run
from benchmarks.station_latency import latency_run, strangers_run
from benchmarks.station_line import LINE_ENCODERS, Visit, running_station
from benchmarks.station_shown import shown_run
from benchmarks.station_tables import TABLES, table
from dinosaur_ad._atomic import write_atomic

RESULTS = Path("results/station_soak.json")
ASKED_EVERY = 100
"""Parts between two times that the pages are asked for."""


def soak_run(folder: Path, name: str, parts: int, minutes: float, every: int) -> dict[str, Any]:
    """Judge parts one after the other while a page listens and is asked for now and then; samples of what it takes."""
    from dinosaur_ad.station.part import Picture

    encoder = LINE_ENCODERS[name]
    pictures, samples = encoder.pictures(1000, DIFFERENT), []
    with running_station(folder, encoder, requests_a_second=10_000.0) as (station, url), Visit("pages", url, "1"):
        began, done = time.monotonic(), 0
        while done < parts and time.monotonic() < began + 60 * minutes:
            picture = Picture(f"{CAMERA}:{done}", CAMERA, datetime.now(UTC), pixels=pictures[done % DIFFERENT])
            station.pipeline.inspect(picture)
            done += 1
            if done % ASKED_EVERY == 0:
                station.recorder.settle(60)
                for path in ("/", "/parts", "/api/v1/state", "/metrics"):
                    with urllib.request.urlopen(url + path, timeout=60) as answer:
                        answer.read()
            if done % every == 0:
                samples.append(_sample(station, done, time.monotonic() - began))
                print(samples[-1], file=sys.stderr, flush=True)
        station.recorder.settle(60)
        state, recorded = station.recorder.state(), sum(station.history.counts().values())
        info = station.detector.info()
    found = {"parts": done, "recorded": recorded, "not_kept": state["not_kept"], "info": info}
    return found | {"samples": samples, "growth": _growth(samples)}


def _sample(station: Any, parts: int, seconds: float) -> dict[str, Any]:
    state = station.pipeline.state()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return {
        "parts": parts,
        "seconds": round(seconds, 1),
        "resident_mb": round(resident, 1),
        "handles": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "threads": threading.active_count(),
        "total_ms": state["total_ms"],
        "encode_ms": state["encode_ms"],
    }


def _growth(samples: list[dict[str, Any]]) -> dict[str, float]:
    """What the second half of the samples grows by in 10,000 parts, by a straight line through them."""
    half = samples[len(samples) // 2 :]
    if len(half) < 3:
        return {}
    parts = np.asarray([each["parts"] for each in half]) / 10_000
    slopes = {name: np.polyfit(parts, [each[name] for each in half], 1)[0] for name in ("resident_mb", "handles")}
    return {name: round(float(value), 2) for name, value in slopes.items()}


def stored(file: Path, name: str, before: dict[str, Any], result: dict[str, Any]) -> None:
    """Put a result beside the others of the file; ``before`` are the facts of the machine when it began."""
    document = json.loads(file.read_text()) if file.exists() else {}
    facts = before | {"load_after": os.getloadavg()[0]}
    document[name] = {"machine": facts, "date": datetime.now(UTC).date().isoformat()} | result
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, (json.dumps(document) + "\n").encode())


def measured(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The result of a verb."""
    match options.verb:
        case "kills":
            return kill_run(folder, options.count, options.seed, options.minutes)
        case "soak":
            return soak_run(folder, options.encoder, options.parts, options.minutes, options.every)
        case "latency":
            return latency_run(folder, options.rounds, options.seconds)
        case "strangers":
            return strangers_run(folder, options.rounds, options.seconds)
        case "shown":
            return shown_run(folder, options.seconds)
        case _:
            return install_run(folder, options.starts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.station_soak", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    kills = verbs.add_parser("kills", help="kill a station again and again")
    kills.add_argument("--count", type=int, default=200)
    kills.add_argument("--seed", type=int, default=0)
    kills.add_argument("--minutes", type=float, default=math.inf, help="end earlier, after so many")
    soak = verbs.add_parser("soak", help="judge many parts")
    soak.add_argument("--encoder", choices=tuple(LINE_ENCODERS), default="small")
    soak.add_argument("--parts", type=int, default=200_000)
    soak.add_argument("--minutes", type=float, default=math.inf, help="end earlier, after so many")
    soak.add_argument("--every", type=int, default=1000, help="parts between two samples")
    latency = verbs.add_parser("latency", help="two cameras, with and without 20 open pages")
    strangers = verbs.add_parser("strangers", help="two cameras, with and without 500 requests a second")
    for each in (latency, strangers):
        each.add_argument("--rounds", type=int, default=10)
        each.add_argument("--seconds", type=float, default=15.0, help="of each turn")
    shown = verbs.add_parser("shown", help="how soon a browser shows a part")
    shown.add_argument("--seconds", type=float, default=60.0, help="of each line")
    install = verbs.add_parser("install", help="megabytes on the disk, seconds to start")
    install.add_argument("--starts", type=int, default=7)
    for each in (kills, soak, latency, strangers, shown, install):
        each.add_argument("--out", type=Path, default=RESULTS)
    reader = verbs.add_parser("table", help="print the stored results as Markdown")
    reader.add_argument("file", type=Path)
    reader.add_argument("--only", choices=tuple(TABLES))
    return parser


def main() -> None:
    options = _parser().parse_args()
    if options.verb == "table":
        print(table(json.loads(options.file.read_text()), options.only))
        return
    name = f"soak-{options.encoder}" if options.verb == "soak" else options.verb
    before = machine.facts()
    with tempfile.TemporaryDirectory(prefix="station-soak-") as folder:
        result = measured(options, Path(folder))
    stored(options.out, name, before, result)
    print(table({name: json.loads(options.out.read_text())[name]}))


if __name__ == "__main__":
    main()
