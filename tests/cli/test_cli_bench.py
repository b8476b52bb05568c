"""``dinosaur bench list`` and ``run`` as users meet them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_helpers import CELL, PLUGIN, make_mvtec, run_quick

from dinosaur_ad.bench.scenarios import list_scenarios
from dinosaur_ad.cli import main
from dinosaur_ad.methods import unregister
from dinosaur_ad.methods.dinosaur import DinosaurMethod

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_data_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DINOSAUR_DATA", raising=False)


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "guess.py"
    path.write_text(PLUGIN)
    yield path
    unregister("guess")
    sys.modules.pop("dinosaur_plugin_guess", None)


def settings_of(out: Path, cell: Path = CELL) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads((out / cell / "result.json").read_text())["settings"]
    return settings


class TestList:
    def test_missing_data_says_what_to_download_from_where_under_which_licence(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "100")
        assert main(["bench", "list"]) == 0
        out = capsys.readouterr().out
        assert all(f"\n  {name} " in out for name in list_scenarios())
        assert "mvtec-ad         15 tasks  missing " in out
        assert "https://www.mvtec.com/company/research/datasets/mvtec-ad " in out
        assert "licence: CC BY-NC-SA 4.0" in out
        assert "mtd-color, mtd-blur, mtd-geo, mtd-geo-literal\n    missing: " in out  # once, not four times
        assert out.count("Magnetic-tile-defect-datasets.") == 1
        assert "variants: dinosaur:fast, dinosaur:best, dinosaur:paper" in out
        assert "\nsuites\n  tiny " in out

    @pytest.mark.parametrize("columns", [60, 100])
    def test_lines_fit_the_terminal(self, capsys: Capture, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        main(["bench", "list"])
        lines = capsys.readouterr().out.splitlines()
        assert max(len(line) for line in lines if "://" not in line) <= columns
        assert max(map(len, lines)) > columns - 20

    def test_what_is_there_of_a_dataset_is_said(self, capsys: Capture, tmp_path: Path) -> None:
        make_mvtec(tmp_path)
        assert main(["bench", "list", "--data", str(tmp_path)]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert "mvtec-ad 2 of 15 tasks partial" in out
        assert f"partial: 2 of 15 categories in '{tmp_path}/mvtec_ad': bottle, cable." in out
        assert f"missing: '{tmp_path}' has no folder 'mvtec_loco'" in out

    def test_a_method_from_a_file_is_among_them(self, capsys: Capture, plugin: Path) -> None:
        assert main(["bench", "list", "--load", str(plugin)]) == 0
        assert "  guess            says the same of every image" in capsys.readouterr().out


class TestRun:
    def test_every_seed_is_a_cell_and_own_settings_win(self, capsys: Capture, tmp_path: Path) -> None:
        out = tmp_path / "out"
        assert run_quick(out, "--seeds", "0,1", "--set", "size=56", "--set", "dinosaur.radius=1") == 0
        said = capsys.readouterr()
        assert [line.split()[:3] for line in said.out.splitlines()[1:]] == [
            ["synthetic-tiny", "dinosaur", seed] for seed in "01"
        ]
        assert said.err.splitlines()[-1] == f"Now: dinosaur bench report {out}"
        own = settings_of(out)
        assert (own["size"], own["radius"], own["encoder"]) == (56, 1, "tiny-dinov2")
        assert settings_of(out, CELL.with_name("seed-1")) == own

    def test_a_failing_cell_gives_2_and_the_others_are_there(
        self, capsys: Capture, tmp_path: Path, plugin: Path
    ) -> None:
        out = tmp_path / "out"
        more = ("--methods", "guess,dinosaur", "--set", "guess.patience=1", "--load", str(plugin))
        assert run_quick(out, *more) == 2
        said = capsys.readouterr()
        assert "FAILED: guess on synthetic-tiny, seed 0: RuntimeError: one task too many" in said.out
        assert settings_of(out)["size"] == 70
        note = out / "synthetic-tiny" / "guess" / "seed-0" / "error.json"
        assert f"The traceback is in {note}" in said.err
        assert "Traceback" in json.loads(note.read_text())["details"]

    def test_a_finished_result_is_not_marked_as_failed(self, capsys: Capture, tmp_path: Path) -> None:
        out = tmp_path / "out"
        assert run_quick(out) == 0
        assert run_quick(out, "--set", "encoder=resnet1000") == 2
        assert "another configuration (different: settings encoder)" in capsys.readouterr().err
        assert run_quick(out, "--set", f"weights={tmp_path / 'missing.safetensors'}") == 2
        assert "missing.safetensors" in capsys.readouterr().out
        assert not (out / CELL / "error.json").exists()

    def test_part_of_a_dataset_is_run_and_said(self, capsys: Capture, tmp_path: Path) -> None:
        make_mvtec(tmp_path)
        assert run_quick(tmp_path / "out", "--scenarios", "mvtec-ad", "--data", str(tmp_path)) == 0
        first = capsys.readouterr().err.splitlines()[0]
        assert first == f"mvtec-ad: 2 of 15 categories in '{tmp_path}/mvtec_ad': bottle, cable"

    def test_an_interruption_says_that_nothing_is_lost_and_the_same_command_goes_on(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        learn = DinosaurMethod.learn

        def interrupt(self: DinosaurMethod, lesson: Any) -> None:
            if lesson.task == "gear":
                raise KeyboardInterrupt
            learn(self, lesson)

        with monkeypatch.context() as patch:
            patch.setattr(DinosaurMethod, "learn", interrupt)
            assert run_quick(tmp_path / "out") == 130
        err = capsys.readouterr().err
        assert err.splitlines()[-1] == "dinosaur: interrupted; the same command goes on where it was"
        assert "Traceback" not in err
        assert run_quick(tmp_path / "out") == 0
        assert "resuming after task 1 of 2" in capsys.readouterr().err

    def test_an_interruption_without_checkpoints_says_where_the_same_command_goes_on(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def interrupt(self: DinosaurMethod, lesson: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(DinosaurMethod, "learn", interrupt)
        assert run_quick(tmp_path / "out", "--no-checkpoints") == 130
        assert capsys.readouterr().err.splitlines()[-1] == (
            "dinosaur: interrupted; the same command goes on after the last finished cell; without checkpoints the one "
            "that was stopped begins anew"
        )

    def test_a_row_damaged_in_its_middle_is_made_again(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("dinosaur_ad.bench.cell._result", interrupt)
            assert run_quick(tmp_path / "out") == 130
        row = tmp_path / "out" / CELL / "partial" / "row-001.npz"
        content = bytearray(row.read_bytes())
        content[60:100] = bytes(40)  # where the first array is packed: neither zip's head nor its directory
        row.write_bytes(content)
        capsys.readouterr()
        assert run_quick(tmp_path / "out") == 0
        assert "the row of task 2 is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {}),
        (["--address", "auto", "--cpus-per-cell", "2"], {"address": "auto", "cpus": 2.0}),
        (["--device", "cuda", "--gpus-per-cell", "0.25"], {"gpus": 0.25}),
    ],
)
def test_ray_is_told_what_a_cell_claims(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], expected: dict[str, Any]
) -> None:
    told: list[dict[str, Any]] = []

    def run_ray(*_: object, **claims: Any) -> tuple[list[Any], list[Any]]:
        told.append(claims)
        return [], []

    monkeypatch.setattr("dinosaur_ad.bench.ray_engine.run_ray", run_ray)
    assert run_quick(tmp_path / "out", "--engine", "ray", *options) == 0
    assert told == [expected]


def test_the_exit_codes_of_the_benchmark_are_its_own(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "run", "--help"])
    out = capsys.readouterr().out
    assert "2    an error: a sentence on stderr says which; or a cell failed, and the others are done" in out
    assert "anomalies were found" not in out
