"""Small banks later on: they are updated within their budget."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from budget_helpers import IMAGES, ROOMY, ROOMY_PAPER, detector, manifest
from detector_helpers import product, spoil
from dinosaur_ad import Dinosaur
from dinosaur_ad.bank.building import BankBuilder
from dinosaur_ad.errors import InputError
from dinosaur_ad.presets import Preset

FIXTURES = Path(__file__).parents[1] / "store" / "fixtures"

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
    builder = BankBuilder.reopened(ROOMY, 0, taught.store, taught.store.record("x"))
    np.testing.assert_array_equal(builder.files()["bank"]["codes"], codes)
    np.testing.assert_allclose(builder.files()["bank"]["scale"], scale, rtol=1e-6)


def test_a_task_taught_without_a_budget_is_not_cut_by_an_update(tmp_path: Path) -> None:
    detector(tmp_path / "store").learn("x", product(0, IMAGES))
    limited = Dinosaur(tmp_path / "store", budget="5kB")
    before = limited.store.record("x").id
    with pytest.raises(InputError, match=r"cannot be cut to 5\.0 kB.*learn the task anew with that budget"):
        limited.update("x", product(0, 5, seed=3))
    assert limited.store.record("x").id == before


def test_a_bank_is_not_cut_to_a_smaller_budget(tmp_path: Path) -> None:
    detector(tmp_path / "store", budget="1MB").learn("x", product(0, IMAGES))
    limited = Dinosaur(tmp_path / "store", budget=35_000)
    before = limited.store.record("x").id
    with pytest.raises(InputError, match=r"cannot be cut to 35\.0 kB.*learn the task anew with that budget"):
        limited.update("x", product(0, 5, seed=3))
    assert limited.store.record("x").id == before
    assert limited.learn("x", product(0, IMAGES), replace=True).bytes <= 35_000


def test_a_budget_given_later_holds_for_updates_that_fit_it(tmp_path: Path) -> None:
    detector(tmp_path / "store", budget=30_000).learn("x", product(0, IMAGES))
    roomy = Dinosaur(tmp_path / "store", budget=60_000)
    roomy.update("x", product(0, 5, seed=3))
    assert manifest(roomy)["bank"]["budget"] == 60_000
    again = Dinosaur(tmp_path / "store")
    again.update("x", product(0, 5, seed=4))
    assert manifest(again)["bank"]["budget"] == 60_000


def test_channels_give_way_when_more_images_ask_for_more_members() -> None:
    taught, few = detector(budget=30_000), product(0, 8)
    taught.learn("x", few)
    before = manifest(taught)["bank"]["channels"]
    learned = taught.update("x", product(0, 52, seed=3))
    after = manifest(taught)["bank"]["channels"]
    assert after < before == 16
    assert learned.members > 8
    assert learned.bytes <= 30_000
    normal, defect = taught.inspect([product(0, 1, seed=9)[0], spoil(product(0, 1, seed=9)[0])])
    assert defect.anomalous
    assert not normal.anomalous


@pytest.mark.parametrize("preset", [ROOMY, ROOMY_PAPER], ids=["fast", "paper"])
def test_the_threshold_follows_when_channels_give_way(preset: Preset) -> None:
    """Scores of images that are gone are scaled to the fewer channels, which make all distances shorter."""
    first, second, unseen = product(0, 8), product(0, 52, seed=3), product(0, 40, seed=5)
    updated, at_once = detector(budget=30_000, preset=preset), detector(budget=30_000, preset=preset)
    updated.learn("x", first)
    before = manifest(updated)["bank"]["channels"]
    old = updated.store.arrays("x", "bank")["scores"]
    updated.update("x", second)
    assert manifest(updated)["bank"]["channels"] < before
    new = updated.store.arrays("x", "bank")["scores"][: len(old)]
    assert (new <= old).all()
    assert float(np.median(new / old)) < 1 or not old.any()
    at_once.learn("x", first + second)
    assert updated.threshold("x") == pytest.approx(at_once.threshold("x"), rel=0.5)
    if preset.calibration == "unseen":  # thresholds of the paper's kind are too low for unseen images in any case
        alarms = [sum(each.anomalous for each in taught.inspect(unseen)) for taught in (updated, at_once)]
        assert alarms[0] <= alarms[1] + 4


# --- stores of versions that had a budget for the whole store ---


@pytest.mark.parametrize("revision", ["fc6d787", "bf0b1bc"])
def test_a_stored_ladder_is_ignored_and_dropped_by_the_next_update(revision: str, tmp_path: Path) -> None:
    folder = shutil.copytree(FIXTURES / revision / "ladder", tmp_path / "store")
    taught = Dinosaur(folder)
    assert "ladder" in taught.store.record("a").files
    budget = manifest(taught, "a")["bank"]["budget"]
    images = [image[:42, :42] for image in product(0, 4)]
    taught.verify("a")
    taught.inspect(images)
    learned = taught.update("a", images)
    assert "ladder" not in taught.store.record("a").files
    assert "budgets" not in manifest(taught, "a")
    assert manifest(taught, "a")["bank"]["budget"] == budget
    assert learned.bytes <= budget
    assert taught.undo("a") == "update"
    assert "ladder" in taught.store.record("a").files
