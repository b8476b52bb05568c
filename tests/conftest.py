"""What tests of several folders ask for by name: a real Ray cluster of two worker processes on this machine."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

import dinosaur_ad  # noqa: F401 - before any run time that a test imports: it switches their telemetry off

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

    with connected("local", cores=2) as ray:
        yield ray
    assert not ray.is_initialized()


def pytest_configure() -> None:
    """Take Ctrl-C again where the suite was started in the background, because a shell has it ignored there.

    Children inherit that, and could not be interrupted by the tests that do so.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
