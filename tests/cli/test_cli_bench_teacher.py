"""The teacher of EfficientAD, made from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import assert_refused
from PIL import Image

from dinosaur_ad.cli import main

pytest.importorskip("torch", reason="the teacher is trained with torch (extra: bench)")

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for n in range(4):
        Image.radial_gradient("L").rotate(90 * n).resize((48, 48)).convert("RGB").save(folder / f"{n}.png")
    return folder


def test_a_teacher_is_made_and_said_to_be_what_it_is(
    images: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from dinosaur_ad.methods.efficientad.teacher_parts import RECIPES

    monkeypatch.setitem(RECIPES, "paper", replace(RECIPES["paper"], batch=2, size=64))
    out = tmp_path / "teacher.safetensors"
    argv = ["bench", "teacher", "--images", str(images), "--encoder", "tiny-resnet", "--out", str(out)]
    assert main([*argv, "--iterations", "2"]) == 0
    said = capsys.readouterr()
    assert "PDN-S distilled from" in said.out
    assert "2 iterations of 2" in said.out
    assert f"efficientad.teacher={out}" in said.err
    assert out.is_file()
    assert_refused(capsys, [*argv, "--iterations", "2"], "exists already", tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (["--iterations", "0"], "--iterations must be at least 1, got 0"),
        (["--encoder", "resnet"], "There is no encoder 'resnet'; choose one of"),
        (["--device", "cuda"], "torch sees no GPU here"),
    ],
)
def test_wrong_input_gets_a_sentence(
    change: list[str], sentence: str, images: Path, tmp_path: Path, capsys: Capture
) -> None:
    import torch

    if "cuda" in change and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    argv = ["bench", "teacher", "--images", str(images), "--encoder", "tiny-resnet", "--out", str(tmp_path / "t")]
    assert_refused(capsys, [*argv, *change], sentence, tmp_path)
