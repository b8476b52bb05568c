"""A process that makes children: each runs one job in a process of its own, without importing everything again.

    python -m attack.server

Reads a job a line (JSON) from stdin and answers with one line on stdout. It has imported the product but never used it,
so that a child is a clean start of the command line at a tenth of the price; a child may be killed, hang or crash.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

Job = dict[str, Any]
Reply = dict[str, Any]

# Imported once here instead of in every child: all that a verb loads when it is used.
PRELOADED = (
    "dinosaur_ad.cli",
    "dinosaur_ad.detector",
    "dinosaur_ad.encoders.backends.onnx_backend",
    "dinosaur_ad.encoders.weights.convert",
    "dinosaur_ad.images.drawing",
    "onnx",
    "onnxruntime",
    "PIL.ImageChops",
    "PIL.ImageSequence",
    "PIL.PngImagePlugin",
    "numpy.ma",
    "numpy.random",
    "multiprocessing.synchronize",
    "mmap",
    "tqdm",
    "attack.jobs",
)


def serve(job: Job) -> Reply:
    """Run one job in a child and say how it ended."""
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(job)
    killed = _wait(pid, job.get("kill_after"))
    hung = not killed and _wait(pid, job["limit"])
    _, status, usage = os.wait4(pid, 0)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "hung": hung,
        "seconds": time.monotonic() - started,
        "peak_mb": usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3),
    }


def _wait(pid: int, seconds: float | None) -> bool:
    """Wait for a child to end; after so many seconds, kill it and all that it started. Tells whether it was killed."""
    if seconds is None or _ends(pid, seconds):
        return False
    for kill in (os.killpg, os.kill):  # the group is not there yet if the child has only just begun
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return True


def _ends(pid: int, seconds: float) -> bool:
    if hasattr(os, "pidfd_open"):
        descriptor = os.pidfd_open(pid)
        try:
            return bool(select.select([descriptor], [], [], seconds)[0])
        finally:
            os.close(descriptor)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return True
        time.sleep(0.002)
    return False


def _child(job: Job) -> None:
    code = 1
    try:
        os.setsid()
        _redirect(Path(job["folder"]))
        os.chdir(job["cwd"])
        os.environ.update(job.get("environment", {}))
        code = _run(job)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # what Python itself would print
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code & 0xFF)


def _run(job: Job) -> int:
    from attack.hooks import Steps

    module, _, function = job["task"].partition(":")
    task = getattr(importlib.import_module(module), function)
    steps = Steps(**job["steps"]) if job.get("steps") else None
    if steps:
        steps.install()
    value = task(**job["arguments"])
    if steps and job["steps"]["action"] == "count":
        value = steps.seen
    if isinstance(value, int):
        return value
    with Path(job["folder"], "result.json").open("w", encoding="utf-8") as file:
        json.dump(value, file)
    return 0


def _redirect(folder: Path) -> None:
    """Give the child an empty input and files for its output, opened as Python opens its own."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="strict", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def main() -> None:
    """Answer jobs until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing that a library prints may look like an answer
    for module in PRELOADED:
        with suppress(ModuleNotFoundError):  # it has another name by now: children will import that themselves
            importlib.import_module(module)
    for line in sys.stdin:
        answers.write(json.dumps(serve(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks; it closes our input
    main()
