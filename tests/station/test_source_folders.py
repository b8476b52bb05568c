"""Watched folder, replay and uploads: each file once and whole, and back again after every trouble."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("watchfiles", reason="the station needs the extra 'station'")
pytest.importorskip("sqlalchemy", reason="the station needs the extra 'station'")

from source_helpers import Taker, until, until_state

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import SourceConfig
from dinosaur_ad.station.sources import watched_folder
from dinosaur_ad.station.sources.source import Source, make_source
from dinosaur_ad.station.spool import Spool

Start = Callable[..., Source]


@pytest.fixture
def taker() -> Taker:
    return Taker()


@pytest.fixture
def start(taker: Taker) -> Iterator[Start]:
    sources: list[Source] = []

    def started(kind: str, path: Path | None = None, spool: Spool | None = None, **options: Any) -> Source:
        known, bus = options.pop("known", None), options.pop("bus", None)
        source = make_source(SourceConfig("line", kind, path, **options), taker, spool, bus, known)
        source.backoff.first = 0.05
        source.start()
        sources.append(source)
        return source

    yield started
    for source in sources:
        assert source.stop()


def image(path: Path, value: int = 0) -> Path:
    """Write a picture as a program does that renames it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((32, 32, 3), value, np.uint8)).save(path.parent / ".new", "PNG")
    (path.parent / ".new").rename(path)
    return path


# --- watched folder ---


def test_files_that_were_there_and_files_that_come_are_given_once(tmp_path: Path, taker: Taker, start: Start) -> None:
    old = image(tmp_path / "old.png")
    source = start("folder", tmp_path, task="screw")
    first = taker.next()
    status = old.stat()
    assert first.key == f"line:old.png:{status.st_size}:{status.st_mtime_ns}"
    assert (first.path, first.task, first.source) == (old, "screw", "line")
    image(tmp_path / "monday" / "new.png")
    assert taker.next().key.startswith("line:monday/new.png:")
    image(old, 200)  # written anew
    again = taker.next()
    assert again.path == old
    assert again.key != first.key
    state = source.state()
    assert (state["state"], state["accepted"], state["pictures"]) == ("running", 3, 3)


def test_files_that_the_history_has_are_passed_over(tmp_path: Path, taker: Taker, start: Start) -> None:
    image(tmp_path / "a.png")
    image(tmp_path / "b.png")

    def known(keys: Any) -> set[str]:
        return {key for key in keys if "a.png" in key}

    source = start("folder", tmp_path, known=known)
    assert taker.next().key.startswith("line:b.png")
    assert source.state()["known"] == 1


def test_a_folder_moved_into_it_is_seen_with_all_its_files(tmp_path: Path, taker: Taker, start: Start) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        image(tmp_path / "outside" / "deep" / f"{number}.png")
    until_state(start("folder", tmp_path / "in"), "running")
    (tmp_path / "outside").rename(tmp_path / "in" / "batch")
    names = {taker.next().key.split(":")[1] for _ in range(3)}
    assert names == {f"batch/deep/{number}.png" for number in range(3)}


def test_a_file_is_given_when_it_is_complete_and_not_before(tmp_path: Path, taker: Taker, start: Start) -> None:
    source = start("folder", tmp_path)
    until_state(source, "running")
    content = image(tmp_path.parent / f"{tmp_path.name}-outside" / "x.png").read_bytes()
    with (tmp_path / "slow.png").open("wb") as file:
        for part in np.array_split(np.frombuffer(content, np.uint8), 3):
            file.write(part.tobytes())
            file.flush()
            image(tmp_path / f"other-{len(part)}-{file.tell()}.png")  # its arrival shows that slow.png was looked at
            assert "other" in taker.next().key
    picture = taker.next()
    assert picture.path == tmp_path / "slow.png"
    assert Image.open(picture.path).size == (32, 32)
    assert picture.key.split(":")[2] == str(len(content))


def test_a_file_cut_short_is_given_after_a_while_so_that_it_is_reported(
    tmp_path: Path, taker: Taker, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_folder, "STUCK", 0.3)
    whole = image(tmp_path / "whole.png").read_bytes()
    (tmp_path / "half.png").write_bytes(whole[:50])
    (tmp_path / "none.png").write_bytes(b"")
    start("folder", tmp_path)
    assert {taker.next().path.name for _ in range(3)} == {"whole.png", "half.png", "none.png"}  # type: ignore[union-attr]


def test_what_is_no_image_is_ignored_and_counted_once(
    tmp_path: Path, taker: Taker, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_folder, "RESCAN", 0.1)
    secret = image(tmp_path / "elsewhere" / "secret.png")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "notes.txt").write_text("hello")
    (folder / ".hidden.png").write_bytes(b"x")
    (folder / "link.png").symlink_to(secret)
    source = start("folder", folder)
    until_state(source, "running")
    (folder / "more.csv").write_text("1;2")
    image(folder / "real.png")
    assert taker.next().path == folder / "real.png"
    until(lambda: source.state()["ignored"] == 3)
    image(folder / "later.png")
    assert taker.next().path == folder / "later.png"
    assert source.state()["ignored"] == 3
    assert taker.pictures.empty()


def test_a_file_deleted_before_it_was_complete_is_forgotten(tmp_path: Path, taker: Taker, start: Start) -> None:
    until_state(start("folder", tmp_path), "running")
    (tmp_path / "gone.png").write_bytes(b"")
    image(tmp_path / "a.png")
    taker.next()
    (tmp_path / "gone.png").unlink()
    image(tmp_path / "b.png")
    assert taker.next().path == tmp_path / "b.png"
    assert taker.pictures.empty()


def test_a_folder_that_vanishes_is_waited_for_and_comes_back(tmp_path: Path, taker: Taker, start: Start) -> None:
    folder, bus = tmp_path / "card", Bus()
    with bus.subscribed() as messages:
        source = start("folder", folder, bus=bus)
        assert "is not there" in until_state(source, "waiting")["reason"]
        kept = image(folder / "a.png")
        taker.next()
        until_state(source, "running")
        shutil.move(folder, tmp_path / "away")
        assert str(folder) in until_state(source, "waiting")["reason"]
        image(tmp_path / "away" / "b.png")
        shutil.move(tmp_path / "away", folder)
        assert taker.next().path == folder / "b.png"
        until_state(source, "running")
        assert kept.exists()
        shutil.rmtree(folder)
        image(folder / "c.png")  # another folder of the same name
        assert taker.next().path == folder / "c.png"
        states = []
        while message := messages.take():
            states.append(message.body["state"])
    assert states[0] == "starting"
    assert states.count("waiting") >= 2
    assert source.state()["reconnects"] >= 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_says_so(tmp_path: Path, start: Start) -> None:
    (tmp_path / "locked").mkdir(mode=0)
    assert "Permission denied" in until_state(start("folder", tmp_path / "locked"), "waiting")["reason"]


def test_views_of_a_part_are_joined_by_their_names(tmp_path: Path, taker: Taker, start: Start) -> None:
    image(tmp_path / "lot" / "0017.png")
    start("folder", tmp_path, view="top")
    picture = taker.next()
    assert (picture.part, picture.view) == ("lot/0017", "top")


def test_a_name_as_long_as_is_allowed_has_a_key_that_the_database_takes(
    tmp_path: Path, taker: Taker, start: Start
) -> None:
    image(tmp_path / ("d" * 200) / ("x" * 240 + ".png"))
    start("folder", tmp_path)
    assert len(taker.next().key) < 400


def test_a_file_is_offered_again_when_nothing_was_judged(tmp_path: Path, taker: Taker, start: Start) -> None:
    taker.answer = "stopped"
    image(tmp_path / "a.png")
    source = start("folder", tmp_path)
    assert "Nothing is judged" in until_state(source, "waiting")["reason"]
    taker.answer = "accepted"
    assert taker.next().path == tmp_path / "a.png"


# --- replay ---


def test_replay_gives_all_in_order_and_ends(tmp_path: Path, taker: Taker, start: Start) -> None:
    for name in ("b.png", "a.png", "c/d.png"):
        image(tmp_path / name)
    source = start("replay", tmp_path, rate=200.0)
    assert [taker.next().key.split(":")[1] for _ in range(3)] == ["a.png", "b.png", "c/d.png"]
    assert until_state(source, "stopped")["reason"] == "All pictures were given."
    source.start()  # as after a restart: they are known
    until(lambda: source.state()["known"] == 3)
    assert taker.pictures.empty()


def test_replay_repeats_with_new_keys(tmp_path: Path, taker: Taker, start: Start) -> None:
    image(tmp_path / "a.png")
    start("replay", tmp_path, rate=200.0, repeat=True)
    assert len({taker.next().key for _ in range(5)}) == 5


def test_replay_waits_for_pictures(tmp_path: Path, taker: Taker, start: Start) -> None:
    source = start("replay", tmp_path, rate=200.0)
    assert "no image" in until_state(source, "waiting")["reason"]
    image(tmp_path / "a.png")
    assert taker.next().path == tmp_path / "a.png"


# --- uploads ---


def test_uploads_are_judged_also_those_of_before_a_crash(tmp_path: Path, taker: Taker, start: Start) -> None:
    spool = Spool(tmp_path / "spool")
    left = spool.put(b"left", "a.png", source="line")
    source: Any = start("upload", spool=spool, task="screw")
    assert taker.next() == left
    sent = source.take(b"new", "b.png", key="17")
    assert taker.next() == sent
    assert (sent.key, sent.task) == ("line:17", "screw")
    with pytest.raises(InputError, match="empty"):
        source.take(b"", "c.png")


# --- in general ---


def test_unknown_kinds_and_triggers_are_refused_in_a_sentence(start: Start, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no source of the kind 'telepathy'"):
        make_source(SourceConfig("x", "telepathy"), Taker())
    with pytest.raises(InputError, match="cannot be triggered"):
        start("folder", tmp_path).trigger()


def test_an_unexpected_error_is_shown_and_tried_again(tmp_path: Path, taker: Taker) -> None:
    class Fragile(Source):
        calls = 0

        def _run(self) -> None:
            self.calls += 1
            if self.calls < 3:
                raise ZeroDivisionError("oh")
            self._works()
            self._stopping.wait()

    source = Fragile(SourceConfig("x", "folder", tmp_path), taker)
    source.backoff.first = 0.05
    source.start()
    until_state(source, "running")
    assert source.state()["reconnects"] == 2
    assert source.stop()


def test_threads_end(tmp_path: Path, start: Start) -> None:
    source = start("folder", tmp_path)
    until_state(source, "running")
    assert source.stop()
    assert not any(thread.name == "source-line" for thread in threading.enumerate())
    assert source.state()["state"] == "stopped"
