"""How all tests run, and what tests of several folders ask for by name: a Ray cluster of two worker processes here."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import dinosaur_ad  # noqa: F401 - before any run time that a test imports: it switches their telemetry off

# One thread in each process: the threads of numerical libraries wait for each other in busy loops, and
# where a core has other work to do, such as more tests, that is most of what they do (measured: a third of the
# processor time with one). Tests of threads ask for some, or take this away.
os.environ.setdefault("OMP_NUM_THREADS", "1")

FIRST = (
    "attack/test_attack.py",
    "test_without_torch.py",
    "test_snippets.py",
    "export/test_fused_readings.py",
    "methods/test_contract.py",
    "station/test_kills_station.py",
    "test_demo.py",
    "test_site.py",
    "bench/test_ray.py",
)
"""Files that take longest; several workers take whole files, and one of these last would keep a single worker busy."""

PATIENCE = 400
"""Seconds that all tests of a module on the cluster may take; many times what they need."""


@pytest.fixture(scope="module")
def time_limit() -> Iterator[None]:
    """A cluster that hangs must not hang the tests."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("the tests on Ray took too long")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def cluster(time_limit: None) -> Iterator[Any]:
    """Ray with room for two workers."""
    pytest.importorskip("ray", reason="Ray is not installed (it comes with the extra 'ray')")
    from dinosaur_ad.cluster import connected

    with pytest.MonkeyPatch.context() as patch:
        # Ray's workers give way to everything else, also to the other tests, which then use up their patience.
        patch.setenv("RAY_worker_niceness", "0")
        with connected("local", cores=2) as ray:
            yield ray
    assert not ray.is_initialized()


def pytest_configure() -> None:
    """Take Ctrl-C again where the suite was started in the background, because a shell has it ignored there.

    Children inherit that, and could not be interrupted by the tests that do so.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where workers share the tests, what takes longest comes first; one process keeps to the order of the folders."""
    if hasattr(config, "workerinput"):
        here = Path(__file__).parent
        order = {here / name: place for place, name in enumerate(FIRST)}
        items.sort(key=lambda item: order.get(item.path, len(order)))
