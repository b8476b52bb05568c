"""``dinosaur bench verify`` and ``bench run --publish``: numbers that follow from scores, and from one exact source."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from bench_helpers import CELL, PLUGIN, run_quick
from cli_helpers import assert_refused, tree_hash

from dinosaur_ad.bench import environment
from dinosaur_ad.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def _ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    assert run_quick(folder / "out") == 0
    return folder / "out"


@pytest.fixture
def out(tmp_path: Path, _ran: Path) -> Path:
    """A folder with one finished cell."""
    return shutil.copytree(_ran, tmp_path / "out")


def document(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / CELL / "result.json").read_text())
    return found


def change_matrix(out: Path) -> None:
    changed = document(out)
    changed["auroc"][-1][0] = 0.125
    (out / CELL / "result.json").write_text(json.dumps(changed))


class TestVerify:
    def test_equal(self, capsys: Capture, out: Path) -> None:
        before = tree_hash(out)
        assert main(["bench", "verify", str(out)]) == 0
        said = capsys.readouterr()
        assert said.out.startswith("1 cell, ")
        assert said.out.endswith(" numbers: all equal\n")
        assert said.out.count("\n") == 1
        assert "stored numbers not computed again, because" in said.err
        assert tree_hash(out) == before

    def test_a_cell_that_differs_is_one_line(self, capsys: Capture, out: Path) -> None:
        change_matrix(out)
        assert main(["bench", "verify", str(out)]) == 2
        first, last = capsys.readouterr().out.splitlines()
        assert first.startswith(f"differs: {out / CELL}: image AUROC of ")
        assert "stored 0.125, the scores give " in first
        assert "more (see --json)" in first
        assert last.endswith(" differ, in 1 place")

    def test_what_cannot_be_read_is_one_line(self, capsys: Capture, out: Path) -> None:
        (out / CELL / "arrays.npz").unlink()
        assert main(["bench", "verify", str(out)]) == 2
        first, last = capsys.readouterr().out.splitlines()
        assert first.startswith(f"unreadable: '{out / CELL}' holds no whole result (")
        assert last == "0 cells, 0 numbers: 1 cannot be read"

    def test_json_has_every_difference(self, capsys: Capture, out: Path) -> None:
        assert main(["bench", "verify", str(out), "--json"]) == 0
        equal = json.loads(capsys.readouterr().out)
        assert (equal["equal"], equal["cells"], equal["differing"], equal["unreadable"]) == (True, 1, [], [])
        change_matrix(out)
        assert main(["bench", "verify", str(out), "--json"]) == 2
        said = capsys.readouterr()
        found = json.loads(said.out)
        (cell,) = found["differing"]
        assert said.err == ""
        assert found["equal"] is False
        assert found["numbers"] == equal["numbers"]
        assert cell["where"] == str(out / CELL)
        assert cell["differences"][0]["stored"] == 0.125
        assert len(cell["differences"]) > 3

    def test_failed_cells_have_no_numbers(self, capsys: Capture, out: Path) -> None:
        assert run_quick(out, "--set", "encoder=resnet1000", "--seeds", "5") == 2
        capsys.readouterr()
        assert main(["bench", "verify", str(out)]) == 0
        assert "1 failed cell without numbers\n" in capsys.readouterr().err

    @pytest.mark.parametrize("folder", ["empty", "nowhere"])
    def test_a_folder_without_results_is_refused(self, capsys: Capture, tmp_path: Path, folder: str) -> None:
        (tmp_path / "empty").mkdir()
        assert_refused(capsys, ["bench", "verify", str(tmp_path / folder)], "There are no results in '", tmp_path)


class TestPublish:
    @pytest.fixture(autouse=True)
    def nowhere(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Outside of any repository, and nothing said of the revision."""
        monkeypatch.setattr(environment, "__file__", str(tmp_path / "environment.py"))
        monkeypatch.delenv(environment.REVISION_VARIABLE, raising=False)

    def refused(self, capsys: Capture, tmp_path: Path, sentence: str, *more: str) -> None:
        out = tmp_path / "new"
        argv = ["bench", "run", "--suite", "tiny", "--methods", "dinosaur", "--out", str(out), "--publish", *more]
        assert_refused(capsys, argv, sentence, tmp_path)
        assert not out.exists()

    def test_changed_source_is_refused(self, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(environment, "git_revision", lambda: "bf0b1bcefcbf+changes")
        sentence = (
            "files below src were changed or added since bf0b1bcefcbf; commit or undo that, or leave out --publish."
        )
        self.refused(capsys, tmp_path, sentence)

    def test_an_unknown_revision_is_refused(self, capsys: Capture, tmp_path: Path) -> None:
        self.refused(capsys, tmp_path, "run it from a clone, or set DINOSAUR_REVISION to that commit.")

    def test_a_method_of_ones_own_is_refused(
        self, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(environment.REVISION_VARIABLE, "bf0b1bc")
        (tmp_path / "guess.py").write_text(PLUGIN)
        self.refused(capsys, tmp_path, "a method from --load is in none", "--load", str(tmp_path / "guess.py"))

    def test_an_exact_revision_runs_is_recorded_and_packed(
        self, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(environment.REVISION_VARIABLE, "bf0b1bc")
        out, packed = tmp_path / "out", tmp_path / "packed"
        assert run_quick(out, "--publish") == 0
        assert (document(out)["published"], document(out)["environments"][0]["revision"]) == (True, "bf0b1bc")
        assert run_quick(out, "--publish") == 0  # already done
        assert main(["bench", "pack", str(out), "--out", str(packed)]) == 0
        assert document(packed)["published"] is True
        assert main(["bench", "verify", str(out), str(packed)]) == 0
        assert "2 cells" in capsys.readouterr().out

    def test_a_result_made_without_it_is_not_taken_for_one(
        self, capsys: Capture, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert "published" not in document(out)
        monkeypatch.setenv(environment.REVISION_VARIABLE, "bf0b1bc")
        before = (out / CELL / "result.json").read_bytes()
        assert run_quick(out, "--publish") == 2
        assert "holds a result that was not run with --publish; remove that folder" in capsys.readouterr().out
        assert (out / CELL / "result.json").read_bytes() == before
        assert not (out / CELL / "error.json").exists()
