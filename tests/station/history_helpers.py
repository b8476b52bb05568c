"""Parts, sinks and databases for the tests of the history."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dinosaur_ad.inspection import Inspection, WorstPatch
from dinosaur_ad.station.history.history import History
from dinosaur_ad.station.history.journal import Journal
from dinosaur_ad.station.part import JudgedPart, Picture, View

START = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


def inspection(task: str = "screw", verdict: str = "normal", score: float = 1.0, **fields: Any) -> Inspection:
    """An inspection with a map of 5 by 5 patches."""
    patches = np.linspace(0, score, 25, dtype=np.float32).reshape(5, 5)
    defaults = {
        "path": "part.png", "task": task, "score": score, "p_value": 0.5, "verdict": verdict, "threshold": 2.0,
        "false_alarms": 0.01, "normal_level": 1.0, "worst": WorstPatch(4, 4, (40, 40, 50, 50), score, "a.png", 0, 0),
        "asked": {task: score}, "encoder": "tiny", "ms": {"total": 3.0}, "map": patches, "image_size": (50, 50),
    }  # fmt: skip
    return Inspection(**defaults | fields)


def picture(number: int, **fields: Any) -> Picture:
    """A picture of 50 by 50 pixels, one second after the one before."""
    pixels = np.random.default_rng(number).integers(0, 255, (50, 50, 3)).astype(np.uint8)
    taken = START + timedelta(seconds=number)
    return Picture(**{"key": f"line:{number}", "source": "line", "taken": taken, "pixels": pixels} | fields)


def judged(number: int, verdict: str = "normal", task: str = "screw", score: float = 1.0, **fields: Any) -> JudgedPart:
    """A part of one view."""
    taken = picture(number, **fields)
    view = View(taken, inspection(task, verdict, score), ms={"total": 12.0})
    return JudgedPart(taken.key, taken.taken, (view,))


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for something to become true; the test fails if it does not."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.01)


def recorded_keys(history: History) -> list[str]:
    """The keys of all parts in the history, as often as they are there."""
    from sqlalchemy import select

    from dinosaur_ad.station.tables import PartRow

    with history.session() as session:
        return list(session.scalars(select(PartRow.key).order_by(PartRow.id)))


class PostgresServer:
    """A PostgreSQL server of its own, in a folder of its own."""

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        initdb = shutil.which("initdb") or (str(found[-1]) if found else None)
        if initdb is None:
            pytest.skip("PostgreSQL is not installed")
        pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
        self._bin = Path(initdb).parent
        self._as: list[str] = []
        if os.name != "posix" or os.geteuid() == 0:
            runuser = shutil.which("runuser")
            if runuser is None or not _user("postgres"):
                pytest.skip("PostgreSQL does not run as root, and there is no user postgres to run it as")
            self._as = [runuser, "-u", "postgres", "--"]
        self.folder = Path(tempfile.mkdtemp(prefix="dsd-pg-"))
        if self._as:
            shutil.chown(self.folder, "postgres", "postgres")
        self._run("initdb", "-D", str(self.folder / "data"), "-U", "station", "-A", "trust", "--no-sync", "-E", "UTF8")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    @property
    def url(self) -> str:
        return f"postgresql://station@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} -c fsync=off"
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), "-o", options, "start"
        )

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", "immediate", "stop")

    def remove(self) -> None:
        subprocess.run(
            [*self._as, str(self._bin / "pg_ctl"), "-D", str(self.folder / "data"), "-m", "immediate", "stop"],
            capture_output=True, check=False, cwd="/",
        )  # fmt: skip
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(self._bin / program), *arguments]
        # Into a file: a server that is started would keep a pipe open.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False, cwd="/")
            output.seek(0)
            assert done.returncode == 0, output.read().decode()


def _user(name: str) -> bool:
    import pwd

    return any(each.pw_name == name for each in pwd.getpwall())


class Children:
    """Processes that record parts, one after the other; each is forked from one that has imported everything."""

    def __init__(self, folder: Path) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        command = [sys.executable, __file__, str(folder)]
        self._parent = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.acknowledged: set[int] = set()
        self.recorded = 0

    def kill_after(self, parts: int, seconds: float, first: int) -> None:
        """Start one that keeps parts from ``first`` on, and kill it so long after so many are in the database."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(f"{first}\n".encode())
        self._parent.stdin.flush()
        pid = int(self._parent.stdout.readline())
        while parts > 0:
            parts -= self._read() == b"recorded\n"
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        while self._read() != b"killed\n":
            pass

    def _read(self) -> bytes:
        assert self._parent.stdout is not None
        line = self._parent.stdout.readline()
        self.recorded += line == b"recorded\n"
        if line.strip().isdigit():
            self.acknowledged.add(int(line))
        return line

    def end(self) -> None:
        self._parent.communicate(timeout=20)


def fork_children(folder: Path) -> None:
    """Fork a process for each line on standard input, which has the number of its first part."""
    import alembic.command

    from dinosaur_ad.station.history import recorder

    assert alembic.command  # imported here, once for all
    assert recorder
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if pid == 0:
            os.write(1, f"{os.getpid()}\n".encode())
            record_until_killed(folder, int(line))
        os.waitpid(pid, 0)
        os.write(1, b"killed\n")


def record_until_killed(folder: Path, first: int) -> None:
    """Record parts from ``first`` on; a line on standard output once a part is in the journal."""
    from dinosaur_ad.station.bus import Bus
    from dinosaur_ad.station.history.recorder import Recorder

    class SpokenBus(Bus):
        def publish(self, kind: str, body: dict[str, Any]) -> None:
            if kind == "recorded":
                os.write(1, b"recorded\n")

    def acknowledge(number: int) -> None:
        os.write(1, f"{number}\n".encode())

    recorder = Recorder(History("", folder), Journal(folder / "journal", segment_bytes=100_000), SpokenBus())
    recorder.start()
    for number in itertools.count(first):
        recorder.keep(judged(number, release=partial(acknowledge, number)))
        time.sleep(0.005)  # so that the database keeps up


if __name__ == "__main__":
    fork_children(Path(sys.argv[1]))
