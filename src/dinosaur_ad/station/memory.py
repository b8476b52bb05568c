"""Memory that is free inside the process, given back to the system.

The C library keeps what threads have freed, in a pool for each of several threads, and the pools only grow: after
thousands of parts a station seems to need tens of megabytes that hold nothing.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress


def give_memory_back() -> None:
    """Give free memory back, where the C library can (glibc); takes a few milliseconds, without Python's lock."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
