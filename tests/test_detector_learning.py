"""Learning: nothing old changes, order and chunks do not matter, updates accept what was wrongly flagged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from PIL import Image

from detector_helpers import TINY, TINY_FAST, product, spoil, tiny
from dinosaur_ad import Dinosaur
from dinosaur_ad.core.coreset import covering_radius
from dinosaur_ad.presets import Preset


def test_learning_a_new_task_changes_nothing_about_the_old_ones() -> None:
    images = [*product(0, 6, seed=3), *(spoil(image) for image in product(0, 6, seed=4))]
    detector = tiny()
    detector.learn("first", product(0, 30))
    before = detector.inspect(images)
    for kind in range(1, 5):
        detector.learn(f"later-{kind}", product(kind, 30))
    after = detector.inspect(images)
    assert [each.score for each in after] == [each.score for each in before]
    assert [each.verdict for each in after] == [each.verdict for each in before]


def test_order_of_learning_does_not_matter() -> None:
    forward, backward = tiny(), tiny()
    for kind in range(3):
        forward.learn(f"product-{kind}", product(kind, 24))
        backward.learn(f"product-{2 - kind}", product(2 - kind, 24))
    images = [spoil(product(kind, 1, seed=8)[0]) for kind in range(3)]
    assert [each.score for each in forward.inspect(images)] == [each.score for each in backward.inspect(images)]


def test_same_images_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        tiny(tmp_path / name).learn("x", product(0, 25))
    banks = [(tmp_path / name / "tasks" / "x" / "v0001" / "bank.safetensors").read_bytes() for name in ("a", "b")]
    assert banks[0] == banks[1]


def test_update_accepts_what_was_wrongly_flagged() -> None:
    detector = tiny()
    detector.learn("x", product(0, 30))
    odd = [spoil(image) for image in product(0, 3, seed=60)]
    assert all(each.anomalous for each in detector.inspect(odd))
    report = detector.update("x", odd)
    assert (report.images, report.total_images) == (3, 33)
    again = detector.inspect([spoil(image) for image in product(0, 3, seed=61)])
    assert not any(each.anomalous for each in again)
    elsewhere = [spoil(image, row=5, column=5) for image in product(0, 3, seed=62)]
    assert all(each.anomalous for each in detector.inspect(elsewhere))


def test_feeding_in_chunks_covers_as_well_as_feeding_at_once() -> None:
    """With the candidates that the preset fast keeps beside a bank; the default keeps copies instead."""
    images = product(0, 150)
    at_once, in_chunks = tiny(preset=TINY_FAST), tiny(preset=TINY_FAST)
    at_once.learn("x", images)
    in_chunks.learn("x", images[:40])
    for start in range(40, 150, 22):
        in_chunks.update("x", images[start : start + 22])
    patches, _ = at_once._features.encode(np.stack(images))
    points_LDC = patches.reshape(150, 25, -1).transpose(1, 0, 2)

    def radius(detector: Dinosaur) -> float:
        vectors = np.asarray(detector.store.arrays("x", "bank")["vectors"], np.float32)
        assert vectors.shape[2] == 30
        return float(covering_radius(points_LDC, vectors.reshape(25, 30, -1)).mean())

    assert radius(in_chunks) <= 1.05 * radius(at_once)
    one, other = (each.tasks()[0].manifest["images"] for each in (at_once, in_chunks))
    assert len(one) == len(other) == 150


def test_many_images_are_learned_in_bounded_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dinosaur_ad.bank.teaching.LEARN_AT_ONCE", 20)
    detector = tiny()
    report = detector.learn("x", iter(product(0, 50)))
    assert (report.total_images, report.members) == (50, 20)
    assert not detector.inspect(product(0, 1, seed=9)[0]).anomalous
    assert detector.inspect(spoil(product(0, 1, seed=9)[0])).anomalous


def test_few_images_and_mixed_sizes_are_fine() -> None:
    detector = tiny()
    images = product(0, 4)
    images[1] = np.asarray(Image.fromarray(images[1]).resize((140, 90)))
    assert detector.learn("x", images).members == 4 * (1 + TINY.copies)
    assert detector.inspect(spoil(product(0, 1, seed=9)[0])).anomalous


def test_worst_patch_names_the_training_file(tmp_path: Path) -> None:
    for index, image in enumerate(product(0, 5)):
        Image.fromarray(image).save(tmp_path / f"{index:02d}.png")
    detector = tiny()
    detector.learn("x", tmp_path)
    assert Path(detector.inspect(product(0, 1)[0]).worst.like_image).is_file()


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("preset", [TINY_FAST, replace(TINY, budget=None)], ids=["fast", "default without a budget"])
def test_bank_precision(tmp_path: Path, precision: Literal["float32", "float16"], preset: Preset) -> None:
    detector = tiny(tmp_path / "store", preset=replace(preset, precision=precision))
    detector.learn("x", product(0, 20))
    bank = detector.store.arrays("x", "bank")
    assert {bank[name].dtype.name for name in bank if name.endswith("vectors")} == {precision}
