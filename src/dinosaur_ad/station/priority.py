"""Threads that step back: what the station does beside the judging gets the processor time that judging leaves."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

LOWER = 5
"""How far, of what has to keep up with the judging, such as recording: it then gets about a quarter of a core that an
encoder wants too."""
LOWEST = 10
"""How far, of what may be late, the page: about a tenth. Less would be too little: a thread that holds Python's lock
must be able to give it back soon, also beside other busy programs."""
SWITCH_SECONDS = 0.001
"""After so long a thread gives Python's lock to another one that waits for it; usual are 5 ms. The judging asks for it
many times a picture."""


_LINUX = sys.platform == "linux"  # elsewhere such a number is that of a process, not of a thread
_USUAL = os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) if _LINUX else 0


def step_back(steps: int = LOWER) -> None:
    """Lower the priority of the thread that calls this, and of those that it starts; where the system can do that."""
    if _LINUX:
        thread = threading.get_native_id()
        lower = max(_USUAL + steps, os.getpriority(os.PRIO_PROCESS, thread))
        with suppress(OSError):  # a container may forbid it
            os.setpriority(os.PRIO_PROCESS, thread, lower)


def background_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """A thread, not started, that steps back before it works."""

    def run() -> None:
        step_back()
        work()

    return threading.Thread(target=run, name=name, daemon=True)


def take_turns_quickly() -> None:
    """Shorten the time after which threads of this process take turns."""
    sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
