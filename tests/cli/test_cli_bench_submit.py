"""``dinosaur bench submit``, ``verify`` on what it wrote, and ``leaderboard``, as users meet them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_helpers import run_quick
from cli_helpers import assert_refused

from dinosaur_ad.bench import environment
from dinosaur_ad.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "git_revision", lambda: "0123456789ab+changes")
        assert run_quick(folder / "out") == 0
    return folder / "out"


def test_from_results_to_a_row_to_a_leaderboard(capsys: Capture, out: Path, tmp_path: Path) -> None:
    row, board = tmp_path / "row.zip", tmp_path / "board"
    assert main(["bench", "submit", str(out), "--out", str(row), "--allow-dirty"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"{row}: dinosaur on synthetic-tiny, 1 cell, ")
    assert "not exactly that of a commit" in said.err
    assert main(["bench", "verify", str(row)]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first == (
        "row: dinosaur on synthetic-tiny; source: NOT exactly that of a commit; 2 of 2 tasks on images with a "
        "published checksum"
    )
    assert last.endswith(": all equal")
    assert main(["bench", "verify", str(row), "--json"]) == 0
    (described,) = json.loads(capsys.readouterr().out)["rows"]
    assert (described["method"], described["exact"], described["unknown"]) == ("dinosaur", False, 0)
    assert main(["bench", "leaderboard", str(row), "--out", str(board)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        str(board / name) for name in ("leaderboard.json", "leaderboard.schema.json", "index.html")
    ]
    assert json.loads((board / "leaderboard.json").read_text())["rows"][0]["method"] == "dinosaur"


def test_a_row_is_read_wherever_results_are(capsys: Capture, out: Path, tmp_path: Path) -> None:
    row = tmp_path / "row.zip"
    assert main(["bench", "submit", str(out), "--out", str(row), "--allow-dirty"]) == 0
    assert main(["bench", "report", str(row), "--print", "short"]) == 0
    assert "| dinosaur" in capsys.readouterr().out
    assert main(["bench", "pack", str(row), "--out", str(tmp_path / "packed")]) == 0
    assert main(["bench", "verify", str(tmp_path / "packed")]) == 0


def test_a_damaged_row_is_one_line_and_exit_code_2(capsys: Capture, out: Path, tmp_path: Path) -> None:
    row = tmp_path / "row.zip"
    row.write_bytes(b"not a row")
    assert main(["bench", "verify", str(row)]) == 2
    assert capsys.readouterr().out.splitlines() == [
        f"unreadable: '{row}' is no row of the benchmark (it is no zip archive); ask for one made with dinosaur bench "
        "submit.",
        "0 cells, 0 numbers: 1 cannot be read",
    ]


def test_refusals_write_nothing(capsys: Capture, out: Path, tmp_path: Path) -> None:
    row = tmp_path / "new" / "row.zip"
    submit = ["bench", "submit", str(out), "--out"]
    assert_refused(capsys, [*submit, str(row)], "was not made by one commit without changes", tmp_path)
    assert_refused(capsys, [*submit, str(tmp_path / "row")], "a file that ends in .zip", tmp_path)
    assert_refused(capsys, [*submit, str(row), "--method", "dne"], "no finished cell of 'dne'", tmp_path)
    board = ["bench", "leaderboard", str(tmp_path / "nowhere"), "--out", str(tmp_path / "board")]
    assert_refused(capsys, board, "There are no results in", tmp_path)
