"""The slider's what-if agrees with what the product would really have said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detector_helpers import product, spoil

pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed (it comes with the extra 'station')")

from teaching_helpers import Bench, bench


@pytest.fixture
def plate(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as made:
        yield made


def test_each_place_counts_what_it_would_have_flagged(plate: Bench) -> None:
    good = product(1, 8, seed=21)
    bad = [spoil(image, 30, 20) for image in product(1, 3, seed=22)]
    answers = ["fine"] * 6 + [None] * 2
    for image, answer in zip(good, answers, strict=True):
        number = plate.record(image, "plate")
        if answer:
            plate.teaching.say(number, "olga", answer)
    for image in bad:
        plate.history.save_feedback(plate.record(image, "plate"), "olga", "defect")
    places = plate.teaching.what_if("plate")
    assert [place.sensitivity for place in places] == list(range(11))
    assert [place.current for place in places].index(True) == 5
    assert sorted(place.flagged for place in places) == [place.flagged for place in places]
    assert all(place.parts == 11 for place in places)
    for place in (places[2], places[9]):
        verdicts = plate.detector.inspect([*good, *bad], task="plate", false_alarms=place.rate)
        flagged = [each.verdict == "anomalous" for each in verdicts]
        assert place.flagged == sum(flagged)
        assert place.false_alarms is not None
        assert (place.false_alarms.count, place.false_alarms.total) == (sum(flagged[:6]), 6)
        assert place.missed is not None
        assert (place.missed.count, place.missed.total) == (flagged[8:].count(False), 3)
        assert place.missed.low <= place.missed.rate <= place.missed.high


def test_parts_from_before_the_last_teaching_do_not_count(plate: Bench) -> None:
    plate.record(product(1, 1, seed=23)[0], "plate")
    plate.ended(plate.teaching.update("plate", plate.files(product(1, 3, seed=24), "more"), "ada"))
    plate.record(product(1, 1, seed=25)[0], "plate")
    (place, *_) = plate.teaching.what_if("plate")
    assert (place.parts, place.false_alarms, place.missed) == (1, None, None)
    plate.teaching.set("plate", by="ada", sensitivity=7)  # scores mean the same
    places = plate.teaching.what_if("plate")
    assert places[0].parts == 1
    assert places[7].current


def test_a_threshold_follows_the_parts_that_people_called_fine(plate: Bench) -> None:
    assert plate.teaching.following_threshold("plate") is None
    for image in product(1, 20, seed=26):
        plate.history.save_feedback(plate.record(image, "plate"), "olga", "fine")
    found = plate.teaching.following_threshold("plate")
    assert found is not None
    assert found.confirmed == 20
    assert 0 < found.threshold < 10 * found.now
