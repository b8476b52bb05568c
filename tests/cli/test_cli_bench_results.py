"""``dinosaur bench report`` and ``pack``, after a run of the whole tiny suite and after a grid."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
from bench_helpers import CELL, run_quick
from cli_helpers import assert_refused, tree_hash

from dinosaur_ad.cli import main

Capture = pytest.CaptureFixture[str]
GRID = "grid-paper-synthetic-tiny.json"


@pytest.fixture(scope="module")
def _ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    assert run_quick(folder / "out") == 0
    return folder / "out"


@pytest.fixture(scope="module")
def _measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grid")
    options = ["--encoder", "tiny-dinov2", "--set", "layers=0+1", "--set", "size=70", "--ratios", "0.1", "--radii", "3"]
    places = ["--out", str(folder / "out"), "--cache", str(folder / "cache")]
    assert main(["bench", "grid", "--scenarios", "synthetic-tiny", *options, *places]) == 0
    return folder / "out"


@pytest.fixture
def out(tmp_path: Path, _ran: Path) -> Path:
    """A folder with one finished cell."""
    return shutil.copytree(_ran, tmp_path / "out")


@pytest.fixture
def grids(tmp_path: Path, _measured: Path) -> Path:
    """A folder with one grid, and nothing else."""
    return shutil.copytree(_measured, tmp_path / "grids")


def test_the_tiny_suite_from_the_run_to_the_report_of_what_was_packed(capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
    pytest.importorskip("transformers", reason="transformers is not installed (it comes with the extra 'bench')")
    out, packed = str(tmp_path / "out"), str(tmp_path / "packed")
    run = ["bench", "run", "--suite", "tiny", "--out", out]

    assert main(run) == 0
    first = capsys.readouterr()
    assert [line.split()[1] for line in first.out.splitlines()] == ["method", "dinosaur", "patchcore"]
    assert main(run) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert again.err.count("already done") == 2
    assert "learning" not in again.err

    assert main(["bench", "report", out]) == 0
    whole = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.relative_to(out).as_posix() for path in whole] == [
        f"report/report.{kind}" for kind in ("html", "md", "tex")
    ]
    for path in whole:
        text = path.read_text()
        assert all(word in text for word in ("dinosaur", "patchcore", "synthetic-tiny"))

    assert main(["bench", "pack", out, "--out", packed]) == 0
    assert capsys.readouterr().out == f"2 results and 0 grids in {packed}\n"
    assert main(["bench", "report", packed]) == 0
    assert Path(packed, "report", "report.md").read_text() == whole[1].read_text()
    sizes = [sum(file.stat().st_size for file in Path(folder).rglob("arrays.npz")) for folder in (out, packed)]
    assert sizes[1] < sizes[0]


class TestReport:
    def test_a_folder_of_grids_alone_has_a_report(self, capsys: Capture, grids: Path) -> None:
        assert main(["bench", "report", str(grids)]) == 0
        text = Path(capsys.readouterr().out.splitlines()[1]).read_text()
        assert text.startswith("# DINOSaur benchmark\n\nGrids of hyperparameters, and no cells.")
        assert "| 10 % |" in text

    def test_failed_cells_are_named(self, capsys: Capture, out: Path) -> None:
        assert run_quick(out, "--set", "encoder=resnet1000", "--seeds", "5") == 2
        capsys.readouterr()
        assert main(["bench", "report", str(out)]) == 0
        text = Path(capsys.readouterr().out.splitlines()[1]).read_text()
        assert "1 finished cell, and 1 that failed" in text
        assert "- dinosaur on synthetic-tiny, seed 5: There is no encoder 'resnet1000'" in text

    @pytest.mark.parametrize("folder", ["empty", "nowhere"])
    def test_a_folder_without_results_is_refused_also_beside_another(
        self, capsys: Capture, tmp_path: Path, out: Path, folder: str
    ) -> None:
        (tmp_path / "empty").mkdir()
        there = "" if folder == "empty" else ", which is no folder"
        sentence = f"There are no results in '{tmp_path / folder}'{there}; make some with: dinosaur bench run."
        for more in ([], [str(out)]):
            assert_refused(capsys, ["bench", "report", *more, str(tmp_path / folder)], sentence, tmp_path)

    @pytest.mark.parametrize("verb", ["report", "pack"])
    @pytest.mark.parametrize(
        ("file", "content", "sentence"),
        [
            ("result.json", b"{", f"The result in '{{out}}/{CELL}' is damaged ("),
            ("result.json", b'{"format": 9}', "was written in format 9 by another version"),
            (
                "arrays.npz",
                b"not a zip",
                f"The result in '{{out}}/{CELL}' is damaged (arrays.npz cannot be read); remove",
            ),
            (
                "arrays.npz",
                None,
                f"'{{out}}/{CELL}' holds no whole result ({{out}}/{CELL}/arrays.npz is missing); remove",
            ),
            ("error.json", b"[]", f"'{{out}}/{CELL}/error.json' is damaged; remove it and run that cell again."),
        ],
    )
    def test_a_damaged_result_is_named(
        self, capsys: Capture, tmp_path: Path, out: Path, verb: str, file: str, content: bytes | None, sentence: str
    ) -> None:
        path = out / CELL / file
        path.unlink() if content is None else path.write_bytes(content)
        argv = ["bench", verb, str(out), "--out", str(tmp_path / "new")]
        assert_refused(capsys, argv, sentence.format(out=out), tmp_path)

    def test_damage_in_the_middle_of_the_arrays_is_found(self, capsys: Capture, tmp_path: Path, out: Path) -> None:
        path = out / CELL / "arrays.npz"
        content = bytearray(path.read_bytes())
        content[60:100] = bytes(40)  # where the first array is packed: neither zip's head nor its directory
        path.write_bytes(content)
        assert_refused(capsys, ["bench", "report", str(out)], "is damaged (arrays.npz cannot be read)", tmp_path)

    def test_a_damaged_grid_is_named(self, capsys: Capture, grids: Path) -> None:
        (grids / GRID).write_text("{")
        assert_refused(capsys, ["bench", "report", str(grids)], f"'{grids}/{GRID}' is damaged (", grids)

    def test_a_file_where_the_report_should_be_is_refused(self, capsys: Capture, tmp_path: Path, out: Path) -> None:
        (tmp_path / "file").write_text("precious")
        argv = ["bench", "report", str(out), "--out", str(tmp_path / "file")]
        assert_refused(capsys, argv, "could not be written (File exists); choose another --out.", tmp_path)


class TestPrint:
    def test_named_tables_come_in_that_order_as_in_the_report_and_nothing_is_written(
        self, capsys: Capture, tmp_path: Path, out: Path, grids: Path
    ) -> None:
        folders = [str(out), str(grids)]
        assert main(["bench", "report", *folders, "--out", str(tmp_path / "report")]) == 0
        report = (tmp_path / "report" / "report.md").read_text()
        before = tree_hash(tmp_path)
        capsys.readouterr()
        texts = []
        for _ in range(2):
            assert main(["bench", "report", *folders, "--print", "cost, grid,other"]) == 0
            texts.append(capsys.readouterr().out)
        assert texts[0] == texts[1]
        assert tree_hash(tmp_path) == before
        parts = texts[0].split("## ")[1:]
        assert [part.splitlines()[0].split()[0].strip(",") for part in parts] == ["Cost", "Coreset", "Other"]
        assert all(part.strip() in report for part in parts)

    @pytest.mark.parametrize("name", ["cots", ""])
    def test_an_unknown_table_is_answered_with_those_there_are(
        self, capsys: Capture, tmp_path: Path, out: Path, name: str
    ) -> None:
        sentence = f"These results have no table '{name}'; choose from: "
        assert_refused(capsys, ["bench", "report", str(out), "--print", name], sentence, tmp_path)
        main(["bench", "report", str(out), "--print", name])
        assert "overview, other, forgetting, thresholds, cost, missing, short" in capsys.readouterr().err

    def test_it_does_not_go_with_out(self, capsys: Capture, tmp_path: Path, out: Path) -> None:
        argv = ["bench", "report", str(out), "--print", "cost", "--out", str(tmp_path / "new")]
        assert_refused(capsys, argv, "--print writes no files; leave out --out, or --print.", tmp_path)

    def test_grids_of_two_presets_have_names_of_their_own(self, capsys: Capture, grids: Path) -> None:
        other = json.loads((grids / GRID).read_text()) | {"preset": "default"}
        (grids / GRID.replace("paper", "default")).write_text(json.dumps(other))
        assert main(["bench", "report", str(grids), "--print", "grid-paper,grid-scenarios-default"]) == 0
        assert capsys.readouterr().out.count("## ") == 2


class TestPack:
    def test_grids_are_packed_and_failed_cells_left_out(
        self, capsys: Capture, tmp_path: Path, out: Path, grids: Path
    ) -> None:
        run_quick(out, "--set", "encoder=resnet1000", "--seeds", "5")
        capsys.readouterr()
        packed = tmp_path / "packed"
        assert main(["bench", "pack", str(out), str(grids), "--out", str(packed)]) == 0
        said = capsys.readouterr()
        assert (said.out, said.err) == (f"1 result and 1 grid in {packed}\n", "1 failed cell left out\n")
        assert (packed / GRID).read_bytes() == (grids / GRID).read_bytes()
        files = sorted(path.relative_to(packed).as_posix() for path in packed.rglob("*.*") if path.is_file())
        assert files == [GRID, f"{CELL}/arrays.npz", f"{CELL}/result.json"]

    def test_it_never_replaces_the_result_of_a_run(self, capsys: Capture, tmp_path: Path, out: Path) -> None:
        argv = ["bench", "pack", str(out), "--out", str(out)]
        assert_refused(capsys, argv, "packing into it would lose the maps; choose another --out.", tmp_path)

    def test_a_run_does_not_take_a_packed_result_for_its_own(self, capsys: Capture, tmp_path: Path, out: Path) -> None:
        packed = tmp_path / "packed"
        assert main(["bench", "pack", str(out), "--out", str(packed)]) == 0
        before = tree_hash(packed)
        assert run_quick(packed, "--set", "radius=1") == 2
        assert "holds a packed result, which does not say all that made it" in capsys.readouterr().err
        assert tree_hash(packed) == before

    def test_one_cell_made_in_two_ways_is_refused(self, capsys: Capture, tmp_path: Path, out: Path) -> None:
        assert run_quick(tmp_path / "other", "--set", "radius=1") == 0
        argv = ["bench", "pack", str(out), str(tmp_path / "other"), "--out", str(tmp_path / "packed")]
        assert_refused(capsys, argv, "was run with radius None (seed 0) and with 1 (seed 0)", tmp_path)

    def test_one_grid_made_in_two_ways_is_refused(self, capsys: Capture, tmp_path: Path, grids: Path) -> None:
        (tmp_path / "other").mkdir()
        other = json.loads((grids / GRID).read_text()) | {"seed": 1}
        (tmp_path / "other" / GRID).write_text(json.dumps(other))
        argv = ["bench", "pack", str(grids), str(tmp_path / "other"), "--out", str(tmp_path / "packed")]
        assert_refused(capsys, argv, "There are two grids of synthetic-tiny with the preset paper", tmp_path)

    def test_a_file_where_the_folder_should_be_is_refused(self, capsys: Capture, tmp_path: Path, out: Path) -> None:
        (tmp_path / "file").write_text("precious")
        argv = ["bench", "pack", str(out), "--out", str(tmp_path / "file")]
        assert_refused(capsys, argv, f"'{tmp_path}/file' is a file; give --out a folder.", tmp_path)

    def test_a_disk_that_takes_nothing_gets_a_sentence(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, out: Path
    ) -> None:
        def refuse(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", refuse)
        assert main(["bench", "pack", str(out), "--out", str(tmp_path / "packed")]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert "(No space left on device); free some space and try again." in said.err
        assert not list((tmp_path / "packed").rglob("*.*"))
