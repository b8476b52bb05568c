"""A profile: methods measured one after another on this machine, each in child processes.

First every method learns a task, then it inspects in ``repeats`` rounds, in a new random order each. A method that
crashes or runs out of memory is recorded as that, and the others go on.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dinosaur_ad.errors import InputError
from dinosaur_ad.profile.child import PROGRESS
from dinosaur_ad.profile.document import FAILED, FORMAT, PARTIAL, VERSION, Document, not_measured, summarise
from dinosaur_ad.profile.machine import machine_facts, machine_state, throttling
from dinosaur_ad.profile.method_runs import DETECTOR, EPOCHS, MethodRun, prepare_method
from dinosaur_ad.profile.profile_images import ProfileImages

if TYPE_CHECKING:
    from dinosaur_ad.methods import MethodChoice

# --- child processes ---


_COMMAND = (sys.executable, "-m", "dinosaur_ad.profile.child")
_SECONDS_BETWEEN_WORDS = 5.0
_WORDS_KEPT = 20


def run_child(
    job: Mapping[str, Any], result: Path, *, threads: int | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """What a process of its own found, or ``{"error": sentence}``; ``result`` is a file for it to write.

    ``threads`` is set as OMP_NUM_THREADS, which limits every library.
    """
    result.unlink(missing_ok=True)
    environment = dict(os.environ) | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
    spawned = time.monotonic()
    process = subprocess.Popen(
        _COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        errors="replace",
    )
    try:
        words = _listen(process, json.dumps({**job, "spawned": spawned, "result": str(result)}), say)
        code = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if code == 0 and result.is_file():
        found: dict[str, Any] = json.loads(result.read_text())
        return found
    return {"error": why_it_ended(code, words)}


def _listen(process: subprocess.Popen[str], job: str, say: Callable[[str], None]) -> list[str]:
    """Send the job, forward progress messages, and return the last other lines of stderr."""
    assert process.stdin is not None
    assert process.stderr is not None
    with suppress(BrokenPipeError):  # it ended before it read the job; stderr has the reason
        process.stdin.write(job)
        process.stdin.close()
    words: list[str] = []
    said = time.monotonic()
    for line in process.stderr:
        if not line.startswith(PROGRESS):
            words = [*words[-_WORDS_KEPT:], line.strip()] if line.strip() else words
        elif time.monotonic() - said > _SECONDS_BETWEEN_WORDS:
            said = time.monotonic()
            say(f"  {line.removeprefix(PROGRESS).strip()}")
    return words


def why_it_ended(code: int, words: Sequence[str]) -> str:
    """How a process ended, as text.

    >>> why_it_ended(-9, [])
    'its process was killed by SIGKILL, most likely because memory ran out'
    >>> why_it_ended(1, ["Traceback", "MemoryError"])
    'its process ended with 1: MemoryError'
    """
    last = words[-1] if words else "it said nothing"
    if code >= 0:
        return f"its process ended with {code}: {last}"
    known = {each.value: each.name for each in signal.Signals}
    name = known.get(-code, f"signal {-code}")
    return f"its process was killed by {name}, " + (
        "most likely because memory ran out" if name == "SIGKILL" else f"its last words: {last}"
    )


# --- the profile ---


Say = Callable[[str], None]


@dataclass(frozen=True)
class ProfilePlan:
    """What to measure, and how often.

    ``runs`` images are inspected one by one in each of ``repeats`` rounds, after ``warm_up`` that do not count;
    ``batch_images`` at least for every size of batch; matrices are multiplied for ``rate_seconds`` in each way.
    ``options`` are those of the detector's encoder; ``store`` is what the method ``dinosaur`` inspects with instead of
    the task it learns. ``device`` is that of the other methods.
    """

    methods: tuple[MethodChoice, ...]
    device_name: str
    learn_images: int | None = None
    learn_repeats: int = 1
    repeats: int = 3
    runs: int = 40
    warm_up: int = 5
    batch_sizes: tuple[int, ...] = (1, 4, 16)
    batch_images: int = 32
    rate_seconds: float = 0.5
    images: Path | None = None
    image_size: int = 256
    store: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        counts = {"learn_images": 2, "learn_repeats": 1, "repeats": 1, "runs": 1, "warm_up": 0, "batch_images": 1}
        for name, least in counts.items():
            value = getattr(self, name)
            if value is not None and value < least:
                option = name.replace("_", "-")
                raise InputError(f"--{option} must be at least {least}, got {value}.")
        if not self.methods:
            raise InputError("There is nothing to profile; name methods with --methods, or leave it out.")
        if self.store is not None and DETECTOR not in [choice.name for choice in self.methods]:
            raise InputError(
                f"--store is what '{DETECTOR}' inspects with; add it to --methods, or leave the store out."
            )


class Profiler:
    """Carries out a plan; :meth:`document` gives what was measured so far, at any time."""

    def __init__(self, plan: ProfilePlan, say: Say) -> None:
        self._plan, self._say = plan, say
        self._random = random.Random(plan.seed)
        self._methods: list[MethodRun] = []
        self._order: list[list[str]] = []
        self._rate = 0.0
        self._images: ProfileImages | None = None
        self._machine, self._before = machine_facts(), machine_state()
        self._began = time.monotonic()

    def run(self) -> Document:
        """Measure everything; what fails is part of the result."""
        plan = self._plan
        with tempfile.TemporaryDirectory(prefix="dinosaur-profile-") as temporary:
            folder = Path(temporary)
            self._images = ProfileImages.gathered(plan, folder)
            self._say(f"images: {self._images.words}")
            self._methods = [prepare_method(choice, plan, folder) for choice in plan.methods]
            self._rate = self._measured_rate(folder)
            for turn in range(plan.learn_repeats):
                self._turn("learning", turn, plan.learn_repeats, self._learn, folder)
            for turn in range(plan.repeats):
                self._turn("inspecting", turn, plan.repeats, self._inspect, folder)
            self._rate = max(self._rate, self._measured_rate(folder))  # whichever moment was less disturbed
        return self.document(complete=True)

    def document(self, *, complete: bool) -> Document:
        """The profile as it stands now."""
        plan, after = self._plan, machine_state()
        same = ("repeats", "runs", "warm_up", "batch_images", "learn_repeats", "seed", "device")
        settings = {name: getattr(plan, name) for name in same} | {
            "batch_sizes": list(plan.batch_sizes),
            "learn_images": len(self._images.learn) if self._images else 0,
            "epochs": EPOCHS,
            "images": self._images.facts() if self._images else {},
            "order": self._order,
            "encoder_options": {
                key: _named(value) for key, value in plan.options.items() if value not in (None, False)
            },
            "store": plan.store is not None,
            "isolation": "every method learns and inspects in processes of its own",
        }
        return {
            "format": FORMAT,
            "version": VERSION,
            "device_name": plan.device_name,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "complete": complete,
            "seconds": time.monotonic() - self._began,
            "machine": self._machine,
            "before": self._before,
            "after": after,
            "throttling": throttling(self._before, after),
            "settings": settings,
            "float32_flops_a_second": self._rate,
            "methods": [self._row(method) for method in self._methods],
        }

    def _row(self, method: MethodRun) -> dict[str, Any]:
        if method.without:
            return not_measured(method.name, *method.without, method.notes)
        if not method.rounds or not method.learned:
            return not_measured(
                method.name, PARTIAL, "the profile was interrupted before it was measured", method.notes
            )
        return summarise(method.name, method.notes, method.learned, method.rounds, self._rate)

    # --- what is measured ---

    def _measured_rate(self, folder: Path) -> float:
        result = self._child({"kind": "rate", "seconds": self._plan.rate_seconds}, folder)
        if "error" in result:
            raise InputError(f"The speed of matrix products could not be measured: {result['error']}")
        return float(result["flops_a_second"])

    def _turn(self, what: str, turn: int, turns: int, work: Callable[[MethodRun, Path], None], folder: Path) -> None:
        """One method after the other, in a new order."""
        order = [method for method in self._methods if not method.without]
        self._random.shuffle(order)
        self._order.append([method.name for method in order])
        for number, method in enumerate(order, start=1):
            self._say(f"{what}, turn {turn + 1} of {turns}: {method.name} ({number} of {len(order)})")
            work(method, folder)
            if method.without:
                self._say(f"{method.name}: {method.without[1]}")

    def _learn(self, method: MethodRun, folder: Path) -> None:
        assert self._images is not None
        subject = method.job_of(len(method.learned))
        Path(subject.folder).mkdir(parents=True)
        images = [str(path) for path in self._images.learn]
        result = self._child({"kind": "learn", "subject": asdict(subject), "images": images}, folder)
        if "error" in result:
            method.without = (FAILED, result["error"])
            return
        if method.learned:  # inspecting uses the first; what IUF keeps fills a small disk
            shutil.rmtree(subject.folder)
        method.learned.append(result)
        seconds = result["learning"]["seconds"]
        took = result["learning"].get("skipped") if seconds is None else f"{seconds:.1f} s"
        self._say(f"{method.name}: learning {took}")

    def _inspect(self, method: MethodRun, folder: Path) -> None:
        assert self._images is not None
        plan = self._plan
        job = {
            "kind": "inspect",
            "subject": asdict(method.job_of(0)),
            "images": [asdict(image) for image in self._images.inspect],
            "warm_up": plan.warm_up,
            "runs": plan.runs,
            "batch_sizes": list(plan.batch_sizes),
            "batch_images": plan.batch_images,
        }
        result = self._child(job, folder)
        if "error" in result:
            method.without = (FAILED, result["error"])
            return
        fallback = result["made_with"].get("fallback")
        if fallback and not method.rounds:
            self._say(f"{method.name}: {fallback}")
        method.rounds.append(result)
        middle = sorted(result["latency_ms"])[len(result["latency_ms"]) // 2]
        self._say(f"{method.name}: {middle:.1f} ms an image, started in {result['cold_start']['seconds']:.1f} s")

    def _child(self, job: dict[str, Any], folder: Path) -> dict[str, Any]:
        return run_child(job, folder / "result.json", threads=self._plan.options.get("threads"), say=self._say)


def _named(value: Any) -> Any:
    """A setting as a profile shows it: the name of a file without its folder."""
    return value.name if isinstance(value, Path) else value
