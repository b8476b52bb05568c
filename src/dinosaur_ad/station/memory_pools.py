"""How many pools the C library keeps memory in.

It makes pools for the threads, up to eight a core, and what is freed in one is no use to another. Each grows to the
most that its threads ever needed at once. With all the threads of a station that is tens of megabytes that hold
nothing, and they come slowly, over thousands of parts, as a leak would.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

POOLS = 2
_ARENA_MAX = -8
"""``M_ARENA_MAX`` of glibc's ``malloc.h``."""


def share_memory_pools() -> None:
    """Let the threads that start from now on share few pools, where the C library can (glibc)."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_ARENA_MAX, POOLS)
