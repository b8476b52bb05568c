"""A real station process, killed at random moments while pictures come: nothing lost, nothing twice, store intact."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra station")
pytest.importorskip("sqlalchemy", reason="needs the extra station")

from benchmarks.station_kills import kill_run

KILLS = int(os.environ.get("DINOSAUR_KILLS", "8"))


@pytest.mark.slow
def test_a_killed_station_loses_nothing_and_records_nothing_twice(tmp_path: Path) -> None:
    found = kill_run(tmp_path, KILLS, seed=1)
    assert found["files"] > KILLS
    assert found["uploads"] > KILLS // 4
    assert (found["lost"], found["twice"], found["unexpected"]) == ([], [], [])
    assert found["pictures_lost"] == 0
    assert "not ready" not in found["verdicts"]
    assert found["store"] == ""
