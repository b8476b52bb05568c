"""A part's verdict from those of its views: the worst counts, and what is missing is never normal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from dinosaur_ad.inspection import Inspection, WorstPatch
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.part import JudgedPart, Picture, View

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


def view(verdict: str, p_value: float = 0.5, **more: Any) -> View:
    found = Inspection(
        path="a.png",
        task="gear",
        score=1.0,
        p_value=p_value,
        verdict=verdict,
        threshold=1.2,
        false_alarms=0.025,
        normal_level=1.0,
        worst=WorstPatch(0, 0, (0, 0, 1, 1), 1.0, "b.png", 0, 0),
        asked={"gear": 1.0},
        encoder="tiny",
        ms={},
        map=np.ones((2, 2), np.float32),
        image_size=(8, 8),
        reason="" if verdict in ("normal", "anomalous") else f"why {verdict}",
    )
    return View(Picture(f"k{p_value}", "camera", NOW, view=more.get("name", "")), found)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (("normal", "normal"), "normal"),
        (("normal", "anomalous"), "anomalous"),
        (("unknown", "anomalous"), "anomalous"),
        (("unknown", "not ready"), "unknown"),
        (("normal", "not ready"), "not ready"),
    ],
)
def test_the_worst_view_decides(verdicts: tuple[str, ...], expected: str) -> None:
    part = JudgedPart("p", NOW, tuple(map(view, verdicts)))
    assert part.verdict == expected
    assert part.worst is not None
    assert part.worst.verdict == expected
    assert bool(part.reason) == (expected in ("unknown", "not ready"))


def test_a_part_without_all_its_views_is_never_normal() -> None:
    part = JudgedPart("p", NOW, (view("normal"),), missing=("side",))
    assert part.verdict == "not ready"
    assert "side" in part.reason
    assert JudgedPart("p", NOW, (view("anomalous"),), missing=("side",)).verdict == "anomalous"
    assert JudgedPart("p", NOW, ()).verdict == "not ready"


def test_a_picture_that_could_not_be_read_is_never_normal() -> None:
    broken = View(Picture("k", "camera", NOW), None, "The file is damaged.")
    part = JudgedPart("p", NOW, (view("normal"), broken))
    assert (part.verdict, part.reason) == ("not ready", "The file is damaged.")
    assert part.to_json()["views"][1]["inspection"] is None


def test_of_equal_verdicts_the_least_likely_view_is_shown() -> None:
    part = JudgedPart("p", NOW, (view("anomalous", 0.01), view("anomalous", 0.001)))
    assert part.to_json()["p_value"] == 0.001


def test_a_picture_is_a_part_of_its_own_unless_it_names_one() -> None:
    picture = Picture("k", "camera", NOW)
    assert picture.part_key == "k"
    assert replace(picture, part="7").part_key == "7"


def test_a_listener_that_does_not_keep_up_loses_the_oldest_and_holds_up_nobody() -> None:
    bus = Bus()
    with bus.subscribed(capacity=2) as slow, bus.subscribed() as quick:
        for number in range(5):
            bus.publish("part", {"id": number})
        assert [message.body["id"] for message in iter(slow.take, None)] == [3, 4]
        assert slow.dropped == 3
        assert [message.body["id"] for message in iter(quick.take, None)] == [0, 1, 2, 3, 4]
    assert len(bus) == 0
    bus.publish("part", {})
