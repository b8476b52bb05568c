"""watch, adopt and dismiss on the command line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from cli_helpers import NEW_STORE, assert_refused, make_normals

from dinosaur_ad.cli import main

Capture = pytest.CaptureFixture[str]


def test_a_stream_is_watched_proposed_and_adopted(capsys: Capture, tmp_path: Path) -> None:
    pictures, at = make_normals(tmp_path / "pictures", 21), ("--store", str(tmp_path / "store"))
    assert main(["watch", str(pictures), *at, *NEW_STORE, "--format", "json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in events] == ["unknown"] * 20 + ["proposed", "unknown"]
    assert len(events[20]["pictures"]) + len(events[20]["suspects"]) == 20
    assert main(["adopt", *at]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("1 ")
    assert_refused(capsys, ["adopt", "1", *at], "A product needs a name", tmp_path / "store")
    assert_refused(capsys, ["adopt", "7", "--name", "nut", *at], "open are: 1", tmp_path / "store")
    assert main(["adopt", "1", "--name", "nut", *at]) == 0
    assert "learned 'nut' from" in capsys.readouterr().out
    assert main(["watch", str(pictures), *at]) == 0
    out, err = capsys.readouterr()
    assert (out, err.count("0 pictures processed")) == ("", 1)


def test_paths_from_standard_input(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = make_normals(tmp_path / "pictures", 2)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{pictures / '001.png'}\n\n{tmp_path / 'none.png'}\n"))
    assert main(["watch", "-", "--store", str(tmp_path / "store"), *NEW_STORE]) == 3
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"unknown  {pictures / '001.png'}  kept: no product has been learned yet")
    assert "does not exist" in out[1]


def test_dismissed_proposals_are_gone(capsys: Capture, tmp_path: Path) -> None:
    at = ("--store", str(tmp_path / "store"))
    assert main(["watch", str(make_normals(tmp_path / "pictures", 20)), *at, *NEW_STORE]) == 0
    assert "proposed  1  20 unknown pictures show the same" in capsys.readouterr().out
    assert main(["dismiss", "1", *at]) == 0
    assert main(["adopt", *at]) == 0
    assert "no product is proposed" in capsys.readouterr().err
    assert_refused(capsys, ["dismiss", "1", *at], "none is open", tmp_path / "store")


def test_a_source_that_is_not_there_makes_no_store(capsys: Capture, tmp_path: Path) -> None:
    assert main(["watch", str(tmp_path / "none"), "--store", str(tmp_path / "store"), *NEW_STORE]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_a_proposal_is_a_number(capsys: Capture, store: Path) -> None:
    assert_refused(capsys, ["dismiss", "one", "--store", str(store)], "such as 1, got 'one'", store)


def test_two_tasks_are_merged_and_what_cannot_be_is_a_sentence(capsys: Capture, tmp_path: Path) -> None:
    at, place = ("--store", str(tmp_path / "store")), tmp_path / "store"
    for number in (1, 2):
        pictures = make_normals(tmp_path / f"pictures-{number}", 12, pattern=number)
        assert main(["learn", f"nut-{number}", str(pictures), *at, "--force", *(NEW_STORE if number == 1 else ())]) == 0
    capsys.readouterr()
    merge = ["adopt", "--merge", "nut-1", "nut-2", *at]
    assert_refused(capsys, merge, "A product needs a name", place)
    assert_refused(capsys, [*merge, "1", "--name", "nut"], "not both", place)
    assert main([*merge, "--name", "nut"]) == 0
    assert "'nut-1' and 'nut-2' became 'nut', learned from 24 of their 24 pictures" in capsys.readouterr().out
    assert main(["tasks", *at]) == 0
    assert "nut-1" not in capsys.readouterr().out
    for name in ("nut-1", "nut-2"):
        assert main(["undo", name, *at]) == 0
