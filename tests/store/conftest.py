"""Every test of the store gets one that is empty, and does not wait for the disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_helpers import HEADER

from dinosaur_ad.store import MemoryStore, Store, TaskStore, disk


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test cannot cut the power, so waiting for the disk would prove nothing; processes do wait."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(disk, "LOCK_TIMEOUT", 0.2)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where the system has one: a busy disk needs long for thousands of tiny files."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture(params=["folder", "memory"])
def tasks(request: pytest.FixtureRequest, tmp_path: Path) -> TaskStore:
    return Store.create(tmp_path / "store", HEADER) if request.param == "folder" else MemoryStore(HEADER)


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "store", HEADER)
