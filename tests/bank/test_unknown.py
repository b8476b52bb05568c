"""The verdict unknown: a picture without the product is never normal, and a defect is a defect."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from detector_helpers import TINY, TINY_FAST, TINY_PAPER, product, spoil, taught_three_products, tiny
from dinosaur_ad import Dinosaur
from dinosaur_ad.bank.bank import HEADROOM, headroom
from dinosaur_ad.bank.bank_files import open_bank
from dinosaur_ad.bank.verdict import Controls, unknown_level, unknown_limit, why_not_ready

SIDE = 70


def board(cell: int) -> NDArray[np.uint8]:
    row, column = np.indices((SIDE, SIDE))
    squares = np.where((row // cell + column // cell) % 2, 255, 0).astype(np.uint8)
    return np.repeat(squares[..., None], 3, axis=2)


def without_product() -> dict[str, NDArray[np.uint8]]:
    rng = np.random.default_rng(5)
    ramp = np.linspace(0, 255, SIDE).astype(np.uint8)
    return {
        "noise": rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8),
        "faint noise": rng.integers(120, 136, (SIDE, SIDE, 3), np.uint8),
        "black": np.zeros((SIDE, SIDE, 3), np.uint8),
        "grey": np.full((SIDE, SIDE, 3), 117, np.uint8),
        "white": np.full((SIDE, SIDE, 3), 255, np.uint8),
        "chessboard": board(9),
        "fine chessboard": board(3),
        "ramp": np.broadcast_to(ramp[:, None, None], (SIDE, SIDE, 3)).copy(),
        "another product": product(7, 1)[0],
        "upside down": product(0, 1)[0][::-1].copy(),
    }


@pytest.fixture(scope="module", params=[TINY, TINY_FAST], ids=lambda preset: preset.name)
def taught(request: pytest.FixtureRequest) -> Dinosaur:
    return taught_three_products(request.param)


@pytest.mark.parametrize("name", without_product())
def test_a_picture_without_the_product_is_never_normal(taught: Dinosaur, name: str) -> None:
    result = taught.inspect(without_product()[name])
    assert result.verdict in ("unknown", "anomalous")
    assert (result.reason != "") == (result.verdict == "unknown")
    told = taught.inspect(without_product()[name], task="product-1")
    assert told.verdict in ("unknown", "anomalous")


def test_noise_blanks_and_boards_are_unknown(taught: Dinosaur) -> None:
    for name in ("noise", "black", "white", "chessboard"):
        result = taught.inspect(without_product()[name])
        assert result.verdict == "unknown"
        assert not result.anomalous
        assert result.reason.startswith("It shows none of the learned products")
        assert f"'{result.task}'" in result.reason
        assert result.reason.count(". ") == 0


def test_good_parts_and_defects_are_known(taught: Dinosaur) -> None:
    for kind in range(3):
        for image in product(kind, 6, seed=9):
            assert taught.inspect(image).verdict == "normal"
            defect = taught.inspect(spoil(image))
            assert defect.verdict == "anomalous"
            assert defect.reason == ""
            assert defect.level < 2 * taught.inspect(image).level


def test_a_product_that_is_learned_is_unknown_no_longer(taught: Dinosaur) -> None:
    other = taught_three_products(taught.preset)
    images = product(7, 40)
    assert {each.verdict for each in other.inspect(images[:10])} <= {"unknown", "anomalous"}
    other.learn("new", images[10:])
    verdicts = [each.verdict for each in other.inspect(images[:10])]
    assert verdicts.count("normal") >= 8
    assert "unknown" not in verdicts


def test_two_images_are_enough_to_know_what_is_unknown() -> None:
    detector = tiny()
    detector.learn("x", product(0, 2))
    for name in ("noise", "black", "chessboard"):
        assert detector.inspect(without_product()[name]).verdict in ("unknown", "anomalous")


def test_the_paper_knows_two_verdicts() -> None:
    detector = tiny(preset=TINY_PAPER)
    detector.learn("x", product(0, 20))
    assert {detector.inspect(image).verdict for image in without_product().values()} <= {"normal", "anomalous"}


# --- the level ---

LEVELS = st.lists(st.floats(0.01, 100), min_size=1, max_size=30).map(lambda values: np.asarray(values, np.float32))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(own=LEVELS, controls=LEVELS)
def test_the_limit_lies_half_way_by_ratio(own: NDArray[np.float32], controls: NDArray[np.float32]) -> None:
    limit, usual, foreign = unknown_level(own, controls), float(np.median(own)), float(np.median(controls))
    if usual < foreign:
        assert limit / usual == pytest.approx(foreign / limit, rel=1e-5)
        assert usual < limit < foreign
    else:
        assert limit == math.inf


@pytest.mark.parametrize(("own", "controls"), [([], [1.0]), ([1.0], []), ([0.0, 0.0], [1.0]), ([2.0], [1.0])])
def test_where_nothing_can_be_told_nothing_is_unknown(own: list[float], controls: list[float]) -> None:
    assert unknown_level(np.asarray(own, np.float32), np.asarray(controls, np.float32)) == math.inf


@pytest.mark.parametrize(("images", "way"), [(2, 0.8), (5, 0.6875), (20, 0.565), (200, 0.507)])
def test_of_few_images_the_limit_lies_nearer_to_what_is_foreign(images: int, way: float) -> None:
    own, controls = np.full(images, 0.1, np.float32), np.float32([0.4])
    assert unknown_level(own, controls, cautious=True) == pytest.approx(0.1 * 4**way, rel=1e-3)
    assert unknown_level(own, controls) == pytest.approx(0.2, rel=1e-5)


@pytest.mark.parametrize(("images", "ready"), [(5, False), (20, False), (39, True), (200, True)])
def test_a_threshold_from_few_images_must_be_exceeded_clearly(images: int, ready: bool) -> None:
    reason = why_not_ready("x", 1.2, np.float32([0.3, 1.3, 2.0]), headroom(images))
    assert (reason == "") == ready
    assert reason.count(". ") == 0
    assert why_not_ready("x", 1.2, np.float32([0.3, 1.5, 1.5]), headroom(images)) == ""
    assert "everything would be called normal" in why_not_ready("x", 1.2, np.float32([1.1]), headroom(images))


def test_a_task_of_an_older_version_judges_as_it_did() -> None:
    detector = tiny()
    detector.learn("x", product(0, 5))
    record = detector.store.record("x")
    now = open_bank(detector.store, record, detector.preset)
    calibration = {key: value for key, value in record.manifest["calibration"].items() if key != "cautious"}
    older = replace(record, manifest=dict(record.manifest) | {"calibration": calibration})
    before = open_bank(detector.store, older, detector.preset)
    assert (now.cautious, before.cautious) == (True, False)
    assert (now.headroom, before.headroom) == (HEADROOM, 1.0)
    limits = [
        unknown_limit(bank, detector.preset, Controls(bank.control_scores, bank.control_levels))
        for bank in (before, now)
    ]
    assert limits[0] < limits[1]
    assert limits[0] == pytest.approx(unknown_level(now.levels, now.control_levels))
