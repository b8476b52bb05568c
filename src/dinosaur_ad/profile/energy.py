"""Energy, where the machine can tell: RAPL counters of a processor, INA3221 sensors of a Jetson.

Both speak of the whole processor or board, idle power included, and of everything that runs on it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

_RAPL = "sys/class/powercap"
_INA3221 = "sys/bus/i2c/drivers"
# A rail of this name is the whole board; the others are parts of it, which must not be counted twice.
_WHOLE_BOARD = ("VDD_IN", "POM_5V_IN")
_SECONDS_BETWEEN_SAMPLES = 0.1


@dataclass(frozen=True)
class Energy:
    """Joules between two moments and who counted them; ``joules`` is None where nobody can, and ``source`` says why."""

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


@dataclass(frozen=True)
class _Counter:
    """One RAPL package: microjoules that start again from 0 above ``limit``."""

    path: Path
    limit: int

    def read(self) -> int:
        return int(self.path.read_text())


@dataclass(frozen=True)
class _Rail:
    """One channel of an INA3221: millivolts and milliamperes."""

    name: str
    volts: Path
    amperes: Path

    def watts(self) -> float:
        return int(self.volts.read_text()) * int(self.amperes.read_text()) / 1e6


class EnergyMeter(AbstractContextManager["EnergyMeter"]):
    """Counts joules between entering and leaving; ``energy`` says how many, or why it cannot.

    >>> with EnergyMeter(Path("no-such-root")) as meter:
    ...     pass
    >>> meter.energy.joules is None
    True
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._counters, why_not = _find_counters(root)
        self._rails = [] if self._counters else _find_rails(root)
        self.energy = Energy(None, f"not measurable here: {why_not}, and there is no Jetson power sensor (INA3221)")
        self._before: list[int] = []
        self._samples: list[tuple[float, float]] = []
        self._done = threading.Event()
        self._sampler: threading.Thread | None = None

    def __enter__(self) -> EnergyMeter:
        if self._counters:
            self._before = [counter.read() for counter in self._counters]
        elif self._rails:
            self._sample()
            self._sampler = threading.Thread(target=self._keep_sampling, name="power", daemon=True)
            self._sampler.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._counters:
            self.energy = self._counted()
        elif self._sampler is not None:
            self._done.set()
            self._sampler.join()
            self._sample()
            rails = ", ".join(rail.name for rail in self._rails)
            self.energy = Energy(_integral(self._samples), f"INA3221 sensors ({rails}), idle power included")

    def _counted(self) -> Energy:
        after = [counter.read() for counter in self._counters]
        microjoules = sum(
            now - before if now >= before else now - before + counter.limit
            for counter, before, now in zip(self._counters, self._before, after, strict=True)
        )
        packages = "1 package" if len(after) == 1 else f"{len(after)} packages"
        return Energy(microjoules / 1e6, f"RAPL ({packages}), idle power included")

    def _keep_sampling(self) -> None:
        while not self._done.wait(_SECONDS_BETWEEN_SAMPLES):
            self._sample()

    def _sample(self) -> None:
        self._samples.append((time.monotonic(), sum(rail.watts() for rail in self._rails)))


def _find_counters(root: Path) -> tuple[list[_Counter], str]:
    """The RAPL packages that may be read, or why there are none."""
    packages = [
        folder
        for folder in sorted((root / _RAPL).glob("intel-rapl:*"))  # AMD's are called intel too
        if folder.name.count(":") == 1 and _text(folder / "name").startswith("package")
    ]
    counters = []
    for folder in packages:
        try:
            counter = _Counter(folder / "energy_uj", int((folder / "max_energy_range_uj").read_text()))
            counter.read()
        except (OSError, ValueError):
            return [], f"RAPL is there, but {folder / 'energy_uj'} may not be read (only root may, usually)"
        counters.append(counter)
    return counters, "there are no RAPL counters"


def _find_rails(root: Path) -> list[_Rail]:
    """The power rails of a Jetson: the whole board where one is labelled so, else all there are."""
    rails = []
    for volts in sorted((root / _INA3221).glob("ina3221*/*/hwmon/hwmon*/in*_input")):
        number = volts.name.removeprefix("in").removesuffix("_input")
        rail = _Rail(
            _text(volts.with_name(f"in{number}_label")) or f"channel {number}",
            volts,
            volts.with_name(f"curr{number}_input"),
        )
        try:
            rail.watts()
        except (OSError, ValueError):
            continue  # sums of rails have no current of their own
        rails.append(rail)
    whole = [rail for rail in rails if rail.name in _WHOLE_BOARD]
    return whole or rails


def _integral(samples: Sequence[tuple[float, float]]) -> float:
    """Joules from (seconds, watts), by trapezia.

    >>> _integral([(0.0, 4.0), (1.0, 6.0), (3.0, 6.0)])
    17.0
    """
    return sum((after - before) * (first + second) / 2 for (before, first), (after, second) in pairwise(samples))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
