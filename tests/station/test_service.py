"""The station as a whole: it starts, judges, records once, stops; what cannot start says so and leaves nothing open."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the station is not installed (it comes with the extra 'station')")
pytest.importorskip("sqlalchemy", reason="the station is not installed (it comes with the extra 'station')")

from history_helpers import PostgresServer
from outbox_helpers import until
from PIL import Image

from dinosaur_ad.errors import InputError
from dinosaur_ad.presets import DEFAULT
from dinosaur_ad.station.bus import Subscription
from dinosaur_ad.station.config import SourceConfig, StationConfig
from dinosaur_ad.station.config_file import read_config
from dinosaur_ad.station.demo_line import KNOWN, UNKNOWN_PRODUCT, demo_parts
from dinosaur_ad.station.history.searching import PartQuery
from dinosaur_ad.station.service import Station

TINY = replace(DEFAULT, layers=(0, 1), size=70)


def pictures(folder: Path, count: int, seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    base = np.random.default_rng(9).integers(60, 190, (64, 64, 3))
    for number in range(count):
        pixels = np.clip(base + generator.normal(0, 6, base.shape), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{seed}-{number:03d}.png")


def station(tmp_path: Path, *sources: SourceConfig, url: str = "") -> Station:
    config: StationConfig = replace(read_config(None, tmp_path / "store", tmp_path / "own"), sources=sources)
    config = replace(config, history=replace(config.history, url=url))
    return Station(config, encoder="tiny-dinov2", preset=TINY)


def recorded(made: Station) -> int:
    return sum(made.history.counts().values())


def wait_for_parts(made: Station, count: int) -> None:
    """Wait until so many parts are in the history; the clock is the message that says so."""
    with made.bus.subscribed() as messages:
        while recorded(made) < count:
            assert messages.take(30.0), f"{recorded(made)} of {count} parts are recorded"


def wait_for(messages: Subscription, kind: str, count: int) -> None:
    """Wait for so many messages of a kind."""
    while count:
        message = messages.take(60.0)
        assert message, f"{count} more messages '{kind}' should come"
        count -= message.kind == kind


def left_running(before: set[threading.Thread]) -> list[str]:
    """The threads of a station that have come since, and are still there."""
    return [each.name for each in set(threading.enumerate()) - before if each.name.startswith("station-")]


def test_files_are_judged_and_recorded_once_also_after_another_start(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    inbox = tmp_path / "in"
    pictures(inbox, 3, seed=1)
    source = SourceConfig("camera-1", "folder", path=inbox)
    first = station(tmp_path, source)
    pictures(tmp_path / "good", 12, seed=2)
    first.detector.learn("plate", tmp_path / "good")
    first.start()
    try:
        wait_for_parts(first, 3)
        assert first.state()["sources"][0]["state"] == "running"
        assert first.ready() == ""
    finally:
        first.stop()
    pictures(inbox, 2, seed=3)  # while it is off
    second = station(tmp_path, source)
    second.start()
    try:
        wait_for_parts(second, 5)
        parts = second.history.search(PartQuery(limit=50)).parts
        assert len({part.key for part in parts}) == len(parts) == 5
        assert {part.task for part in parts} == {"plate"}
    finally:
        second.stop()
    assert not left_running(before)


def test_before_anything_is_taught_nothing_is_normal_and_it_says_why(tmp_path: Path) -> None:
    pictures(tmp_path / "in", 1, seed=1)
    made = station(tmp_path, SourceConfig("camera-1", "folder", path=tmp_path / "in"))
    made.start()
    try:
        wait_for_parts(made, 1)
        assert {verdict for verdict, count in made.history.counts().items() if count} == {"not ready"}
        assert "No product has been taught" in made.ready()
    finally:
        made.stop()


def test_two_stations_cannot_share_a_folder(tmp_path: Path) -> None:
    first, second = station(tmp_path), station(tmp_path)
    first.start()
    try:
        with pytest.raises(InputError, match="Another station is running"):
            second.start()
    finally:
        first.stop()
    third = station(tmp_path)
    third.start()
    third.stop()


def test_it_starts_while_its_database_is_away_and_goes_on_once_it_is_there(tmp_path: Path) -> None:
    """A line does not wait for the server of the plant; the part comes into the history later."""
    server = PostgresServer()
    try:
        pictures(tmp_path / "in", 2, seed=1)
        made = station(tmp_path, SourceConfig("camera-1", "folder", path=tmp_path / "in"), url=server.url)
        with made.bus.subscribed() as messages:
            made.start()
            try:
                wait_for(messages, "part", 2)
                until(lambda: "does not answer" in made.ready(), "it says that the database is away")
                assert "error" in made.state()["counts"]
                server.start()
                wait_for(messages, "recorded", 2)
                assert recorded(made) == 2
                assert "No product" in made.ready()
            finally:
                made.stop()
    finally:
        server.remove()


def test_a_trigger_by_mqtt_needs_a_broker_and_nothing_is_left_running(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    made = station(tmp_path, SourceConfig("camera-1", "camera", trigger="mqtt", topic="now"))
    with pytest.raises(InputError, match="there is no broker"):
        made.start()
    assert not left_running(before)


def test_a_trigger_for_an_unknown_source_is_one_sentence(tmp_path: Path) -> None:
    made = station(tmp_path)
    with pytest.raises(InputError, match="There is no source 'camera-9'"):
        made.trigger("camera-9")


def test_the_drawn_line_has_defects_a_product_nobody_taught_and_a_lamp_that_fails() -> None:
    parts = list(demo_parts())
    assert {part.sample.product for part in parts} == {*KNOWN, UNKNOWN_PRODUCT}
    assert any(part.sample.label for part in parts)
    assert len({part.file_name for part in parts}) == len(parts)
    lights = [part.light for part in parts]
    assert min(lights) < 0.5 < max(lights) == 1.0
