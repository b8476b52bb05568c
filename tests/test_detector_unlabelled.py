"""Learning from pictures that nobody has looked at: a few defects among them neither raise nor lower the threshold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from detector_helpers import TINY, TINY_FAST, product, spoil, tiny
from dinosaur_ad import Dinosaur
from dinosaur_ad.bank.bank_files import KEPT_OUT
from dinosaur_ad.presets import Preset

Pixels = NDArray[np.uint8]
PLACES = ((3, 5), (20, 50), (40, 12), (56, 33))


def written(folder: Path, images: list[Pixels]) -> list[Path]:
    folder.mkdir(parents=True)
    paths = [folder / f"{n:04d}.png" for n in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths


def scores_of(detector: Dinosaur, name: str) -> NDArray[np.float32]:
    return np.asarray(detector.store.arrays(detector.store.record(name), "bank")["scores"])


@pytest.mark.parametrize("preset", [TINY, TINY_FAST])
def test_defects_among_the_pictures_hardly_raise_the_threshold(preset: Preset) -> None:
    images = product(0, 40)
    detector = tiny(preset=preset)
    clean = detector.learn("clean", images).threshold
    mixed = [*images[:36], *(spoil(image, *place) for image, place in zip(images[36:], PLACES, strict=True))]
    detector.learn("by a person", mixed)
    detector.learn("by nobody", mixed, doubtful=[])
    raised = detector.threshold("by a person") - clean
    assert raised > 0.1 * clean
    assert abs(detector.threshold("by nobody") - clean) < 0.5 * raised


def test_an_odd_picture_is_sooner_a_suspect_where_nobody_has_looked(tmp_path: Path) -> None:
    images = product(0, 30)
    images[11] = (0.94 * images[11].astype(np.float32) + 0.06 * spoil(images[11])).astype(np.uint8)
    paths = written(tmp_path / "pictures", images)
    detector = tiny(preset=TINY_FAST)
    assert detector.learn("by a person", paths).suspects == ()
    assert [Path(each.path).stem for each in detector.learn("by nobody", paths, doubtful=[]).suspects] == ["0011"]


def test_a_doubtful_picture_counts_for_the_threshold_and_is_not_learned(tmp_path: Path) -> None:
    paths = written(tmp_path / "pictures", product(0, 46))
    detector = tiny(preset=TINY_FAST)
    detector.learn("x", paths[:20], doubtful=paths[20:25])
    assert len(detector.store.record("x").manifest["images"]) == 20
    assert len(scores_of(detector, "x")) == 25
    detector.update("x", paths[30:40], doubtful=[*paths[40:46], paths[0]])  # one of them was learned before
    assert len(detector.store.record("x").manifest["images"]) == 30
    assert len(scores_of(detector, "x")) == 41


@pytest.mark.parametrize("preset", [TINY, TINY_FAST])
def test_after_many_updates_the_scores_of_earlier_pictures_are_those_of_new_ones(preset: Preset) -> None:
    images = product(0, 230, seed=4)
    detector = tiny(preset=preset)
    detector.learn("x", images[:20], doubtful=[])
    for start in range(20, 130, 10):
        detector.update("x", images[start : start + 10], doubtful=[])
    known = scores_of(detector, "x")
    fresh = [each.score for each in detector.inspect(images[130:], task="x")]
    assert len(known) == 100  # the newest
    assert float(np.median(known)) == pytest.approx(float(np.median(fresh)), rel=0.08)


def test_what_a_person_taught_says_nothing_of_it() -> None:
    detector = tiny(preset=TINY_FAST)
    detector.learn("x", product(0, 20))
    detector.update("x", product(0, 10, seed=3))
    calibration = detector.store.record("x").manifest["calibration"]
    assert calibration["scores"] == 30
    assert "unlabelled" not in calibration


@pytest.mark.parametrize("preset", [TINY, TINY_FAST])
def test_pictures_that_are_kept_out_are_scored_anew_with_each_memory(preset: Preset, tmp_path: Path) -> None:
    """What earlier pictures score after an update can only be guessed, because they are gone; these are not."""
    images = product(0, 130, seed=4)
    paths = written(tmp_path / "pictures", images)
    detector = tiny(preset=preset)
    detector.learn("x", paths[:20], doubtful=[])
    detector.update("x", paths[20:30], doubtful=[], kept_out=paths[30:35])
    detector.update("x", paths[40:70], doubtful=[], kept_out=paths[30:40])
    record = detector.store.record("x")
    assert len(record.manifest["images"]) == 60
    scored = np.asarray(detector.store.arrays(record, "bank")["scored"])
    assert np.count_nonzero(scored == KEPT_OUT) == 10
    assert len(scored) == 70
    again = [each.score for each in detector.inspect(images[30:40], task="x")]
    stored = scores_of(detector, "x")[scored == KEPT_OUT]
    trusted = np.argsort(stored)[:5]  # the highest may be lowered
    np.testing.assert_allclose(stored[trusted], np.asarray(again)[trusted], rtol=1e-3)


def test_the_threshold_is_taken_anew_from_pictures_that_were_kept_out(tmp_path: Path) -> None:
    images = product(0, 110, seed=4)
    later = [
        np.clip(each + np.random.default_rng(n).normal(0, 5, each.shape), 0, 255).astype(np.uint8)
        for n, each in enumerate(images[50:])
    ]
    paths = written(tmp_path / "pictures", [*images[:50], *later])
    detector = tiny(preset=TINY_FAST)
    detector.learn("x", paths[:30], doubtful=[])
    before = detector.threshold("x")
    members = detector.store.record("x").manifest["members"]
    detector.recalibrate("x", paths[50:110], doubtful=True, force=True)
    record = detector.store.record("x")
    assert detector.threshold("x") > before
    assert record.manifest["members"] == members
    assert len(record.manifest["images"]) == 30
    assert record.manifest["calibration"]["unlabelled"] is True
    detector.update("x", paths[30:40], doubtful=[], kept_out=paths[50:110])  # goes on from there
    assert detector.undo("x") == "update"
    assert detector.undo("x") == "recalibrate"
    assert detector.threshold("x") == before
