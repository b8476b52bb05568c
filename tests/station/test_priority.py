"""Threads beside the judging give way to it, and no other thread does."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from dinosaur_ad.station.priority import LOWER, background_thread

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")


def own_priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_background_thread_and_those_that_it_starts_step_back() -> None:
    before, found = own_priority(), []

    def work() -> None:
        found.append(own_priority())
        started = threading.Thread(target=lambda: found.append(own_priority()))
        started.start()
        started.join()

    thread = background_thread(work, "station-test")
    thread.start()
    thread.join()
    assert found == [min(19, before + LOWER)] * 2
    assert own_priority() == before
    assert thread.name == "station-test"
    assert thread.daemon
