"""Running :mod:`dinosaur_ad.profile.child`: what it found, or in one sentence why it found nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dinosaur_ad.profile.child import PROGRESS

_COMMAND = (sys.executable, "-m", "dinosaur_ad.profile.child")
_SECONDS_BETWEEN_WORDS = 5.0
_WORDS_KEPT = 20


def run_child(
    job: Mapping[str, Any], result: Path, *, threads: int | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """What a process of its own found, or ``{"error": sentence}``; ``result`` is a file for it to write.

    ``threads`` limits every library that asks the environment how many it may have.
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
    """Hand over the job, pass on what the process says to the user, and keep the last of its other words."""
    assert process.stdin is not None
    assert process.stderr is not None
    with suppress(BrokenPipeError):  # it ended before it had read: what it said on stderr tells why
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
    """The end of a process in words.

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
