"""Talking to a process that tries one way of running an encoder: what it says, and how it ends."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

# Seconds: opening may build an engine for a GPU; a run is a few images on the slowest box.
OPENING_LIMIT, RUN_LIMIT = 300.0, 60.0


class ProbeError(Exception):
    """Why a candidate is passed over, without a stop at the end."""


class Probe(AbstractContextManager["Probe"]):
    """One candidate in a process of its own, opened and warm when the constructor returns."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            command(order),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=_environment(),
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True, name="probe").start()
        try:
            self._ask(json.dumps(order), OPENING_LIMIT)
        except BaseException:
            self.__exit__()
            raise

    def time(self) -> float:
        """Seconds of one image, the fastest of a few."""
        seconds = self._ask("run", RUN_LIMIT).get("seconds")
        if not isinstance(seconds, float):
            raise ProbeError("its process gave no time")
        return seconds

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._lines.put(line)
        except ValueError:  # closed while it was read
            pass
        self._lines.put("")

    def _ask(self, line: str, limit: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
            answer = self._lines.get(timeout=limit)
        except queue.Empty:
            raise ProbeError(f"its process did not answer within {limit:g} seconds") from None
        except OSError:  # gone before it could be asked
            answer = ""
        if not answer:
            raise ProbeError(f"its process {self._end()}")
        try:
            said = json.loads(answer)
        except ValueError:
            said = None
        if not isinstance(said, dict) or "error" in said:
            raise ProbeError(str(said["error"]) if isinstance(said, dict) else "its process answered nonsense")
        return said

    def _end(self) -> str:
        """How the process ended, in words."""
        try:
            code = self._process.wait(timeout=RUN_LIMIT)
        except subprocess.TimeoutExpired:
            return "stopped answering"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"


def command(order: dict[str, Any]) -> list[str]:
    """What starts the process for an order."""
    return [sys.executable, "-m", "dinosaur_ad.encoders.choice.auto_probe"]


def _environment() -> dict[str, str]:
    """This environment, and this package wherever it was imported from."""
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
