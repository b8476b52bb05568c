"""EfficientAD's teacher: how one is made, taken up again, found and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from efficientad_helpers import LESSONS, folder_of_images, tiny, torch
from plates import PLATES
from safetensors.torch import load_file, save_file

from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.methods import Lesson, Photo, Workbench, get_method
from dinosaur_ad.methods.efficientad import teacher_parts as parts
from dinosaur_ad.methods.efficientad import teacher_training as teaching
from dinosaur_ad.methods.efficientad.teacher_training import Pretrained, Recipe, pretrain_teacher

SMALL = Recipe(iterations=12, batch=3, size=64, channels=8, widths=(8, 8), measured=5, rate=1e-2)


def test_a_missing_teacher_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DINOSAUR_HOME", str(tmp_path))
    method = get_method("efficientad").build(Workbench())
    with pytest.raises(
        EncoderError, match=r"pdn-small\.safetensors is not here; make one with: dinosaur bench teacher"
    ):
        method.learn(Lesson("grey", (Photo("a", lambda: np.zeros((64, 64, 3), np.uint8)),)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_one_sentence() -> None:
    method = tiny()
    absent = type(method)(method.config, Workbench(device="cuda"))
    with pytest.raises(EncoderError, match="torch sees no GPU here"):
        absent.learn(PLATES)


def test_a_random_teacher_is_called_one() -> None:
    assert "it has learned nothing" in tiny().info()["description"]


def make(folder: Path, encoder: str = "tiny-resnet", name: str = "teacher", recipe: Recipe = SMALL) -> Pretrained:
    images = folder_of_images(folder / "images")
    return pretrain_teacher(images, encoder, folder / f"{name}.safetensors", recipe=recipe)


@pytest.mark.parametrize("encoder", ["tiny-resnet", "tiny-dinov2"])
def test_a_teacher_is_made_from_any_backbone_and_used(encoder: str, tmp_path: Path) -> None:
    made = make(tmp_path, encoder)
    method = tiny(teacher=str(made.path), epochs=1)
    method.learn(LESSONS[0])
    info = method.info()
    assert made.description in info["description"]
    assert "5 images of 'images', 12 iterations of 3" in info["description"]
    assert info["weights_source"] == "file:teacher.safetensors"
    assert not made.path.with_name("teacher.safetensors.partial").exists()


def test_pretraining_lowers_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teaching, "LOG_EVERY", 5)
    made = make(tmp_path, recipe=Recipe(**{**vars(SMALL), "iterations": 40}))
    assert len(made.losses) == 8
    assert made.losses[-1] < 0.9 * made.losses[0]


def test_a_stopped_pretraining_goes_on_to_the_same_teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make(tmp_path, name="whole")
    step, done = teaching._Distillation._step, []

    def stop_at_seven(self: Any, *batch: Any) -> None:
        if len(done) == 7:
            raise KeyboardInterrupt
        done.append(1)
        step(self, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(teaching._Distillation, "_step", stop_at_seven)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path, name="halved")
    counted = []
    monkeypatch.setattr(teaching._Distillation, "_step", lambda self, *batch: (counted.append(1), step(self, *batch)))
    halved = make(tmp_path, name="halved")
    assert len(counted) == 5
    one, other = load_file(whole.path), load_file(halved.path)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert halved.losses == whole.losses


def test_a_half_made_teacher_of_other_settings_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, *batch: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(teaching._Distillation, "_step", fail)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path)
    with pytest.raises(InputError, match="half-made teacher of other settings"):
        make(tmp_path, recipe=Recipe(**{**vars(SMALL), "rate": 0.5}))


def test_a_teacher_is_the_same_whatever_is_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = make(tmp_path, name="kept")
    monkeypatch.setattr(parts, "HELD_BYTES", 2 * 64 * 64 * 3)  # of ten prepared images a few
    read = make(tmp_path, name="read")
    one, other = load_file(kept.path), load_file(read.path)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_images_that_are_kept_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    real = parts.read_image
    monkeypatch.setattr(parts, "read_image", lambda path: asked.append(path) or real(path))
    make(tmp_path)  # 5 images, measured at one size, then 36 taken of them at two sizes
    assert len(asked) <= 3 * 5  # two threads may meet an image at the same time


def test_unreadable_images_are_passed_over_and_counted(tmp_path: Path) -> None:
    folder_of_images(tmp_path / "images")
    (tmp_path / "images" / "broken.png").write_bytes(b"no image")
    assert make(tmp_path).unreadable == 1


def test_a_teacher_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(InputError, match="exists already"):
        make(tmp_path)


def test_a_teacher_of_other_widths_is_refused_with_the_difference(tmp_path: Path) -> None:
    made = make(tmp_path)
    with pytest.raises(EncoderError, match=r"no teacher of these widths: '8\.bias' is \(8,\) there and \(16,\) here"):
        tiny(teacher=str(made.path), channels=16).info()


def test_a_file_that_is_no_teacher_is_refused(tmp_path: Path) -> None:
    (tmp_path / "junk.safetensors").write_bytes(b"junk")
    with pytest.raises(EncoderError, match="cannot be read"):
        tiny(teacher=str(tmp_path / "junk.safetensors")).info()


def test_other_spellings_of_a_teacher_are_read(tmp_path: Path) -> None:
    made = make(tmp_path)
    numbered = {"0": "conv1", "3": "conv2", "6": "conv3", "8": "conv4"}
    renamed = {f"{numbered[name[0]]}{name[1:]}": value for name, value in load_file(made.path).items()}
    save_file(renamed, tmp_path / "renamed.safetensors")
    hashes = {
        tiny(teacher=str(path)).info()["weights_sha256"] for path in (made.path, tmp_path / "renamed.safetensors")
    }
    assert len(hashes) == 1


def test_the_published_schedules_are_the_defaults() -> None:
    paper, original = teaching.RECIPES["paper"], teaching.RECIPES["original"]
    assert (paper.iterations, paper.batch, paper.rate, paper.decay) == (60_000, 16, 1e-3, 1e-4)
    assert (original.iterations, original.batch, original.rate, original.decay) == (60_000, 16, 1e-4, 1e-5)
    assert (paper.grey, paper.measured, paper.size, paper.channels) == (0.1, 10_000, 256, 384)
