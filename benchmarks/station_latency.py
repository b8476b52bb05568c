"""How soon a verdict is there, and what open pages and strangers cost; see :mod:`benchmarks.station_soak`.

All that is compared is measured in turns of a few seconds: what else runs on the machine then meets all of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.station_kills import DIFFERENT
from benchmarks.station_line import LINE_ENCODERS, Visit, encoder_alone, judge_all, running_station

PAGES, REQUESTS_A_SECOND = 20, 500.0
PERIODS = (4.0, 4.3)
"""Between two pictures of each of the two cameras, as so many times what the encoder takes."""
ALONE = 15
"""Pictures of a round that the encoder alone takes."""
PASSWORD = "a long enough passphrase"


def latency_run(folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Two cameras; in turns the encoder alone, the station as it is, and with open pages."""
    return _in_turns(folder, rounds, seconds, "pages", PAGES)


def strangers_run(folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Two cameras; in turns the encoder alone, the station as it is, and with a stranger who may see nothing."""
    return _in_turns(folder, rounds, seconds, "strangers", REQUESTS_A_SECOND)


def _in_turns(folder: Path, rounds: int, seconds: float, visitors: str, count: float) -> dict[str, Any]:
    encoder = LINE_ENCODERS["fast"]
    pictures = encoder.pictures(1000, DIFFERENT)
    found: dict[str, list[Any]] = {"alone": [], "quiet": [], visitors: []}
    cpu: dict[str, list[float]] = {name: [] for name in found}

    def noted(name: str, turn: Callable[[], list[Any]]) -> None:
        """Let a turn take place; note what it found, and what a picture of it took of the processors."""
        before = time.process_time()
        found[name].append(turn())
        cpu[name].append(round((time.process_time() - before) / max(1, len(found[name][-1])) * 1e3, 1))

    visits = []
    # Twenty pages are twenty addresses elsewhere, each with a limit of its own.
    server: dict[str, Any] = {"requests_a_second": 10_000.0} if visitors == "pages" else {}
    with running_station(folder, encoder, **server) as (station, url):
        if visitors == "strangers":
            station.accounts.create("somebody", PASSWORD, "admin", by="benchmark")
        usual = float(np.median(encoder_alone(station, pictures, 2 * ALONE)[ALONE:])) / 1e3
        cameras = {f"camera-{number}": usual * times for number, times in enumerate(PERIODS)}
        for number in range(rounds):
            print(f"\rround {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
            noted("alone", lambda: [round(each, 2) for each in encoder_alone(station, pictures, ALONE)])
            noted("quiet", lambda: _times(judge_all(station, pictures, cameras, seconds)))
            with Visit(visitors, url, f"{count:g}") as visit:
                noted(visitors, lambda: _times(judge_all(station, pictures, cameras, seconds)))
            visits.append(visit.seen)
        info = station.detector.info()
    periods = [round(period * 1e3, 1) for period in cameras.values()]
    return {"info": info, "periods_ms": periods, "seconds": seconds, "rounds": found, "cpu_ms": cpu, "visits": visits}


def _times(views: list[dict[str, float]]) -> list[list[float]]:
    """Of each picture: the whole, the encoder in it, and the waiting for the picture before it; in milliseconds."""
    return [[round(each.get(name, 0.0), 2) for name in ("total", "encode", "wait")] for each in views]
