"""Small banks: a budget is kept, what was chosen is said, and thresholds fit the bank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from budget_helpers import IMAGES, ROOMY, ROOMY_PAPER, detector, manifest
from detector_helpers import product, spoil
from dinosaur_ad import Dinosaur
from dinosaur_ad.bank.bank_files import open_bank
from dinosaur_ad.bank.budget import Form, Frame, choose, parse_bytes
from dinosaur_ad.errors import InputError
from dinosaur_ad.presets import Preset

FRAME = Frame(places=256, width=384, images=443, scores=240, prototype=768)
WHOLE = Form(88, 384, "int8", rotated=True)


# --- choosing ---


@pytest.mark.parametrize(
    ("text", "count"), [("2MB", 2_000_000), ("2 mb", 2_000_000), ("0.5MiB", 2**19), ("700kB", 700_000), ("9", 9)]
)
def test_sizes_are_read_as_people_write_them(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "MB", "2 apples", "-3MB", "0", "nan", "1e6"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no number of bytes; write one like 2MB"):
        parse_bytes(text)


@pytest.mark.parametrize("budget", [150_000, 5 * 10**5, 10**6, 2 * 10**6, 4 * 10**6, 9 * 10**6, 18 * 10**6])
def test_a_choice_fits_its_budget_and_nothing_larger_of_its_kind_would(budget: int) -> None:
    form = choose(FRAME, WHOLE, budget)
    assert FRAME.bytes(form) <= budget
    assert form.members == 88 or form.channels == 96
    if form != WHOLE:
        larger = (
            replace(form, members=form.members + 1) if form.members < 88 else replace(form, channels=form.channels + 8)
        )
        assert FRAME.bytes(larger) > budget


def test_a_bank_gives_up_channels_before_members() -> None:
    forms = [choose(FRAME, WHOLE, budget) for budget in (9_500_000, 4_000_000, 2_000_000, 1_000_000)]
    assert [form.members for form in forms[:2]] == [88, 88]
    assert forms[0] == WHOLE
    assert 96 < forms[1].channels < 384
    assert forms[2].channels == forms[3].channels == 96
    assert 88 > forms[2].members > forms[3].members


def test_a_bank_without_a_basis_gives_up_members_only() -> None:
    form = choose(FRAME, Form(88, 384, "float16"), 4_000_000)
    assert form == Form(form.members, 384, "float16")
    assert FRAME.bytes(form) <= 4_000_000 < FRAME.bytes(replace(form, members=form.members + 1))


def test_a_budget_below_one_member_is_refused_with_what_it_would_take() -> None:
    with pytest.raises(InputError, match=r"20\.0 kB is too small .* takes \d+\.\d kB; give more"):
        choose(FRAME, WHOLE, 20_000)


# --- teaching within a budget ---


@pytest.mark.parametrize("budget", [12_000, 20_000, 30_000, 50_000])
@pytest.mark.parametrize("preset", [ROOMY, ROOMY_PAPER], ids=["fast", "paper"])
def test_a_task_stays_within_its_budget_and_still_tells_defects(budget: int, preset: Preset) -> None:
    taught = detector(budget=budget, preset=preset)
    learned = taught.learn("x", product(0, IMAGES))
    assert learned.bytes == taught.store.bytes("x") <= budget
    assert "reserve" not in taught.store.record("x").files
    normal, defect = taught.inspect([product(0, 1, seed=9)[0], spoil(product(0, 1, seed=9)[0])])
    assert defect.anomalous
    assert defect.score > normal.score
    assert 3 <= defect.worst.row <= 6
    assert 5 <= defect.worst.column <= 8


def test_a_budget_that_is_large_enough_costs_a_rounding_error() -> None:
    free, limited = detector(), detector(budget="1MB")
    images, unseen = product(0, IMAGES), product(0, 5, seed=9)
    assert free.learn("x", images).members == limited.learn("x", images).members
    assert manifest(limited)["bank"]["channels"] == 16
    scores = [[each.score for each in taught.inspect(unseen)] for taught in (free, limited)]
    np.testing.assert_allclose(*scores, rtol=0.05)
    assert limited.threshold("x") == pytest.approx(free.threshold("x"), rel=0.05)


def test_what_was_chosen_is_written_down() -> None:
    taught = detector(budget=20_000)
    learned = taught.learn("x", product(0, IMAGES))
    bank = manifest(taught)["bank"]
    assert bank["precision"] == "int8"
    assert (bank["whole"], bank["width"], bank["budget"]) == (20, 16, 20_000)
    assert learned.members == manifest(taught)["members"] <= 20
    assert taught.store.arrays("x", "bank")["codes"].shape == (10, 10, learned.members, bank["channels"])


def test_held_out_images_count_however_many_they_are() -> None:
    taught = detector(budget=30_000)
    learned = taught.learn("x", product(0, IMAGES), held_out=product(0, 90, seed=3))
    assert learned.bytes <= 30_000
    assert taught.store.arrays("x", "bank")["scores"].size == 90


def test_thresholds_come_from_the_bank_that_is_stored() -> None:
    """Held-out normals are scored with the bank itself, so the same images inspected must score the same."""
    taught, unseen = detector(budget=20_000), product(0, 30, seed=3)
    taught.learn("x", product(0, IMAGES), held_out=unseen)
    assert manifest(taught)["bank"]["channels"] < 16
    scores = [each.score for each in taught.inspect(unseen, task="x")]
    np.testing.assert_allclose(taught.store.arrays("x", "bank")["scores"], scores, rtol=1e-4)


def test_unseen_scores_of_a_small_bank_are_higher_than_those_of_the_whole() -> None:
    images = product(0, IMAGES)
    medians = []
    for budget in (14_000, None):
        taught = detector(budget=budget, bank_precision="int8")
        taught.learn("x", images)
        bank = open_bank(taught.store, taught.store.record("x"), ROOMY)
        # Per channel, because fewer of them make all distances shorter.
        medians.append(float(np.median(bank.scores)) / np.sqrt(bank.packed.channels / 16))
    assert medians[0] > medians[1]


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_a_precision_can_be_asked_for_without_a_budget(precision: str) -> None:
    plain, taught = detector(), detector(bank_precision=precision)
    images = product(0, IMAGES)
    plain.learn("x", images), taught.learn("x", images)
    assert manifest(taught)["bank"]["precision"] == precision
    assert "reserve" in taught.store.record("x").files
    scores = [[each.score for each in one.inspect(images[:5])] for one in (plain, taught)]
    np.testing.assert_allclose(*scores, atol=0.02)


def test_a_preset_may_keep_all_its_tasks_as_int8(tmp_path: Path) -> None:
    detector(tmp_path / "store", preset=replace(ROOMY, name="small", precision="int8")).learn("x", product(0, IMAGES))
    reopened = Dinosaur(tmp_path / "store")
    assert reopened.preset.precision == "int8"
    assert reopened.store.arrays("x", "bank")["codes"].dtype == np.int8
    assert reopened.inspect(spoil(product(0, 1)[0])).anomalous


def test_an_asked_for_precision_is_kept_and_members_give_way() -> None:
    taught = detector(bank_precision="float16", budget=40_000)
    learned = taught.learn("x", product(0, IMAGES))
    assert manifest(taught)["bank"]["precision"] == "float16"
    assert learned.members < 20
    assert learned.bytes <= 40_000


def test_an_unknown_precision_is_answered_with_those_there_are() -> None:
    with pytest.raises(InputError, match="'int3'; choose one of: float32, float16, int8"):
        detector(bank_precision="int3")


def test_a_budget_that_holds_nothing_leaves_no_task(tmp_path: Path) -> None:
    taught = detector(tmp_path / "store", budget="3kB")
    with pytest.raises(InputError, match="too small for this task"):
        taught.learn("x", product(0, IMAGES))
    assert taught.tasks() == []


# --- memory ---


def test_an_int8_bank_is_held_as_it_is_stored() -> None:
    taught = detector(budget=30_000)
    taught.learn("x", product(0, IMAGES))
    bank = open_bank(taught.store, taught.store.record("x"), ROOMY)
    assert bank.packed.values_HWMK.dtype == np.int8
    assert bank.nbytes < 35_000


def test_halves_are_held_as_they_are_where_room_is_scarce() -> None:
    taught = detector()
    taught.learn("x", product(0, IMAGES))
    record, patches = taught.store.record("x"), np.random.default_rng(0).normal(size=(2, 10, 10, 16)).astype(np.float32)
    wide, tight = (open_bank(taught.store, record, ROOMY, room=room) for room in (10**9, 10))
    assert (wide.packed.precision, tight.packed.precision) == ("float32", "float16")
    assert tight.nbytes < 0.6 * wide.nbytes
    point = [bank.distances(patches, 1).point_NHW for bank in (wide, tight)]
    np.testing.assert_allclose(*point, rtol=1e-5)
