"""Teaching from the page: jobs with progress, refusals that name the pictures, changes with who made them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from detector_helpers import TINY_FAST, product, spoil, tiny

pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed (it comes with the extra 'station')")

from teaching_helpers import Bench, bench

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.history.history import History
from dinosaur_ad.station.station_teaching import Teaching


@pytest.fixture
def plate(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as made:
        yield made


def test_a_product_is_learned_beside_the_judging(plate: Bench) -> None:
    paths = plate.files(product(2, 14), "gear")
    with plate.bus.subscribed() as messages:
        job = plate.ended(plate.teaching.learn("gear", paths, "ada"))
        told = []
        while message := messages.take():
            told.append(message)
    assert job.state == "done", job.sentence
    assert "With 14 images: at most" in job.sentence
    assert job.result is not None
    assert job.result["images"] == 14
    assert {message.body["state"] for message in told if message.kind == "job"} >= {"waiting", "running", "done"}
    assert job.done == 14
    assert plate.detector.inspect(product(2, 1, seed=9)[0]).task == "gear"  # the judging detector knows it
    (change,) = plate.history.changes("gear")
    assert (change.by, change.action, change.detail["before"]) == ("ada", "learn", None)
    assert change.detail["after"]["threshold"] > 0
    assert [message.body["action"] for message in told if message.kind == "change"] == ["learn"]


def test_the_first_product_of_a_store_is_seen_by_the_judging(tmp_path: Path) -> None:
    detector = tiny(tmp_path / "store", preset=TINY_FAST)
    history = History("", tmp_path / "station")
    history.open()
    teaching = Teaching(detector, history, Bus())
    teaching.start()
    try:
        helper = Bench(detector, history, Bus(), teaching, tmp_path)
        job = helper.ended(teaching.learn("gear", helper.files(product(2, 12), "gear"), "ada"))
        assert job.state == "done", job.sentence
        assert detector.inspect(product(2, 1, seed=5)[0]).task == "gear"
    finally:
        teaching.stop()
        history.close()


def test_refused_teaching_names_the_pictures_and_can_be_forced(plate: Bench) -> None:
    blank = np.full((70, 70, 3), 90, np.uint8)
    paths = plate.files([*product(2, 12), blank], "gear")
    job = plate.ended(plate.teaching.learn("gear", paths, "ada"))
    assert job.state == "refused"
    assert job.result == {"suspects": [{"path": str(paths[-1])}]}
    assert "gear-12.png" in job.sentence
    assert plate.history.changes("gear") == []
    assert plate.ended(plate.teaching.learn("gear", paths, "ada", force=True)).state == "done"


def test_a_job_that_fails_says_why_and_the_next_one_runs(plate: Bench) -> None:
    wrong = plate.teaching.learn("plate", plate.files(product(1, 5), "again"), "ada")
    right = plate.teaching.learn("gear", plate.files(product(2, 12), "gear"), "ada")
    assert plate.ended(wrong).state == "failed"
    assert "There is a task 'plate' already" in wrong.sentence
    assert plate.ended(right).state == "done"
    assert [job.id for job in plate.teaching.jobs()] == [right.id, wrong.id]
    assert plate.teaching.state()["waiting"] == 0


def test_settings_undo_and_redo_are_noted_with_both_sides(plate: Bench) -> None:
    before = plate.detector.threshold("plate")
    changed = plate.teaching.set("plate", by="ada", sensitivity=9)
    assert changed.after.threshold < before
    assert plate.teaching.undo("plate", by="bob") == "set"
    assert plate.detector.threshold("plate") == before
    assert plate.teaching.redo("plate", by="bob") == "set"
    plate.teaching.set("plate", by="ada", zones=[{"ignore": [[0, 0], [30, 0], [30, 30], [0, 30]]}])
    plate.teaching.rename("plate", "disc", by="eve")
    plate.teaching.forget("disc", by="eve")
    plate.teaching.undo("disc", by="eve")
    assert "disc" in plate.detector
    told = [(row.by, row.task, row.action) for row in reversed(plate.history.changes())]
    assert told == [
        ("ada", "plate", "sensitivity"),
        ("bob", "plate", "undo"),
        ("bob", "plate", "redo"),
        ("ada", "plate", "zones"),
        ("eve", "disc", "rename"),
        ("eve", "disc", "forget"),
        ("eve", "disc", "undo"),
    ]
    undone = plate.history.changes()[-2]
    assert undone.detail["after"]["threshold"] == pytest.approx(before)
    with pytest.raises(InputError, match="Nothing to change"):
        plate.teaching.set("plate", by="ada")


def test_confirmed_defects_that_would_pass_are_named_after_a_change(plate: Bench) -> None:
    part = plate.record(spoil(product(1, 1, seed=7)[0]))
    plate.teaching.say(part, "ada", "defect")
    plate.all_ended()
    changed = plate.teaching.set("plate", by="ada", threshold=1e6)
    assert len(changed.gallery_missed) == 1
    change = plate.history.changes("plate")[0]
    assert "1 confirmed defect of 'plate' would pass now" in change.sentence
    assert len(change.detail["gallery_missed"]) == 1
    plate.teaching.undo("plate", by="ada")
    assert plate.history.changes("plate")[0].detail["gallery_missed"] == []


def test_a_product_is_recalibrated_from_recorded_parts_and_its_warning_is_closed(plate: Bench) -> None:
    parts = [plate.record(image, "plate") for image in product(1, 12, seed=3)]
    warning = plate.history.add_warning("product", "plate", "It changed.", {"tasks": ["plate"]}, parts[:2])
    both = plate.history.add_warning("light", None, "The light changed.", {"tasks": ["plate", "gear"]})
    assert {point.id for point in plate.teaching.suggested_parts("plate")} == set(parts)
    job = plate.ended(plate.teaching.recalibrate("plate", parts, "ada"))
    assert job.state == "done", job.sentence
    assert job.result is not None
    assert job.result["calibrated"] == 12
    assert [row.id for row in plate.history.warnings()] == [both]  # the gear has not been taught anew
    assert next(row for row in plate.history.warnings(open_only=False) if row.id == warning).closed_by == "ada"


def test_parts_that_are_not_there_are_refused_at_once(plate: Bench) -> None:
    with pytest.raises(InputError, match="no part 4711"):
        plate.teaching.recalibrate("plate", [4711], "ada")
    with pytest.raises(InputError, match="no pictures to teach from"):
        plate.teaching.learn("gear", [], "ada")
