"""What becomes of an answer: fine waits for an engineer, defect is kept at once, the guard's refusal is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detector_helpers import product, spoil

pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed (it comes with the extra 'station')")

from teaching_helpers import Bench, bench

from dinosaur_ad.errors import InputError


@pytest.fixture
def plate(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as made:
        yield made


def test_fine_waits_until_an_engineer_approves(plate: Bench) -> None:
    parts = [plate.record(image) for image in product(1, 3, seed=11)]
    told = [plate.teaching.say(part, "olga", "fine") for part in parts]
    assert {plate.feedback(number).state for number in told} == {"waiting"}
    assert plate.teaching.jobs() == []
    before = len(plate.detector.tasks()[0].manifest["images"])
    job = plate.ended(plate.teaching.update_from_tray(told[:2], "emil"))
    assert job.state == "done", job.sentence
    assert len(plate.detector.tasks()[0].manifest["images"]) == before + 2
    assert [plate.feedback(number).state for number in told] == ["taught", "taught", "waiting"]
    assert plate.feedback(told[0]).decided_by == "emil"
    assert plate.history.changes("plate")[0].detail["feedback"] == told[:2]
    plate.teaching.refuse(told[2:], "emil", "A reflection.")
    assert (plate.feedback(told[2]).state, plate.feedback(told[2]).outcome) == ("refused", "A reflection.")
    with pytest.raises(InputError, match="taught as normal already"):
        plate.teaching.withdraw(told[0], "olga")


def test_what_the_guard_refuses_is_said_and_the_rest_is_taught(plate: Bench) -> None:
    """A part of another product must not become a normal one by a wrong click."""
    good = plate.teaching.say(plate.record(product(1, 1, seed=12)[0], "plate"), "olga", "fine")
    wrong = plate.teaching.say(plate.record(product(5, 1, seed=1)[0], "plate"), "olga", "fine")
    job = plate.ended(plate.teaching.update_from_tray([good, wrong], "emil"))
    assert job.state == "done", job.sentence
    assert plate.feedback(good).state == "taught"
    assert plate.feedback(wrong).state == "refused"
    assert plate.feedback(wrong).outcome
    again = plate.ended(plate.teaching.update_from_tray([wrong], "emil"))
    assert again.state == "refused"
    assert again.result is not None
    assert len(again.result["suspects"]) == 1
    assert plate.ended(plate.teaching.update_from_tray([wrong], "emil", force=True)).state == "done"
    assert plate.feedback(wrong).state == "taught"


def test_a_defect_goes_to_the_gallery_at_once(plate: Bench) -> None:
    number = plate.teaching.say(plate.record(spoil(product(1, 1, seed=13)[0])), "olga", "defect")
    plate.all_ended()
    row = plate.feedback(number)
    assert (row.state, row.decided_by) == ("kept", "olga")
    assert "asked again after every change" in row.outcome
    assert len(plate.detector.defects("plate")) == 1
    change = plate.history.changes("plate")[0]
    assert (change.action, change.by) == ("defect", "olga")


def test_a_defect_that_the_product_calls_normal_is_kept_because_a_person_confirmed_it(plate: Bench) -> None:
    number = plate.teaching.say(plate.record(product(1, 1, seed=14)[0], "plate"), "olga", "defect")
    plate.all_ended()
    row = plate.feedback(number)
    assert row.state == "kept"
    assert "because a person confirmed it" in row.outcome


def test_an_answer_can_be_changed_and_withdrawn(plate: Bench) -> None:
    part = plate.record(spoil(product(1, 1, seed=15)[0]))
    first = plate.teaching.say(part, "olga", "defect")
    plate.all_ended()
    second = plate.teaching.say(part, "olga", "fine")
    plate.all_ended()
    assert plate.detector.defects("plate") == ()
    assert [plate.feedback(number).state for number in (first, second)] == ["withdrawn", "waiting"]
    plate.teaching.withdraw(second, "olga")
    assert plate.feedback(second).state == "withdrawn"
    stored = plate.history.part(part)
    assert stored is not None
    assert stored.answer is None


def test_other_answers_are_noted_and_nothing_follows(plate: Bench) -> None:
    part = plate.record(product(1, 1, seed=16)[0])
    other = plate.teaching.say(part, "olga", "other product", product="gear", note="from line 2")
    unsure = plate.teaching.say(part, "olga", "not sure")
    assert plate.teaching.jobs() == []
    row = plate.feedback(other)
    assert (row.state, row.product, row.note, plate.feedback(unsure).state) == ("noted", "gear", "from line 2", "noted")
    with pytest.raises(InputError, match="An answer is one of"):
        plate.teaching.say(part, "olga", "perhaps")


def test_by_policy_enough_answers_are_taught_together(tmp_path: Path) -> None:
    with bench(tmp_path, policy="auto", together=3) as plate:
        told = [plate.teaching.say(plate.record(image), "olga", "fine") for image in product(1, 4, seed=17)]
        (job,) = plate.all_ended()
        assert job.state == "done", job.sentence
        assert [plate.feedback(number).state for number in told] == ["taught"] * 3 + ["waiting"]
        assert plate.history.changes("plate")[0].by == "policy: auto"


def test_a_picture_that_is_no_longer_kept_is_said(plate: Bench) -> None:
    part = plate.record(product(1, 1, seed=18)[0])
    stored = plate.history.part(part)
    assert stored is not None
    path = plate.history.picture_path(stored.views[0].id)
    assert path is not None
    number = plate.teaching.say(part, "olga", "fine")
    path.unlink()
    with pytest.raises(InputError, match="no longer kept"):
        plate.teaching.update_from_tray([number], "emil")
    assert plate.feedback(number).state == "refused"


def test_a_defect_that_a_stop_left_waiting_is_kept_after_the_start(plate: Bench) -> None:
    plate.teaching.stop()
    number = plate.teaching.say(plate.record(spoil(product(1, 1, seed=19)[0])), "olga", "defect")
    assert plate.feedback(number).state == "waiting"
    from dinosaur_ad.station.station_teaching import Teaching

    again = Teaching(plate.detector, plate.history, plate.bus)
    again.start()
    try:
        assert all(again.queue.wait(job, 60) for job in again.jobs())
        assert plate.feedback(number).state == "kept"
    finally:
        again.stop()
