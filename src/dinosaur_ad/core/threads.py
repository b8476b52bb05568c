"""A small thread pool for pieces of work that are too short to start threads for.

Starting a thread takes, on a busy machine, as long as the work itself, so the pool stays. The caller never waits for a
thread that has not begun: it does the rest of the work itself.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import TypeVar

# The calling one among them; more would only wait for memory.
MOST_THREADS = 4
# The largest OMP_NUM_THREADS that is believed.
MOST_ALLOTTED = 1024

Piece = TypeVar("Piece")


def usable_threads() -> int:
    """How many threads this process should use: its cores, or fewer where a scheduler says so (OMP_NUM_THREADS)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, allotted_threads() or cores)


def allotted_threads() -> int | None:
    """The number in OMP_NUM_THREADS; None where there is none, or nothing that can be one, which OpenMP ignores too."""
    # OpenMP allows one number for each nesting level ("4,2"); the first is for the outermost.
    number = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    # Longer ones are no count of threads, and Python refuses to read the longest.
    count = int(number) if number.isdecimal() and len(number) <= len(str(MOST_ALLOTTED)) else 0
    return count if 1 <= count <= MOST_ALLOTTED else None


def in_threads(work: Callable[[Piece], None], pieces: Iterable[Piece], threads: int) -> None:
    """Do ``work`` on every piece, on the calling thread and at most ``threads - 1`` others, each taking the next left.

    Pieces are begun in order and end in any. The first error ends the work and is raised here.

    >>> done = set()
    >>> in_threads(done.add, range(5), threads=2)
    >>> sorted(done)
    [0, 1, 2, 3, 4]
    """
    left = deque(pieces)

    def take() -> None:
        try:
            while left:
                try:
                    piece = left.popleft()
                except IndexError:  # another thread was faster
                    return
                work(piece)
        except BaseException:
            left.clear()
            raise

    others: list[Future[None]] = []
    # Where no thread can be started (the interpreter is shutting down, or a limit is reached) this one does it all.
    with suppress(RuntimeError):
        for _ in range(min(threads, MOST_THREADS, len(left)) - 1):
            others.append(_pool().submit(take))
    try:
        take()
    finally:
        begun = [other for other in others if not other.cancel()]
        errors = [other.exception() for other in begun]  # waits: nothing may still be written when this returns
    for error in errors:
        if error is not None:
            raise error


@cache
def _pool() -> ThreadPoolExecutor:
    """Started by the first work that is shared; its idle threads end when the interpreter does."""
    return ThreadPoolExecutor(MOST_THREADS - 1, thread_name_prefix="share")


if hasattr(os, "register_at_fork"):
    # A forked process has the pool but none of its threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)
