"""EfficientAD as a whole: its sizes against the paper's, that it learns, and what it is trained on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from efficientad_helpers import LESSONS, folder_of_images, tiny, torch
from numpy.typing import NDArray
from plates import PLATES, SPOTTED, interrupted

from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import read_image
from dinosaur_ad.methods import Lesson, Workbench, get_method
from dinosaur_ad.methods.efficientad import EfficientADConfig, pdn, penalty
from dinosaur_ad.methods.efficientad import distillation_losses as losses

# --- sizes ---


def test_parameters_are_the_papers() -> None:
    counted = get_method("efficientad").build(Workbench()).parameters()
    assert (counted.trainable, counted.total) == (5_380_160, 8_074_304)


def test_the_originals_parameters_are_without_the_extra_convolution() -> None:
    counted = get_method("efficientad:original").build(Workbench()).parameters()
    assert (counted.trainable, counted.total - counted.trainable) == (4_267_392 + 1_096_320, 2_694_144)


@pytest.mark.parametrize(("padded", "halving", "side"), [(True, True, 64), (True, False, 64), (False, False, 56)])
def test_teacher_student_and_autoencoder_speak_of_the_same_grid(padded: bool, halving: bool, side: int) -> None:
    image = torch.zeros(1, 3, 256, 256)
    with torch.no_grad():
        described = pdn.build_pdn(6, (4, 4), padded=padded)(image)
        rebuilt = pdn.build_autoencoder(6, (4, 4), size=256, padded=padded, halving=halving)(image)
    assert described.shape == rebuilt.shape == (1, 6, side, side)


@pytest.mark.parametrize("size", [64, 96, 128])
def test_other_sizes_fit_together_too(size: int) -> None:
    image = torch.zeros(1, 3, size, size)
    with torch.no_grad():
        shapes = {
            tuple(network(image).shape)
            for network in (pdn.build_pdn(6, (4, 4)), pdn.build_autoencoder(6, (4, 4), size=size))
        }
    assert shapes == {(1, 6, size // 4, size // 4)}


def test_maps_have_the_papers_grid_in_both_variants() -> None:
    photo = LESSONS[0].train[:1]
    for name in ("efficientad", "efficientad:original"):
        method = tiny(name, size=256, epochs=1)
        method.learn(Lesson("one", photo))
        maps = method.score(photo).maps
        assert maps is not None
        assert maps.shape == (1, 64, 64)


def test_a_size_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="multiple of 32"):
        EfficientADConfig(size=250)


# --- learning ---


@pytest.mark.parametrize("name", ["efficientad", "efficientad:original"])
def test_the_loss_falls_and_defects_are_found_on_one_static_task(name: str) -> None:
    method = tiny(name, epochs=15, rate=3e-3)
    method.learn(PLATES)
    record = method.info()["tasks"][0]
    assert record["last_loss"] < 0.7 * record["first_loss"]
    assert record["losses_not_finite"] == 0
    assert auroc(method.score(SPOTTED).image, [0, 1] * 8) > 0.9


@pytest.mark.parametrize("name", ["efficientad", "efficientad:original"])
def test_a_training_stopped_in_the_middle_of_an_epoch_ends_the_same(name: str, tmp_path: Path) -> None:
    settings = {"epochs": 3, "batch": 4 if name == "efficientad" else 3}
    whole, resumed = interrupted(name, settings, tmp_path, losses, "loss_parts")
    np.testing.assert_array_equal(resumed.image, whole.image)
    np.testing.assert_array_equal(resumed.thresholds, whole.thresholds)


def test_replayed_images_are_trained_on() -> None:
    method = tiny(replay=4, epochs=1)
    for lesson in LESSONS:
        method.learn(lesson)
    assert [record["images"] for record in method.info()["tasks"]] == [10, 14]


def test_the_teachers_statistics_are_those_of_the_newest_task() -> None:
    method = tiny(epochs=1)
    method.learn(LESSONS[0])
    before = [each.clone() for each in method._networks.statistics or ()]
    method.learn(LESSONS[1])
    assert any(not torch.equal(old, new) for old, new in zip(before, method._networks.statistics or (), strict=True))


def test_the_original_holds_out_a_tenth_unless_the_scenario_does() -> None:
    method = tiny("efficientad:original", epochs=1)
    method.learn(LESSONS[0])
    given = tiny("efficientad:original", epochs=1)
    given.learn(Lesson("fabric", LESSONS[0].train, held_out=LESSONS[1].train[:3]))
    assert method.info()["tasks"][0]["images"] == 9
    assert given.info()["tasks"][0]["images"] == 10


def test_a_single_image_is_enough() -> None:
    method = tiny("efficientad:original", epochs=1)
    method.learn(Lesson("one", LESSONS[0].train[:1]))
    assert np.isfinite(method.score(LESSONS[0].train).image).all()


@pytest.mark.parametrize("kept", [0, 2**20])
def test_penalty_images_are_the_same_read_or_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    monkeypatch.setattr(penalty, "KEEP_BYTES", kept)
    read: list[Path] = []

    def reading(path: Path) -> NDArray[np.uint8]:
        read.append(path)
        return read_image(path)

    monkeypatch.setattr(penalty, "read_image", reading)
    images = penalty.PenaltyImages(str(folder_of_images(tmp_path / "anything")), 64)
    once = images.draw(12, torch.Generator().manual_seed(3))
    read.clear()
    again = images.draw(12, torch.Generator().manual_seed(3))
    np.testing.assert_array_equal(once, again)
    grey = (once == once[..., :1]).all((1, 2, 3))
    assert 0 < grey.sum() < 12
    assert len(read) == (0 if kept else 12)


def test_penalty_images_change_the_student_and_are_named(tmp_path: Path) -> None:
    place = str(folder_of_images(tmp_path / "anything"))
    with_images = tiny("efficientad:original", penalty_images=place)
    without = tiny("efficientad:original")
    for method in (with_images, without):
        method.learn(LESSONS[0])
    scores = [method.score(LESSONS[1].train).image for method in (with_images, without)]
    assert not np.allclose(*scores)
    assert with_images.info()["penalty"].startswith("5 images")
    assert without.info()["penalty"] == "none: no folder was given with penalty_images"
    with_images.save(tmp_path)
    with pytest.raises(InputError, match="was made with"):
        without.load(tmp_path)


def test_seventy_thousand_steps_are_cut_to_epochs() -> None:
    config = get_method("efficientad:original").config
    assert isinstance(config, EfficientADConfig)
    from dinosaur_ad.methods.efficientad.model import epochs_within

    assert epochs_within(config.epochs, config.steps, 60, 1) == 1167
    assert epochs_within(config.epochs, config.steps, 1600, 1) == 44


def test_what_it_is_can_be_written_as_json() -> None:
    method = tiny()
    method.learn(LESSONS[0])
    json.dumps(method.info(), allow_nan=False)
