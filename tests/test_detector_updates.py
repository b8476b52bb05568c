"""Updating: after any sequence of updates the threshold is about what learning all images at once gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from detector_helpers import product, shared_folder, tiny
from dinosaur_ad import Dinosaur
from dinosaur_ad.core.memory import Coreset, distances_to_others
from dinosaur_ad.encoders import Tokens
from dinosaur_ad.encoders.base import Reduce


def test_distances_to_others_are_the_definition() -> None:
    rng = np.random.default_rng(0)
    vectors, source = rng.normal(size=(3, 4, 5, 6)), np.argsort(rng.random((3, 4, 9)), axis=2)[:, :, :5]
    memory = Coreset(vectors, source)
    found = distances_to_others(memory, memory.first(3), radius=1, images=9)
    expected = np.zeros((9, 3, 4))
    for i, j, k in np.ndindex(3, 4, 5):
        others = [
            np.linalg.norm(vectors[i, j, k] - vectors[a, b, m])
            for a in range(max(0, i - 1), min(3, i + 2))
            for b in range(max(0, j - 1), min(4, j + 2))
            for m in range(3)
            if source[a, b, m] != source[i, j, k]
        ]
        expected[source[i, j, k], i, j] = min(others)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_images_that_are_known_are_not_taught_again(tmp_path: Path) -> None:
    detector = tiny(tmp_path)
    images = product(0, 20)
    learned = detector.learn("x", [*images, images[3]])
    assert (learned.images, learned.duplicates) == (20, ("image-000020",))
    version, threshold = detector.store.record("x").id, detector.threshold("x")
    again = detector.update("x", images[:5])
    assert (again.images, len(again.duplicates), again.total_images) == (0, 5, 20)
    assert detector.store.record("x").id == version
    mixed = detector.update("x", [images[0], *product(0, 2, seed=8)])
    assert (mixed.images, len(mixed.duplicates)) == (2, 1)
    detector.update("x", product(0, 2, seed=8))
    assert detector.threshold("x") == pytest.approx(threshold, rel=0.2)


def test_a_held_out_image_that_was_learned_too_does_not_count(tmp_path: Path) -> None:
    detector = tiny(tmp_path)
    images = product(0, 20)
    learned = detector.learn("x", images, held_out=[*images[:10], *product(0, 12, seed=5)])
    assert len(learned.duplicates) == 10
    assert detector.tasks()[0].manifest["calibration"] == {"kind": "held-out", "scores": 12, "cautious": True}


@pytest.mark.parametrize("options", [{}, {"bank_precision": "int8"}, {"budget": "40kB"}])
def test_in_parts_as_at_once(options: dict[str, str]) -> None:
    images = product(0, 120)

    def taught(parts: int) -> Dinosaur:
        detector = tiny(**options)
        first, *rest = (list(part) for part in np.array_split(np.asarray(images), parts))
        detector.learn("x", first)
        for part in rest:
            detector.update("x", part)
        return detector

    at_once = taught(1).threshold("x")
    for parts in (3, 10):
        assert taught(parts).threshold("x") == pytest.approx(at_once, rel=0.12)


def encoding_each_image_once(detector: Dinosaur, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same images are taught three times over; the encoder is what takes the time."""
    encode, known = detector.encoder.encode_prepared, dict[bytes, Tokens]()

    def remembered(pixels: NDArray[np.uint8], reduce: Reduce) -> Tokens:
        for image in pixels:
            if image.tobytes() not in known:
                known[image.tobytes()] = encode(image[None], reduce)
        tokens = [known[image.tobytes()] for image in pixels]
        return Tokens(np.concatenate([t.cls for t in tokens]), np.concatenate([t.patches for t in tokens]))

    monkeypatch.setattr(detector.encoder, "encode_prepared", remembered)


@pytest.mark.slow
def test_real_images_in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept as they were taken, the scores of earlier parts made the threshold up to a quarter too high."""
    category = "screw"
    files = sorted((shared_folder("DINOSAUR_DATA") / "mvtec_ad" / category / "train" / "good").iterdir())[:80]
    order = np.random.default_rng(1).permutation(len(files))
    files = [files[n] for n in order]
    detector = Dinosaur(preset="fast")
    encoding_each_image_once(detector, monkeypatch)
    thresholds = {}
    for parts in (1, 3, 10):
        first, *rest = np.array_split(np.arange(len(files)), parts)
        name = f"{category}-{parts}"
        detector.learn(name, [files[n] for n in first])
        for part in rest:
            detector.update(name, [files[n] for n in part])
        thresholds[parts] = detector.threshold(name)
    detector.update(f"{category}-10", files[:12])
    detector.update(f"{category}-10", files[:12])
    assert detector.threshold(f"{category}-10") == thresholds[10]
    assert thresholds[3] == pytest.approx(thresholds[1], rel=0.04)
    assert thresholds[10] == pytest.approx(thresholds[1], rel=0.04)
