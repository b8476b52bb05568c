"""Long streams: the threshold stays, and what the benchmark of them shows and counts."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import stream_scale
from benchmarks.stream_scale import RARE, RARE_PICTURES, StreamTally, chart, passing_files, run, shown, table
from watch_helpers import kinds, opened, write

from detector_helpers import TINY_FAST, product
from dinosaur_ad.watch import watcher


def test_the_rare_product_comes_first_and_then_only_after_half_of_the_stream() -> None:
    total = 4000
    at = [number for number in range(total) if shown(number, total, 0).product == RARE]
    assert {number // RARE_PICTURES for number in at} == {
        0,
        total // 2 // RARE_PICTURES,
        total // 2 // RARE_PICTURES + 1,
    }
    assert max(number for number in at if number < total // 2) < RARE_PICTURES
    products = {shown(number, total, 0).product for number in range(total)}
    assert products == {None, 0, 1, 2, RARE}


def test_files_are_there_for_as_long_as_they_are_looked_at(tmp_path: Path) -> None:
    for number, path in enumerate(passing_files(tmp_path, 3, 0)):
        assert list(tmp_path.iterdir()) == [path]
        assert int(path.stem) == number
    assert list(tmp_path.iterdir()) == []


def test_a_product_that_is_taken_for_another_is_counted() -> None:
    class Answer:
        verdict = "normal"

    tally = StreamTally(10_000, 0)
    numbers = [n for n in range(10_000) if shown(n, 10_000, 0).product in (0, 1) and not shown(n, 10_000, 0).defect]
    first = next(n for n in numbers if shown(n, 10_000, 0).product == 0)
    other = next(n for n in numbers if shown(n, 10_000, 0).product == 1)
    for number in (first, other):
        tally.take("inspected", f"{number:07d}.bmp", "product-1", Answer())
    assert tally.summary()["counts"]["of another product"] == 1
    assert tally.summary()["events"] == {"inspected": 2}


def test_a_run_stores_samples_and_prints_what_it_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_scale, "STEP", 30)
    out = tmp_path / "scale.json"
    result = run(argparse.Namespace(pictures=60, minutes=9.0, seed=0, out=out))
    assert json.loads(out.read_text()) == json.loads(json.dumps(result))
    assert [each["pictures"] for each in result["samples"]] == [30, 60]
    assert result["events"]["proposed"] >= 1
    assert "60 pictures of 60 planned" in table(result)[-1]
    assert chart(result)[0].count("<path d=") == 4


def test_hundreds_of_pictures_chosen_by_the_watch_do_not_lower_the_threshold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch learns what scores low. If the threshold came from these alone, it would sink with every update: to four
    times the false alarms here, and on to nearly all good parts."""
    monkeypatch.setattr(watcher, "GROWN", 10_000)
    images = product(0, 620, seed=5)
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", images[:320]), adopt="auto"))
    assert kinds(events)["updated"] >= 20
    flagged = [each.verdict != "normal" for each in opened(tmp_path / "store").inspect(images[320:])]
    assert np.mean(flagged) <= 2 * TINY_FAST.false_alarms


def test_a_product_that_does_not_change_is_not_updated_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "GROWN", 50)
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", product(0, 300, seed=2)), adopt="auto"))
    assert kinds(events)["updated"] == 3
