"""Undo: what it takes back, what it says is left, and redo, which makes it again; and rename."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import assert_refused, make_normals

from dinosaur_ad.cli import main
from dinosaur_ad.detector import Dinosaur
from dinosaur_ad.store import Store

Capture = pytest.CaptureFixture[str]


def test_the_first_learn_can_be_undone_and_made_again(capsys: Capture, store: Path) -> None:
    threshold = Dinosaur.load(store).threshold("screw")
    assert main(["undo", "screw", "--store", str(store)]) == 0
    assert (
        capsys.readouterr().out == "took back the last learn of 'screw'; redo makes it again; nothing is left to undo\n"
    )
    assert Store.open(store).names() == ["washer"]
    assert main(["redo", "screw", "--store", str(store)]) == 0
    assert capsys.readouterr().out == "made the learn of 'screw' again; nothing is left to redo\n"
    assert Dinosaur.load(store).threshold("screw") == threshold
    assert_refused(capsys, ["redo", "screw", "--store", str(store)], "There is nothing to redo for task 'screw'", store)
    assert main(["undo", "screw", "--yes", "--store", str(store)]) == 0  # of scripts written before there was redo


def test_rename(capsys: Capture, store: Path) -> None:
    threshold = Dinosaur.load(store).threshold("screw")
    assert main(["rename", "screw", "bolt", "--store", str(store)]) == 0
    assert capsys.readouterr().out == "'screw' is now called 'bolt'\n"
    assert Store.open(store).names() == ["bolt", "washer"]
    assert Dinosaur.load(store).threshold("bolt") == threshold
    for new, reason in {"washer": "There is a task 'washer' already", "a/b": "A task cannot be called 'a/b'"}.items():
        assert_refused(capsys, ["rename", "bolt", new, "--store", str(store)], reason, store)
    assert_refused(capsys, ["rename", "screw", "x", "--store", str(store)], "There is no task 'screw'", store)


def test_what_does_not_remove_it_needs_none(capsys: Capture, store: Path, tmp_path: Path) -> None:
    more = make_normals(tmp_path / "more", 6, pattern=2)
    assert main(["update", "screw", str(more), "--store", str(store), "--force"]) == 0
    assert main(["forget", "screw", "--store", str(store)]) == 0
    assert capsys.readouterr().out.endswith("forgot 'screw'; undo brings it back\n")
    assert main(["undo", "screw", "--store", str(store)]) == 0
    assert capsys.readouterr().out == (
        "took back the last forget of 'screw'; redo makes it again; "
        "undo can still take back: update, learn (which removes the task)\n"
    )
    assert main(["undo", "screw", "--store", str(store)]) == 0


def test_a_damaged_record_is_put_together_again(capsys: Capture, store: Path) -> None:
    pointer = store / "tasks" / "screw" / "task.json"
    pointer.write_bytes(pointer.read_bytes()[:-20])
    assert main(["undo", "screw", "--store", str(store)]) == 0
    assert capsys.readouterr().out.startswith("brought back the newest intact version of 'screw', whose record was")
    assert main(["tasks", "--store", str(store), "--verify"]) == 0
