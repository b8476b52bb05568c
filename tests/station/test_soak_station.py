"""The measurements of the station in small: nothing grows, strangers are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra station")
pytest.importorskip("sqlalchemy", reason="needs the extra station")

from benchmarks.station_kills import DIFFERENT
from benchmarks.station_latency import PASSWORD
from benchmarks.station_line import LINE_ENCODERS, Visit, judge_all, running_station
from benchmarks.station_soak import soak_run

REFUSALS = {"answers 303", "answers 401", "answers 404", "answers 429"}


@pytest.mark.slow
def test_many_parts_are_all_recorded_and_leave_no_handle_and_no_thread_behind(tmp_path: Path) -> None:
    found = soak_run(tmp_path, "small", parts=400, minutes=5.0, every=100)
    assert (found["parts"], found["recorded"], found["not_kept"]) == (400, 400, 0)
    first, *_, last = found["samples"]
    assert last["handles"] <= first["handles"] + 10
    assert last["threads"] <= first["threads"] + 10


@pytest.mark.slow
def test_a_stranger_is_always_refused_and_every_part_is_judged_meanwhile(tmp_path: Path) -> None:
    encoder = LINE_ENCODERS["small"]
    with running_station(tmp_path, encoder, requests_a_second=5.0) as (station, url):
        station.accounts.create("Anna", PASSWORD, "admin", by="test")
        with Visit("strangers", url, "500") as visit:
            times = judge_all(station, encoder.pictures(0, DIFFERENT), {"one": 0.1, "two": 0.11}, 3.0)
        accepted = station.pipeline.state()["accepted"]
        assert len(times) == accepted == sum(station.history.counts().values())
    answers = {name for name in visit.seen if name.startswith("answers")}
    assert "answers 401" in answers
    assert "answers 429" in answers
    assert answers <= REFUSALS
