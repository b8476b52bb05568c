"""What an extra brings is asked for before any work, and advised in the words of the README."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from bench_helpers import PLUGIN, QUICK
from cli_helpers import assert_refused

import dinosaur_ad
from dinosaur_ad.bench import runner
from dinosaur_ad.bench.lessons import lesson, test_photos
from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.methods import Workbench, get_method, list_methods

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a cell was run")

    monkeypatch.setattr(runner, "run_one", refuse)


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


def test_the_quick_suite_needs_torch_and_says_so_at_once(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without(monkeypatch, "torch", "scipy", "transformers")
    argv = ["bench", "run", "--suite", "quick", "--out", str(tmp_path / "out")]
    sentence = (
        "This run needs scipy and torch, which are not installed; install what the benchmark needs "
        "with: pip install '.[bench]'."
    )
    assert_refused(capsys, argv, sentence, tmp_path)


def test_maps_need_scipy_even_where_the_method_does_not(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without(monkeypatch, "scipy")
    argv = [*QUICK, "--out", str(tmp_path / "out")]
    assert_refused(capsys, argv, "This run needs scipy, which is not installed", tmp_path)


@pytest.mark.parametrize("name", [name for name, spec in list_methods().items() if spec.method.needs])
def test_every_method_that_computes_with_torch_says_so(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    without(monkeypatch, "torch")
    argv = ["bench", "run", "--methods", name, "--scenarios", "synthetic-tiny", "--out", str(tmp_path / "out")]
    assert_refused(capsys, argv, "This run needs torch, which is not installed", tmp_path)


def test_which_methods_do_is_what_their_code_says() -> None:
    """Each folder of a method that computes with torch declares it; dinosaur only brings arrays to a GPU with it, and
    learns and scores without, as those of one file do."""
    for name, spec in list_methods().items():
        source = Path(sys.modules[spec.method.__module__].__file__ or "")
        files = list(source.parent.glob("*.py")) if source.parent.name not in ("methods", "dinosaur") else []
        uses = any(re.search(r"import torch\b|import_torch", file.read_text("utf-8")) for file in files)
        assert ("torch" in spec.method.needs) == uses, name


def test_dinosaur_learns_and_scores_without_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without(monkeypatch, "torch")
    scenario = open_scenario("synthetic-tiny")
    method = get_method("dinosaur").tiny().build(Workbench())
    method.learn(lesson(scenario, 0))
    photos, _ = test_photos(scenario.tasks[0], 0)
    assert np.isfinite(method.score(photos).image).all()


def test_what_needs_nothing_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dinosaur_ad.cli import main
    from dinosaur_ad.methods import unregister

    without(monkeypatch, "torch", "scipy")
    (tmp_path / "guess.py").write_text(PLUGIN)
    argv = ["bench", "run", "--methods", "guess", "--scenarios", "synthetic-tiny", "--out", str(tmp_path / "out")]
    try:
        assert main([*argv, "--load", str(tmp_path / "guess.py")]) == 70  # it comes as far as the cell
    finally:
        unregister("guess")
        sys.modules.pop("dinosaur_plugin_guess", None)


@pytest.mark.parametrize(
    ("argv", "package", "sentence"),
    [
        (
            ["bench", "teacher", "--images", ".", "--encoder", "resnet18", "--out", "t"],
            "torch",
            "Making a teacher needs",
        ),
        (["export", "--out", "e", "--format", "openvino"], "openvino", "install it with: pip install '.[openvino]'."),
    ],
)
def test_other_verbs_say_so_at_once(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, argv: list[str], package: str, sentence: str
) -> None:
    without(monkeypatch, package)
    monkeypatch.chdir(tmp_path)
    assert_refused(capsys, argv, sentence, tmp_path)


def test_the_advice_is_that_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert "pip install '.[openvino]'" in readme
    for path in [*Path(dinosaur_ad.__file__).parent.rglob("*.py"), *(ROOT / "docs").rglob("*.md")]:
        assert "pip install 'dinosaur-ad[" not in path.read_text("utf-8"), path
