"""Check: misses and false alarms with their intervals, the weakest kinds, a better threshold. Shift: good parts that
look different from those learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from detector_helpers import TINY_PAPER, product, spoil, tiny
from dinosaur_ad import Dinosaur, InputError, Inspection, Rejected
from dinosaur_ad.bank.checking import balanced_threshold
from dinosaur_ad.core.calibration import rate_interval


@pytest.fixture(scope="module")
def taught() -> Dinosaur:
    detector = tiny()
    detector.learn("nut", product(0, 20))
    detector.learn("bolt", product(1, 20))
    return detector


def faint(image: np.ndarray) -> np.ndarray:
    """Barely a defect: one pixel a little brighter."""
    changed = image.copy()
    changed[30, 40] = np.minimum(changed[30, 40].astype(int) + 3, 255)
    return changed


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good images, and bad ones of two kinds."""
    root = tmp_path_factory.mktemp("known")
    kinds = {
        "good": product(0, 12, seed=9),
        "bad/scratch": [spoil(image) for image in product(0, 6, seed=10)],
        "bad/faint": [faint(image) for image in product(0, 4, seed=11)],
    }
    for kind, images in kinds.items():
        (root / kind).mkdir(parents=True)
        for number, image in enumerate(images):
            Image.fromarray(image).save(root / kind / f"{number}.png")
    return root


def test_misses_and_false_alarms_are_those_of_inspect(taught: Dinosaur, folders: Path) -> None:
    checked = taught.check("nut", folders / "good", folders / "bad")
    good, bad = (taught.inspect(folders / name, task="nut") for name in ("good", "bad"))
    assert (checked.misses.count, checked.misses.total) == (sum(each.verdict == "normal" for each in bad), 10)
    assert (checked.false_alarms.count, checked.false_alarms.total) == (sum(each.anomalous for each in good), 12)
    assert checked.misses.low < checked.misses.rate < checked.misses.high
    assert checked.threshold == taught.threshold("nut")
    assert 0.5 < checked.auroc < 1
    assert checked.promised_rate == pytest.approx(0.139, abs=0.001)
    assert (checked.calibrated, checked.images_needed, checked.halving_images) == (20, 119, 42)


def test_a_check_goes_by_how_the_task_is_set(taught: Dinosaur, folders: Path) -> None:
    usual = taught.check("nut", folders / "good", folders / "bad")
    taught.set("nut", threshold=0.5 * usual.threshold)
    try:
        strict = taught.check("nut", folders / "good", folders / "bad")
        asked = taught.check("nut", folders / "good", folders / "bad", false_alarms=0.025)
    finally:
        taught.undo("nut")
    assert strict.threshold == 0.5 * usual.threshold
    assert strict.false_alarms.count == 12
    assert asked.threshold == usual.threshold


def test_the_weakest_kind_comes_first_with_its_lowest_scores(taught: Dinosaur, folders: Path) -> None:
    checked = taught.check("nut", folders / "good", folders / "bad")
    weakest, strongest = checked.kinds
    assert (weakest.name, strongest.name) == ("faint", "scratch")
    assert (strongest.misses.count, strongest.lowest) == (0, ())
    assert weakest.misses.count >= 3
    scores = {each.path: each.score for each in taught.inspect(folders / "bad" / "faint", task="nut")}
    assert list(weakest.lowest) == sorted(scores, key=lambda path: scores[path])[:3]


def test_another_threshold_is_suggested_with_what_it_would_give(taught: Dinosaur, folders: Path) -> None:
    strict = taught.check("nut", folders / "good", folders / "bad" / "scratch", false_alarms=0.45)
    assert strict.false_alarms.count >= 2
    better = strict.suggestion
    assert better is not None
    assert (better.false_alarms.count, better.misses.count) == (0, 0)
    assert better.false_alarm_rate is not None
    again = taught.check("nut", folders / "good", folders / "bad" / "scratch", false_alarms=better.false_alarm_rate)
    assert (again.false_alarms.count, again.misses.count, again.suggestion) == (0, 0, None)
    assert again.threshold == pytest.approx(better.threshold, rel=1e-3)


def test_what_the_task_has_learned_does_not_count(taught: Dinosaur, folders: Path) -> None:
    checked = taught.check("nut", [*product(0, 20), *product(0, 3, seed=9)], folders / "bad")
    assert (len(checked.learned), checked.false_alarms.total) == (20, 3)
    with pytest.raises(InputError, match=r"None of the good images .*\(20 have been learned"):
        taught.check("nut", product(0, 20), folders / "bad")


def test_another_product_among_the_bad_is_found(taught: Dinosaur, folders: Path) -> None:
    checked = taught.check("nut", folders / "good", product(2, 4))
    assert (checked.misses.count, checked.unknown, checked.auroc) == (0, 4, 1.0)


def test_wrong_input_is_one_sentence(taught: Dinosaur, folders: Path, tmp_path: Path) -> None:
    for good, bad, sentence in (
        (folders / "good", folders / "good", "among the good images and among the bad ones"),
        (tmp_path, folders / "bad", "holds no images"),
        (folders / "good", tmp_path, "holds no images"),
        (folders / "good", [], "at least one image"),
    ):
        with pytest.raises(InputError, match=sentence):
            taught.check("nut", good, bad)
    with pytest.raises(InputError, match="no task 'screw'"):
        taught.check("screw", folders / "good", folders / "bad")


def test_an_image_that_cannot_be_read_is_named(taught: Dinosaur, folders: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    checked = taught.check("nut", [broken, *product(0, 3, seed=9)], folders / "bad")
    assert [each.path for each in checked.rejected] == [str(broken)]
    assert checked.false_alarms.total == 3


def test_the_paper_preset_is_checked_without_a_promise(folders: Path) -> None:
    detector = tiny(preset=TINY_PAPER)
    detector.learn("nut", product(0, 20))
    checked = detector.check("nut", folders / "good", folders / "bad")
    assert (checked.promised_rate, checked.images_needed) == (None, None)
    assert detector.shift(detector.inspect(folders / "good")) == {}


scores = st.lists(st.floats(0.1, 3.0), min_size=1, max_size=12)


@given(scores, scores, st.floats(0.2, 2.5))
def test_no_threshold_is_better_than_the_balanced_one(good: list[float], bad: list[float], now: float) -> None:
    good_N, bad_N = np.asarray(good), np.asarray(bad)

    def cost(threshold: float) -> float:
        return float((bad_N <= threshold).mean() + (good_N > threshold).mean())

    best = balanced_threshold(good_N, bad_N, now)
    assert cost(best) <= cost(now) + 1e-9
    assert all(cost(best) <= cost(each) + 1e-9 for each in np.unique([*good, *bad])[:-1])


@given(st.integers(1, 60), st.data())
def test_the_interval_covers_the_rate_it_should(total: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, total))
    low, high = rate_interval(count, total)
    assert 0 <= low <= count / total <= high <= 1
    assert (low == 0) == (count == 0)
    assert (high == 1) == (count == total)


# --- shift ---


def results_with(real: Inspection, scores: np.ndarray, verdict: str = "normal") -> list[Inspection | Rejected]:
    return [replace(real, score=float(score), verdict=verdict) for score in scores]


def test_good_parts_that_score_higher_are_noticed(taught: Dinosaur) -> None:
    real = taught.inspect(product(0, 1, seed=9)[0])
    highest = np.sort(taught._banks.bank(taught.store, taught.store.record("nut")).scores)
    rng = np.random.default_rng(0)
    shifted = results_with(real, rng.uniform(highest[-5], highest[-1], 60))
    notice = taught.shift([*shifted, Rejected("x.png", "empty")])["nut"]
    assert notice.direction == "higher"
    assert 1 < notice.noticed_at <= 60
    assert notice.deviations is not None
    assert notice.deviations > 0.5


def test_defects_unknown_images_and_good_parts_are_no_shift(taught: Dinosaur) -> None:
    real = taught.inspect(product(0, 1, seed=9)[0])
    calibration = taught._banks.bank(taught.store, taught.store.record("nut")).scores
    shifted = np.linspace(np.sort(calibration)[-5], calibration.max(), 60)
    assert taught.shift(results_with(real, shifted, "unknown")) == {}
    assert taught.shift(results_with(real, np.full(60, 5.0), "anomalous")) == {}
    assert taught.shift(taught.inspect(product(0, 40, seed=80))) == {}


def test_images_that_differ_all_over_are_noticed_even_if_all_are_flagged(taught: Dinosaur) -> None:
    real = taught.inspect(product(0, 1, seed=9)[0])
    lamp = [replace(each, level_ratio=1.5) for each in results_with(real, np.full(20, 5.0), "anomalous")]
    notice = taught.shift(lamp)["nut"]
    assert (notice.direction, notice.passing) == ("higher", False)
    assert 1 < notice.noticed_at <= 20
    assert taught.shift(lamp[:5]) == {}  # too few to say
    some_local = [replace(each, level_ratio=1.1 if n % 5 == 0 else 2.0) for n, each in enumerate(lamp)]
    assert taught.shift(some_local) == {}  # large defects
