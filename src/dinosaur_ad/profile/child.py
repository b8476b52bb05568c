"""One measurement in a process of its own: a job as JSON on stdin, its result as JSON in a file.

A fresh process is what makes a cold start cold and a peak of memory that of one method. Lines on stderr that begin with
``PROGRESS`` are for the user; other lines are output of libraries, or the reason why the process ended.
"""

from __future__ import annotations

import time

BEGAN = time.monotonic()  # before anything else is imported: the same clock as in the process that started this one

import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from dinosaur_ad.errors import DinosaurError  # noqa: E402

if TYPE_CHECKING:
    from dinosaur_ad.profile.measured_methods import Subject

PROGRESS = "profile: "


def main() -> int:
    """Do the job on stdin; a refusal is a result too."""
    job = json.load(sys.stdin)
    work = {"rate": _rate, "learn": _learn, "inspect": _inspect}[job["kind"]]
    try:
        result = work(job)
    except DinosaurError as error:
        result = {"error": str(error)}
    Path(job["result"]).write_text(json.dumps(result))
    return 0


def say(text: str) -> None:
    """Report progress to the user."""
    print(f"{PROGRESS}{text}", file=sys.stderr, flush=True)


def _rate(job: dict[str, Any]) -> dict[str, Any]:
    from dinosaur_ad.profile.machine import matmul_rate

    return {"flops_a_second": matmul_rate(seconds=job["seconds"])}


def _learn(job: dict[str, Any]) -> dict[str, Any]:
    from dinosaur_ad._memory import peak_memory_bytes

    before = peak_memory_bytes()
    from dinosaur_ad.profile.measured_methods import SubjectJob, make_subject

    subject = make_subject(SubjectJob(**job["subject"]), say)
    learning = subject.learn([Path(path) for path in job["images"]])
    return {
        "learning": learning,
        "memory": {"before_bytes": before, "peak_bytes": peak_memory_bytes()},
    } | subject.facts()


def _inspect(job: dict[str, Any]) -> dict[str, Any]:
    from dinosaur_ad._memory import peak_memory_bytes

    before = peak_memory_bytes()
    paths = [Path(image["path"]) for image in job["images"]]
    sizes = [(image["height"], image["width"]) for image in job["images"]]
    clock = [job["spawned"], BEGAN, time.monotonic()]
    subject = _imported(job)
    clock.append(time.monotonic())
    subject.load()
    clock.append(time.monotonic())
    subject.inspect(paths[0], *sizes[0])
    clock.append(time.monotonic())
    names = ("start", "read the job", "import", "load", "first verdict")
    parts = {name: after - begun for name, begun, after in zip(names, clock, clock[1:], strict=False)}
    say("started")
    return {
        "cold_start": {"seconds": clock[-1] - clock[0], "parts": parts},
        **_latency(job, subject, list(zip(paths, sizes, strict=True))),
        "batches": [_batch(subject, paths, size, job["batch_images"]) for size in job["batch_sizes"]],
        "memory": {"before_bytes": before, "peak_bytes": peak_memory_bytes()},
    } | subject.facts()


def _imported(job: dict[str, Any]) -> Subject:
    """The subject, and with it the libraries that it computes with."""
    from dinosaur_ad.profile.measured_methods import SubjectJob, make_subject

    subject = make_subject(SubjectJob(**job["subject"]), say)
    if job["subject"]["method"]:
        import torch  # noqa: F401
    else:
        import dinosaur_ad.detector  # noqa: F401
    return subject


def _latency(job: dict[str, Any], subject: Subject, images: list[tuple[Path, tuple[int, int]]]) -> dict[str, Any]:
    """One image after another: total and stages of each, and the energy of all of them."""
    from dinosaur_ad.profile.energy import EnergyMeter

    for turn in range(job["warm_up"]):
        path, size = images[turn % len(images)]
        subject.inspect(path, *size)
    totals: list[float] = []
    stages: list[dict[str, float]] = []
    with EnergyMeter() as meter:
        for turn in range(job["runs"]):
            path, size = images[turn % len(images)]
            started = time.perf_counter()
            stages.append(subject.inspect(path, *size))
            totals.append((time.perf_counter() - started) * 1e3)
    named = dict.fromkeys(stage for each in stages for stage in each)
    return {
        "latency_ms": totals,
        "stages_ms": {stage: [each.get(stage, 0.0) for each in stages] for stage in named},
        "energy": meter.energy.to_json(job["runs"]),
    }


def _batch(subject: Subject, paths: list[Path], size: int, at_least: int) -> dict[str, Any]:
    """Images a second in calls of ``size`` images, after one that does not count."""
    chosen = [paths[n % len(paths)] for n in range(size)]
    subject.inspect_many(chosen)
    calls = -(-at_least // size)
    started = time.perf_counter()
    for _ in range(calls):
        subject.inspect_many(chosen)
    return {"size": size, "images_a_second": calls * size / (time.perf_counter() - started)}


if __name__ == "__main__":
    sys.exit(main())
