"""Small banks later on: they are updated within their budget and make room for each other in a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from budget_helpers import IMAGES, ROOMY, detector, manifest
from detector_helpers import product, spoil
from dinosaur_ad import Dinosaur
from dinosaur_ad.bank.draft import Draft
from dinosaur_ad.errors import InputError
from dinosaur_ad.store import Store

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
    after = limited.store.arrays("x", "bank")["scores"][:IMAGES]
    assert (after <= scores[rung]).all()  # images that came later can only bring the members closer
    assert float(np.median(after / scores[rung])) > 0.9
    assert limited.inspect(spoil(product(0, 1)[0])).anomalous


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
