"""EfficientAD: losses against literal computations, sizes against the paper's, its teacher, and that it learns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from plates import PLATES, SPOTTED, interrupted

from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.data.synthetic import synthetic_scenario
from dinosaur_ad.data.tasks import Sample
from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.methods import Lesson, Photo, Workbench, get_method
from dinosaur_ad.methods.efficientad import EfficientAD, EfficientADConfig

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
pytest.importorskip("transformers", reason="transformers is not installed (it comes with the extra 'bench')")

from safetensors.torch import load_file, save_file  # noqa: E402

from dinosaur_ad.bench import teacher as teaching  # noqa: E402
from dinosaur_ad.bench.teacher import Pretrained, Recipe, pretrain_teacher  # noqa: E402
from dinosaur_ad.methods.efficientad import losses, pdn  # noqa: E402

SCENARIO = synthetic_scenario(train=10, test_normal=4, test_per_kind=2, size=64, products=["fabric", "gear"])
SMALL = Recipe(iterations=12, batch=3, size=64, channels=8, widths=(8, 8), measured=5, rate=1e-2)


def photos_of(samples: Sequence[Sample]) -> tuple[Photo, ...]:
    return tuple(Photo(sample.name, cache(sample.image)) for sample in samples)


def tiny(name: str = "efficientad", seed: int = 0, **settings: Any) -> EfficientAD:
    method = get_method(name).tiny().with_settings(settings).build(Workbench(seed=seed))
    assert isinstance(method, EfficientAD)
    return method


@pytest.fixture(scope="module")
def lessons() -> list[Lesson]:
    photos = [photos_of(task.train) for task in SCENARIO.tasks]
    return [Lesson("fabric", photos[0]), Lesson("gear", photos[1], earlier=(photos[0],))]


def random(*shape: int, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


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


def test_maps_have_the_papers_grid_in_both_variants(lessons: list[Lesson]) -> None:
    photo = lessons[0].train[:1]
    for name in ("efficientad", "efficientad:original"):
        method = tiny(name, size=256, epochs=1)
        method.learn(Lesson("one", photo))
        maps = method.score(photo).maps
        assert maps is not None
        assert maps.shape == (1, 64, 64)


def test_a_size_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="multiple of 32"):
        EfficientADConfig(size=250)


# --- losses ---


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.995, 0.999])
@pytest.mark.parametrize("count", [1, 2, 7, 5000])
def test_the_quantile_is_numpys(share: float, count: int) -> None:
    values = random(count)
    assert losses.quantile(values, share).item() == pytest.approx(
        float(np.quantile(values.double().numpy(), share)), abs=1e-6
    )


def test_a_quantile_of_more_values_than_torch_allows() -> None:
    values = torch.arange(2**24 + 4, dtype=torch.float32).flip(0).reshape(4, -1)
    with pytest.raises(RuntimeError):
        torch.quantile(values, 0.999)
    # Whole numbers up to 2^24 are exact in float32, so the answer is known.
    assert losses.quantile(values, 0.999).item() == pytest.approx(0.999 * (2**24 + 3), abs=1.5)


def literal_loss(t: Any, s1: Any, t_ae: Any, s2: Any, a: Any, share: float) -> float:
    squares = sorted(float((x - y) ** 2) for x, y in zip(t.ravel(), s1.ravel(), strict=True))
    limit = np.quantile(squares, share)
    hard = [each for each in squares if each >= limit]
    second = [float((x - y) ** 2) for x, y in zip(t_ae.ravel(), a.ravel(), strict=True)]
    third = [float((x - y) ** 2) for x, y in zip(a.ravel(), s2.ravel(), strict=True)]
    return sum(hard) / len(hard) + sum(second) / len(second) + sum(third) / len(third)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999])
def test_the_loss_is_the_literal_one(share: float) -> None:
    tensors = [random(2, 3, 4, 4, seed=n) for n in range(5)]
    expected = literal_loss(*(tensor.double().numpy() for tensor in tensors), share)
    assert sum(losses.loss_parts(*tensors, share)).item() == pytest.approx(expected, rel=1e-5)


def test_only_the_worst_places_teach_the_student() -> None:
    student = random(1, 2, 10, 10).requires_grad_()
    losses.hard_mean(student.square(), 0.9).backward()
    taught = student.grad.ne(0)
    assert taught.sum() == 20
    assert student.detach().abs()[taught].min() >= student.detach().abs()[~taught].max()


def test_the_autoencoder_is_drawn_to_the_student_too() -> None:
    rebuilt = random(1, 2, 4, 4, seed=1).requires_grad_()
    parts = losses.loss_parts(*(random(1, 2, 4, 4, seed=n) for n in (2, 3, 4, 5)), rebuilt, 0.9)
    parts.both.backward()
    assert rebuilt.grad.abs().sum() > 0


def test_maps_and_their_combination_are_the_literal_ones() -> None:
    t, s1, s2, a = (random(2, 3, 4, 5, seed=n) for n in range(4))
    both = losses.maps(t, s1, s2, a)
    expected = 0.5 * ((t - s1) ** 2).mean(1) + 0.5 * ((a - s2) ** 2).mean(1)
    np.testing.assert_allclose(losses.combine(both).numpy(), expected.numpy(), rtol=1e-6)
    quantiles = losses.map_quantiles(both)
    normalised = [
        0.1 * (each - np.quantile(each, 0.9)) / (np.quantile(each, 0.995) - np.quantile(each, 0.9))
        for each in (both[:, 0].numpy(), both[:, 1].numpy())
    ]
    np.testing.assert_allclose(losses.combine(both, quantiles).numpy(), np.mean(normalised, axis=0), rtol=1e-4)


def test_maps_without_any_spread_stay_finite() -> None:
    flat = torch.ones(2, 2, 4, 4)
    assert torch.isfinite(losses.combine(flat, losses.map_quantiles(flat))).all()


def test_jitter_changes_brightness_contrast_or_saturation() -> None:
    image = torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.2
    images, kinds = image.expand(3, -1, -1, -1), torch.tensor([0, 1, 2])
    np.testing.assert_allclose(losses.jitter(images, kinds, torch.ones(3)).numpy(), images.numpy(), atol=1e-6)
    darker, flatter, greyer = losses.jitter(images, kinds, torch.full((3,), 0.8))
    np.testing.assert_allclose(darker.numpy(), 0.8 * image[0].numpy(), rtol=1e-5)
    grey = (image[0] * torch.tensor(losses.LUMA)[:, None, None]).sum(0)
    np.testing.assert_allclose(flatter.numpy(), (0.8 * image[0] + 0.2 * grey.mean()).numpy(), rtol=1e-5)
    np.testing.assert_allclose(greyer.numpy(), (0.8 * image[0] + 0.2 * grey).numpy(), rtol=1e-5)


def test_statistics_of_batches_are_those_of_everything() -> None:
    batches = [random(count, 3, 5, 5, seed=count) * 3 + 100 for count in (1, 4, 2)]
    mean, deviation = pdn.channel_statistics(batches)
    together = torch.cat(batches).double().transpose(0, 1).flatten(1)
    np.testing.assert_allclose(mean.numpy(), together.mean(1).numpy(), rtol=1e-6)
    np.testing.assert_allclose(deviation.numpy(), together.std(1, correction=0).numpy(), rtol=1e-5)


def test_a_channel_that_never_changes_is_not_blown_up() -> None:
    dead = torch.full((2, 1, 4, 4), 7.0)
    assert pdn.standardise(dead + 1e-3, *pdn.channel_statistics([dead])).abs().max() < 1e-2


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


def test_replayed_images_are_trained_on(lessons: list[Lesson]) -> None:
    method = tiny(replay=4, epochs=1)
    for lesson in lessons:
        method.learn(lesson)
    assert [record["images"] for record in method.info()["tasks"]] == [10, 14]


def test_the_teachers_statistics_are_those_of_the_newest_task(lessons: list[Lesson]) -> None:
    method = tiny(epochs=1)
    method.learn(lessons[0])
    before = [each.clone() for each in method._networks.statistics or ()]
    method.learn(lessons[1])
    assert any(not torch.equal(old, new) for old, new in zip(before, method._networks.statistics or (), strict=True))


def test_the_original_holds_out_a_tenth_unless_the_scenario_does(lessons: list[Lesson]) -> None:
    method = tiny("efficientad:original", epochs=1)
    method.learn(lessons[0])
    given = tiny("efficientad:original", epochs=1)
    given.learn(Lesson("fabric", lessons[0].train, held_out=lessons[1].train[:3]))
    assert method.info()["tasks"][0]["images"] == 9
    assert given.info()["tasks"][0]["images"] == 10


def test_a_single_image_is_enough(lessons: list[Lesson]) -> None:
    method = tiny("efficientad:original", epochs=1)
    method.learn(Lesson("one", lessons[0].train[:1]))
    assert np.isfinite(method.score(lessons[0].train).image).all()


def folder_of_images(folder: Path, count: int = 5) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for n in range(count):
        small = Image.fromarray(generator.integers(0, 255, (6, 8, 3), dtype=np.uint8))
        small.resize((90, 70), Image.Resampling.BICUBIC).save(folder / f"{n}.png")
    return folder


def test_penalty_images_change_the_student_and_are_named(lessons: list[Lesson], tmp_path: Path) -> None:
    place = str(folder_of_images(tmp_path / "anything"))
    with_images = tiny("efficientad:original", penalty_images=place)
    without = tiny("efficientad:original")
    for method in (with_images, without):
        method.learn(lessons[0])
    scores = [method.score(lessons[1].train).image for method in (with_images, without)]
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


# --- the teacher ---


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
def test_a_teacher_is_made_from_any_backbone_and_used(encoder: str, lessons: list[Lesson], tmp_path: Path) -> None:
    made = make(tmp_path, encoder)
    method = tiny(teacher=str(made.path), epochs=1)
    method.learn(lessons[0])
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
    step, done = teaching._Training._step, []

    def stop_at_seven(self: Any, *batch: Any) -> None:
        if len(done) == 7:
            raise KeyboardInterrupt
        done.append(1)
        step(self, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(teaching._Training, "_step", stop_at_seven)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path, name="halved")
    counted = []
    monkeypatch.setattr(teaching._Training, "_step", lambda self, *batch: (counted.append(1), step(self, *batch)))
    halved = make(tmp_path, name="halved")
    assert len(counted) == 5
    one, other = load_file(whole.path), load_file(halved.path)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert halved.losses == whole.losses


def test_a_half_made_teacher_of_other_settings_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, *batch: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(teaching._Training, "_step", fail)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path)
    with pytest.raises(InputError, match="half-made teacher of other settings"):
        make(tmp_path, recipe=Recipe(**{**vars(SMALL), "rate": 0.5}))


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


def test_what_it_is_can_be_written_as_json(lessons: list[Lesson]) -> None:
    method = tiny()
    method.learn(lessons[0])
    json.dumps(method.info(), allow_nan=False)
