"""PatchCore: the memory and its distances against their literal definitions, its arithmetic against the paper's."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dinosaur_ad.core.coreset import coreset_size, greedy_coreset
from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.datasets import mvtec_scenario
from dinosaur_ad.datasets.synthetic import synthetic_scenario
from dinosaur_ad.datasets.tasks import Sample
from dinosaur_ad.encoders import prepare
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Lesson, NoCache, Photo, Workbench, get_method
from dinosaur_ad.methods.patchcore import PatchCore, PatchCoreConfig

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
pytest.importorskip("transformers", reason="transformers is not installed (it comes with the extra 'bench')")

from dinosaur_ad.methods.shared.flat_memory import build_memory  # noqa: E402

# Training images of MVTec-AD's fifteen categories, in the order they are learned.
MVTEC_TRAIN = (209, 224, 219, 280, 264, 391, 245, 220, 267, 320, 230, 60, 213, 247, 240)
PATCHES = 28 * 28
SCENARIO = synthetic_scenario(train=8, test_normal=4, test_per_kind=1, size=64, products=["fabric", "gear"])


class Counting(NoCache):
    """Notes which photos are asked for."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def prepared(self, photos: Sequence[Photo], size: int) -> NDArray[np.uint8]:
        self.keys += [photo.key for photo in photos]
        return super().prepared(photos, size)


def photos_of(samples: Sequence[Sample]) -> tuple[Photo, ...]:
    """Each image is drawn or read once, however often a test asks for it."""
    return tuple(Photo(sample.name, cache(sample.image)) for sample in samples)


def tiny(workbench: Workbench | None = None, **settings: Any) -> PatchCore:
    choice = get_method("patchcore")
    method = choice.with_settings({**choice.spec.tiny, **settings}).build(workbench or Workbench())
    assert isinstance(method, PatchCore)
    return method


@pytest.fixture(scope="module")
def lessons() -> list[Lesson]:
    """Two synthetic products of eight images; the second lesson may replay the first."""
    photos = [photos_of(task.train) for task in SCENARIO.tasks]
    return [Lesson("fabric", photos[0]), Lesson("gear", photos[1], earlier=(photos[0],))]


@pytest.fixture(scope="module")
def tests() -> list[Photo]:
    return [photo for task in SCENARIO.tasks for photo in photos_of(task.test)]


def taught(lessons: Sequence[Lesson], **options: Any) -> PatchCore:
    method = tiny(**options)
    for lesson in lessons:
        method.learn(lesson)
    return method


# --- the flat memory ---


def literal(point: NDArray[np.float64], bank: NDArray[np.float64], neighbours: int) -> tuple[float, float]:
    """Eq. 6 and 7 of PatchCore, one patch at a time, in double precision."""
    distances = [float(np.linalg.norm(point - m)) for m in bank]
    star = int(np.argmin(distances))
    around = sorted(range(len(bank)), key=lambda m: float(np.linalg.norm(bank[m] - bank[star])))[:neighbours]
    weight = 1 - math.exp(distances[star]) / sum(math.exp(distances[m]) for m in around)
    return distances[star], weight * distances[star]


@pytest.mark.parametrize("block_bytes", [4, 600, 2**20])
def test_distances_equal_the_literal_definition(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dinosaur_ad.methods.shared.flat_memory.BLOCK_BYTES", block_bytes)
    generator = np.random.default_rng(0)
    bank, points = generator.normal(size=(25, 6)), generator.normal(size=(40, 6))
    memory = build_memory(torch.from_numpy(bank).float(), 3)
    found = memory.distances(torch.from_numpy(points).float())
    expected = np.asarray([literal(point, bank, 3) for point in points]).T
    np.testing.assert_allclose(found[0].numpy(), expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1].numpy(), expected[1], rtol=1e-4)


def test_distances_beyond_the_range_of_exp_stay_finite_and_right() -> None:
    bank = torch.tensor([[0.0], [1.0], [5.0]])
    _, reweighted = build_memory(bank, 3).distances(torch.tensor([[-500.0]]))
    # The neighbours are 1 and 5 farther away, whatever the distance: the weight is 1 - 1 / (1 + e + e^5).
    assert reweighted.item() == pytest.approx(500 * (1 - 1 / (1 + math.e + math.e**5)), rel=1e-6)


def test_a_remembered_vector_is_at_distance_zero_even_far_from_the_origin() -> None:
    bank = 1000 + torch.randn(30, 8, generator=torch.Generator().manual_seed(0))
    raw, reweighted = build_memory(bank, 3).distances(bank)
    assert raw.abs().max() == 0
    assert reweighted.abs().max() == 0


def test_every_vector_is_its_own_first_neighbour_among_duplicates() -> None:
    bank = torch.tensor([[1.0], [1.0], [1.0], [9.0]])
    assert build_memory(bank, 2).neighbours_MB[:, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("vectors", [1, 2])
def test_a_memory_smaller_than_the_neighbourhood_works(vectors: int) -> None:
    bank = np.random.default_rng(0).normal(size=(vectors, 4))
    memory = build_memory(torch.from_numpy(bank).float(), 3)
    raw, reweighted = memory.distances(torch.ones(1, 4))
    expected = literal(np.ones(4), bank, 3) if vectors > 1 else (raw.item(), raw.item())
    assert (raw.item(), reweighted.item()) == pytest.approx(expected, rel=1e-5)


# --- the authors' features and score ---


def test_pooled_features_are_the_means_of_equal_shares_of_the_squares(lessons: list[Lesson]) -> None:
    """As in the authors' code: 3x3 squares, channel after channel, to ``dim`` numbers a map, and again for all maps."""
    method = tiny(compress="pool", dim=8)
    photo = lessons[0].train[0]
    pixels = prepare([photo.pixels()], 64)
    maps = method._features.maps(pixels)
    side, expected = maps[0].shape[-1], []
    for each in maps:
        padded = torch.nn.functional.pad(each[0], (1, 1, 1, 1)).double()
        height, width = each.shape[-2:]
        grid = torch.zeros(8, height, width, dtype=torch.float64)
        for y, x in itertools.product(range(height), range(width)):
            values = padded[:, y : y + 3, x : x + 3].flatten()
            bounds = [(math.floor(n * len(values) / 8), math.ceil((n + 1) * len(values) / 8)) for n in range(8)]
            grid[:, y, x] = torch.stack([values[low:high].mean() for low, high in bounds])
        expected.append(torch.nn.functional.interpolate(grid[None], size=(side, side), mode="bilinear")[0])
    both = torch.cat(expected).flatten(1).T
    literal_PC = both.reshape(-1, 8, 2).mean(2)
    torch.testing.assert_close(method._features(pixels).double(), literal_PC, rtol=1e-4, atol=1e-4)


def test_the_authors_form_learns_scores_and_comes_back_without_a_projection(
    lessons: list[Lesson], tests: list[Photo], tmp_path: Path
) -> None:
    settings = {"compress": "pool", "coreset_dim": 4, "reweight": False, "neighbours": 1, "replay": 0}
    method = taught(lessons, **settings)
    assert method.parameters().trainable == 0
    method.save(tmp_path)
    again = tiny(**settings)
    again.load(tmp_path)
    np.testing.assert_array_equal(again.score(tests).image, method.score(tests).image)
    scores = method.score(tests)
    assert scores.maps is not None
    np.testing.assert_array_equal(scores.image, scores.maps.max(axis=(1, 2)))  # the largest patch, not re-weighted


def test_a_coreset_chosen_in_a_projection_keeps_whole_features(lessons: list[Lesson]) -> None:
    method = taught(lessons[:1], coreset_dim=4)
    assert method._memory is not None
    features = method._patches(lessons[0].train)
    apart = torch.cdist(method._memory.bank_MC, features).min(dim=1).values
    assert method._memory.bank_MC.shape[1] == features.shape[1]
    assert apart.max() < 1e-2


def test_an_images_score_may_be_the_mean_of_its_largest_patches(lessons: list[Lesson], tests: list[Photo]) -> None:
    scores = taught(lessons, image_share=0.25).score(tests)
    assert scores.maps is not None
    flat = np.sort(scores.maps.reshape(len(tests), -1), axis=1)
    np.testing.assert_allclose(scores.image, flat[:, -round(0.25 * flat.shape[1]) :].mean(axis=1), rtol=1e-5)
    with pytest.raises(InputError, match="image_share must be from 0 to 1"):
        PatchCoreConfig(image_share=1.5)


# --- what is kept ---


def slow_coreset(points: NDArray[np.float64], first: int, size: int) -> list[int]:
    picks = [first]
    while len(picks) < size:
        distances = np.linalg.norm(points[:, None] - points[picks], axis=2).min(1)
        distances[picks] = -1
        picks.append(int(distances.argmax()))
    return picks


def test_the_memory_is_the_greedy_coreset_of_old_and_new(lessons: list[Lesson]) -> None:
    method = tiny(replay=3)
    photos = [lesson.rehearse(3) for lesson in lessons]
    old = torch.empty(0, 16)
    for number, lesson in enumerate(lessons):
        points = torch.cat([old, method._patches(photos[number])]).double().numpy()
        method.learn(lesson)
        first = int(np.random.default_rng([0, number]).integers(len(points)))
        picks = slow_coreset(points, first, coreset_size(len(points), 0.05, 50))
        assert method._memory is not None
        old = method._memory.bank_MC
        np.testing.assert_allclose(old.numpy(), points[picks], atol=1e-5)


def test_a_single_huge_set_is_picked_as_defined_whatever_the_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(1).normal(size=(300, 12))
    expected = slow_coreset(points, 7, 40)
    for slice_bytes in (1, 4000, 2**28):
        monkeypatch.setattr("dinosaur_ad.core.coreset.GRAM_BYTES", slice_bytes)
        assert greedy_coreset(torch.from_numpy(points)[None], 40, first=7)[0].tolist() == expected


def test_replay_brings_the_drawn_images_of_earlier_tasks_and_no_others(lessons: list[Lesson]) -> None:
    counting = Counting()
    method = tiny(Workbench(seed=5, cache=counting), replay=3)
    method.learn(lessons[0])
    assert counting.keys == [photo.key for photo in lessons[0].train]
    counting.keys.clear()
    method.learn(lessons[1])
    replayed = set(counting.keys) - {photo.key for photo in lessons[1].train}
    assert len(counting.keys) == 8 + 3
    assert len(replayed) == 3
    assert replayed <= {photo.key for photo in lessons[0].train}


def test_the_memory_never_falls_below_its_minimum_nor_above_what_there_is(lessons: list[Lesson]) -> None:
    method = tiny(minimum=100, ratio=0.01)
    for lesson in lessons:
        method.learn(lesson)
        assert method.storage_bytes() == 100 * 16 * 4
    few = tiny(minimum=10_000)
    few.learn(Lesson("two", lessons[0].train[:2]))
    assert few.storage_bytes() == 2 * 8 * 8 * 16 * 4  # two images of 8 x 8 places: all there is
    scores = few.score(lessons[0].train[:2])
    np.testing.assert_allclose(scores.image, 0, atol=1e-4)  # they are the memory


@pytest.mark.parametrize(("variant", "vectors", "mebibytes"), [("default", 65_814, 8.57), ("replay50", 38_688, 5.04)])
def test_fifteen_tasks_of_mvtec_leave_the_storage_of_the_paper(variant: str, vectors: int, mebibytes: float) -> None:
    config = get_method(f"patchcore:{variant}").config
    assert isinstance(config, PatchCoreConfig)
    tasks = [tuple(Photo(f"{task}-{n}", bytes) for n in range(count)) for task, count in enumerate(MVTEC_TRAIN)]  # type: ignore[arg-type]
    kept = 0
    for number, train in enumerate(tasks):
        photos = Lesson(str(number), train, earlier=tuple(tasks[:number])).rehearse(
            config.replay, per=config.replay_per
        )
        kept = coreset_size(kept + PATCHES * len(photos), config.ratio, config.minimum)
    assert kept == vectors
    assert kept * config.dim * 4 / 15 / 2**20 == pytest.approx(mebibytes, abs=0.005)


# --- the method ---


def test_image_scores_are_those_of_the_patch_of_largest_plain_distance(
    lessons: list[Lesson], tests: list[Photo]
) -> None:
    plain, reweighted = taught(lessons, reweight=False).score(tests), taught(lessons).score(tests)
    assert plain.maps is not None
    assert reweighted.maps is not None
    assert plain.maps.shape == (len(tests), 8, 8)
    places = plain.maps.reshape(len(tests), -1).argmax(1)
    rows = np.arange(len(tests))
    np.testing.assert_array_equal(plain.image, plain.maps.reshape(len(tests), -1)[rows, places])
    np.testing.assert_array_equal(reweighted.image, reweighted.maps.reshape(len(tests), -1)[rows, places])
    assert np.all(reweighted.maps <= plain.maps)
    assert np.any(reweighted.maps < plain.maps)


def test_the_threshold_is_a_percentile_of_all_that_was_rehearsed(lessons: list[Lesson], tests: list[Photo]) -> None:
    method = taught(lessons, replay=3)
    own = method.score(lessons[1].rehearse(3)).image
    thresholds = method.score(tests).thresholds
    assert thresholds is not None
    np.testing.assert_allclose(thresholds, np.quantile(own, 0.975), rtol=1e-5)


def test_the_seed_decides_everything(lessons: list[Lesson], tests: list[Photo]) -> None:
    first, again, other = (taught(lessons, workbench=Workbench(seed=seed)).score(tests) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.image, again.image)
    np.testing.assert_array_equal(first.maps, again.maps)
    assert not np.array_equal(first.image, other.image)


def test_a_saved_method_scores_and_goes_on_learning_the_same_to_the_bit(
    lessons: list[Lesson], tests: list[Photo], tmp_path: Path
) -> None:
    method = taught(lessons[:1])
    method.save(tmp_path)
    loaded = tiny()
    loaded.load(tmp_path)
    for step in range(2):
        ours, theirs = method.score(tests), loaded.score(tests)
        np.testing.assert_array_equal(ours.image, theirs.image, err_msg=f"step {step}")
        np.testing.assert_array_equal(ours.maps, theirs.maps)
        np.testing.assert_array_equal(ours.thresholds, theirs.thresholds)
        method.learn(lessons[1])
        loaded.learn(lessons[1])
    assert {path.name for path in tmp_path.iterdir()} == {"patchcore.safetensors", "patchcore.json"}


def test_a_memory_of_other_features_or_a_damaged_one_is_refused(lessons: list[Lesson], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no readable PatchCore"):
        tiny().load(tmp_path)
    taught(lessons[:1]).save(tmp_path)
    with pytest.raises(InputError, match=r"made with .*'size': 64.* not with .*'size': 80"):
        tiny(size=80).load(tmp_path)
    (tmp_path / "patchcore.json").write_text("{}")
    with pytest.raises(InputError, match="no readable PatchCore"):
        tiny().load(tmp_path)


def test_a_token_encoder_serves_on_its_own_grid(lessons: list[Lesson], tests: list[Photo]) -> None:
    method = taught(lessons, backbone="tiny-dinov2", layers=(0, 1), size=70)
    scores = method.score(tests)
    assert scores.maps is not None
    assert scores.maps.shape == (len(tests), 5, 5)
    assert np.isfinite(scores.image).all()
    assert method.info()["encoder"] == "tiny-dinov2"
    assert method.parameters().trainable == 16 * (2 * 16 + 1)


@pytest.mark.parametrize("side", [1, 3, 5])
def test_features_are_averaged_over_a_square_with_zeros_around_the_image(lessons: list[Lesson], side: int) -> None:
    tokens = {"backbone": "tiny-dinov2", "layers": (0, 1), "size": 70}
    pixels = prepare([photo.pixels() for photo in lessons[0].train[:2]], 70)
    features = tiny(average=side, **tokens)._features
    plain_NHWC = torch.cat(list(features.maps(pixels)), dim=1).permute(0, 2, 3, 1)
    expected = torch.zeros_like(plain_NHWC)
    half = side // 2
    for row, column in itertools.product(range(5), range(5)):
        square = plain_NHWC[:, max(0, row - half) : row + half + 1, max(0, column - half) : column + half + 1]
        expected[:, row, column] = square.sum((1, 2)) / side**2
    weight, bias = features.projection
    np.testing.assert_allclose(features(pixels), (expected.flatten(0, 2) @ weight.T + bias).numpy(), atol=1e-5)


def test_before_the_first_task_it_says_so(lessons: list[Lesson], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no task yet"):
        tiny().score(lessons[0].train)
    with pytest.raises(InputError, match="nothing to save"):
        tiny().save(tmp_path)
    with pytest.raises(InputError, match="'empty' has no training images"):
        tiny().learn(Lesson("empty", ()))
    with pytest.raises(InputError, match="does not route"):
        taught(lessons[:1]).score(lessons[0].train, task="fabric")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"ratio": 0.0}, "ratio must be above 0"),
        ({"neighbours": 0}, "neighbours must be at least 1"),
        ({"average": 2}, "average must be an odd number of places, got 2"),
    ],
)
def test_settings_that_make_no_memory_are_refused(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        tiny(**setting)


def test_parameters_are_those_of_the_papers_tables() -> None:
    def of(name: str) -> tuple[int, int]:
        return dataclasses.astuple(get_method(name).build(Workbench()).parameters())

    assert of("patchcore") == (9_330_240, 786_944)
    assert of("patchcore:resnet50-v1") == (9_330_240, 786_944)
    assert of("patchcore:resnet18") == (2_782_784 + 197_120, 197_120)


def test_info_is_honest_and_can_be_written_as_json(lessons: list[Lesson]) -> None:
    info = json.loads(json.dumps(taught(lessons[:1]).info()))
    assert info["memory_vectors"] == 50
    assert info["optimised"].startswith("nothing")
    assert "not counted" in info["storage"]
    assert "it has learned nothing" in info["description"]


def test_the_projection_is_drawn_as_linear_layers_are() -> None:
    weight, bias = tiny(dim=200)._features.projection
    bound = (16 + 32) ** -0.5
    for values in (weight, bias):
        assert values.abs().max() <= bound
        assert values.abs().max() > 0.95 * bound
        assert abs(values.mean()) < 0.1 * bound


# --- real images ---


def folder(variable: str) -> Path:
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set: this test needs the real images or weights that it points to")
    return Path(os.environ[variable])


def test_real_weights_tell_broken_bottles_from_whole_ones() -> None:
    weights = folder("DINOSAUR_WEIGHTS") / "resnet50_imagenet_stage3_fp16.safetensors"
    tasks = mvtec_scenario(folder("DINOSAUR_DATA") / "mvtec_ad").tasks
    bottle = next(task for task in tasks if task.name == "bottle")
    settings = {"weights": str(weights), "ratio": 0.01, "minimum": 1}
    method = get_method("patchcore:resnet50-v1").with_settings(settings).build(Workbench())
    method.learn(Lesson("bottle", photos_of(bottle.train[:16])))
    tested = [sample for sample in bottle.test if sample.label == 0][:8]
    tested += [sample for sample in bottle.test if sample.label == 1][::8]
    scores = method.score(photos_of(tested))
    assert scores.maps is not None
    assert scores.maps.shape == (len(tested), 28, 28)
    assert auroc(scores.image, [sample.label for sample in tested]) > 0.95
