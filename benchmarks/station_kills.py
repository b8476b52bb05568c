"""A station that is killed again and again while pictures come to it; see :mod:`benchmarks.station_soak`."""

from __future__ import annotations

import io
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dinosaur_ad import Dinosaur
from dinosaur_ad.datasets.synthetic.product import GOOD
from dinosaur_ad.datasets.synthetic.scenario import SyntheticSample
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.presets import DEFAULT
from dinosaur_ad.station.client import StationClient, StationError

TINY = replace(DEFAULT, name="tiny", layers=(0, 1), size=70)
ENCODER = "tiny-dinov2"
PRODUCT, SIZE, LEARNED_FROM, DIFFERENT = "gear", 140, 20, 12
CAMERA = "camera"
START_SECONDS, STUCK_SECONDS = 600.0, 120.0
"""When a start is given up, and how long nothing may be recorded at the end while parts are missing."""
FILES_A_SECOND, UPLOADS_A_SECOND = 4.0, 10.0
SENDERS = 3
"""Programs that upload at the same time, so that most kills meet one."""
KILLED_WHILE_STARTING = 0.3
"""The share of kills that do not wait until the station answers."""


def gears(first: int, count: int) -> list[NDArray[np.uint8]]:
    """Drawn normal parts."""
    return [SyntheticSample(PRODUCT, GOOD, first + index, size=SIZE).image() for index in range(count)]


def teach(store: Path) -> None:
    """Make a store that knows one product."""
    Dinosaur(store, encoder=ENCODER, preset=TINY).learn(PRODUCT, gears(0, LEARNED_FROM))


class Line:
    """A camera folder and a sender of uploads that go on whether the station runs or not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.files: list[str] = []
        self.acknowledged: list[str] = []
        self.tried: set[str] = set()
        self.changes = 0
        self._pictures = [_png(pixels) for pixels in gears(1000, DIFFERENT)]
        self._ended = threading.Event()
        works: list[Callable[[], None]] = [
            self._photograph,
            *(partial(self._send, sender) for sender in range(SENDERS)),
        ]
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        folder.mkdir(parents=True)

    def __enter__(self) -> Line:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)

    def _photograph(self) -> None:
        while not self._ended.wait(1 / FILES_A_SECOND):
            name = f"{len(self.files):06d}.png"
            draft = self.folder / f".{name}.part"
            draft.write_bytes(self._pictures[len(self.files) % DIFFERENT])
            draft.rename(self.folder / name)
            self.files.append(name)

    def _send(self, sender: int) -> None:
        """Send every picture until it is acknowledged, with the same key; change a setting now and then."""
        sent = 0
        while not self._ended.wait(1 / UPLOADS_A_SECOND):
            if not self.url:
                continue
            key = f"sent-{sender}-{sent:06d}"
            client = StationClient(self.url, timeout=20.0)
            with suppress(StationError):
                self.tried.add(key)
                client.give(self._pictures[sent % DIFFERENT], key=key)
                self.acknowledged.append(key)
                sent += 1
                if sender == 0 and sent % 3 == 0:
                    client.configure(PRODUCT, sensitivity=4 + sent % 2)
                    self.changes += 1


class StationProcess:
    """``dinosaur station`` as a process of its own, started and killed again and again."""

    def __init__(self, folder: Path, line: Line) -> None:
        self.folder, self.line = folder, line
        self.back: list[float] = []
        self.back_cpu: list[float] = []
        self._process: subprocess.Popen[str] | None = None
        settings = f'store = "store"\n[[source]]\nname = "{CAMERA}"\nkind = "folder"\npath = "{line.folder.name}"\n'
        (folder / "station.toml").write_text(settings)

    def start(self) -> None:
        """Start it, and do not wait."""
        self._began = time.monotonic()
        command = [sys.executable, "-m", "dinosaur_ad.cli", "station", "--port", "0", "--config"]
        with (self.folder / "stderr.txt").open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, str(self.folder / "station.toml")],
                env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def answer(self) -> None:
        """Wait until it answers, and note how long that took, and how much of a processor."""
        assert self._process is not None
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said.startswith("station: "):
            raise AssertionError(f"the station did not start: {(self.folder / 'stderr.txt').read_text()[-2000:]}")
        url = said.split()[1]
        while time.monotonic() < self._began + START_SECONDS:
            with suppress(OSError), urllib.request.urlopen(f"{url}/api/v1/health", timeout=5):
                self.back.append(round(time.monotonic() - self._began, 3))
                self.back_cpu.append(cpu_seconds(self._process.pid))
                self.line.url = url
                return
            time.sleep(0.01)
        raise AssertionError(f"the station does not answer within {START_SECONDS:g} seconds")

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as Ctrl-C does: what was accepted is recorded."""
        self._end(signal.SIGINT)

    def _end(self, kind: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(kind)
            self._process.wait(60)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


def cpu_seconds(process: int) -> float:
    """What a process has used of the processors so far: the time it would take alone, at most."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kill_run(folder: Path, count: int, seed: int = 0, minutes: float = math.inf) -> dict[str, Any]:
    """Kill a station ``count`` times at random moments while pictures come; what its history has at the end.

    After so many ``minutes`` there are no more kills; the result says how many there were.
    """
    chance, kills, ends = random.Random(seed), 0, time.monotonic() + 60 * minutes
    teach(folder / "store")
    with Line(folder / "pictures") as line:
        station = StationProcess(folder, line)
        try:
            while kills < count and time.monotonic() < ends:
                print(f"\r{kills} of {count} kills", end="", file=sys.stderr, flush=True)
                station.start()
                if chance.random() < KILLED_WHILE_STARTING:
                    time.sleep(chance.uniform(0.0, 2.0))
                else:
                    station.answer()
                    time.sleep(chance.uniform(0.0, 2.0))
                station.kill()
                kills += 1
            station.start()
            station.answer()
        except BaseException:
            station.kill()
            raise
    try:
        _until_recorded(folder, len(line.files) + len(line.acknowledged))
    finally:
        station.stop()
    times = {"back_seconds": station.back, "back_cpu_seconds": station.back_cpu}
    return {"kills": kills, "seed": seed} | checked(folder, line) | times


def _until_recorded(folder: Path, count: int) -> None:
    """Wait until the history has so many parts, as long as more come; what is missing then is said by the check."""
    recorded, since = -1, time.monotonic()
    with sqlite3.connect(f"file:{_database(folder)}?mode=ro", uri=True) as database:
        while recorded < count and time.monotonic() < since + STUCK_SECONDS:
            before = recorded
            recorded = database.execute("SELECT COUNT(*) FROM parts").fetchone()[0]
            since = since if recorded == before else time.monotonic()
            time.sleep(0.1)


def _database(folder: Path) -> Path:
    return folder / "store-station" / "history.sqlite"


def checked(folder: Path, line: Line) -> dict[str, Any]:
    """What is lost, doubled, or unreadable."""
    from dinosaur_ad.station.history.history import History
    from dinosaur_ad.station.history.searching import PartQuery

    history = History("", folder / "store-station")
    history.open()
    found: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    lost_pictures, before = 0, None
    try:
        while True:
            page = history.search(PartQuery(before_id=before, limit=500))
            for part in page.parts:
                name = part.key.split(":")[1]
                found[name] += 1
                verdicts[part.verdict] += 1
                for view in part.views:
                    path = history.picture_path(view.id)
                    lost_pictures += path is None or not _is_picture(path)
            before = page.next_before
            if before is None:
                break
    finally:
        history.close()
    expected = {*line.files, *line.acknowledged}
    return {
        "files": len(line.files),
        "uploads": len(line.acknowledged),
        "settings_changed": line.changes,
        "parts": sum(found.values()),
        "lost": sorted(expected - found.keys()),
        "twice": sorted(name for name, times in found.items() if times > 1),
        "unexpected": sorted(found.keys() - expected - line.tried),
        "pictures_lost": lost_pictures,
        "verdicts": dict(verdicts),
        "store": _store_problem(folder / "store"),
    }


def _is_picture(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            image.load()
    except (OSError, SyntaxError):
        return False
    return True


def _store_problem(store: Path) -> str:
    try:
        detector = Dinosaur(store, encoder=ENCODER, preset=TINY)
        detector.verify(PRODUCT)
        detector.inspect(gears(0, 1)[0])
    except DinosaurError as error:
        return str(error)
    return ""


def _png(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
