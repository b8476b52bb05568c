"""Progress on a terminal: never silent for long, whatever is being done; and nothing of it anywhere else."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

SLOW = """
import sys, time
from dinosaur_ad.cli import main
from dinosaur_ad.detector import Dinosaur

learn = Dinosaur.learn

def slowly(self, *arguments, progress, **options):
    def then_the_memory(done, total):
        progress(done, total)
        if done == total:
            time.sleep(2.5)

    time.sleep(2.5)  # an encoder that takes long to load
    return learn(self, *arguments, progress=then_the_memory, **options)

Dinosaur.learn = slowly
sys.exit(main(sys.argv[1:]))
"""


def seen_on_terminal(argv: list[str], columns: int) -> tuple[str, float, int]:
    """What a command shows on a terminal of that width, its longest silence in seconds, and its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([sys.executable, "-c", SLOW, *argv], stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, silence, last = b"", 0.0, None
    while True:
        try:
            part = os.read(ours, 10_000)
        except OSError:  # the other side was closed
            break
        if not part:
            break
        now = time.monotonic()
        silence, last = max(silence, now - last if last else 0.0), now
        shown += part
    os.close(ours)
    return shown.decode(), silence, process.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [100, 0])  # a serial line has none
def test_learning_is_not_silent(store: Path, normals: Path, columns: int) -> None:
    shown, silence, code = seen_on_terminal(["learn", "nut", str(normals), "--store", str(store)], columns)
    assert code == 0
    assert "loading the encoder: " in shown
    assert "choosing what to remember, then the threshold: 100%" in shown
    assert silence < 2.2
    assert "learned 'nut' from 24 images" in shown


def test_there_is_no_bar_in_a_file(store: Path, normals: Path) -> None:
    argv = ["learn", "nut", str(normals), "--store", str(store)]
    done = subprocess.run([sys.executable, "-c", SLOW, *argv], capture_output=True, timeout=60, check=True)
    assert done.stderr.count(b"\n") == 1
    assert b"\r" not in done.stderr
