"""What this process needs of the memory of the machine."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path


def peak_memory_bytes() -> int | None:
    """The peak memory of this process, None where the system does not report it.

    Linux is asked for the program's own peak: the one of getrusage starts at that of the process which started it.
    """
    with suppress(OSError, StopIteration, ValueError, IndexError):
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
