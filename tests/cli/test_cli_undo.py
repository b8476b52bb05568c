"""Undo: what it takes back, what it says is left, and that it does not remove a task without being told to."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import assert_refused, make_normals, tree_hash

from dinosaur_ad.cli import main
from dinosaur_ad.store import Store

Capture = pytest.CaptureFixture[str]


def test_removing_a_whole_task_needs_a_yes(capsys: Capture, store: Path) -> None:
    undo = ["undo", "screw", "--store", str(store)]
    assert_refused(capsys, undo, "and so remove the whole task, for good; add --yes if that is meant", store)
    assert main([*undo, "--yes"]) == 0
    assert "took back the last learn of 'screw'" in capsys.readouterr().out
    assert Store.open(store).names() == ["washer"]


def test_what_does_not_remove_it_needs_none(capsys: Capture, store: Path, tmp_path: Path) -> None:
    more = make_normals(tmp_path / "more", 6, pattern=2)
    assert main(["update", "screw", str(more), "--store", str(store)]) == 0
    assert main(["forget", "screw", "--store", str(store)]) == 0
    assert capsys.readouterr().out.endswith("forgot 'screw'; undo brings it back\n")
    assert main(["undo", "screw", "--store", str(store)]) == 0
    assert capsys.readouterr().out == (
        "took back the last forget of 'screw'; that cannot be taken back itself; "
        "undo can still take back: update, learn (which removes the task)\n"
    )
    assert main(["undo", "screw", "--store", str(store)]) == 0
    assert_refused(capsys, ["undo", "screw", "--store", str(store)], "add --yes", store)


def test_a_damaged_record_is_put_together_again(capsys: Capture, store: Path) -> None:
    pointer = store / "tasks" / "screw" / "task.json"
    pointer.write_bytes(pointer.read_bytes()[:-20])
    assert main(["undo", "screw", "--store", str(store)]) == 0
    assert capsys.readouterr().out.startswith("brought back the newest intact version of 'screw', whose record was")
    assert main(["tasks", "--store", str(store), "--verify"]) == 0


@pytest.mark.parametrize(("reply", "code"), [("n\n", 2), ("\n", 2), ("y\n", 0), ("yes\n", 0)])
def test_on_a_terminal_it_asks(store: Path, reply: str, code: int) -> None:
    before = tree_hash(store)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dinosaur_ad.cli", "undo", "screw", "--store", str(store)]
    process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    try:
        asked = b""
        while b"Remove it? [y/N]" not in asked:
            asked += os.read(ours, 1000)
        os.write(ours, reply.encode())
        assert process.wait(60) == code
    finally:
        process.kill()
        os.close(ours)
    assert b"dinosaur forget removes it so that undo can bring it back" in asked
    assert (tree_hash(store) == before) == (code == 2)
