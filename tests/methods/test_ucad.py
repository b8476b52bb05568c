"""UCAD: losses, memories, prompts and regions against literal computations, its sizes against the paper's."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from plates import PLATES, SPOTTED, interrupted

from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.data.synthetic import synthetic_scenario
from dinosaur_ad.data.tasks import Sample
from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.methods import Lesson, NoCache, Photo, Workbench, get_method
from dinosaur_ad.methods.ucad import UCAD
from dinosaur_ad.methods.ucad.regions import Superpixels, make_regions, most_frequent, own_slic

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
pytest.importorskip("transformers", reason="transformers is not installed (it comes with the extra 'bench')")

from dinosaur_ad.methods.ucad import losses, regions_sam  # noqa: E402
from dinosaur_ad.methods.ucad.features import PromptedFeatures  # noqa: E402
from dinosaur_ad.methods.ucad.memory import farthest_points, route  # noqa: E402

SCENARIO = synthetic_scenario(train=8, test_normal=4, test_per_kind=2, size=64, products=["fabric", "gear"])


def photos_of(samples: Sequence[Sample]) -> tuple[Photo, ...]:
    return tuple(Photo(sample.name, cache(sample.image)) for sample in samples)


LESSONS = [Lesson(task.name, photos_of(task.train)) for task in SCENARIO.tasks]
TESTS = [photo for task in SCENARIO.tasks for photo in photos_of(task.test)]


def tiny(name: str = "ucad", workbench: Workbench | None = None, **settings: Any) -> UCAD:
    method = get_method(name).tiny().with_settings(settings).build(workbench or Workbench())
    assert isinstance(method, UCAD)
    return method


def taught(name: str = "ucad", **settings: Any) -> UCAD:
    method = tiny(name, **settings)
    for lesson in LESSONS:
        method.learn(lesson)
    return method


def network(kind: Any = "added", **settings: Any) -> PromptedFeatures:
    options = {"weights": "", "blocks": 3, "size": 32, "kind": kind, "shifted": False, "dim": None, "device": "cpu"}
    return PromptedFeatures("tiny-vit", **(options | settings))


def random(*shape: int, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


# --- sizes ---


def test_parameters_and_storage_are_the_papers() -> None:
    method = get_method("ucad").build(Workbench())
    assert isinstance(method, UCAD)
    counted = method.parameters()
    assert (counted.total, counted.trainable) == (36_034_560, 3_840)
    prompt, width = math.prod(method._features.prompt_shape), method._features.channels
    stored = 4 * (prompt + width * (method.config.keys + method.config.knowledge))
    assert stored == 1_219_584  # printed as 1.2 MB


def test_what_a_task_takes_is_its_keys_knowledge_and_prompt() -> None:
    method = taught()
    assert method.storage_bytes() == 2 * 4 * (12 * 16 + 12 * 16 + 5 * 16)


def test_the_original_has_its_own_numbers() -> None:
    config = get_method("ucad:original").config
    assert (config.epochs, config.batch, config.rate, config.decay, config.clip) == (25, 8, 5e-4, 0.0, 1.0)  # type: ignore[attr-defined]
    method = get_method("ucad:original").build(Workbench())
    assert isinstance(method, UCAD)
    assert (method._features.channels, method._features.prompt_shape) == (1024, (6, 2, 768))


# --- losses ---


def cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def literal_contrast(features: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    same, different = [], []
    for image, label in zip(features, labels, strict=True):
        if len(set(label.tolist())) == 1:
            continue
        for i in range(len(image)):
            for j in range(i + 1, len(image)):
                (same if label[i] == label[j] else different).append(cosine(image[i], image[j]))
    return float(np.mean(different)) - float(np.mean(same))


def literal_exponential(features: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    means = []
    for image, label in zip(features, labels, strict=True):
        terms = []
        for i in range(len(image)):
            for j in range(len(image)):
                s = cosine(image[i], image[j]) / 0.5
                terms.append(-s if label[i] == label[j] else math.exp(s))
        means.append(np.mean(terms))
    return float(np.mean(means))


@pytest.mark.parametrize(
    ("loss", "literal"),
    [(losses.contrast, literal_contrast), (losses.exponential_contrast, literal_exponential)],
)
def test_losses_are_the_literal_ones(loss: Callable[..., Any], literal: Callable[..., float]) -> None:
    features = random(3, 9, 5)
    labels = np.random.default_rng(1).integers(0, 3, (3, 9))
    labels[2] = 4  # one region only
    found = loss(features, torch.from_numpy(labels)).item()
    assert found == pytest.approx(literal(features.double().numpy(), labels), rel=1e-5)


def test_images_of_one_region_give_no_loss_and_no_slope() -> None:
    features = random(2, 6, 4).requires_grad_()
    loss = losses.contrast(features, torch.zeros(2, 6))
    loss.backward()
    assert loss.item() == 0
    assert features.grad.abs().max() == 0


def test_regions_without_any_pair_inside_are_no_division_by_zero() -> None:
    assert torch.isfinite(losses.contrast(random(1, 4, 3), torch.arange(4)[None]))


# --- memories ---


def test_farthest_points_are_the_literal_ones() -> None:
    points = np.random.default_rng(0).normal(size=(40, 4))
    picked = [7]
    while len(picked) < 12:
        gaps = [min(float(np.linalg.norm(point - points[other])) for other in picked) for point in points]
        picked.append(int(np.argmax(gaps)))
    found = farthest_points(torch.from_numpy(points), 12, first=7)
    np.testing.assert_allclose(found.numpy(), points[picked])


def test_all_points_are_kept_when_there_are_fewer() -> None:
    points = random(5, 3)
    assert sorted(farthest_points(points, 196, first=2)[:, 0].tolist()) == sorted(points[:, 0].tolist())


def test_routing_is_the_literal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    features, keys = random(6, 7, 4), [random(count, 4, seed=count) for count in (3, 5, 9)]
    expected = [
        int(np.argmin([sum(min(np.linalg.norm(p - k) for k in task.numpy()) for p in image) for task in keys]))
        for image in features.numpy()
    ]
    assert route(features, keys).tolist() == expected
    monkeypatch.setattr("dinosaur_ad.methods.ucad.memory.BLOCK_BYTES", 1)  # one image at a time
    assert route(features, keys).tolist() == expected
    assert len(set(expected)) > 1


def test_an_image_is_scored_by_the_memory_it_is_sent_to() -> None:
    method = taught()
    scores = method.score(TESTS)
    assert scores.routes is not None
    for index in (0, len(TESTS) - 1):
        told = method.score([TESTS[index]], task=scores.routes[index])
        assert told.image[0] == pytest.approx(scores.image[index], rel=1e-4)


def test_the_score_is_the_largest_reweighted_distance_to_the_knowledge() -> None:
    method = taught()
    memory = method._tasks[0]
    bank = memory.knowledge.bank_MC.double().numpy()
    with torch.no_grad():
        points = method._features(method._images(TESTS[:1]), memory.prompt)[0].double().numpy()
    found = []
    for point in points:
        gaps = [float(np.linalg.norm(point - m)) for m in bank]
        star = int(np.argmin(gaps))
        around = sorted(range(len(bank)), key=lambda m: float(np.linalg.norm(bank[m] - bank[star])))[:5]
        found.append((1 - math.exp(gaps[star]) / sum(math.exp(gaps[m]) for m in around)) * gaps[star])
    assert method.score(TESTS[:1], task="fabric").image[0] == pytest.approx(max(found), rel=1e-3)


def test_earlier_tasks_are_untouched_by_later_ones() -> None:
    one = tiny()
    one.learn(LESSONS[0])
    before = one.score(TESTS, task="fabric")
    one.learn(LESSONS[1])
    np.testing.assert_array_equal(one.score(TESTS, task="fabric").image, before.image)


def test_an_unknown_task_and_a_task_twice_are_refused() -> None:
    method = tiny()
    method.learn(LESSONS[0])
    with pytest.raises(InputError, match="choose from: fabric"):
        method.score(TESTS, task="gear")
    with pytest.raises(InputError, match="already"):
        method.learn(LESSONS[0])


# --- prompts ---


@pytest.mark.parametrize("kind", ["added", "prefix"])
def test_the_network_is_frozen_and_the_prompt_is_not(kind: Any) -> None:
    features = network(kind)
    prompt = torch.nn.Parameter(features.draw_prompt((0,)))
    features(random(2, 3, 32, 32), prompt).sum().backward()
    assert prompt.grad.abs().flatten(1).sum(1).min() > 0  # every row of it matters
    assert all(parameter.grad is None for parameter in features.network.module.parameters())


def test_an_added_prompt_of_zeros_changes_nothing() -> None:
    features, images = network(), random(2, 3, 32, 32)
    with torch.no_grad():
        np.testing.assert_allclose(
            features(images, torch.zeros(features.prompt_shape)).numpy(), features(images).numpy(), atol=1e-6
        )


def test_a_prefix_is_one_more_key_and_value() -> None:
    """Against attention written out, with the projections of the network's first block."""
    features, images = network("prefix", blocks=1), random(2, 3, 32, 32)
    prompt = features.draw_prompt((3,))
    with torch.no_grad():
        features(images, prompt)  # only now are its hooks there, and those below come after them
    kept: dict[str, Any] = {}
    parts = {name.rpartition(".")[2]: layer for name, layer in features.network.module.named_modules()}
    for part in ("q_proj", "k_proj", "v_proj"):
        parts[part].register_forward_hook(lambda _m, _i, output, part=part: kept.update({part: output}))
    parts["o_proj"].register_forward_pre_hook(lambda _m, inputs: kept.update(mixed=inputs[0]))
    with torch.no_grad():
        features(images, prompt)
    q, k, v = (kept[part].double().numpy() for part in ("q_proj", "k_proj", "v_proj"))
    heads, dim = 2, 8
    for head in range(heads):
        own = slice(head * dim, (head + 1) * dim)
        keys = np.concatenate([prompt[0, 0, own].numpy()[None], k[1, :, own]])
        values = np.concatenate([prompt[0, 1, own].numpy()[None], v[1, :, own]])
        weights = np.exp(q[1, 4, own] @ keys.T / math.sqrt(dim))
        expected = weights @ values / weights.sum()
        np.testing.assert_allclose(kept["mixed"][1, 4, own].numpy(), expected, rtol=1e-4)


@pytest.mark.parametrize("kind", ["added", "prefix"])
def test_a_prompt_means_the_same_wherever_in_the_batch_an_image_lies(kind: Any) -> None:
    features, images = network(kind), random(4, 3, 32, 32)
    prompt = features.draw_prompt((1,))
    with torch.no_grad():
        together, backwards = features(images, prompt), features(images.flip(0), prompt).flip(0)
        plain = features(images)
    np.testing.assert_allclose(together.numpy(), backwards.numpy(), rtol=1e-4, atol=1e-5)
    assert not np.allclose(together.numpy(), plain.numpy())


def test_a_prefix_needs_keys_that_are_not_rotated() -> None:
    with pytest.raises(EncoderError, match="no prefix fits"):
        PromptedFeatures(
            "tiny-dinov3", weights="", blocks=2, size=32, kind="prefix", shifted=False, dim=None, device="cpu"
        )


@pytest.mark.parametrize(("backbone", "size"), [("tiny-dinov2", 42), ("tiny-dinov3", 48)])
def test_any_registered_token_encoder_can_stand_in(backbone: str, size: int) -> None:
    method = taught(backbone=backbone, blocks=2, size=size)
    scores = method.score(TESTS)
    assert scores.maps is not None
    assert scores.maps.shape == (len(TESTS), 3, 3)
    assert np.isfinite(scores.image).all()
    assert "substitute for ViT-B/16" in method.info()["description"]


def test_features_can_be_brought_to_another_width() -> None:
    features, images = network(dim=24), random(1, 3, 32, 32)
    with torch.no_grad():
        pooled, plain = features(images), network()(images)
    assert pooled.shape == (1, 16, 24)
    # 16 channels on 24: the first and second are the first channel and the mean of the first two.
    np.testing.assert_allclose(pooled[0, 0, 0].item(), plain[0, 0, 0].item(), rtol=1e-5)
    np.testing.assert_allclose(pooled[0, 0, 1].item(), plain[0, 0, :2].mean().item(), rtol=1e-5)


def test_a_prompt_is_drawn_anew_but_for_the_published_code() -> None:
    """With a rate of next to nothing a prompt stays what it was at the beginning."""
    for name, same in (("ucad", False), ("ucad:as-published", True)):
        first, second = (memory.prompt for memory in taught(name, rate=1e-12)._tasks)
        assert torch.allclose(first, second, atol=1e-4) is same


# --- learning ---


@pytest.mark.parametrize("name", ["ucad", "ucad:as-published", "ucad:original"])
def test_the_loss_falls_and_defects_are_found_on_one_static_task(name: str) -> None:
    method = tiny(name, epochs=20, rate=0.03)
    method.learn(PLATES)
    record = method.info()["tasks"][0]
    assert record["last_loss"] < record["first_loss"] - 0.2
    assert record["losses_not_finite"] == 0
    assert auroc(method.score(SPOTTED).image, [0, 1] * 8) > 0.9


@pytest.mark.parametrize(("name", "loss"), [("ucad", "contrast"), ("ucad:original", "exponential_contrast")])
def test_a_training_stopped_in_the_middle_of_an_epoch_ends_the_same(name: str, loss: str, tmp_path: Path) -> None:
    whole, resumed = interrupted(name, {"epochs": 3, "batch": 4}, tmp_path, losses, loss)
    np.testing.assert_array_equal(resumed.image, whole.image)
    np.testing.assert_array_equal(resumed.thresholds, whole.thresholds)


def test_two_products_are_told_apart() -> None:
    routes = taught(size=64).score(TESTS).routes
    assert routes is not None
    truth = [task.name for task in SCENARIO.tasks for _ in task.test]
    assert np.mean([one == other for one, other in zip(routes, truth, strict=True)]) > 0.9


def test_what_it_is_can_be_written_as_json() -> None:
    info = taught().info()
    json.dumps(info, allow_nan=False)
    assert "in the place of Segment-Anything" in info["regions"]
    assert "substitute for ViT-B/16" in info["description"]


def test_memories_of_other_settings_are_refused(tmp_path: Path) -> None:
    method = tiny()
    method.learn(LESSONS[0])
    method.save(tmp_path)
    with pytest.raises(InputError, match="was made with"):
        tiny(blocks=3).load(tmp_path)


# --- regions ---


class Remembering(NoCache):
    """Counts what is computed, and keeps it."""

    def __init__(self) -> None:
        self.computed: list[str] = []
        self.kept: dict[tuple[str, str], Any] = {}

    def features(self, recipe: str, photos: Sequence[Photo], compute: Callable[..., Any]) -> Any:
        missing = [photo for photo in photos if (recipe, photo.key) not in self.kept]
        self.computed += [photo.key for photo in missing]
        if missing:
            self.kept |= {(recipe, photo.key): row for photo, row in zip(missing, compute(missing), strict=True)}
        return np.stack([self.kept[recipe, photo.key] for photo in photos])


def test_regions_are_made_once_an_image_and_only_in_training() -> None:
    cached = Remembering()
    for seed in (0, 1):
        method = tiny(workbench=Workbench(seed=seed, cache=cached))
        method.learn(LESSONS[0])
        method.score(TESTS)
    assert cached.computed == [photo.key for photo in LESSONS[0].train]


def halves(size: int = 32) -> NDArray[np.uint8]:
    """Left red, right blue."""
    image = np.zeros((size, size, 3), np.uint8)
    image[:, : size // 2, 0], image[:, size // 2 :, 2] = 200, 200
    return image


def test_superpixels_do_not_cross_an_edge() -> None:
    labels = Superpixels(4, own=True)(halves()[None], (4, 4))[0]
    assert labels.shape == (4, 4)
    assert not set(labels[:, :2].ravel().tolist()) & set(labels[:, 2:].ravel().tolist())
    assert labels.min() >= 1


def test_superpixels_of_a_plain_image_are_a_regular_grid() -> None:
    labels = own_slic(np.full((16, 16, 3), 0.5), 4)
    assert np.unique(labels, return_counts=True)[1].tolist() == [64, 64, 64, 64]


def test_superpixels_are_the_same_every_time() -> None:
    image = np.random.default_rng(0).integers(0, 255, (1, 32, 32, 3), dtype=np.uint8)
    np.testing.assert_array_equal(Superpixels(5, own=True)(image, (4, 4)), Superpixels(5, own=True)(image, (4, 4)))


def test_a_cell_gets_the_label_of_most_of_its_pixels() -> None:
    labels = np.random.default_rng(0).integers(0, 4, (12, 12))
    found = most_frequent(labels, (3, 4))
    for row in range(3):
        for column in range(4):
            cell = labels[4 * row : 4 * row + 4, 3 * column : 3 * column + 3]
            assert found[row, column] == np.bincount(cell.ravel()).argmax()


def test_sam_is_taken_where_it_is_and_named_where_it_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DINOSAUR_HOME", str(tmp_path))
    options: dict[str, Any] = {"segments": 4, "device": "cpu"}
    assert isinstance(make_regions("auto", sam="", **options), Superpixels)
    with pytest.raises(EncoderError, match=r"facebook/sam-vit-base there.*regions=superpixels"):
        make_regions("sam", sam="", **options)
    with pytest.raises(EncoderError, match="no Segment-Anything model"):
        make_regions("auto", sam=str(tmp_path / "nowhere"), **options)
    (tmp_path / "regions" / "sam-vit-base").mkdir(parents=True)
    (tmp_path / "regions" / "sam-vit-base" / "config.json").write_text("{}")
    assert isinstance(make_regions("auto", sam="", **options), regions_sam.SamRegions)
    assert isinstance(make_regions("superpixels", sam="", **options), Superpixels)


class FakeSam:
    """Answers a point with the left half, the right half, or a mask that it does not trust."""

    config = SimpleNamespace(vision_config=SimpleNamespace(image_size=64))

    def get_image_embeddings(self, pixel_values: Any) -> Any:
        assert pixel_values.shape == (1, 3, 64, 64)
        return pixel_values

    def __call__(self, *, image_embeddings: Any, input_points: Any, multimask_output: bool) -> Any:
        count = input_points.shape[1]
        logits = torch.full((1, count, 3, 16, 16), -9.0)
        logits[:, :, 0, :, :8] = 9.0
        logits[:, :, 1, 4:12, 12:] = 9.0
        logits[:, :, 2] = 9.0
        trust = torch.tensor([0.95, 0.9, 0.2]).expand(1, count, 3)
        return SimpleNamespace(pred_masks=logits, iou_scores=trust)


def test_sams_masks_become_labels(tmp_path: Path) -> None:
    maker = regions_sam.SamRegions(tmp_path, "cpu", points=3)
    maker.__dict__["_model"] = FakeSam()
    # The left half is the larger of the two trusted masks, so it is 1; the untrusted one leaves bare ground.
    expected = [[1, 1, 0, 0], [1, 1, 0, 2], [1, 1, 0, 2], [1, 1, 0, 0]]
    np.testing.assert_array_equal(maker(halves(64)[None], (4, 4))[0], expected)


def test_no_mask_at_all_is_one_region_of_bare_ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions_sam, "TRUSTED", 2.0)
    maker = regions_sam.SamRegions(tmp_path, "cpu", points=3)
    maker.__dict__["_model"] = FakeSam()
    assert set(maker(halves(64)[None], (4, 4)).ravel().tolist()) == {0}


def test_boxes_and_their_repeats() -> None:
    masks = torch.zeros(3, 8, 8, dtype=torch.bool)
    masks[0, 1:5, 2:6] = masks[1, 1:5, 2:7] = masks[2, 6:, 6:] = True
    assert regions_sam.boxes(masks).tolist() == [[2, 1, 6, 5], [2, 1, 7, 5], [6, 6, 8, 8]]
    trust = torch.tensor([0.9, 0.95, 0.92])
    assert regions_sam.without_repeats(regions_sam.boxes(masks), trust, 0.7) == [1, 2]  # IoU of 0 and 1: 16 / 20
    assert regions_sam.without_repeats(regions_sam.boxes(masks), trust, 0.85) == [1, 2, 0]
