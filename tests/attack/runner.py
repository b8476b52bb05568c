"""The servers, as whoever attacks sees them: give a job, get how it ended and what it printed."""

from __future__ import annotations

import itertools
import json
import os
import queue
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT = 60.0
"""Seconds after which a child that should need one counts as hanging, unless an attack says less."""


@dataclass(frozen=True)
class Done:
    """How a child ended: exit code (negative for a signal), output, result, seconds and peak memory."""

    code: int
    hung: bool
    seconds: float
    peak_mb: float
    out: str
    err: str
    result: Any

    def crash(self) -> str | None:
        """What no command may do whatever it is given: hang, die of a signal, show a traceback, fail internally."""
        if self.hung:
            return f"it did not end within {self.seconds:.0f} s"
        if self.code < 0:
            return f"it died of signal {-self.code}"
        if "Traceback (most recent call last)" in self.err + self.out:
            return f"traceback, exit code {self.code}: {self.last_line()}"
        if self.code not in (0, 1, 2, 3, 4):
            return f"exit code {self.code}: {self.last_line()}"
        return None

    def last_line(self) -> str:
        """The last thing it said."""
        lines = [line for line in self.err.splitlines() if line.strip()]
        return ascii(lines[-1][:300]) if lines else "(silence)"

    def sentence(self) -> bool:
        """Whether a refusal, or a task that was left out, was explained."""
        return any(line.startswith(("dinosaur", "left out: ")) and len(line) > 30 for line in self.err.splitlines())


@dataclass(frozen=True)
class Outcome:
    """One case: what was wrong, if anything; ``tried`` is more than one where a case is a whole crowd."""

    case: int
    problem: str | None = None
    tried: int = 1


class Pool:
    """A few servers, each with one child at a time. Everything they write lies below ``scratch``."""

    def __init__(self, size: int, scratch: Path, cwd: Path, environment: Mapping[str, str]) -> None:
        self.size, self._scratch, self._cwd = size, scratch, cwd
        self._numbers = itertools.count()
        self._free: queue.Queue[subprocess.Popen[str]] = queue.Queue()
        self._servers = [self._start(environment) for _ in range(size)]
        for server in self._servers:
            self._free.put(server)

    def _start(self, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        paths = [str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        return subprocess.Popen(
            [sys.executable, "-m", "attack.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._cwd,
            env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
        )

    def run(
        self,
        task: str,
        *,
        limit: float = LIMIT,
        kill_after: float | None = None,
        steps: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> Done:
        """Run ``module:function(**arguments)`` in a child."""
        folder = self._scratch / f"job-{next(self._numbers):06d}"
        folder.mkdir(parents=True)
        job = {"task": task, "arguments": arguments, "folder": str(folder), "cwd": str(self._cwd), "limit": limit}
        job |= {"kill_after": kill_after, "steps": steps, "environment": dict(environment or {})}
        server = self._free.get()
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(job) + "\n")
            server.stdin.flush()
            answer = server.stdout.readline()
        finally:
            self._free.put(server)
        if not answer:
            raise RuntimeError("a server of the attack ended: this is a defect of the attack, not of the product")
        result = folder / "result.json"
        done = Done(
            **json.loads(answer),
            out=_text(folder / "stdout"),
            err=_text(folder / "stderr"),
            result=json.loads(result.read_bytes()) if result.exists() else None,
        )
        shutil.rmtree(folder)
        return done

    def cli(self, *argv: object, **options: Any) -> Done:
        """Run the command line in a child."""
        return self.run("attack.jobs:cli", argv=[str(word) for word in argv], **options)

    def ask(self, task: str, **arguments: Any) -> Any:
        """Run what must succeed, and return its result."""
        done = self.run(task, **arguments)
        if done.crash() or done.code:
            raise RuntimeError(f"{task} failed, so the attack cannot be made: {done.crash() or done.last_line()}")
        return done.result

    def close(self) -> None:
        """End the servers."""
        for server in self._servers:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.close()
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            server.stdout.close()


def each(pool: Pool, cases: Sequence[int], attack: Callable[[int], str | None]) -> Iterator[Outcome]:
    """Try cases side by side, one a server, and yield each as it is done; an interruption starts no new ones."""
    upcoming = iter(cases)
    with ThreadPoolExecutor(pool.size) as threads:
        running: dict[Future[str | None], int] = {}
        try:
            while True:
                for case in itertools.islice(upcoming, pool.size + 1 - len(running)):
                    running[threads.submit(attack, case)] = case
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield Outcome(running.pop(future), future.result())
        finally:
            for future in running:
                future.cancel()


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogateescape") if path.exists() else ""
