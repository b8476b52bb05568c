"""What the extra `station` brings to a disk, and how soon a station answers; see :mod:`benchmarks.station_soak`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
import venv
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.station_kills import cpu_seconds
from benchmarks.station_line import LINE_ENCODERS, LineEncoder
from dinosaur_ad import Dinosaur

ROOT = Path(__file__).resolve().parents[1]
NOT_OURS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence.pth")
"""What every environment has."""
START_SECONDS = 120.0


def install_run(folder: Path, starts: int) -> dict[str, Any]:
    """Install the wheel with and without the extra into new environments, and start the station of one of them."""
    _run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)])
    (wheel,) = folder.glob("*.whl")
    bare, station = folder / "bare", folder / "station"
    for place, what in ((bare, str(wheel)), (station, f"{wheel}[station]")):
        venv.create(place, with_pip=True)
        _run([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", what])
    before, after = packages(bare), packages(station)
    brought = {name: round(size / 1e6, 2) for name, size in after.items() if name not in before}
    return {
        "run_time_mb": round(sum(before.values()) / 1e6, 1),
        "with_station_mb": round(sum(after.values()) / 1e6, 1),
        "brought_mb": dict(sorted(brought.items(), key=lambda each: -each[1])),
        "torch": any(name.startswith("torch") for name in after),
        "starts": {name: start_times(folder, station, name, starts) for name in LINE_ENCODERS},
    }


def packages(place: Path) -> dict[str, int]:
    """The bytes on the disk of each package of an environment, as ``du`` counts them."""
    (site,) = place.glob("lib/python*/site-packages")
    sizes = {each.name: _disk_bytes(each) for each in site.iterdir()}
    return {name: size for name, size in sizes.items() if not name.startswith(NOT_OURS)}


def _disk_bytes(path: Path) -> int:
    inside = path.rglob("*") if path.is_dir() else ()
    return sum(each.lstat().st_blocks * 512 for each in (path, *inside))


def start_times(folder: Path, place: Path, name: str, count: int) -> list[dict[str, float]]:
    """From the command to the first answer, on a store that knows a product: seconds, and seconds of processors."""
    encoder, store = LINE_ENCODERS[name], folder / f"store-{name}"
    _teach(store, encoder)
    return [_started(place, store) for _ in range(count)]


def _teach(store: Path, encoder: LineEncoder) -> None:
    Dinosaur(store, encoder=encoder.name, preset=encoder.preset).learn("gear", encoder.pictures(0, 10))


def _started(place: Path, store: Path) -> dict[str, float]:
    command = [str(place / "bin" / "dinosaur"), "station", "--port", "0", "--store", str(store)]
    began = time.monotonic()
    process = subprocess.Popen(command, env=_clean(), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]
        while time.monotonic() < began + START_SECONDS:
            with suppress(OSError), urllib.request.urlopen(f"{url}/api/v1/health", timeout=5):
                return {"seconds": round(time.monotonic() - began, 3), "cpu_seconds": cpu_seconds(process.pid)}
            time.sleep(0.005)
        raise AssertionError(f"the station does not answer within {START_SECONDS:g} seconds")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def _run(command: list[str]) -> None:
    subprocess.run(command, env=_clean(), check=True, stdout=subprocess.DEVNULL)


def _clean() -> dict[str, str]:
    """The environment without what would lead to this folder instead of to what was installed."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
