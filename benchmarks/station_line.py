"""A station in this process with its page, a line of drawn parts before it, and what it costs to look at."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.station_kills import DIFFERENT, ENCODER, LEARNED_FROM, PRODUCT, SIZE, TINY
from dinosaur_ad import Dinosaur
from dinosaur_ad.datasets.synthetic.product import GOOD
from dinosaur_ad.datasets.synthetic.scenario import SyntheticSample
from dinosaur_ad.presets import FAST, Preset

Pixels = NDArray[np.uint8]
ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class LineEncoder:
    """An encoder with its preset, and the side of the pictures that the cameras take."""

    name: str | None
    preset: Preset
    side: int

    def pictures(self, first: int, count: int) -> list[Pixels]:
        """Drawn normal parts."""
        return [SyntheticSample(PRODUCT, GOOD, first + index, size=self.side).image() for index in range(count)]


LINE_ENCODERS = {"small": LineEncoder(ENCODER, TINY, SIZE), "fast": LineEncoder(None, FAST, 640)}


@contextmanager
def running_station(
    folder: Path, encoder: LineEncoder, cameras: Sequence[str] = (), **server: Any
) -> Iterator[tuple[Any, str]]:
    """A station with its page in this process, as the command runs it, and the address of the page.

    ``cameras`` are sources that give their pictures themselves, as the API does.
    """
    from dinosaur_ad.station.config import HistoryConfig, ServerConfig, SourceConfig, StationConfig
    from dinosaur_ad.station.service import Station
    from dinosaur_ad.station.web.app import create_app, make_server

    detector = Dinosaur(folder / "store", encoder=encoder.name, preset=encoder.preset)
    detector.learn(PRODUCT, encoder.pictures(0, LEARNED_FROM))
    config = StationConfig(
        folder / "store",
        folder / "own",
        ServerConfig(port=0, **server),
        HistoryConfig(keep_bytes="200MB"),
        sources=tuple(SourceConfig(name, "upload") for name in cameras),
    )
    station = Station(config, encoder=encoder.name, preset=encoder.preset)
    station.start()
    web = make_server(create_app(station), config.server)
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


class Visit:
    """A program that looks at a station, such as :mod:`benchmarks.station_visitors` with its arguments, from its first
    answers to the end of the block. Then ``seen`` is what it saw.
    """

    def __init__(self, *arguments: str, program: str = "station_visitors") -> None:
        command = [sys.executable, "-m", f"benchmarks.{program}", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.seen: dict[str, Any] = {}

    def __enter__(self) -> Visit:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "open\n", "the visitors were not answered"
        return self

    def __exit__(self, *_: object) -> None:
        said, _error = self._process.communicate(timeout=ANSWER_SECONDS)
        self.seen = json.loads(said)


def judge_all(
    station: Any, pictures: list[Pixels], cameras: dict[str, float], seconds: float
) -> list[dict[str, float]]:
    """Let cameras take pictures, each at its own period in seconds; the times of every view in milliseconds."""
    from dinosaur_ad.station.part import Picture

    ended = threading.Event()

    def take(camera: str, period: float) -> None:
        upcoming, run = time.monotonic(), time.time_ns()
        while not ended.wait(max(0.0, upcoming - time.monotonic())):
            number = round((upcoming - began) / period)
            key = f"{camera}:{run}:{number}"
            pixels = pictures[number % DIFFERENT]
            station.pipeline.offer(Picture(key, camera, datetime.now(UTC), pixels=pixels))
            upcoming += period

    with station.bus.subscribed(capacity=100_000) as messages:
        began, before = time.monotonic(), station.pipeline.state()["accepted"]
        threads = [threading.Thread(target=take, args=each, daemon=True) for each in cameras.items()]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        ended.set()
        for thread in threads:
            thread.join()
        accepted = station.pipeline.state()["accepted"] - before
        times: list[dict[str, float]] = []
        parts = recorded = 0
        given_up = time.monotonic() + ANSWER_SECONDS
        while (len(times) < accepted or recorded < parts) and time.monotonic() < given_up:
            while message := messages.take():
                recorded += message.kind == "recorded"
                if message.kind == "part":
                    parts += 1
                    times += [view["ms"] for view in message.body["views"]]
            time.sleep(0.01)
    return times


def encoder_alone(station: Any, pictures: list[Pixels], rounds: int) -> list[float]:
    """The encoder without a station around it, in milliseconds a picture."""
    from dinosaur_ad.encoders.base import prepare_one

    side = station.detector.preset.size
    prepared = [prepare_one(Image.fromarray(each), size=side) for each in pictures]
    times = []
    for number in range(rounds):
        began = time.perf_counter()
        station.detector.encoder.encode([prepared[number % len(prepared)]])
        times.append((time.perf_counter() - began) * 1e3)
    return times
