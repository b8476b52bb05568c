"""Recalibrate: the threshold from new normals, the memory as it was. What every learn can promise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from detector_helpers import TINY, TINY_PAPER, product, spoil, tiny, tree_hash
from dinosaur_ad import Dinosaur, InputError
from dinosaur_ad.errors import TeachingRefusedError

ONE_READING = replace(TINY, name="tiny-point", readings=("point",))


def noisy(count: int, seed: int = 21, noise: float = 9.0) -> list[NDArray[np.uint8]]:
    """Product 0 with more noise: all scores rise."""
    rng = np.random.default_rng(seed)
    images = product(0, count, seed=seed)
    return [np.clip(image + rng.normal(0, noise, image.shape), 0, 255).astype(np.uint8) for image in images]


@pytest.fixture(params=[TINY, ONE_READING], ids=["two readings", "one reading"])
def taught(request: pytest.FixtureRequest, tmp_path: Path) -> Dinosaur:
    detector = tiny(tmp_path, preset=request.param)
    detector.learn("nut", product(0, 20))
    detector.learn("bolt", product(1, 20))
    return detector


def flagged(detector: Dinosaur, images: list[NDArray[np.uint8]]) -> int:
    return sum(each.verdict != "normal" for each in detector.inspect(images, task="nut"))


def test_todays_good_parts_are_normal_again_and_the_memory_is_as_it_was(taught: Dinosaur) -> None:
    before = dict(taught.store.arrays(taught.store.record("nut"), "bank"))
    old = flagged(taught, noisy(20, seed=50))
    learned = taught.recalibrate("nut", noisy(25), force=True)
    after = taught.store.arrays(taught.store.record("nut"), "bank")
    assert old > 6
    assert flagged(taught, noisy(20, seed=50)) <= 3
    assert flagged(taught, [spoil(image) for image in noisy(5, seed=60)]) == 5
    for name in ("codes", "source", "coarse_codes"):
        if name in before:
            np.testing.assert_array_equal(before[name], after[name])
    assert (learned.images, learned.calibrated, learned.total_images) == (25, 25, 20)
    assert learned.threshold == taught.threshold("nut")
    assert learned.threshold_ratio is not None
    assert learned.threshold_ratio > 1.1


def test_it_can_be_undone_and_updated(taught: Dinosaur) -> None:
    threshold = taught.threshold("nut")
    learned = taught.recalibrate("nut", product(0, 10, seed=4), force=True)
    assert learned.threshold_before == threshold
    assert taught.update("nut", product(0, 5, seed=7)).calibrated == 15
    assert taught.undo("nut") == "update"
    assert taught.undo("nut") == "recalibrate"
    assert taught.threshold("nut") == threshold


def test_what_does_not_belong_there_is_refused(taught: Dinosaur, tmp_path: Path) -> None:
    before = tree_hash(tmp_path)
    blank = np.zeros((70, 70, 3), np.uint8)
    for images, sentence in (
        ([*product(0, 6, seed=4), blank], "blank"),
        (product(1, 6, seed=4), "belongs to 'bolt'|something else"),
        (noisy(12, noise=20), "threshold would rise from .* to "),
    ):
        with pytest.raises(TeachingRefusedError, match=sentence):
            taught.recalibrate("nut", images)
    assert tree_hash(tmp_path) == before


def test_a_threshold_that_would_fall_far_is_refused(taught: Dinosaur) -> None:
    taught.recalibrate("nut", noisy(12, noise=20), force=True)
    with pytest.raises(TeachingRefusedError, match=r"threshold would fall from .* good parts .*--force"):
        taught.recalibrate("nut", product(0, 12, seed=4))


def test_too_few_images_are_refused_and_learned_ones_do_not_count(taught: Dinosaur) -> None:
    with pytest.raises(InputError, match="at least 5 normal images that it has not learned, but there are 4"):
        taught.recalibrate("nut", product(0, 4, seed=4))
    with pytest.raises(InputError, match=r"there is 1 \(20 more are among those learned\)"):
        taught.recalibrate("nut", [*product(0, 20), *product(0, 1, seed=4)])
    with pytest.raises(InputError, match="no task 'screw'"):
        taught.recalibrate("screw", product(0, 6))


def test_too_many_images_are_refused(taught: Dinosaur, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dinosaur_ad.bank.recalibrating.MOST", 6)
    with pytest.raises(InputError, match="at most 6 images"):
        taught.recalibrate("nut", product(0, 7, seed=4))


def test_settings_stay_unless_it_is_learned_anew(taught: Dinosaur) -> None:
    record = taught.store.record("nut")
    files = {file: dict(taught.store.arrays(record, file)) for file in record.files}
    taught.store.put("nut", files, dict(record.manifest) | {"settings": {"smallest_area": 0.01}}, action="set")
    taught.update("nut", product(0, 3, seed=7))
    taught.recalibrate("nut", product(0, 8, seed=4), force=True)
    assert taught.store.record("nut").manifest["settings"] == {"smallest_area": 0.01}
    taught.learn("nut", product(0, 20), replace=True)
    assert "settings" not in taught.store.record("nut").manifest


# --- the promise ---


def test_every_learn_says_what_it_can_promise() -> None:
    detector = tiny()
    few, many = detector.learn("few", product(0, 20)), detector.learn("many", product(1, 130))
    assert few.promised_rate == pytest.approx(0.139, abs=0.001)
    assert few.images_needed == many.images_needed == 119
    assert (few.calibrated, few.smallest_defect, few.photo_size) == (20, 0.2, (70, 70))
    assert many.promised_rate is not None
    assert many.promised_rate < 0.08


def test_a_threshold_that_calibration_scores_exceed_promises_less() -> None:
    detector = tiny(preset=replace(TINY, false_alarms=0.3))
    learned = detector.learn("nut", product(0, 40))
    assert learned.promised_rate is not None
    assert learned.promised_rate > 0.3
    assert learned.images_needed == 9


def test_the_papers_threshold_promises_nothing() -> None:
    learned = tiny(preset=TINY_PAPER).learn("nut", product(0, 20))
    assert (learned.promised_rate, learned.images_needed) == (None, None)
