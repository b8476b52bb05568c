"""Pictures through the pipeline: each judged once, in order, with bounded queues; views of one part together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
from PIL import Image

from detector_helpers import product, spoil, tiny

pytest.importorskip("sqlalchemy", reason="the station needs the extra 'station'")

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import PartConfig, QueueConfig
from dinosaur_ad.station.judge import Judge, ReadPicture
from dinosaur_ad.station.part import JudgedPart, Picture, View
from dinosaur_ad.station.pipeline import Pipeline

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
PIXELS = np.zeros((20, 20, 3), np.uint8)
LONG = 20.0


class SlowJudge(Judge):
    """Judges nothing, and only as many pictures as it is allowed to."""

    def __init__(self) -> None:
        self.failures = 0
        self.allowed = threading.Semaphore(0)
        self.begun = 0

    def read(self, picture: Picture) -> ReadPicture:
        return ReadPicture(picture.pixels)

    def judge(self, picture: Picture, read: ReadPicture | None = None) -> View:
        self.begun += 1
        assert self.allowed.acquire(timeout=LONG)
        return View(picture, None, "not judged")


@contextmanager
def line(judge: Judge, **options: Any) -> Iterator[tuple[Pipeline, Queue[JudgedPart]]]:
    kept: Queue[JudgedPart] = Queue()
    pipeline = Pipeline(judge, options.pop("keep", kept.put), **options)
    pipeline.start()
    try:
        yield pipeline, kept
    finally:
        pipeline.stop(drain=False, timeout=LONG)


def free_judge() -> SlowJudge:
    judge = SlowJudge()
    judge.allowed.release(1000)
    return judge


def shot(number: int, source: str = "camera", **fields: Any) -> Picture:
    return Picture(f"{source}:{number}", source, NOW, pixels=PIXELS, **fields)


def test_files_and_pixels_are_judged_in_order_and_told_apart(tmp_path: Path) -> None:
    detector = tiny()
    detector.learn("part", product(0, 12))
    normal, defect = product(0, 1, seed=5)[0], spoil(product(0, 1, seed=6)[0])
    Image.fromarray(defect).save(tmp_path / "defect.png")
    (tmp_path / "broken.png").write_bytes(b"x")
    with line(Judge(detector)) as (pipeline, kept):
        assert pipeline.offer(Picture("c:1", "c", NOW, pixels=normal)) == "accepted"
        assert pipeline.offer(Picture("f:1", "f", NOW, tmp_path / "defect.png")) == "accepted"
        assert pipeline.offer(Picture("f:2", "f", NOW, tmp_path / "broken.png")) == "accepted"
        parts = [kept.get(timeout=LONG) for _ in range(3)]
    assert [part.key for part in parts] == ["c:1", "f:1", "f:2"]
    assert [part.verdict for part in parts] == ["normal", "anomalous", "not ready"]
    ms = parts[1].views[0].ms
    assert ms["total"] >= ms["encode"] + ms["wait"] > 0
    state = pipeline.state()
    assert (state["judged"], state["parts"], state["queue"], state["failures"]) == (3, 3, 0, 0)
    assert state["total_ms"]["p99"] >= state["total_ms"]["p50"] >= state["encode_ms"]["p50"] > 0


def test_a_picture_is_accepted_once(tmp_path: Path) -> None:
    released: list[str] = []
    asked: list[str] = []

    def known(keys: Iterable[str]) -> set[str]:
        asked.extend(keys)
        return {key for key in keys if key == "folder:old"}

    with line(free_judge(), known=known) as (pipeline, kept):
        assert [pipeline.offer(shot(1)), pipeline.offer(shot(1))] == ["accepted", "known"]
        old = Picture("folder:old", "folder", NOW, tmp_path / "a.png", release=lambda: released.append("old"))
        assert pipeline.offer(old) == "known"
        assert released == ["old"]  # it was recorded before a crash came in between
        assert kept.get(timeout=LONG).key == "camera:1"
        assert pipeline.offer(shot(1)) == "known"
    assert asked == ["folder:old"]  # a camera does not wait for the database
    assert pipeline.state()["known"] == 3


def test_a_history_that_cannot_be_asked_holds_nothing_up(tmp_path: Path) -> None:
    def broken(keys: Iterable[str]) -> set[str]:
        raise ConnectionError("the database is down")

    with line(free_judge(), known=broken) as (pipeline, kept):
        assert pipeline.offer(Picture("f:1", "f", NOW, tmp_path / "a.png")) == "accepted"
        assert kept.get(timeout=LONG).key == "f:1"


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    tick = threading.Event()
    for _ in range(2000):
        if condition():
            return
        tick.wait(0.01)
    raise AssertionError("it did not happen")


def test_a_full_queue_drops_and_counts() -> None:
    judge = SlowJudge()
    with line(judge, queue=QueueConfig(2, "drop")) as (pipeline, kept):
        answers = []
        for number in range(20):
            answers.append(pipeline.offer(shot(number)))
            until(lambda: pipeline.state()["queue"] >= min(5, len(answers)) or "dropped" in answers)
        accepted = answers.count("accepted")
        assert 2 <= accepted < 20
        assert pipeline.state()["dropped"] == answers.count("dropped") == 20 - accepted
        judge.allowed.release(100)
        got = [kept.get(timeout=LONG).key for _ in range(accepted)]
        assert got == [f"camera:{n}" for n, answer in enumerate(answers) if answer == "accepted"]
        assert pipeline.offer(shot(19)) == "accepted"  # what was dropped may come again


def test_a_full_queue_holds_sources_up_and_loses_nothing() -> None:
    judge = SlowJudge()
    with line(judge, queue=QueueConfig(1, "wait")) as (pipeline, kept):
        answers: list[str] = []
        sources = [
            threading.Thread(
                target=lambda source=source: [answers.append(pipeline.offer(shot(n, source))) for n in range(20)]
            )
            for source in ("left", "right")
        ]
        for source in sources:
            source.start()
        until(lambda: pipeline.state()["queue"] >= 4)  # one is judged, two are read, one waits: no more fit
        assert pipeline.offer(shot(99), timeout=0.01) == "dropped"
        judge.allowed.release(100)
        for source in sources:
            source.join(LONG)
        assert answers == ["accepted"] * 40
        keys = [kept.get(timeout=LONG).key for _ in range(40)]
    for source in ("left", "right"):
        assert [key for key in keys if key.startswith(source)] == [f"{source}:{n}" for n in range(20)]


def test_stopping_judges_what_was_accepted_and_frees_who_waits() -> None:
    judge = SlowJudge()
    kept: list[str] = []
    pipeline = Pipeline(judge, lambda part: kept.append(part.key), QueueConfig(4, "wait"))
    assert pipeline.offer(shot(0)) == "stopped"
    pipeline.start()
    for number in range(4):
        assert pipeline.offer(shot(number)) == "accepted"
    judge.allowed.release(100)
    assert pipeline.stop(drain=True, timeout=LONG)
    assert kept == [f"camera:{n}" for n in range(4)]
    assert pipeline.offer(shot(9)) == "stopped"

    held = Pipeline(SlowJudge(), lambda part: None, QueueConfig(1, "wait"))
    held.start()
    answers: Queue[str] = Queue()
    source = threading.Thread(target=lambda: [answers.put(held.offer(shot(n))) for n in range(9)])
    source.start()
    until(lambda: held.state()["queue"] >= 3)
    held.stop(drain=False, timeout=0.01)
    source.join(LONG)
    assert not source.is_alive()
    assert "stopped" in list(answers.queue)


def test_what_was_left_at_a_stop_may_come_again() -> None:
    judge, kept = SlowJudge(), Queue[JudgedPart]()
    pipeline = Pipeline(judge, kept.put, QueueConfig(10, "wait"))
    pipeline.start()
    for number in range(8):
        assert pipeline.offer(shot(number)) == "accepted"
    until(lambda: judge.begun == 1)
    stopping = threading.Thread(target=pipeline.stop, kwargs={"drain": False, "timeout": LONG})
    stopping.start()
    until(lambda: not pipeline.state()["running"])
    judge.allowed.release(100)
    stopping.join(LONG)
    pipeline.start()
    assert pipeline.offer(shot(7)) == "accepted"
    keys = {kept.get(timeout=LONG).key, kept.get(timeout=LONG).key}
    assert keys == {"camera:0", "camera:7"}
    assert pipeline.stop(timeout=LONG)


def test_keep_may_fail_and_judging_goes_on() -> None:
    kept: Queue[str] = Queue()

    def keep(part: JudgedPart) -> None:
        if part.key == "camera:0":
            raise OSError("disk full")
        kept.put(part.key)

    with line(free_judge(), keep=keep) as (pipeline, _):
        pipeline.offer(shot(0))
        pipeline.offer(shot(1))
        assert kept.get(timeout=LONG) == "camera:1"
        assert pipeline.state()["not_kept"] == 1


def test_no_thread_ends_by_an_error() -> None:
    class Broken(SlowJudge):
        def read(self, picture: Picture) -> ReadPicture:
            if picture.key == "camera:0":
                raise ZeroDivisionError
            return super().read(picture)

        def judge(self, picture: Picture, read: ReadPicture | None = None) -> View:
            if picture.key == "camera:1":
                raise ZeroDivisionError
            return View(picture, None, read.error if read else "")

    with line(Broken()) as (pipeline, kept):
        for number in range(3):
            pipeline.offer(shot(number))
        parts = [kept.get(timeout=LONG) for _ in range(3)]
    assert [part.verdict for part in parts] == ["not ready"] * 3
    assert "ZeroDivisionError" in parts[0].reason
    assert "ZeroDivisionError" in parts[1].reason


def test_inspect_waits_for_the_verdict() -> None:
    with line(free_judge()) as (pipeline, kept):
        part = pipeline.inspect(shot(1), timeout=LONG)
        assert part is kept.get(timeout=LONG)
        with pytest.raises(InputError, match="judged before"):
            pipeline.inspect(shot(1), timeout=LONG)
    with pytest.raises(InputError, match="not judging now"):
        pipeline.inspect(shot(2), timeout=LONG)


# --- several views ---

VIEWS = PartConfig(("top", "side"), wait_seconds=LONG)
HASTY = PartConfig(("top", "side"), wait_seconds=0.05)


def test_views_with_the_same_part_name_are_one_part() -> None:
    with line(free_judge(), part=VIEWS) as (pipeline, kept):
        for number in (1, 2):
            pipeline.offer(shot(number, "a", view="side", part=f"part-{number}"))
        for number in (2, 1):
            pipeline.offer(shot(number, "b", view="top", part=f"part-{number}"))
        second, first = kept.get(timeout=LONG), kept.get(timeout=LONG)
    assert [view.picture.key for view in first.views] == ["b:1", "a:1"]  # in the order of the settings
    assert [view.picture.key for view in second.views] == ["b:2", "a:2"]
    assert first.missing == ()
    assert first.key.startswith("part-1:")


def test_views_without_a_part_name_are_joined_in_the_order_they_come() -> None:
    with line(free_judge(), part=VIEWS) as (pipeline, kept):
        for source, number, view in (("a", 1, "top"), ("a", 2, "top"), ("b", 1, "side"), ("b", 2, "side")):
            pipeline.offer(shot(number, source, view=view))
        parts = [kept.get(timeout=LONG) for _ in range(2)]
    assert [[view.picture.key for view in part.views] for part in parts] == [["a:1", "b:1"], ["a:2", "b:2"]]


def test_a_view_that_does_not_come_is_named_and_the_part_is_not_normal() -> None:
    detector = tiny()
    detector.learn("part", product(0, 12))
    normal = product(0, 1, seed=5)[0]
    with line(Judge(detector), part=HASTY) as (pipeline, kept):
        pipeline.offer(Picture("a:1", "a", NOW, pixels=normal, view="top", part="1"))
        part = kept.get(timeout=LONG)
        assert part.views[0].verdict == "normal"
        assert (part.verdict, part.missing) == ("not ready", ("side",))
        assert "side" in part.reason
        pipeline.offer(Picture("b:1", "b", NOW, pixels=normal, view="side", part="1"))  # too late
        late = kept.get(timeout=LONG)
        assert (late.verdict, late.missing) == ("not ready", ("top",))
        assert late.key != part.key
        assert pipeline.state()["incomplete"] == 2


def test_a_view_that_came_in_time_but_waits_in_the_queue_is_not_missing() -> None:
    judge = SlowJudge()
    with line(judge, part=HASTY) as (pipeline, kept):
        pipeline.offer(shot(1, "a", view="top", part="1"))
        pipeline.offer(shot(1, "b", view="side", part="1"))
        judge.allowed.release()
        threading.Event().wait(2 * HASTY.wait_seconds)
        judge.allowed.release()
        assert kept.get(timeout=LONG).missing == ()


def test_a_part_that_is_open_at_the_end_is_kept() -> None:
    kept: list[JudgedPart] = []
    pipeline = Pipeline(free_judge(), kept.append, part=VIEWS)
    pipeline.start()
    pipeline.offer(shot(1, "a", view="top", part="1"))
    assert pipeline.stop(drain=True, timeout=LONG)
    assert [part.missing for part in kept] == [("side",)]
