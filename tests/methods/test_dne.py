"""DNE: its losses against literal computations, its arithmetic against the paper's, and what it tells."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from method_helpers import grey, photos_of
from numpy.typing import NDArray

from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.datasets.synthetic import synthetic_scenario
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Lesson, Photo, Workbench, get_method
from dinosaur_ad.methods.dne import DNE, DNEConfig

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra 'bench')")

from dinosaur_ad.methods.dne import cutpaste as dne_cutpaste  # noqa: E402
from dinosaur_ad.methods.dne.classifier_training import FineTunedViT, normalised  # noqa: E402
from dinosaur_ad.methods.shared.vit_base import sized, vit_spec  # noqa: E402
from dinosaur_ad.methods.training import Step, training_loop  # noqa: E402

SCENARIO = synthetic_scenario(train=12, test_normal=6, test_per_kind=2, size=64, products=["fabric", "gear"])


@pytest.fixture(scope="module")
def lessons() -> list[Lesson]:
    return [Lesson(task.name, photos_of(task.train)) for task in SCENARIO.tasks]


def tiny(name: str = "dne", workbench: Workbench | None = None, **settings: Any) -> DNE:
    method = get_method(name).tiny().with_settings(settings).build(workbench or Workbench())
    assert isinstance(method, DNE)
    return method


def taught(lessons: Sequence[Lesson], name: str = "dne", **options: Any) -> DNE:
    method = tiny(name, **options)
    for lesson in lessons:
        method.learn(lesson)
    return method


def random_step(count: int, size: int = 32, seed: int = 0) -> Step:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    images = normalised(torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255)
    photos = [grey(0, str(n)) for n in range(count)]
    return Step(images, pixels, photos, 0, 0, torch.Generator().manual_seed(seed))


# --- sizes ---


def test_parameters_are_those_of_the_papers_table() -> None:
    with torch.device("meta"):
        whole = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000))
    counted = sum(each.numel() for each in whole.parameters())
    assert counted == 86_567_656
    assert dataclasses.astuple(get_method("dne").build(Workbench()).parameters()) == (86_569_194, 85_978_602)
    assert counted + 2 * 769 == 86_569_194
    block = (
        sized(vit_spec("vit-base"), size=224, depth=2).parameters
        - sized(vit_spec("vit-base"), size=224, depth=1).parameters
    )
    assert block == 7_087_872


def test_counted_parameters_are_those_of_the_network() -> None:
    method = tiny()
    module = method._network.module
    total, trainable = dataclasses.astuple(method.parameters())
    assert total == sum(each.numel() for each in module.parameters())
    assert trainable == sum(each.numel() for each in module.parameters() if each.requires_grad)


# --- training ---


def network(**settings: Any) -> FineTunedViT:
    choice = get_method("dne").tiny().with_settings(settings)
    assert isinstance(choice.config, DNEConfig)
    return FineTunedViT(choice.config, Workbench())


def test_the_loss_of_normals_is_cross_entropy_to_the_first_class() -> None:
    tuned, step = network(), random_step(3)
    with torch.no_grad():
        logits = tuned.head(tuned.vit.cls(step.images)).double().numpy()
        found = float(tuned.loss(step))
    expected = 0.0
    for row in logits:
        expected -= math.log(math.exp(row[0]) / (math.exp(row[0]) + math.exp(row[1]))) / 3
    assert found == pytest.approx(expected, rel=1e-5)


def test_the_original_loss_sets_pasted_views_against_plain_ones() -> None:
    tuned = network(anomalies="cutpaste")
    pixels = torch.from_numpy(random_step(3).pixels).permute(0, 3, 1, 2).float() / 255
    plain, pasted = dne_cutpaste.two_views(pixels, random_step(3).generator)
    expected = 0.0
    with torch.no_grad():
        for view, wanted in ((plain, 0), (pasted, 1)):
            logits = tuned.head(tuned.vit.cls(normalised(view))).double().numpy()
            expected += sum(math.log(math.exp(row[0]) + math.exp(row[1])) - row[wanted] for row in logits) / 6
        found = float(tuned.loss(random_step(3)))
    assert found == pytest.approx(expected, rel=1e-4)


def test_the_loss_of_one_class_falls_and_only_what_may_change_changes(lessons: list[Lesson]) -> None:
    method = tiny(epochs=12)
    before = {name: value.clone() for name, value in method._network.module.state_dict().items()}
    method.learn(lessons[0])
    losses = method.info()["tasks"][lessons[0].task]["loss"]
    assert len(losses) == 12
    assert losses[-1] < 0.5 * losses[0]
    first = {name: value.clone() for name, value in method._network.module.state_dict().items()}
    changed = {name for name in before if not torch.equal(before[name], first[name])}
    assert {name for name in before if name not in changed} == {
        "vit.embeddings.patch_embeddings.projection.weight",
        "vit.embeddings.patch_embeddings.projection.bias",
    }
    method.learn(lessons[1])
    second = method._network.module.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first if name.startswith("head."))
    assert any(not torch.equal(first[name], second[name]) for name in first if name.startswith("vit.layers."))


def plate(seed: int, *, broken: bool = False) -> NDArray[np.uint8]:
    """A bright square on dark ground, with a little noise; broken: a bright piece where it does not belong."""
    generator = np.random.default_rng(seed)
    image = np.full((32, 32, 3), 40, np.uint8)
    image[8:24, 8:24] = 220
    if broken:
        top, left = generator.integers(0, 26, 2)
        image[top : top + 6, left : left + 6] = 255 - image[top : top + 6, left : left + 6]
    return (image + generator.integers(0, 8, image.shape)).astype(np.uint8)


def plates(count: int, first: int, **options: bool) -> tuple[Photo, ...]:
    return tuple(Photo(f"{n}{options}", cache(lambda n=n: plate(n, **options))) for n in range(first, first + count))


def test_the_original_learns_to_tell_pasted_from_plain() -> None:
    method = tiny("dne:original", epochs=30, batch=12, rate=1e-3, eps=1e-8, probe=0)
    method.learn(Lesson("plate", plates(36, 0)))
    losses = method.info()["tasks"]["plate"]["loss"]
    scores = method.score(plates(20, 100) + plates(20, 200, broken=True)).image
    assert np.mean(losses[-5:]) < 0.64  # guessing costs 0.69
    assert auroc(scores, [0] * 20 + [1] * 20) > 0.8


def test_statistics_are_as_exact_as_scores_though_training_is_in_bfloat16(
    lessons: list[Lesson], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mixed precision is for GPUs; the CPU's own stands in for it here."""
    monkeypatch.setattr(training_loop, "autocast", lambda schedule, device: torch.autocast("cpu", dtype=torch.bfloat16))
    tuned = network(collect="during", epochs=1, rate=1e-12)  # so slow that a moment is like another
    z_NC = tuned.learn(lessons[0].train, 0, tuned.config.schedule()).z_NC
    np.testing.assert_allclose(z_NC, tuned.embed(lessons[0].train), atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded_NC = tuned.embed(lessons[0].train)
    assert np.abs(rounded_NC - z_NC).max() > 1e-3  # what was to be avoided


def test_embeddings_taken_during_the_last_epoch_are_those_of_their_moment(lessons: list[Lesson]) -> None:
    during, after = network(collect="during", epochs=1), network(epochs=1)
    photos, schedule = lessons[0].train, during.config.schedule()
    start = network().embed(photos)
    z_NC = during.learn(photos, 0, schedule).z_NC
    late_NC = after.learn(photos, 0, schedule).z_NC
    np.testing.assert_array_equal(late_NC, after.embed(photos))
    # The first batch of eight was taken before the first step, the other four after it.
    unmoved = np.isclose(z_NC, start, rtol=1e-4, atol=1e-5).all(axis=1)
    assert unmoved.sum() == 8
    assert not np.isclose(z_NC, late_NC, rtol=1e-4, atol=1e-5).all(axis=1).any()


class StoppedError(Exception):
    pass


def test_the_originals_embeddings_are_those_of_the_augmented_normal_view(lessons: list[Lesson]) -> None:
    """As the authors' code: of the jittered and turned image that the step trains on, with the weights of the step."""
    method = tiny("dne:original")
    assert method.config.embed == "augmented"
    tuned, photos = (
        method._network,
        lessons[0].train[:5],
    )  # one batch: the weights of the last epoch are those before it
    views: list[Any] = []

    def remember(step: Step) -> Any:
        views.append((step.photos, tuned.normal_view(step)))
        before = {name: value.clone() for name, value in tuned.module.state_dict().items()}
        views[-1] += (before,)
        return FineTunedViT.loss(tuned, step)

    tuned.loss = remember  # type: ignore[method-assign]
    found_NC = tuned.learn(photos, 0, method.config.schedule()).z_NC
    shown, view, weights = views[-1]
    tuned.module.load_state_dict(weights)
    with torch.no_grad():
        expected = dict(zip([photo.key for photo in shown], tuned.vit.cls(view).numpy(), strict=True))
    np.testing.assert_allclose(found_NC, np.stack([expected[photo.key] for photo in photos]), atol=1e-5)
    assert np.abs(found_NC - tuned.embed(photos)).max() > 1e-2  # the images as they are give others


def test_the_view_of_the_embeddings_is_what_the_loss_trains_on() -> None:
    tuned = network(anomalies="cutpaste", embed="augmented")
    step = random_step(3)
    seen = tuned.normal_view(step)
    plain, _ = dne_cutpaste.two_views(torch.from_numpy(step.pixels).permute(0, 3, 1, 2).float() / 255, step.generator)
    assert torch.equal(seen, normalised(plain))


def test_the_plain_view_remains_and_gives_other_statistics(lessons: list[Lesson]) -> None:
    augmented, plain = (taught(lessons[:1], name) for name in ("dne:original", "dne:original-plain-view"))
    assert "jittered" in augmented.info()["embeddings"]
    assert "as they are" in plain.info()["embeddings"]
    assert not np.allclose(augmented._tasks[0].mean_C, plain._tasks[0].mean_C, atol=1e-4)


def test_views_drawn_after_training_are_the_same_each_time(lessons: list[Lesson]) -> None:
    settings = {"anomalies": "cutpaste", "embed": "augmented", "collect": "after"}
    first, second = (taught(lessons[:1], **settings) for _ in range(2))
    np.testing.assert_array_equal(first._tasks[0].mean_C, second._tasks[0].mean_C)


@pytest.mark.parametrize("name", ["dne", "dne:original"])
def test_stopping_in_the_last_epoch_changes_nothing(
    name: str, lessons: list[Lesson], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = lessons[1].train
    undisturbed = taught(lessons, name, batch=4).score(photos).image
    method = tiny(name, Workbench(scratch=tmp_path / "scratch"), batch=4)
    method.learn(lessons[0])
    (tmp_path / "kept").mkdir()
    method.save(tmp_path / "kept")
    real = FineTunedViT.loss

    def stop(self: FineTunedViT, step: Step) -> Any:
        if (step.epoch, step.index) == (1, 1):
            raise StoppedError
        return real(self, step)

    monkeypatch.setattr(FineTunedViT, "loss", stop)
    with pytest.raises(StoppedError):
        method.learn(lessons[1])
    steps: list[tuple[int, int]] = []

    def count(self: FineTunedViT, step: Step) -> Any:
        steps.append((step.epoch, step.index))
        return real(self, step)

    monkeypatch.setattr(FineTunedViT, "loss", count)
    resumed = tiny(name, Workbench(scratch=tmp_path / "scratch"), batch=4)
    resumed.load(tmp_path / "kept")
    resumed.learn(lessons[1])
    assert steps == [(1, 0), (1, 1), (1, 2)]
    np.testing.assert_array_equal(resumed.score(photos).image, undisturbed)


# --- what it tells ---


def test_the_measurements_of_a_collapse_are_kept(lessons: list[Lesson], tmp_path: Path) -> None:
    method = taught(lessons, epochs=3)
    notes = json.loads(json.dumps(method.info()))["tasks"]
    assert list(notes) == [lesson.task for lesson in lessons]
    for told in notes.values():
        assert len(told["spread"]) == len(told["size"]) == len(told["loss"]) == 3
        assert (told["images"], told["skipped_steps"]) == (12, 0)
        assert (told["tied_scores"], told["nonfinite_scores"]) == (0, 0)
        assert told["spread_before"] > 0
    z_NC = method._network.embed(lessons[1].train)
    assert notes["gear"]["spread"][-1] == pytest.approx(z_NC.std(axis=0).mean(), rel=1e-3)
    method.save(tmp_path)
    loaded = tiny(epochs=3)
    loaded.load(tmp_path)
    assert loaded.info()["tasks"] == notes


def test_equal_images_have_no_spread_and_tie(lessons: list[Lesson]) -> None:
    method = tiny("dne:as-published")
    method.learn(Lesson("flat", tuple(grey(90, f"{n}") for n in range(5))))
    told = method.info()["tasks"]["flat"]
    assert told["spread"][-1] < 1e-6
    assert told["tied_scores"] == 1
    assert np.isfinite(method.score(lessons[0].train).image).all()


@pytest.mark.parametrize("name", ["dne", "dne:sampled", "dne:as-published", "dne:original"])
def test_one_image_is_learned_and_then_another_task(name: str, lessons: list[Lesson]) -> None:
    method = taught([Lesson("lonely", lessons[0].train[:1])], name)
    assert np.isfinite(method.score(lessons[0].train).image).all()
    method.learn(lessons[1])
    assert np.isfinite(method.score(lessons[0].train).image).all()


def test_losses_that_are_not_finite_are_counted_and_leave_a_method_that_answers(
    lessons: list[Lesson], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FineTunedViT.loss
    monkeypatch.setattr(FineTunedViT, "loss", lambda self, step: real(self, step) * math.nan)
    for name in ("dne", "dne:as-published"):
        method = taught(lessons[:1], name)
        told = json.loads(json.dumps(method.info()))["tasks"][lessons[0].task]
        assert told["skipped_steps"] == 4  # two epochs of two steps
        assert told["loss"] == [None, None]
        assert np.isfinite(method.score(lessons[0].train).image).all()


def test_storage_grows_by_mean_covariance_and_count(lessons: list[Lesson]) -> None:
    method = tiny()
    for number, lesson in enumerate(lessons, start=1):
        method.learn(lesson)
        assert method.storage_bytes() == number * 4 * (16 * 16 + 16 + 1)


def test_the_threshold_is_that_of_the_last_tasks_training_scores(lessons: list[Lesson]) -> None:
    scores = taught(lessons).score(lessons[1].train)
    assert scores.thresholds is not None
    assert scores.maps is None
    assert scores.thresholds[0] == pytest.approx(np.quantile(scores.image, 0.975), rel=1e-5)


def test_a_folder_of_another_network_is_refused(lessons: list[Lesson], tmp_path: Path) -> None:
    taught(lessons[:1]).save(tmp_path)
    with pytest.raises(InputError, match="was made with"):
        tiny(backbone="tiny-dinov2", size=42).load(tmp_path)
    with pytest.raises(InputError, match="no readable DNE"):
        tiny().load(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="nothing to save"):
        tiny().save(tmp_path)
    with pytest.raises(InputError, match="learned no task yet"):
        tiny().score(lessons[0].train)


def test_the_variants_are_what_they_say() -> None:
    default, original = get_method("dne").config, get_method("dne:original").config
    assert isinstance(default, DNEConfig)
    assert isinstance(original, DNEConfig)
    assert dataclasses.astuple(default.schedule())[:4] == (300, 12, 7.5e-4, 1e-4)
    schedule = original.schedule()
    assert (schedule.epochs, schedule.batch, schedule.rate, schedule.decay, schedule.eps) == (50, 32, 1e-4, 3e-5, 4e-4)
    assert schedule.rate_at(25, 0.5) == pytest.approx(0.5e-4)
    assert (original.anomalies, original.covariance, original.normalise) == ("cutpaste", "ledoit-wolf", True)
    published_code = get_method("dne:as-published").config
    assert published_code == dataclasses.replace(default, pooling="sampled-diagonal", collect="during")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"shrink": 1.5}, "shrink must be from 0 to 1"),
        ({"epochs": 0}, "epochs must be above 0"),
        ({"probe": -1}, "probe"),
        ({"embed": "augmented"}, "needs anomalies=cutpaste"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        tiny(**setting)


def test_a_task_without_images_is_refused() -> None:
    with pytest.raises(InputError, match="'empty' has no training images"):
        tiny().learn(Lesson("empty", ()))
