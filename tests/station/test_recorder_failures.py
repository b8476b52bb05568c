"""The recorder: every part once, whatever is killed, full or away."""

from __future__ import annotations

import errno
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

pytest.importorskip("sqlalchemy", reason="the extra 'station' is not installed")

from history_helpers import Children, PostgresServer, judged, picture, recorded_keys, wait_until
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.history.history import History
from dinosaur_ad.station.history.journal import Journal, write_durably
from dinosaur_ad.station.history.picture_files import PackedPart
from dinosaur_ad.station.history.recorder import CAPACITY, Recorder
from dinosaur_ad.station.part import JudgedPart, View
from dinosaur_ad.station.tables import OutboxRow, ViewRow


@contextmanager
def running(folder: Path, bus: Bus | None = None, **options: object) -> Iterator[tuple[Recorder, History]]:
    journal = options.pop("journal", None) or Journal(folder / "journal")
    history = options.pop("history", None) or History("", folder)
    recorder = Recorder(history, journal, bus or Bus(), last_retry=0.3, **options)  # type: ignore[arg-type]
    recorder.start()
    try:
        yield recorder, history  # type: ignore[misc]
    finally:
        recorder.stop()
        history.close()  # type: ignore[attr-defined]


class Switch:
    """A history whose database can be switched off."""

    def __init__(self, history: History) -> None:
        self.off = threading.Event()
        self._record = history.record
        history.record = self.record  # type: ignore[method-assign,assignment]

    def record(self, packed: list[PackedPart], sinks: tuple[SinkConfig, ...] = ()) -> object:
        if self.off.is_set():
            raise OperationalError("INSERT", {}, Exception("server closed the connection"))
        return self._record(packed, sinks)


def test_parts_are_said_at_once_and_again_when_they_are_recorded(tmp_path: Path) -> None:
    bus = Bus()
    released: list[str] = []
    with bus.subscribed() as messages, running(tmp_path, bus) as (recorder, history):
        recorder.keep(judged(1, release=lambda: released.append("1")))
        first = messages.take(5)
        assert first is not None
        assert (first.kind, first.body["key"], first.body["id"]) == ("part", "line:1", None)
        second = messages.take(5)
        assert second is not None
        assert (second.kind, second.body) == ("recorded", {"id": 1, "key": "line:1"})
        assert released == ["1"]
        assert recorder.settle(5)
        part = history.part(1)
        assert part is not None
        assert (part.task, part.verdict, part.total_ms) == ("screw", "normal", 12.0)
        assert recorder.state()["recorded"] == 1


def test_the_same_part_twice_is_recorded_once(tmp_path: Path) -> None:
    with running(tmp_path) as (recorder, history):
        for _ in range(3):
            recorder.keep(judged(1))
        assert recorder.settle(10)
        recorder.keep(judged(1))
        assert recorder.settle(10)
        assert recorded_keys(history) == ["line:1"]
        assert recorder.state()["recorded"] == 1
        assert recorder.known(["line:1", "line:2"]) == {"line:1"}


def test_hundreds_of_parts_come_in_order_and_leave_no_journal(tmp_path: Path) -> None:
    with running(tmp_path) as (recorder, history):
        for number in range(400):
            recorder.keep(judged(number))
        assert recorder.settle(30)
        assert recorded_keys(history) == [f"line:{number}" for number in range(400)]
        assert recorder.state()["not_kept"] == 0
    assert not list((tmp_path / "journal").glob("segment-*"))


def test_killed_at_random_moments_every_part_of_the_journal_is_once_in_the_history(tmp_path: Path) -> None:
    rng = random.Random(7)
    children = Children(tmp_path)
    for number in range(20):
        # Again from the last parts on, as sources do with what was not released; some are killed while they start.
        first = max(0, max(children.acknowledged, default=0) - 5)
        children.kill_after(rng.randrange(1, 10) if number % 3 else 0, rng.uniform(0.0, 0.05), first)
    children.end()
    acknowledged = children.acknowledged

    with running(tmp_path) as (recorder, history):
        assert recorder.settle(30)
        keys = recorded_keys(history)
        assert len(keys) == len(set(keys))
        assert {f"line:{number}" for number in acknowledged} <= set(keys)
        assert children.recorded >= 13  # some were killed while they wrote to the database
        for part in history.latest(1000):
            path = history.picture_path(part.views[0].id)
            assert path is not None
            assert path.stat().st_size > 1000
            assert history.map_array(part.views[0].id) is not None


def test_while_the_database_is_away_parts_wait_and_nobody_is_held_up(tmp_path: Path) -> None:
    history = History("", tmp_path)
    switch = Switch(history)
    bus = Bus()
    with bus.subscribed(1000) as messages, running(tmp_path, bus, history=history) as (recorder, _):
        switch.off.set()
        for number in range(30):
            recorder.keep(judged(number))
        wait_until(lambda: recorder.state()["database_error"] is not None)
        wait_until(lambda: recorder.state()["waiting"] == 30)
        state = recorder.state()
        assert "server closed the connection" in state["database_error"]
        assert state["since"] is not None
        assert state["journal_bytes"] > 0
        assert recorder.known(["line:3", "line:99"]) == {"line:3"}
        assert sum(message.kind == "part" for message in iter(messages.take, None)) == 30

        switch.off.clear()
        assert recorder.settle(10)
        assert recorded_keys(history) == [f"line:{number}" for number in range(30)]
        assert recorder.state()["database_error"] is None


def test_stopped_while_the_database_is_away_parts_come_after_the_next_start(tmp_path: Path) -> None:
    history = History("", tmp_path)
    switch = Switch(history)
    switch.off.set()
    recorder = Recorder(history, Journal(tmp_path / "journal"), Bus(), last_retry=0.3)
    recorder.start()
    for number in range(5):
        recorder.keep(judged(number))
    assert recorder.stop(5) is False

    with running(tmp_path) as (again, opened):
        assert again.settle(10)
        assert recorded_keys(opened) == [f"line:{number}" for number in range(5)]


def test_on_a_full_disk_parts_are_counted_and_it_goes_on(tmp_path: Path) -> None:
    full = threading.Event()

    def write(file: BinaryIO, content: bytes) -> None:
        if full.is_set():
            file.write(content[:10])
            raise OSError(errno.ENOSPC, "No space left on device")
        write_durably(file, content)

    released: list[int] = []
    bus = Bus()
    journal = Journal(tmp_path / "journal", write)
    with bus.subscribed() as messages, running(tmp_path, bus, journal=journal) as (recorder, history):
        recorder.keep(judged(0))
        assert recorder.settle(5)
        full.set()
        for number in (1, 2, 3):
            recorder.keep(judged(number, release=lambda: released.append(1)))
        wait_until(lambda: recorder.state()["not_kept"] == 3)
        state = recorder.state()
        assert state["not_kept_reason"] == "No space left on device"
        assert released == []
        assert sum(message.kind == "part" for message in iter(messages.take, None)) == 4
        full.clear()
        recorder.keep(judged(4))
        assert recorder.settle(5)
        assert recorded_keys(history) == ["line:0", "line:4"]
        state = recorder.state()
        assert (state["not_kept"], state["not_kept_reason"]) == (3, None)


def test_a_stuck_disk_holds_up_the_judging_once_and_shortly(tmp_path: Path) -> None:
    stuck = threading.Event()

    def write(file: BinaryIO, content: bytes) -> None:
        stuck.wait(30)
        write_durably(file, content)

    journal = Journal(tmp_path / "journal", write)
    with running(tmp_path, journal=journal, patience=0.2) as (recorder, history):
        recorder.keep(judged(0))
        wait_until(lambda: not recorder._queue)
        for number in range(1, CAPACITY + 1):
            recorder.keep(judged(number))
        begun = time.monotonic()
        for number in range(CAPACITY + 1, CAPACITY + 21):
            recorder.keep(judged(number))
        assert time.monotonic() - begun < 2.0
        assert recorder.state()["not_kept"] == 20
        stuck.set()
        assert recorder.settle(20)
        assert len(recorded_keys(history)) == CAPACITY + 1


def test_a_part_that_the_database_never_takes_is_set_aside_and_the_others_come(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.append({"key": "nonsense", "views": []})
    with running(tmp_path, journal=journal) as (recorder, history):
        recorder.keep(judged(1))
        assert recorder.settle(10)
        assert recorded_keys(history) == ["line:1"]
        assert recorder.state()["not_kept"] == 1
    assert len(list((tmp_path / "journal").glob("refused-*"))) == 1


def test_a_picture_that_a_power_cut_took_is_written_again_from_the_journal(tmp_path: Path) -> None:
    history = History("", tmp_path)
    recorder = Recorder(history, Journal(tmp_path / "journal"), Bus())
    recorder.start()
    for number in (1, 2):
        recorder.keep(judged(number))
    assert recorder.settle(10)
    first, second = history.picture_path(1), history.picture_path(2)
    assert first is not None
    assert second is not None
    content = first.read_bytes()
    small = history.thumbnail_path(1)
    assert small not in (None, first)
    left = {path: path.read_bytes() for path in (tmp_path / "journal").glob("segment-*")}
    assert left
    recorder.stop()
    # As a power cut leaves it: the journal is still there, and a file is empty. The other was removed by retention.
    for path, journal in left.items():
        path.write_bytes(journal)
    first.write_bytes(b"")
    small.write_bytes(b"")
    second.unlink()
    with history.session() as session:
        session.execute(update(ViewRow).where(ViewRow.id == 2).values(picture="", map="", bytes=0))

    with running(tmp_path, history=history) as (again, _):
        assert again.settle(10)
        assert first.read_bytes() == content
        assert small.read_bytes()[:2] == b"\xff\xd8"
        assert not second.exists()
        assert recorded_keys(history) == ["line:1", "line:2"]


def test_a_file_is_copied_as_it_is_and_one_that_is_gone_loses_no_verdict(tmp_path: Path) -> None:
    original = tmp_path / "part 1.JPG"
    original.write_bytes(b"not even a picture")
    with running(tmp_path / "station") as (recorder, history):
        recorder.keep(judged(1, pixels=None, path=original))
        recorder.keep(judged(2, pixels=None, path=tmp_path / "gone.png"))
        assert recorder.settle(10)
        copied = history.picture_path(1)
        assert copied is not None
        assert copied.suffix == ".jpg"
        assert copied.read_bytes() == b"not even a picture"
        assert history.picture_path(2) is None
        assert history.map_array(2) is not None


def test_a_late_view_joins_its_part_and_can_only_make_it_worse(tmp_path: Path) -> None:
    front = View(picture(1, part="p", view="front"), judged(1).views[0].inspection)
    back = View(picture(2, part="p", view="back"), judged(2, "anomalous").views[0].inspection)
    taken = front.picture.taken
    with running(tmp_path) as (recorder, history):
        recorder.keep(JudgedPart("p", taken, (front,), missing=("back",)))
        recorder.keep(JudgedPart("p", taken, (back,), missing=("front",)))
        assert recorder.settle(10)
        part = history.part(1)
        assert part is not None
        assert recorded_keys(history) == ["p"]
        assert [view.view for view in part.views] == ["front", "back"]
        assert (part.verdict, part.missing) == ("anomalous", [])


def test_sinks_get_a_message_with_the_part_once(tmp_path: Path) -> None:
    sinks = (
        SinkConfig("all", "mqtt", "mqtt://localhost"),
        SinkConfig("bad", "mqtt", "mqtt://localhost", verdicts=("anomalous",)),
        SinkConfig("none", "mqtt", "mqtt://localhost", messages=("warning",)),
    )
    with running(tmp_path, sinks=sinks) as (recorder, history):
        for number, verdict in ((1, "normal"), (2, "anomalous"), (1, "normal")):
            recorder.keep(judged(number, verdict, key=f"line:{number}" + "x" * 390))
        assert recorder.settle(10)
        with history.session() as session:
            rows = session.query(OutboxRow).order_by(OutboxRow.id).all()
        assert [(row.sink, row.payload["id"], row.payload["verdict"]) for row in rows] == [
            ("all", 1, "normal"), ("all", 2, "anomalous"), ("bad", 2, "anomalous"),
        ]  # fmt: skip
        assert rows[0].payload["views"][0]["inspection"]["score"] == 1.0
        assert "picture" not in rows[0].payload["views"][0]


def test_postgresql_stopped_and_started_while_parts_come_loses_nothing(tmp_path: Path) -> None:
    server = PostgresServer()
    try:
        history = History(server.url, tmp_path)
        with running(tmp_path, history=history) as (recorder, _):
            recorder.keep(judged(0))
            number = 1
            wait_until(lambda: recorder.state()["database_error"] is not None)
            server.start()
            for _ in range(2):
                for _ in range(40):
                    recorder.keep(judged(number))
                    number += 1
                server.stop()
                for _ in range(40):
                    recorder.keep(judged(number))
                    number += 1
                wait_until(lambda: recorder.state()["database_error"] is not None)
                server.start()
                assert recorder.settle(20)
            keys = recorded_keys(history)
            assert sorted(keys) == sorted(f"line:{each}" for each in range(number))
            assert recorder.state()["not_kept"] == 0
    finally:
        server.remove()
