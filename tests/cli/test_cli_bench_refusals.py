"""What cannot be run is refused: one sentence with what may be said instead, exit code 2, nothing written."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench_helpers import QUICK, make_mvtec, run_quick
from cli_helpers import assert_refused

from dinosaur_ad.cli.bench_options import read_device
from dinosaur_ad.errors import InputError

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_data_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DINOSAUR_DATA", raising=False)


REFUSED = {
    "suite": (["--suite", "tin"], "There is no suite 'tin'; choose from: tiny, quick, reproduce, paper."),
    "method": (
        ["--methods", "dino"],
        "There is no method 'dino'; choose from: dinosaur, dinosaur:fast, dinosaur:best, dinosaur:paper, dne, ",
    ),
    "variant": (["--methods", "dinosaur:x"], "'dinosaur' has no variant 'x'; choose from: default, fast, best, paper."),
    "no method": (["--methods", ","], "Say what to run: --suite quick, or --methods and --scenarios"),
    "method twice": (["--methods", "dinosaur,dinosaur"], "A method is named twice in 'dinosaur,dinosaur'"),
    "scenario": (
        ["--scenarios", "mtd"],
        "There is no scenario 'mtd'; choose from: mvtec-ad, mvtec-ad-bottle, mvtec-loco, ",
    ),
    "no scenario": (["--scenarios", ""], "Say what to run: --suite quick, or --methods and --scenarios"),
    "scenario twice": (["--scenarios", "synthetic,synthetic"], "one scenario and name each once, got 'synthetic,"),
    "no data": (["--scenarios", "mtd-geo"], "download Magnetic Tile Defects from https://github.com/abin24/"),
    "no folder": (["--scenarios", "folder:nowhere"], "'nowhere' is not a folder; give an existing folder"),
    "nameless folder": (["--scenarios", "folder:"], "'folder:' names no folder; write folder:PATH"),
    "folders of one name": (["--scenarios", "folder:a/x,folder:b/x"], "have the same name, and so would their results"),
    "setting": (["--set", "raduis=3"], "There is no setting 'raduis'; choose from: dinosaur.preset, dinosaur.encoder"),
    "setting of another": (["--set", "patchcore.dim=8"], "There is no setting 'patchcore.dim'; choose from: dinosaur."),
    "value": (["--set", "size=big"], "dinosaur.size must be a whole number, got 'big'."),
    "no value": (["--set", "size"], "--set takes KEY=VALUE, such as patchcore.replay=50, got 'size'."),
    "no key": (["--set", "=3"], "--set takes KEY=VALUE, such as patchcore.replay=50, got '=3'."),
    "seed": (["--seeds", "0,one"], "--seeds takes whole numbers such as 0,1,3, got '0,one'."),
    "negative seed": (["--seeds=-1"], "A seed of -1 is not possible; give 0 or more."),
    "no seed": (["--seeds", ""], "Give at least one seed and name each once, got ''."),
    "seed twice": (["--seeds", "1,1"], "Give at least one seed and name each once, got '1,1'."),
    "device": (["--device", "tpu"], "There is no device 'tpu'; choose cpu or cuda."),
    "device's name": (["--device", "cuda0"], "There is no device 'cuda0'; choose cpu or cuda."),
    "data": (["--data", "nowhere"], "The data folder 'nowhere' does not exist; give --data the folder that holds"),
    "negative limit": (["--cache-limit=-1"], "--cache-limit takes a size in GB, 0 or more, got -1."),
    "endless limit": (["--cache-limit", "nan"], "--cache-limit takes a size in GB, 0 or more, got nan."),
    "no plugin": (["--load", "nowhere.py"], "'nowhere.py' is not a Python file; --load takes the file"),
    "cluster without ray": (["--address", "auto"], "--address is for a Ray cluster; add --engine ray"),
    "cores without ray": (["--cpus-per-cell", "2"], "--cpus-per-cell is for a Ray cluster; add --engine ray"),
    "odd cores": (["--engine", "ray", "--cpus-per-cell", "1.5"], "takes a share such as 0.5, or a whole number"),
    "no GPU": (["--engine", "ray", "--gpus-per-cell", "0", "--device", "cuda"], "or a whole number from 1 on, got 0."),
    "GPU on cpu": (["--engine", "ray", "--gpus-per-cell", "1"], "is for cells on a GPU; add --device cuda"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_run_is_refused_before_anything_is_written(capsys: Capture, tmp_path: Path, what: str) -> None:
    options, sentence = REFUSED[what]
    assert_refused(capsys, [*QUICK, "--out", str(tmp_path / "out"), *options], sentence, tmp_path)


def test_without_a_suite_it_asks_what_to_run(capsys: Capture, tmp_path: Path) -> None:
    argv = ["bench", "run", "--methods", "dinosaur", "--out", str(tmp_path / "out")]
    assert_refused(capsys, argv, "Say what to run: --suite quick, or --methods and --scenarios", tmp_path)


@pytest.mark.parametrize("gone", ["cable/ground_truth/crack/1_mask.png", "bottle/test/good", "cable/train/good"])
def test_an_incomplete_dataset_is_refused_with_what_is_missing(capsys: Capture, tmp_path: Path, gone: str) -> None:
    path = make_mvtec(tmp_path) / gone
    path.unlink() if path.is_file() else shutil.rmtree(path)
    argv = [*QUICK, "--scenarios", "mvtec-ad", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    assert_refused(capsys, argv, f"is not a whole MVTec-AD layout: missing {gone}; ", tmp_path)


@pytest.mark.parametrize("verb", [QUICK, ("bench", "grid", "--scenarios", "synthetic-tiny")])
@pytest.mark.parametrize("option", ["--out", "--cache"])
def test_a_file_where_a_folder_should_be_is_refused_before_any_work(
    capsys: Capture, tmp_path: Path, verb: tuple[str, ...], option: str
) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    argv = [*verb, "--out", str(tmp_path / "out"), option, str(file / "below")]
    assert_refused(capsys, argv, f"'{file}' is a file; give {option} a folder.", tmp_path)


def test_results_of_another_configuration_are_refused_and_kept(capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run_quick(out) == 0
    argv = [*QUICK, "--out", str(out), "--cache", str(tmp_path / "cache"), "--set", "radius=1"]
    assert_refused(
        capsys, argv, "another configuration (different: settings radius); results are not mixed: choose", tmp_path
    )


class TestDevices:
    def test_a_gpu_needs_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(InputError, match=r"needs torch; install it with: pip install '\.\[bench\]'"):
            read_device("cuda")

    @pytest.mark.parametrize(
        ("gpus", "device", "sentence"),
        [(0, "cuda", "torch sees no GPU here; use --device cpu"), (1, "cuda:1", "torch counts 1 here, from cuda:0 on")],
    )
    def test_a_gpu_must_be_there(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: int, device: str, sentence: str
    ) -> None:
        cuda = SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
        argv = [*QUICK, "--out", str(tmp_path / "out"), "--device", device]
        assert_refused(capsys, argv, sentence, tmp_path)

    def test_with_ray_it_need_not_be_here_but_ray_must(
        self, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        monkeypatch.setitem(sys.modules, "ray", None)
        argv = [*QUICK, "--out", str(tmp_path / "out"), "--device", "cuda", "--engine", "ray"]
        assert_refused(capsys, argv, "This needs Ray; install it with: pip install '.[ray]'.", tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--ratios", "some"], "--ratios takes numbers such as 0.05,0.1, got 'some'."),
        (["--radii", "1.5"], "--radii takes whole numbers such as 0,1,3, got '1.5'."),
        (["--preset", "beast"], "There is no preset 'beast'; choose one of: default, fast, best, paper"),
        (["--seed=-1"], "A seed of -1 is not possible; give 0 or more."),
        (["--set", "radius=3"], "The setting 'radius' has an option of its own in a grid; use --radii for it."),
        (["--cache-limit=-1"], "--cache-limit takes a size in GB, 0 or more, got -1."),
        (["--device", "tpu"], "There is no device 'tpu'; choose cpu or cuda."),
    ],
)
def test_a_grid_that_cannot_be_made_is_refused(
    capsys: Capture, tmp_path: Path, options: list[str], sentence: str
) -> None:
    argv = ["bench", "grid", "--scenarios", "synthetic-tiny", "--out", str(tmp_path / "out"), *options]
    assert_refused(capsys, argv, sentence, tmp_path)


def test_a_data_folder_that_is_not_there_is_refused(capsys: Capture, tmp_path: Path) -> None:
    assert_refused(capsys, ["bench", "list", "--data", "nowhere"], "'nowhere' does not exist", tmp_path)
