"""Stored banks: those of before budgets are used, damaged ones are refused, and one scores as it did when made."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from budget_helpers import IMAGES, ROOMY, detector
from detector_helpers import product, spoil
from dinosaur_ad import Dinosaur
from dinosaur_ad.bank.bank_files import read_bank
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.encoders import prepare
from dinosaur_ad.errors import StoreError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import Store


def test_a_store_of_before_budgets_is_inspected_and_updated(tmp_path: Path) -> None:
    """Written as it was: vectors and a reserve, and a manifest that knows of no forms and no budgets."""
    taught = detector(tmp_path / "new")
    taught.learn("x", product(0, IMAGES))
    record = taught.store.record("x")
    files = {file: taught.store.arrays(record, file) for file in record.files}
    assert set(files) == {"bank", "prototype", "reserve"}
    files["bank"] = {key: files["bank"][key] for key in ("vectors", "source", "scores", "levels")}
    assert files["bank"]["source"].dtype == np.int32
    known = {key: record.manifest[key] for key in ("images", "members", "calibration", "preset", "encoder")}
    old = Store.create(tmp_path / "old", taught.store.header)
    old.put("x", files, known, action="learn")
    reopened = Dinosaur(tmp_path / "old")
    defect = spoil(product(0, 1)[0])
    assert reopened.inspect(defect).score == taught.inspect(defect).score
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
    assert taught.inspect(product(1, 1)[0], task="y").task == "y"
    assert taught.undo("x") == "learn"
    assert taught.inspect(product(0, 1)[0], task="x").task == "x"


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
    _, packed = read_bank(taught.store, taught.store.record("x"))
    patches, _ = taught._features.encode(prepare(images, ROOMY.size))
    inspected = [each.score for each in taught.inspect(images, task="x")]
    np.testing.assert_allclose(pool(packed.distances(patches, ROOMY.radius), ROOMY.top), inspected, rtol=1e-4)
