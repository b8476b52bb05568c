"""Light: a product is known under more or less of it, and what was done to an image is said."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from detector_helpers import TINY, product, spoil, tiny
from dinosaur_ad import Dinosaur
from dinosaur_ad.bank.bank_set import BankSet
from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.core.exposure import Exposure

Pixels = NDArray[np.uint8]

ROUNDING = 1e-3
"""Of the score of equal pixels. Distances are |x|² - 2xy + |y|² in single precision: at .03 between tokens of length 1,
as of these dark drawn parts, products that a processor adds in another order differ by 1e-4 of the distance (measured:
3e-4 of the score, from equal tokens). Those of photos lie ten times as far apart and round a hundred times less."""


def lit(images: list[Pixels], light: float) -> list[Pixels]:
    return [np.clip(np.rint(light * image.astype(float)), 0, 255).astype(np.uint8) for image in images]


def exposure_of(taught: Dinosaur, name: str = "x") -> list[float]:
    found: list[float] = taught.store.arrays(name, "prototype")["exposure"].tolist()
    return found


@pytest.fixture(scope="module")
def taught() -> Dinosaur:
    detector = tiny()
    detector.learn("x", product(0, 30))
    return detector


@pytest.mark.parametrize("light", [0.6, 0.8])
def test_a_good_part_in_less_light_is_normal(taught: Dinosaur, light: float) -> None:
    images = product(0, 6, seed=9)
    for before, after in zip(taught.inspect(images), taught.inspect(lit(images, light)), strict=True):
        assert before.verdict == after.verdict == "normal"
        assert after.score == pytest.approx(before.score, rel=0.15)
        assert before.gain is not None
        assert after.gain == pytest.approx(before.gain / light, rel=0.05)


def test_a_defect_is_found_in_less_light(taught: Dinosaur) -> None:
    images = lit([spoil(image) for image in product(0, 6, seed=9)], 0.6)
    assert {each.verdict for each in taught.inspect(images)} == {"anomalous"}


def test_without_matching_there_is_no_gain_and_darkness_is_seen() -> None:
    plain = tiny(preset=replace(TINY, exposure=False))
    plain.learn("x", product(0, 30))
    image = product(0, 1, seed=9)
    assert plain.inspect(image)[0].gain is None
    assert "exposure" not in plain.store.arrays("x", "prototype")
    assert plain.inspect(lit(image, 0.5))[0].score > 1.1 * plain.inspect(image)[0].score


def test_an_update_keeps_the_exposure_of_the_task(tmp_path: Path) -> None:
    detector = tiny(tmp_path)
    detector.learn("x", product(0, 20))
    before = exposure_of(detector)
    for reopened in (detector, Dinosaur(tmp_path)):
        assert reopened.update("x", lit(product(0, 10, seed=len(reopened.tasks()[0].history)), 0.5)).images == 10
        assert exposure_of(reopened) == before
    assert Dinosaur(tmp_path).inspect(product(0, 1, seed=9)[0]).verdict == "normal"


def test_held_out_images_are_matched_too() -> None:
    one, other = tiny(), tiny()
    one.learn("x", product(0, 20), held_out=product(0, 20, seed=3))
    other.learn("x", product(0, 20), held_out=lit(product(0, 20, seed=3), 0.7))
    assert other.threshold("x") == pytest.approx(one.threshold("x"), rel=0.1)


@pytest.fixture(scope="module")
def dark_and_bright() -> Dinosaur:
    detector = tiny()
    detector.learn("dark", lit(product(0, 20), 0.3))
    detector.learn("bright", product(1, 20))
    assert exposure_of(detector, "dark") != exposure_of(detector, "bright")
    return detector


def test_products_that_are_lit_differently_are_told_apart(dark_and_bright: Dinosaur) -> None:
    images = [*lit(product(0, 4, seed=9), 0.3), *product(1, 4, seed=9)]
    results = dark_and_bright.inspect(images)
    assert [each.task for each in results] == ["dark"] * 4 + ["bright"] * 4
    assert {each.verdict for each in results} == {"normal"}
    spoiled = dark_and_bright.inspect([spoil(image) for image in images])
    assert not any(each.verdict == "normal" for each in spoiled)


def test_alone_as_among_others(dark_and_bright: Dinosaur) -> None:
    pairs = zip(lit(product(0, 3, seed=9), 0.3), product(1, 3, seed=9), strict=True)
    images = [image for pair in pairs for image in pair]
    together = dark_and_bright.inspect(images)
    for image, result in zip(images, together, strict=True):
        alone = dark_and_bright.inspect(image)
        assert (alone.task, alone.gain) == (result.task, result.gain)
        assert alone.score == pytest.approx(result.score, rel=ROUNDING)
        told = dark_and_bright.inspect(image, task=result.task)
        assert told.score == pytest.approx(result.score, rel=ROUNDING)


def test_a_wrong_guess_is_corrected_by_the_descriptor(
    dark_and_bright: Dinosaur, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image whose thumbnail is like another product is encoded again, as its descriptor says."""
    images = [*lit(product(0, 2, seed=9), 0.3), *product(1, 2, seed=9)]
    expected = dark_and_bright.inspect(images)
    right = [dark_and_bright._banks.view(dark_and_bright.store).names.index(each.task) for each in expected]
    monkeypatch.setattr(BankSet, "_first_tasks", lambda *given: right[::-1])
    monkeypatch.setattr(BankSet, "_nearest_tasks", lambda *given: right)
    for result, before in zip(dark_and_bright.inspect(images), expected, strict=True):
        assert (result.task, result.gain) == (before.task, before.gain)
        assert result.score == pytest.approx(before.score, rel=ROUNDING)


@pytest.fixture
def encodings(monkeypatch: pytest.MonkeyPatch) -> list[Exposure | None]:
    """The exposure of each image that is encoded."""
    encode, seen = FeatureExtractor.encode, []

    def watched(self: FeatureExtractor, pixels: Pixels, exposure: Exposure | None = None) -> Any:
        seen.extend([exposure] * len(pixels))
        return encode(self, pixels, exposure)

    monkeypatch.setattr(FeatureExtractor, "encode", watched)
    return seen


@pytest.fixture(scope="module")
def lights() -> Dinosaur:
    """One product in three lights, and another one; all are compared with."""
    detector = tiny(preset=replace(TINY, margin=1e9))
    for name, light in {"dark": 0.3, "dim": 0.8, "bright": 1.0}.items():
        detector.learn(name, lit(product(0, 20), light), force=True)  # the guard takes them for one product
    detector.learn("other", product(1, 20), force=True)
    return detector


def test_a_task_that_has_clearly_lost_costs_no_encoding(lights: Dinosaur, encodings: list[Exposure | None]) -> None:
    for image in product(1, 4, seed=9):
        encodings.clear()
        result = lights.inspect(image)
        assert (result.task, result.verdict, len(result.asked)) == ("other", "normal", 4)
        assert len(encodings) == 1


def test_before_an_alarm_every_task_sees_an_image_at_its_own_brightness(
    lights: Dinosaur, encodings: list[Exposure | None]
) -> None:
    """Otherwise a part may be flagged because it was taken for another task's."""
    flagged = 0
    for light in (0.5, 0.8, 1.0, 1.2):
        for image in [*lit(product(0, 3, seed=9), light), *lit([spoil(each) for each in product(0, 2, seed=8)], light)]:
            encodings.clear()
            result = lights.inspect(image)
            told = {name: lights.inspect(image, task=name).score for name in result.asked}
            assert result.score == pytest.approx(told[result.task], rel=ROUNDING)
            if result.verdict != "normal":
                flagged += 1
                assert result.asked == pytest.approx(told, rel=ROUNDING)
                assert result.score == min(result.asked.values())
    assert flagged


def test_an_image_is_encoded_once_where_the_guess_is_right(
    dark_and_bright: Dinosaur, encodings: list[Exposure | None]
) -> None:
    dark_and_bright.inspect([*lit(product(0, 3, seed=9), 0.3), *product(1, 2, seed=9)])
    assert sorted(Counter(encodings).values()) == [2, 3]


def test_a_part_far_darker_or_brighter_than_all_others_is_told(taught: Dinosaur) -> None:
    image = product(0, 1, seed=9)[0]
    assert taught.inspect(image).light == ""
    assert taught.inspect(lit([image], 0.8)[0]).light == ""
    dark = taught.inspect(lit([image], 0.4)[0])
    assert dark.verdict == "normal"
    assert dark.light.endswith("times darker than every normal image learned")
    assert dark.to_json()["light"] == dark.light
    washed = np.clip(200 + (image.astype(float) - 128) / 5, 0, 255).astype(np.uint8)
    assert "flatter" in taught.inspect(washed).light


def test_what_is_usual_widens_with_every_normal_image(tmp_path: Path) -> None:
    dark = lit(product(0, 1, seed=9), 0.4)[0]
    detector = tiny(tmp_path)
    detector.learn("x", product(0, 20))
    assert detector.inspect(dark).light
    detector.recalibrate("x", lit(product(0, 10, seed=3), 0.4), force=True)
    assert not Dinosaur(tmp_path).inspect(dark).light
    detector.undo("x")
    assert detector.inspect(dark).light
    detector.update("x", lit(product(0, 10, seed=4), 0.4), force=True)
    assert not Dinosaur(tmp_path).inspect(dark).light


def test_held_out_images_say_what_light_is_usual_too() -> None:
    detector = tiny()
    detector.learn("x", product(0, 20), held_out=lit(product(0, 20, seed=3), 0.4), force=True)
    assert not detector.inspect(lit(product(0, 1, seed=9), 0.4)[0]).light


def test_a_task_that_does_not_know_its_light_says_nothing(tmp_path: Path) -> None:
    """As tasks of earlier versions: an update of a few images must not make all others unusual."""
    detector = tiny(tmp_path)
    detector.learn("x", product(0, 20))
    record = detector.store.record("x")
    files = {name: dict(detector.store.arrays(record, name)) for name in record.files}
    before = detector.inspect(product(0, 1, seed=9)[0])
    del files["prototype"]["exposure_range"]
    detector.store.put("x", files, record.manifest, action="learn", note={"images": 20})
    older = Dinosaur(tmp_path)
    assert older.inspect(product(0, 1, seed=9)[0]).score == before.score
    assert older.inspect(lit(product(0, 1, seed=9), 0.3)[0]).light == ""
    older.update("x", product(0, 5, seed=5))
    assert older.inspect(lit(product(0, 1, seed=9), 0.3)[0]).light == ""


def test_without_matching_no_light_is_unusual() -> None:
    plain = tiny(preset=replace(TINY, exposure=False))
    plain.learn("x", product(0, 30))
    assert plain.inspect(lit(product(0, 1, seed=9), 0.3)[0]).light == ""
