"""The current step of a long command: with a clock on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

PROGRAM = """
import time
from dinosaur_ad.cli._steps import Steps
with Steps({arguments}) as step:
    step("building\\x1b[2J")
    time.sleep(2.3)
print("done")
"""


def program(arguments: str = "") -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(arguments=arguments)]


def test_a_terminal_shows_the_step_and_its_seconds_and_then_nothing_of_it() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(program(), stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 1000)
        except OSError:  # the other side was closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.communicate(timeout=30)[0] == "done\n"
    text = shown.decode()
    assert "building\\x1b[2J  0:01\r" in text  # escaped
    assert text.endswith("\r\x1b[K")
    assert "\n" not in text


def test_a_log_gets_a_line_for_every_step_unless_it_is_to_be_quiet() -> None:
    both = [  # at the same time: they mostly wait
        subprocess.Popen(program(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for arguments in ("", "'first', quiet=True")
    ]
    assert [process.communicate(timeout=30) for process in both] == [("done\n", "building\\x1b[2J\n"), ("done\n", "")]
    assert [process.returncode for process in both] == [0, 0]
