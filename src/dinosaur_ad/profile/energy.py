"""Energy counters: RAPL of a processor, INA3221 sensors of a Jetson.

Both measure the whole processor or board: idle power and everything else that runs on it are included.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

# A rail of this name is the whole board; the others are parts of it, which must not be counted twice.
_WHOLE_BOARD = ("VDD_IN", "POM_5V_IN")
_SECONDS_BETWEEN_SAMPLES = 0.1


@dataclass(frozen=True)
class Energy:
    """Joules between two moments and the counter they are from; without a counter None and the reason."""

    joules: float | None
    source: str

    def to_json(self, images: int) -> dict[str, Any]:
        """As in a profile: for one of ``images`` images.

        >>> Energy(30.0, "RAPL").to_json(20)
        {'joules_an_image': 1.5, 'source': 'RAPL', 'reason': None}
        """
        if self.joules is None:
            return {"joules_an_image": None, "source": None, "reason": self.source}
        return {"joules_an_image": self.joules / images, "source": self.source, "reason": None}


class _Package(NamedTuple):
    """One RAPL package: microjoules that start again from 0 above ``limit``."""

    counter: Path
    limit: int


class _Rail(NamedTuple):
    """One channel of an INA3221: millivolts and milliamperes."""

    name: str
    volts: Path
    amperes: Path

    def watts(self) -> float:
        return _read(self.volts) * _read(self.amperes) / 1e6


class EnergyMeter(AbstractContextManager["EnergyMeter"]):
    """Counts joules between entering and leaving; the result is in ``energy``.

    >>> with EnergyMeter(Path("no-such-root")) as meter:
    ...     pass
    >>> meter.energy.joules is None
    True
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._packages, why_not = _find_packages(root)
        self._rails = [] if self._packages else _find_rails(root)
        self.energy = Energy(None, f"not measurable here: {why_not}, and there is no Jetson power sensor (INA3221)")
        self._before: list[int] = []
        self._samples: list[tuple[float, float]] = []
        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._keep_sampling, name="power", daemon=True)

    def __enter__(self) -> EnergyMeter:
        self._before = [_read(package.counter) for package in self._packages]
        if self._rails:
            self._sample()
            self._sampler.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._packages:
            microjoules = 0
            for package, before in zip(self._packages, self._before, strict=True):
                used = _read(package.counter) - before
                microjoules += used if used >= 0 else used + package.limit
            packages = "1 package" if len(self._packages) == 1 else f"{len(self._packages)} packages"
            self.energy = Energy(microjoules / 1e6, f"RAPL ({packages}), idle power included")
        elif self._rails:
            self._done.set()
            self._sampler.join()
            self._sample()
            rails = ", ".join(rail.name for rail in self._rails)
            self.energy = Energy(_integral(self._samples), f"INA3221 sensors ({rails}), idle power included")

    def _keep_sampling(self) -> None:
        while not self._done.wait(_SECONDS_BETWEEN_SAMPLES):
            self._sample()

    def _sample(self) -> None:
        self._samples.append((time.monotonic(), sum(rail.watts() for rail in self._rails)))


def _find_packages(root: Path) -> tuple[list[_Package], str]:
    """The RAPL packages that may be read, or why there are none."""
    packages = []
    for folder in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):  # AMD's are called intel too
        if folder.name.count(":") != 1 or not _text(folder / "name").startswith("package"):
            continue
        try:
            packages.append(_Package(folder / "energy_uj", _read(folder / "max_energy_range_uj")))
            _read(packages[-1].counter)
        except (OSError, ValueError):
            return [], f"RAPL is there, but {folder / 'energy_uj'} may not be read (only root may, usually)"
    return packages, "there are no RAPL counters"


def _find_rails(root: Path) -> list[_Rail]:
    """The power rails of a Jetson: the whole board where one is labelled so, else all there are."""
    rails = []
    for volts in sorted((root / "sys/bus/i2c/drivers").glob("ina3221*/*/hwmon/hwmon*/in*_input")):
        number = volts.name.removeprefix("in").removesuffix("_input")
        name = _text(volts.with_name(f"in{number}_label")) or f"channel {number}"
        rail = _Rail(name, volts, volts.with_name(f"curr{number}_input"))
        try:
            rail.watts()
        except (OSError, ValueError):
            continue  # sums of rails have no current of their own
        rails.append(rail)
    return [rail for rail in rails if rail.name in _WHOLE_BOARD] or rails


def _integral(samples: Sequence[tuple[float, float]]) -> float:
    """Joules from (seconds, watts), by the trapezoidal rule.

    >>> _integral([(0.0, 4.0), (1.0, 6.0), (3.0, 6.0)])
    17.0
    """
    return sum((after - before) * (first + second) / 2 for (before, first), (after, second) in pairwise(samples))


def _read(path: Path) -> int:
    return int(path.read_text())


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
