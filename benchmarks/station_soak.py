"""Whether a station loses or doubles parts when it is killed, and whether it grows or slows down over many parts.

    python -m benchmarks.station_soak kills --count 200
    python -m benchmarks.station_soak soak --parts 100000
    python -m benchmarks.station_soak table results/station_soak.json

Both use the encoder of random parameters, so that everything but the encoder is what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine
from benchmarks.station_kills import CAMERA, DIFFERENT, ENCODER, TINY, gears, kill_run, teach
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.station.client import StationClient, StationError

RESULTS = Path("results/station_soak.json")


# --- soak ---


@contextmanager
def running_station(folder: Path) -> Iterator[tuple[Any, str]]:
    """A station with its page in this process, and the address of the page."""
    from dinosaur_ad.station.config import HistoryConfig, ServerConfig, StationConfig
    from dinosaur_ad.station.service import Station
    from dinosaur_ad.station.web.app import create_app, make_server

    teach(folder / "store")
    server = ServerConfig(port=0, requests_a_second=10_000.0)
    config = StationConfig(folder / "store", folder / "own", server, HistoryConfig(keep_bytes="200MB"))
    station = Station(config, encoder=ENCODER, preset=TINY)
    station.start()
    web = make_server(create_app(station), server)
    thread = threading.Thread(target=web.run, daemon=True)
    thread.start()
    try:
        while not web.started:
            time.sleep(0.01)
        yield station, f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}"
    finally:
        web.should_exit = True
        thread.join(30)
        station.stop()


def soak_run(folder: Path, parts: int, every: int) -> dict[str, Any]:
    """Judge parts one after the other while a page listens and is asked for now and then; samples of what it takes."""
    from dinosaur_ad.station.part import Picture

    pictures, samples = gears(1000, DIFFERENT), []
    with running_station(folder) as (station, url):
        listener = threading.Thread(target=_listen, args=(url,), daemon=True)
        listener.start()
        bare = _bare_encoder(station, pictures)
        began = time.monotonic()
        for number in range(parts):
            taken = datetime.now(UTC)
            picture = Picture(f"{CAMERA}:{number}", CAMERA, taken, pixels=pictures[number % DIFFERENT])
            station.pipeline.inspect(picture)
            if number % 100 == 99:
                station.recorder.settle(60)
                for path in ("/", "/parts", "/api/v1/state", "/metrics"):
                    with urllib.request.urlopen(url + path, timeout=60) as answer:
                        answer.read()
            if (number + 1) % every == 0:
                samples.append(_sample(station, number + 1, time.monotonic() - began))
                print(samples[-1], file=sys.stderr, flush=True)
        after = _bare_encoder(station, pictures)
        not_kept = station.recorder.state()["not_kept"]
    growth = _growth(samples)
    return {"parts": parts, "not_kept": not_kept, "bare_encoder_ms": {"before": bare, "after": after}} | {
        "samples": samples,
        "growth": growth,
    }


def _listen(url: str) -> None:
    with suppress(StationError, OSError):
        for _ in StationClient(url).events():
            pass


def _bare_encoder(station: Any, pictures: list[NDArray[np.uint8]], rounds: int = 300) -> dict[str, float]:
    """The encoder alone, in milliseconds a picture."""
    times = []
    for number in range(rounds):
        began = time.perf_counter()
        station.detector.encoder.encode([pictures[number % DIFFERENT]])
        times.append((time.perf_counter() - began) * 1e3)
    p50, p99 = np.percentile(times, (50, 99))
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2)}


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


# --- results ---


def stored(file: Path, name: str, result: dict[str, Any]) -> None:
    """Put a result beside the others of the file."""
    document = json.loads(file.read_text()) if file.exists() else {}
    document[name] = {"machine": machine.facts(), "date": datetime.now(UTC).date().isoformat()} | result
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, (json.dumps(document, indent=1) + "\n").encode())


def table(document: dict[str, Any]) -> str:
    """The results as Markdown."""
    found = []
    if kills := document.get("kills"):
        back = np.asarray(kills["back_seconds"])
        facts = {
            "kills": kills["kills"],
            "pictures in the folder / acknowledged uploads": f"{kills['files']} / {kills['uploads']}",
            "lost / recorded twice": f"{len(kills['lost'])} / {len(kills['twice'])}",
            "pictures lost or unreadable": kills["pictures_lost"],
            "store": kills["store"] or "intact",
            "answers again after, median / longest": f"{np.median(back):.1f} s / {back.max():.1f} s",
        }
        found.append("\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items())]))
    if soak := document.get("soak"):
        lines = [
            "| parts | memory | handles | frame to verdict p50 / p99 | encoder within it p50 / p99 |",
            "|--:" * 5 + "|",
        ]
        samples = soak["samples"]
        for each in samples[:: max(1, len(samples) // 10)]:
            times = (f"{each[name]['p50']:.1f} / {each[name]['p99']:.1f} ms" for name in ("total_ms", "encode_ms"))
            lines.append(
                f"| {each['parts']} | {each['resident_mb']:.0f} MB | {each['handles']} | {' | '.join(times)} |"
            )
        before, after = soak["bare_encoder_ms"]["before"], soak["bare_encoder_ms"]["after"]
        said = (
            f"The encoder alone: {before['p50']} / {before['p99']} ms before, {after['p50']} / {after['p99']} ms after."
        )
        if growth := soak["growth"]:
            said += f" In the second half memory grows by {growth['resident_mb']} MB in 10,000 parts."
        found.append("\n".join([*lines, "", said]))
    return "\n\n".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.station_soak", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    kills = verbs.add_parser("kills", help="kill a station again and again")
    kills.add_argument("--count", type=int, default=200)
    kills.add_argument("--seed", type=int, default=0)
    soak = verbs.add_parser("soak", help="judge many parts")
    soak.add_argument("--parts", type=int, default=100_000)
    soak.add_argument("--every", type=int, default=1000, help="parts between two samples")
    shown = verbs.add_parser("table", help="print a stored result as Markdown")
    shown.add_argument("file", type=Path)
    for each in (kills, soak):
        each.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.verb == "table":
        print(table(json.loads(options.file.read_text())))
        return
    with tempfile.TemporaryDirectory(prefix="station-soak-") as folder:
        if options.verb == "kills":
            result = kill_run(Path(folder), options.count, options.seed)
        else:
            result = soak_run(Path(folder), options.parts, options.every)
    stored(options.out, options.verb, result)
    print(table({options.verb: result}))


if __name__ == "__main__":
    main()
