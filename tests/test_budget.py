"""Small banks: a budget is kept, what was chosen is said, thresholds fit the bank, and a damaged one is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from detector_helpers import TINY, TINY_PAPER, product, spoil
from dinosaur_ad import Dinosaur
from dinosaur_ad.banks.bank import Bank
from dinosaur_ad.banks.budget import Form, Frame, choose, ladder, parse_bytes
from dinosaur_ad.banks.draft import Draft
from dinosaur_ad.banks.files import read_bank
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import Store

Floats = NDArray[np.float32]

FRAME = Frame(places=256, width=384, images=443, scores=240, prototype=768)
WHOLE = Form(88, 384, "int8", rotated=True)
# Of 60 images 20 members are kept at each of 100 places, of 16 channels each: about 42 kB as int8.
IMAGES = 60


# More places than the tiny preset has, so that the scores of smaller forms, as many for any grid, do not outweigh them.
ROOMY, ROOMY_PAPER = replace(TINY, name="roomy", size=140), replace(TINY_PAPER, name="roomy-paper", size=140)


def detector(store: Path | None = None, **options: Any) -> Dinosaur:
    return Dinosaur(store, encoder="tiny-dinov2", preset=options.pop("preset", ROOMY), **options)


def manifest(taught: Dinosaur, name: str = "x") -> dict[str, Any]:
    return taught.store.record(name).manifest


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


def test_a_ladder_leads_down_in_even_steps() -> None:
    form = choose(FRAME, WHOLE, 2_000_000)
    sizes = [FRAME.bytes(rung) for rung in (form, *ladder(FRAME, form))]
    assert len(sizes) > 5
    assert all(0.5 < after / before <= 0.75 for before, after in pairwise(sizes))


# --- teaching within a budget ---


@pytest.mark.parametrize("budget", [12_000, 20_000, 30_000, 50_000])
@pytest.mark.parametrize("preset", [ROOMY, ROOMY_PAPER], ids=["default", "paper"])
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
        bank = Bank.opened(taught.store, taught.store.record("x"))
        # Per channel, because fewer of them make all distances shorter.
        medians.append(float(np.median(bank.scores)) / np.sqrt(bank.kept.channels / 16))
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
    assert reopened.inspect(spoil(product(0, 1)[0]))[0].anomalous


def test_a_bank_that_shrinks_to_a_rung_is_still_calibrated() -> None:
    """Few images make a bank no larger than one of its own smaller forms."""
    taught = detector(store_budget="60kB")
    taught.learn("x", product(0, 5))
    assert taught.store.arrays("x", "bank")["scores"].size == 5


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
    bank = Bank.opened(taught.store, taught.store.record("x"))
    assert bank.kept.values_HWMK.dtype == np.int8
    assert bank.nbytes < 35_000


def test_halves_are_held_as_they_are_where_room_is_scarce() -> None:
    taught = detector()
    taught.learn("x", product(0, IMAGES))
    record, patches = taught.store.record("x"), np.random.default_rng(0).normal(size=(2, 10, 10, 16)).astype(np.float32)
    wide, tight = (Bank.opened(taught.store, record, room=room) for room in (10**9, 10))
    assert (wide.kept.precision, tight.kept.precision) == ("float32", "float16")
    assert tight.nbytes < 0.6 * wide.nbytes
    np.testing.assert_allclose(wide.distances(patches, 1), tight.distances(patches, 1), rtol=1e-5)


# --- updating ---


@pytest.mark.parametrize("options", [{"bank_precision": "int8"}, {"budget": 50_000}, {"budget": 20_000}])
def test_a_small_bank_learns_what_it_called_anomalous(options: dict[str, Any], tmp_path: Path) -> None:
    images = product(0, IMAGES)
    detector(tmp_path / "store", **options).learn("x", images)
    taught = Dinosaur(tmp_path / "store")  # nobody says the budget again
    new = [spoil(image) for image in product(0, 8, seed=7)]
    assert all(each.anomalous for each in taught.inspect(new))
    before = taught.store.arrays("x", "bank")["codes"]
    learned = taught.update("x", new)
    after = taught.store.arrays("x", "bank")["codes"]
    assert not any(each.anomalous for each in taught.inspect(new))
    assert learned.bytes <= options.get("budget", 10**9)
    assert after.shape[3] <= before.shape[3]
    assert not any(each.anomalous for each in taught.inspect(images[:10]))


def test_members_stay_when_an_update_brings_nothing_new() -> None:
    images = product(0, 20)
    taught = detector(bank_precision="int8")
    taught.learn("x", images)
    before = taught.store.arrays("x", "bank")
    codes, scale = np.array(before["codes"]), np.array(before["scale"])
    draft = Draft.reopened(ROOMY, 0, taught.store, taught.store.record("x"))
    np.testing.assert_array_equal(draft.files()["bank"]["codes"], codes)
    np.testing.assert_allclose(draft.files()["bank"]["scale"], scale, rtol=1e-6)


def test_a_task_taught_without_a_budget_is_not_cut_by_an_update(tmp_path: Path) -> None:
    detector(tmp_path / "store").learn("x", product(0, IMAGES))
    limited = Dinosaur(tmp_path / "store", budget="5kB")
    before = limited.store.record("x").id
    with pytest.raises(InputError, match=r"cannot be cut to 5\.0 kB.*learn the task anew with that budget"):
        limited.update("x", product(0, 5, seed=3))
    assert limited.store.record("x").id == before


def test_an_update_with_a_smaller_budget_cuts_to_a_form_that_was_calibrated(tmp_path: Path) -> None:
    detector(tmp_path / "store", budget="1MB").learn("x", product(0, IMAGES))
    store = Store.open(tmp_path / "store")
    taught, ladder_of_it = store.record("x"), store.arrays("x", "ladder")
    forms, scores = ladder_of_it["forms"], ladder_of_it["scores"]
    limited = Dinosaur(tmp_path / "store", budget=35_000)
    learned = limited.update("x", product(0, 5, seed=3))
    channels = manifest(limited)["bank"]["channels"]
    rung = next(n for n, form in enumerate(forms.tolist()) if form[1] == channels)
    assert learned.bytes <= 35_000 < sum(info.bytes for info in taught.files.values())
    np.testing.assert_array_equal(limited.store.arrays("x", "bank")["scores"][:IMAGES], scores[rung])
    assert limited.inspect(spoil(product(0, 1)[0]))[0].anomalous


def test_channels_give_way_when_more_images_ask_for_more_members() -> None:
    taught, few = detector(budget=30_000), product(0, 8)
    taught.learn("x", few)
    before = manifest(taught)["bank"]["channels"]
    forms = taught.store.arrays("x", "ladder")["forms"].tolist()
    learned = taught.update("x", product(0, 52, seed=3))
    after = manifest(taught)["bank"]["channels"]
    assert after < before == 16
    assert after in [channels for _, channels in forms]
    assert learned.members > 8
    assert learned.bytes <= 30_000
    normal, defect = taught.inspect([product(0, 1, seed=9)[0], spoil(product(0, 1, seed=9)[0])])
    assert defect.anomalous
    assert not normal.anomalous


# --- a budget for the whole store ---


def test_tasks_make_room_for_each_other(tmp_path: Path) -> None:
    detector(tmp_path / "store", store_budget="80kB").learn("t0", product(0, IMAGES))
    shrunk: list[str] = []
    for kind in range(1, 5):
        taught = Dinosaur(tmp_path / "store")  # the store remembers its budget
        shrunk += taught.learn(f"t{kind}", product(kind, IMAGES)).shrunk
        assert taught.store.bytes() <= 80_000
    assert shrunk
    assert set(shrunk) <= {"t0", "t1", "t2", "t3"}
    taught = Dinosaur(tmp_path / "store")
    for kind in range(5):
        normal, defect = taught.inspect([product(kind, 1, seed=9)[0], spoil(product(kind, 1, seed=9)[0])])
        assert normal.task == f"t{kind}"
        assert defect.anomalous
        assert not normal.anomalous
    assert taught.undo(shrunk[-1]) == "shrink"


def test_a_cut_bank_has_the_threshold_of_a_bank_of_its_size(tmp_path: Path) -> None:
    """Its scores are those that the same normals get from the cut bank."""
    unseen = product(0, 25, seed=3)
    taught = detector(tmp_path / "store", store_budget="60kB")
    taught.learn("old", product(0, IMAGES), held_out=unseen)
    shrunk = [taught.learn(f"new-{kind}", product(kind, IMAGES)).shrunk for kind in (1, 2)]
    assert shrunk[0] == ("old",)
    assert "old" in shrunk[1]
    scores = [each.score for each in taught.inspect(unseen, task="old")]
    stored = taught.store.arrays("old", "bank")["scores"]
    np.testing.assert_allclose(stored, scores, rtol=1e-4)


def test_tasks_without_a_ladder_are_left_alone_and_named_when_they_are_in_the_way(tmp_path: Path) -> None:
    detector(tmp_path / "store").learn("old", product(0, IMAGES))
    limited = Dinosaur(tmp_path / "store", store_budget="60kB")
    before = limited.store.record("old").id
    with pytest.raises(InputError, match=r"used up by 'old' \(\d+\.\d kB\).*--replace"):
        limited.learn("new", product(1, IMAGES))
    assert limited.store.names() == ["old"]
    assert limited.store.record("old").id == before


def test_nothing_is_written_when_others_cannot_be_cut_far_enough(tmp_path: Path) -> None:
    taught = detector(tmp_path / "store", store_budget="14kB")
    taught.learn("a", product(0, IMAGES))
    before = taught.store.record("a").id
    with pytest.raises(InputError, match=r"too small|cannot be cut|used up"):
        taught.learn("b", product(1, IMAGES))
    assert taught.store.names() == ["a"]
    assert taught.store.record("a").id == before


# --- stores of before, and damaged ones ---


def test_a_store_of_before_budgets_is_inspected_and_updated(tmp_path: Path) -> None:
    """Written as it was: vectors and a reserve, and a manifest that knows of no forms and no budgets."""
    taught = detector(tmp_path / "new")
    taught.learn("x", product(0, IMAGES))
    record = taught.store.record("x")
    files = {file: taught.store.arrays(record, file) for file in record.files}
    assert set(files) == {"bank", "prototype", "reserve"}
    assert set(files["bank"]) == {"vectors", "source", "scores", "levels"}
    assert files["bank"]["source"].dtype == np.int32
    known = {key: record.manifest[key] for key in ("images", "members", "calibration", "preset", "encoder")}
    old = Store.create(tmp_path / "old", taught.store.header)
    old.put("x", files, known, action="learn")
    reopened = Dinosaur(tmp_path / "old")
    defect = spoil(product(0, 1)[0])
    assert reopened.inspect(defect)[0].score == taught.inspect(defect)[0].score
    assert reopened.update("x", product(0, 5, seed=3)).members == 20
    assert Preset.from_json(reopened.store.header["preset"]) == ROOMY


Damage = Callable[[dict[str, NDArray[Any]]], dict[str, NDArray[Any]]]

DAMAGES: dict[str, tuple[str, Damage]] = {
    "scales of another grid": ("scales for", lambda bank: bank | {"scale": bank["scale"][:3]}),
    "a scale that is no number": (
        "not a positive number",
        lambda bank: bank | {"scale": np.where(np.eye(10) > 0, np.float32("nan"), bank["scale"])},
    ),
    "a scale of zero": ("not a positive number", lambda bank: bank | {"scale": 0 * bank["scale"]}),
    "no members": ("codes are int8", lambda bank: bank | {"codes": bank["codes"][:, :, :0]}),
    "codes of another kind": ("codes are int16", lambda bank: bank | {"codes": bank["codes"].astype(np.int16)}),
    "no scales": ("no scale", lambda bank: {key: value for key, value in bank.items() if key != "scale"}),
    "a basis of other channels": ("basis does not fit", lambda bank: bank | {"basis": bank["basis"][:, :-1]}),
    "a basis of no numbers": ("basis holds", lambda bank: bank | {"basis": bank["basis"] * np.float16("nan")}),
    "no sources": ("where each member came from", lambda bank: bank | {"source": bank["source"][:, :, :1]}),
    "no scores": ("no scores", lambda bank: bank | {"scores": bank["scores"][:0], "levels": bank["levels"][:0]}),
}


@pytest.fixture(scope="module")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "store"
    taught = detector(folder, budget=20_000)
    taught.learn("x", product(0, IMAGES))
    taught.learn("y", product(1, IMAGES))
    return folder


@pytest.mark.parametrize(("sentence", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_bank_is_refused_and_the_store_stays(
    small_store: Path, tmp_path: Path, sentence: str, damage: Damage
) -> None:
    folder = shutil.copytree(small_store, tmp_path / "store")
    store = Store.open(folder)
    record = store.record("x")
    files = {file: dict(store.arrays(record, file)) for file in record.files}
    store.put("x", files | {"bank": damage(files["bank"])}, record.manifest, action="learn")
    taught = Dinosaur(folder)
    for ask in (lambda: taught.inspect(product(0, 1)[0], task="x"), lambda: taught.update("x", product(0, 3))):
        with pytest.raises(
            StoreError, match=rf"'x' cannot be used .*{sentence}.*other tasks are not affected"
        ) as raised:
            ask()
        assert str(raised.value).count(". ") == 0
    assert taught.inspect(product(1, 1)[0], task="y")[0].task == "y"
    assert taught.undo("x") == "learn"
    assert taught.inspect(product(0, 1)[0], task="x")[0].task == "x"


@pytest.mark.parametrize("precision", ["float16", "float32"])
def test_vectors_that_are_no_numbers_are_refused(precision: str, tmp_path: Path) -> None:
    taught = detector(tmp_path / "store", bank_precision=precision)
    taught.learn("x", product(0, IMAGES))
    record = taught.store.record("x")
    files = {file: dict(taught.store.arrays(record, file)) for file in record.files}
    vectors = np.array(files["bank"]["vectors"])
    vectors[2, 2, 0, 3] = np.nan
    taught.store.put("x", files | {"bank": files["bank"] | {"vectors": vectors}}, record.manifest, action="learn")
    with pytest.raises(StoreError, match="values that are no numbers"):
        taught.inspect(product(0, 1)[0])


def test_a_stored_bank_scores_as_the_draft_did() -> None:
    taught, images = detector(budget=20_000), product(0, 30, seed=5)
    taught.learn("x", product(0, IMAGES))
    _, kept = read_bank(taught.store, taught.store.record("x"))
    patches = taught._combine(taught.encoder.encode(images))[0]
    inspected = [each.score for each in taught.inspect(images, task="x")]
    np.testing.assert_allclose(pool(kept.distances(patches, ROOMY.radius), ROOMY.top), inspected, rtol=1e-4)
