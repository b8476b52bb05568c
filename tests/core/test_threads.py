"""Work shared by threads: all of it is done once, errors arrive, and nothing outlives a fork or the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter

import pytest

from dinosaur_ad.core.threads import MOST_THREADS, allotted_threads, in_threads, usable_threads


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(
    ("variable", "allotted", "usable"),
    [
        *((None, None, 8), ("", None, 8), ("0", None, 8), ("many", None, 8), ("-2", None, 8)),
        *(("3", 3, 3), (" 2 ", 2, 2), ("1", 1, 1), ("5,2", 5, 5), ("64", 64, 8)),
        *(("1000000", None, 8), ("9" * 30, None, 8), ("9" * 5000, None, 8)),  # no number that a machine has
    ],
)
def test_a_scheduler_bounds_the_threads(
    variable: str | None, allotted: int | None, usable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert allotted_threads() == allotted
    assert usable_threads() == usable


def test_where_there_is_no_affinity_all_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_threads() == 6


@pytest.mark.parametrize("threads", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("pieces", [0, 1, 2, 50])
def test_every_piece_is_done_once(threads: int, pieces: int) -> None:
    done: list[int] = []
    in_threads(done.append, range(pieces), threads)
    assert Counter(done) == Counter(range(pieces))


@pytest.mark.parametrize("threads", [2, 3, MOST_THREADS])
def test_the_threads_asked_for_work_at_the_same_time(threads: int) -> None:
    together = threading.Barrier(threads)
    names: set[str] = set()

    def meet(_: int) -> None:
        together.wait(timeout=60)  # broken, which is an error, unless all are here at once
        names.add(threading.current_thread().name)

    in_threads(meet, range(threads), threads)
    assert len(names) == threads


def test_one_thread_is_the_calling_one() -> None:
    seen: set[threading.Thread] = set()
    in_threads(lambda _: seen.add(threading.current_thread()), range(9), 1)
    assert seen == {threading.current_thread()}


@pytest.mark.parametrize("thrower", ["caller", "other"])
def test_an_error_of_any_thread_reaches_the_caller(thrower: str) -> None:
    caller, together, done = threading.current_thread(), threading.Barrier(2), []

    def fail(piece: int) -> None:
        if piece < 2:
            together.wait(timeout=60)
            if (threading.current_thread() is caller) == (thrower == "caller"):
                raise ValueError(f"piece of the {thrower}")
        done.append(piece)

    with pytest.raises(ValueError, match=f"piece of the {thrower}"):
        in_threads(fail, range(10_000), 2)
    finished = len(done)
    in_threads(done.append, range(4), 2)  # and the threads still work
    assert len(done) == finished + 4


def test_busy_threads_are_not_waited_for() -> None:
    """Those of one caller are held up: another does its work alone."""
    held, leave, done = threading.Semaphore(0), threading.Event(), []

    def hold(_: int) -> None:
        held.release()
        assert leave.wait(timeout=60)

    first = threading.Thread(target=in_threads, args=(hold, range(MOST_THREADS), MOST_THREADS))
    first.start()
    try:
        for _ in range(MOST_THREADS):
            assert held.acquire(timeout=60)
        in_threads(done.append, range(20), MOST_THREADS)
        assert done == list(range(20))
    finally:
        leave.set()
        first.join(timeout=60)


FORKED = """
import os, sys, threading
from dinosaur_ad.core.threads import in_threads

def names_of_two():
    together, names = threading.Barrier(2), set()
    def meet(_):
        together.wait(timeout=60)
        names.add(threading.current_thread().name)
    in_threads(meet, range(2), 2)
    return names

assert threading.active_count() == 1, "a pool at import"
assert len(names_of_two()) == 2
child = os.fork()
if not child:
    assert len(names_of_two()) == 2
    sys.exit(7)  # the child ends as an interpreter does, and joins its own threads only
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert len(names_of_two()) == 2
print("ends")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_gets_threads_of_its_own_and_both_end() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stdout) == (0, "ends\n"), ran.stderr


LATE = """
import atexit
from dinosaur_ad.core.threads import in_threads
done = []
in_threads(done.append, range(5), 2)
atexit.register(lambda: (in_threads(done.append, range(5), 2), print(len(done))))
"""


def test_an_ending_interpreter_does_the_work_alone() -> None:
    ran = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "10\n"), ran.stderr
