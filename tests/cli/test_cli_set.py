"""The verb set, and what tasks says about it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import assert_refused, make_normals
from PIL import Image

from dinosaur_ad.cli import main
from dinosaur_ad.detector import Dinosaur

Capture = pytest.CaptureFixture[str]


def _set(store: Path, *options: str) -> list[str]:
    return ["set", "screw", *options, "--store", str(store)]


def test_zones_are_shown_before_and_after_and_can_be_undone(capsys: Capture, store: Path, tmp_path: Path) -> None:
    mask = np.zeros((70, 70), np.uint8)
    mask[:42] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    assert main(_set(store, "--zones", str(tmp_path / "mask.png"))) == 0
    before, after = capsys.readouterr().out.splitlines()
    assert before.startswith("before: threshold ")
    assert before.endswith("(for 2.5 % of normal images), position aligned, inspects all of the image")
    assert after.startswith("after:  threshold ")
    assert after.endswith("inspects 60% of the image")
    assert main(["undo", "screw", "--store", str(store)]) == 0
    assert "took back the last set of 'screw'" in capsys.readouterr().out
    assert Dinosaur.load(store).settings("screw").inspected == 1.0


def test_tasks_says_how_a_task_is_set(capsys: Capture, store: Path) -> None:
    assert main(_set(store, "--threshold", "1.3", "--smallest-area", "300")) == 0
    assert "1.300 (set by hand, exceeded by" in capsys.readouterr().out
    assert main(["tasks", "screw", "--store", str(store)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not any(line.startswith("washer") for line in lines)
    assert lines[-1].startswith("screw: threshold 1.300 (set by hand, exceeded by ")
    assert lines[-1].endswith("inspects all of the image, no region below 300 pixels")
    assert main(["tasks", "--verbose", "--store", str(store)]) == 0
    assert "washer: threshold" in capsys.readouterr().out
    assert main(["tasks", "screw", "--json", "--store", str(store)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["threshold"], facts["fixed_threshold"], facts["smallest_area"]) == (1.3, True, 300)
    assert_refused(capsys, ["tasks", "screws", "--store", str(store)], "did you mean screw?", store)


def test_a_rate_that_cannot_be_told_apart_is_not_printed(capsys: Capture, store: Path) -> None:
    assert main(_set(store, "--threshold", "1000")) == 0
    out, err = capsys.readouterr()
    assert "not ready to judge" in err
    assert "threshold 1000.000 (set by hand, exceeded by less than 0.0001 % of normal images)" in out


def test_a_threshold_set_by_hand_asks_for_no_rate(capsys: Capture, store: Path, tmp_path: Path) -> None:
    assert main(_set(store, "--threshold", "0.7")) == 0
    capsys.readouterr()
    more = make_normals(tmp_path / "more", 30)
    assert main(["update", "screw", *map(str, sorted(more.iterdir())[24:]), "--store", str(store)]) == 0
    promise = capsys.readouterr().out.splitlines()[1]
    assert re.fullmatch(r"with \d+ images: at most [\d.]+ % false alarms with 95 % confidence", promise)


def test_a_rate_for_one_call_goes_before_that_of_the_task(capsys: Capture, store: Path, normals: Path) -> None:
    assert main(_set(store, "--false-alarms", "1%")) == 0
    capsys.readouterr()
    image = str(next(normals.iterdir()))
    for options, rate in (([], 0.01), (["--false-alarms", "10%"], 0.1)):
        assert main(["inspect", image, "--task", "screw", "--json", *options, "--store", str(store)]) == 0
        assert json.loads(capsys.readouterr().out)["false_alarms"] == rate
    assert main(_set(store, "--sensitivity", "10")) == 0
    assert "for 25 % of normal images" in capsys.readouterr().out.splitlines()[1]
    assert main(_set(store, "--preset-sensitivity")) == 0
    assert "for 2.5 % of normal images" in capsys.readouterr().out.splitlines()[1]


def test_a_threshold_that_nothing_reaches_is_warned_of(capsys: Capture, store: Path) -> None:
    assert main(_set(store, "--threshold", "1000")) == 0
    warned = capsys.readouterr().err
    assert "warning: not ready to judge: The threshold of 'screw' (1000.000)" in warned
    assert "so everything would be called normal; set a lower one." in warned  # more images would not mend it


def test_wrong_settings_are_refused_in_one_line(capsys: Capture, store: Path, tmp_path: Path) -> None:
    Image.new("L", (70, 35), 255).save(tmp_path / "flat.png")
    Image.new("L", (70, 70), 0).save(tmp_path / "black.png")
    (tmp_path / "two.json").write_text('[{"inspect": [[1, 1], [9, 9]]}]')
    for options, sentence in (
        ([], "What shall be changed of 'screw'?"),
        (["--zones", str(tmp_path / "flat.png")], "is 70 x 35 pixels, and the photos of the product are 70 x 70"),
        (["--zones", str(tmp_path / "black.png")], "has no white pixel"),
        (["--zones", str(tmp_path / "two.json")], "has 2 corners"),
        (["--zones", str(tmp_path / "none.json")], "does not exist"),
        (["--sensitivity", "12"], "from 0 (cautious) to 10 (strict), got 12"),
        (["--threshold", "-2"], "A threshold is a positive number"),
        (["--threshold", "high"], "Expected a number, got 'high'"),
        (["--smallest-area", "4000"], "at most 25% is possible"),
    ):
        assert_refused(capsys, _set(store, *options), sentence, store)
