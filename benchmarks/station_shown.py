"""How soon a browser shows a part after its verdict; see :mod:`benchmarks.station_soak`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.station_kills import DIFFERENT
from benchmarks.station_latency import PERIODS
from benchmarks.station_line import LINE_ENCODERS, Visit, encoder_alone, judge_all, running_station

SLOWLY = 1.0
"""Seconds between two pictures of a line with one camera."""


def shown_run(folder: Path, seconds: float) -> dict[str, Any]:
    """A browser with the page Live; first a picture a second, then two cameras as in the measurement of latency."""
    encoder = LINE_ENCODERS["fast"]
    pictures = encoder.pictures(1000, DIFFERENT)
    found: dict[str, Any] = {}
    names = [f"camera-{number}" for number in range(len(PERIODS))]
    with running_station(folder, encoder, names, requests_a_second=10_000.0) as (station, url):
        usual = float(np.median(encoder_alone(station, pictures, 30)[15:])) / 1e3
        two = {name: usual * times for name, times in zip(names, PERIODS, strict=True)}
        judge_all(station, pictures, dict.fromkeys(names, 0.5), 2.0)  # a page has a place for each that took a picture
        for name, cameras in (("one", {names[0]: SLOWLY}), ("two", two)):
            said: dict[str, float] = {}
            with Visit(url, program="station_browser") as visit, station.bus.subscribed() as messages:

                def note(messages: Any = messages, said: dict[str, float] = said) -> None:
                    now = time.time()
                    while message := messages.take():
                        if message.kind == "part":
                            said[message.body["key"]] = now

                messages.on_message(note)
                judge_all(station, pictures, cameras, seconds)
                time.sleep(2.0)
            found[name] = {
                "periods_ms": [round(period * 1e3, 1) for period in cameras.values()],
                "parts": len(said),
                **{what: _after(said, visit.seen, what) for what in ("verdict", "picture")},
            }
        info = station.detector.info()
    return {"info": info, "lines": found}


def _after(said: dict[str, float], seen: dict[str, Any], what: str) -> list[float]:
    """Milliseconds from the verdict until it, or the picture, is drawn; of the parts of which it was."""
    return [round((seen[key][what] - at) * 1e3, 1) for key, at in said.items() if what in seen.get(key, {})]
