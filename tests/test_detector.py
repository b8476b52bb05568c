"""Inspecting: tasks are told apart, defects found and shown, thresholds set by normals; the paper to the letter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from detector_helpers import TINY, TINY_FAST, TINY_PAPER, product, spoil, taught_three_products, tiny
from dinosaur_ad import Dinosaur
from dinosaur_ad.encoders import load_encoder
from dinosaur_ad.presets import Preset


@pytest.fixture(scope="module")
def taught() -> Dinosaur:
    return taught_three_products()


def test_products_are_told_apart_and_defects_found_without_naming_the_task(taught: Dinosaur) -> None:
    for kind in range(3):
        normal = taught.inspect(product(kind, 8, seed=99))
        spoiled = taught.inspect([spoil(image) for image in product(kind, 8, seed=99)])
        assert {each.task for each in normal + spoiled} == {f"product-{kind}"}
        assert min(each.score for each in spoiled) > max(each.score for each in normal)
        assert all(each.anomalous for each in spoiled)


def test_the_paper_preset_is_the_paper_to_the_letter() -> None:
    """Eq. 4-9 written out with loops: final-norm tokens as they come, k-centre, window, maximum, nearest prototype."""
    encoder = load_encoder("tiny-dinov2", layers=("final",), size=70)
    detector = Dinosaur(encoder=encoder, preset=replace(TINY_PAPER, minimum=6))
    train = [product(kind, 40) for kind in range(2)]
    test = [*product(0, 3, seed=5), *(spoil(image) for image in product(1, 3, seed=6))]
    for kind in range(2):
        detector.learn(f"product-{kind}", train[kind])
    results = detector.inspect(test)

    train_tokens, test_tokens = [encoder.encode(images) for images in train], encoder.encode(test)
    banks, thresholds = [], []
    for tokens in train_tokens:
        firsts = np.random.default_rng(0).integers(0, 40, size=25)
        banks.append({divmod(k, 5): literal_coreset(tokens.patches[:, k // 5, k % 5], 6, firsts[k]) for k in range(25)})
        in_sample = [literal_map(patches, banks[-1], radius=3).max() for patches in tokens.patches]
        thresholds.append(np.quantile(in_sample, 0.975))
    for n, result in enumerate(results):
        away = [np.linalg.norm(test_tokens.cls[n] - tokens.cls.mean(axis=0)) for tokens in train_tokens]
        routed = int(np.argmin(away))
        distances = literal_map(test_tokens.patches[n], banks[routed], radius=3)
        assert result.task == f"product-{routed}"
        np.testing.assert_allclose(result.map, distances, rtol=1e-3, atol=1e-3)
        assert result.score == pytest.approx(distances.max(), rel=1e-4)
        assert result.threshold == pytest.approx(thresholds[routed], rel=1e-3)
        assert result.anomalous == (distances.max() > thresholds[routed])


def literal_coreset(points: np.ndarray, size: int, first: int) -> np.ndarray:
    chosen = [int(first)]
    while len(chosen) < size:
        nearest = [min(np.linalg.norm(point - points[k]) for k in chosen) for point in points]
        chosen.append(int(np.argmax(nearest)))
    return points[chosen]


def literal_map(patches: np.ndarray, bank: dict[tuple[int, int], np.ndarray], radius: int) -> np.ndarray:
    result = np.empty(patches.shape[:2])
    for i, j in np.ndindex(result.shape):
        near = [members for (a, b), members in bank.items() if abs(a - i) <= radius and abs(b - j) <= radius]
        result[i, j] = min(np.linalg.norm(member - patches[i, j]) for members in near for member in members)
    return result


@pytest.mark.parametrize("preset", [TINY, TINY_FAST], ids=["default", "fast"])
def test_an_inspection_says_where_and_compared_with_what(taught: Dinosaur, preset: Preset) -> None:
    detector = taught if preset is TINY else taught_three_products(preset)
    image = spoil(product(1, 1, seed=5)[0], row=30, column=40)
    result = detector.inspect(image)
    left, top, right, bottom = result.worst.box
    # Windows reach a patch, of 14 pixels, beyond what is wrong.
    beyond = 14 if "coarse" in preset.readings else 0
    assert left < 52 + beyond
    assert right > 40 - beyond
    assert top < 42 + beyond
    assert bottom > 30 - beyond
    assert (result.worst.row, result.worst.column) == divmod(int(np.argmax(result.map)), 5)
    assert result.worst.like_image.startswith("image-")
    assert abs(result.worst.like_row - result.worst.row) <= TINY.radius
    assert result.map.shape == (5, 5)
    assert result.normal_level < result.threshold < result.score
    assert result.p_value <= 1 / 30
    assert set(result.ms) == {"decode", "resize", "encode", "route", "score", "total"}
    assert result.encoder == "tiny-dinov2"


def test_with_one_reading_the_map_holds_patch_distances() -> None:
    detector = taught_three_products(TINY_FAST)
    result = detector.inspect(spoil(product(1, 1, seed=5)[0], row=30, column=40))
    assert result.worst.distance == pytest.approx(float(result.map.max()), rel=1e-3)
    assert result.readings == {"point": result.score}
    assert result.gain is None


def test_batch_and_single_inspection_agree(taught: Dinosaur) -> None:
    images = [product(kind, 1, seed=20 + kind)[0] for kind in range(3)] * 7
    together = taught.inspect(images)
    alone = [taught.inspect(image) for image in images]
    assert [each.task for each in together] == [each.task for each in alone]
    np.testing.assert_allclose([e.score for e in together], [e.score for e in alone], rtol=2e-5)


def test_naming_the_task_skips_the_routing(taught: Dinosaur) -> None:
    result = taught.inspect(product(0, 1)[0], task="product-2")
    assert result.task == "product-2"
    assert list(result.asked) == ["product-2"]
    assert result.verdict == "unknown"
    assert result.score > result.threshold


def test_the_shortlist_decides_by_the_banks() -> None:
    """Close prototypes are no reason to guess: the bank that knows the image must win."""
    detector = tiny(preset=replace(TINY, margin=float("inf")))
    for kind in range(3):
        detector.learn(f"product-{kind}", product(kind, 24))
    result = detector.inspect(product(2, 1, seed=77)[0])
    assert set(result.asked) == {"product-0", "product-1", "product-2"}
    assert result.task == min(result.asked, key=result.asked.__getitem__) == "product-2"


def test_a_lower_false_alarm_rate_means_a_higher_threshold(taught: Dinosaur) -> None:
    image = product(0, 1)[0]
    strict, usual, loose = (taught.inspect(image, false_alarms=rate).threshold for rate in (0.001, 0.025, 0.3))
    assert strict > usual > loose


# Which copies a memory keeps is chance, so that the rate of one task of the default differs more from what was asked.
@pytest.mark.parametrize(("preset", "kinds"), [(TINY_FAST, 1), (TINY, 4)], ids=["fast", "default"])
def test_unseen_normals_stay_below_the_threshold_at_about_the_rate_asked_for(preset: Preset, kinds: int) -> None:
    flagged: list[bool] = []
    for kind in range(kinds):
        detector = tiny(preset=preset)
        detector.learn("x", product(kind, 120))
        images = product(kind, 200, seed=50)
        flagged += [each.verdict != "normal" for each in detector.inspect(images, false_alarms=0.1)]
    assert np.mean(flagged) <= 0.2


@pytest.mark.parametrize("preset", [TINY, TINY_FAST], ids=["default", "fast"])
def test_held_out_normals_set_the_threshold_and_nothing_else(preset: Preset) -> None:
    images = product(0, 30)
    usual, apart = tiny(preset=preset), tiny(preset=preset)
    usual.learn("x", images)
    noisy = [
        np.clip(image + np.random.default_rng(k).normal(0, 25, image.shape), 0, 255) for k, image in enumerate(images)
    ]
    report = apart.learn("x", images, held_out=[image.astype(np.uint8) for image in noisy])
    assert report.images == 30
    members = "vectors" if preset is TINY_FAST else "codes"
    np.testing.assert_array_equal(*(each.store.arrays("x", "bank")[members] for each in (usual, apart)))
    np.testing.assert_array_equal(*(each.inspect(images[0]).score for each in (usual, apart)))
    assert apart.threshold("x") > usual.threshold("x")
    assert apart.tasks()[0].manifest["calibration"] == {"kind": "held-out", "scores": 30, "cautious": True}
    assert apart.learn("one", images[:1], held_out=images[1:9]).members == 1 + preset.copies
