"""Stores of the default preset: within their budget, the same after reopening, and refused in a sentence if damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from budget_helpers import IMAGES, ROOMY_DEFAULT, detector, manifest
from detector_helpers import TINY, TINY_FAST, product, spoil, taught_three_products, tiny
from dinosaur_ad import Dinosaur
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.inspection import Inspection
from dinosaur_ad.store import Store


def answers(taught: Dinosaur, images: Any, **options: Any) -> list[dict[str, Any]]:
    """All of what a detector says to images but how long it took."""
    results: list[Inspection] = taught.inspect(images, **options)
    return [each.to_dict() | {"ms": None, "map": each.map.tolist()} for each in results]


def asked() -> list[NDArray[np.uint8]]:
    normals = [product(kind, 2, seed=9 + kind) for kind in range(3)]
    return [image for pair in normals for image in (pair[0], spoil(pair[1]))]


# --- size ---


@pytest.mark.parametrize("budget", [26_000, 33_000, 40_000, 41_500, 60_000])
def test_the_files_of_a_task_stay_within_the_budget(budget: int, tmp_path: Path) -> None:
    taught = detector(tmp_path / "store", preset=ROOMY_DEFAULT, budget=budget)
    learned = taught.learn("x", product(0, IMAGES))
    version = max((tmp_path / "store" / "tasks" / "x").glob("v*"))
    on_disk = sum(file.stat().st_size for file in version.glob("*.safetensors"))
    assert on_disk == learned.bytes == taught.store.bytes("x") <= budget
    assert set(taught.store.record("x").files) == {"bank", "prototype", "calibration"}
    normal, defect = taught.inspect([product(0, 1, seed=9)[0], spoil(product(0, 1, seed=9)[0])])
    assert (normal.verdict, defect.verdict) == ("normal", "anomalous")
    updated = taught.update("x", product(0, 20, seed=3))
    assert updated.images == 20
    assert updated.bytes <= budget


def test_the_default_budget_is_that_of_the_preset() -> None:
    taught = tiny(preset=replace(ROOMY_DEFAULT, budget=30_000))
    assert taught.learn("x", product(0, IMAGES)).bytes <= 30_000
    assert manifest(taught)["bank"]["budget"] == 30_000
    assert TINY.budget == 8_000_000


def test_a_budget_without_room_for_the_calibration_is_refused() -> None:
    with pytest.raises(InputError, match="too small for this task"):
        detector(preset=ROOMY_DEFAULT, budget=15_000).learn("x", product(0, IMAGES))


# --- reopened ---


@pytest.mark.parametrize("preset", [TINY, TINY_FAST], ids=lambda preset: preset.name)
def test_a_reopened_store_gives_the_same_bits(preset: Any, tmp_path: Path) -> None:
    taught = tiny(tmp_path / "store", preset=preset)
    for kind in range(3):
        taught.learn(f"product-{kind}", product(kind, 12))
    taught.update("product-1", product(1, 4, seed=5))
    before = answers(taught, asked())
    assert answers(Dinosaur(tmp_path / "store"), asked()) == before
    taught.save(tmp_path / "copy")
    assert answers(Dinosaur(tmp_path / "copy"), asked()) == before
    assert all(bad["score"] > 1.2 * good["score"] for good, bad in zip(before[::2], before[1::2], strict=True))


def test_an_update_of_a_reopened_store_is_that_of_the_running_one(tmp_path: Path) -> None:
    running = tiny(tmp_path / "store")
    running.learn("x", product(0, 12))
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    later = Dinosaur(tmp_path / "copy")
    for each in (running, later):
        each.update("x", product(0, 6, seed=4))
    for file in ("bank", "prototype", "calibration"):
        one, other = (each.store.arrays("x", file) for each in (running, later))
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name], err_msg=f"{file} {name}")


def test_held_out_images_score_as_they_did_when_they_calibrated() -> None:
    taught, unseen = tiny(), product(0, 30, seed=3)
    taught.learn("x", product(0, 20), held_out=unseen)
    scores = [each.score for each in taught.inspect(unseen, task="x")]
    np.testing.assert_allclose(taught.store.arrays("x", "bank")["scores"], scores, rtol=2e-3)


def test_score_and_map_are_factors_of_what_is_usual() -> None:
    taught = tiny()
    taught.learn("x", product(0, 30))
    normals = taught.inspect(product(0, 30, seed=9))
    assert float(np.median([each.score for each in normals])) == pytest.approx(1.0, abs=0.15)
    defect = taught.inspect(spoil(product(0, 1, seed=9)[0]))
    assert tuple(defect.readings) == TINY.readings
    assert defect.score > 1.5
    assert defect.map.max() > 1.2 * defect.threshold > 1.2 * defect.normal_level
    assert all(defect.readings[name] > normals[0].readings[name] for name in defect.readings)


# --- damage ---

Files = dict[str, dict[str, NDArray[Any]]]
Damage = Callable[[Files], None]


def changed(file: str, name: str, change: Callable[[NDArray[Any]], NDArray[Any] | None]) -> Damage:
    """One array of a file that is changed, or left out."""

    def damage(files: Files) -> None:
        values = change(np.array(files[file][name]))
        if values is None:
            del files[file][name]
        else:
            files[file][name] = values

    return damage


def with_nan(values: NDArray[Any]) -> NDArray[Any]:
    values.reshape(-1)[0] = np.nan
    return values


def left_out(values: NDArray[Any]) -> None:
    return None


INSPECTING: dict[str, tuple[str, Damage]] = {
    "windows of another grid": (
        "windows do not fit its grid",
        changed("bank", "coarse_source", lambda values: values[:, :, :1]),
    ),
    "windows of another shape": ("codes are int8", changed("bank", "coarse_codes", lambda values: values[:0])),
    "windows of other channels": ("do not fit its patches", changed("bank", "coarse_codes", lambda v: v[..., :-1])),
    "no windows": ("it has no", changed("bank", "coarse_codes", left_out)),
    "windows of unknown images": (
        "images that it does not name",
        changed("bank", "coarse_source", lambda values: values + 1000),
    ),
    "no exposure": ("which exposure it was taught with", changed("prototype", "exposure", left_out)),
    "an exposure of no numbers": ("not two grey levels", changed("prototype", "exposure", with_nan)),
    "an exposure without spread": ("not two grey levels", changed("prototype", "exposure", lambda values: 0 * values)),
    "a range of exposures of no numbers": ("range of exposures", changed("prototype", "exposure_range", with_nan)),
    "a range upside down": ("range of exposures", changed("prototype", "exposure_range", lambda values: values[::-1])),
    "a range of one exposure": ("range of exposures", changed("prototype", "exposure_range", lambda values: values[0])),
    "a thumbnail of no numbers": ("thumbnail is not", changed("prototype", "thumbnail", with_nan)),
    "a short thumbnail": ("thumbnail is not", changed("prototype", "thumbnail", lambda values: values[:7])),
    "a mean of no numbers": ("is no number", changed("bank", "reading_mean", with_nan)),
    "a spread of zero": ("is no number", changed("bank", "reading_spread", lambda values: 0 * values)),
    "too few readings": ("does not fit it", changed("bank", "reading_spread", lambda values: values[:1])),
    "usual distances of zero": ("is no number", changed("bank", "usual", lambda values: 0 * values)),
    "usual distances of another grid": ("does not fit it", changed("bank", "usual", lambda values: values[:2])),
    "no usual distances": ("it has no usual", changed("bank", "usual", left_out)),
    "a level that is negative": ("not distances", changed("bank", "map_level", lambda values: values - 1000)),
    "a rest that is negative": ("not distances", changed("bank", "map_rest", lambda values: values - 1000)),
    "a rest of two maps": ("does not fit it", changed("bank", "map_rest", lambda values: np.repeat(values, 2))),
}
UPDATING: dict[str, tuple[str, Damage]] = {
    "no distances": ("no distances of its calibration images", lambda files: files.pop("calibration") and None),
    "distances of other images": ("do not fit its scores", changed("calibration", "point", lambda values: values[1:])),
    "distances of another grid": ("do not fit its grid", changed("calibration", "point", lambda v: v[:, :2])),
    "windows of another grid": (
        "do not fit its grid",
        changed("calibration", "coarse", lambda v: np.repeat(v, 2, axis=1)),
    ),
    "distances of another kind": ("do not fit", changed("calibration", "point", lambda v: v.astype(np.float32))),
    "distances of no numbers": ("are no distances", changed("calibration", "coarse", with_nan)),
    "no windows": ("it has no coarse", changed("calibration", "coarse", left_out)),
    "distances of unknown images": ("does not name", changed("calibration", "scored", lambda v: v + 1000)),
    "images that do not count": ("do not fit its scores", changed("calibration", "counts", lambda v: ~v)),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "store"
    taught = tiny(folder)
    taught.learn("x", product(0, 12))
    taught.learn("y", product(1, 12))
    return folder


def damaged(whole: Path, folder: Path, damage: Damage) -> Dinosaur:
    """A store whose task x was written by somebody who made a mistake: all hashes are right."""
    store = Store.open(shutil.copytree(whole, folder))
    record = store.record("x")
    files = {file: dict(store.arrays(record, file)) for file in record.files}
    damage(files)
    store.put("x", files, record.manifest, action="learn")
    return Dinosaur(folder)


def in_a_sentence(act: Callable[[], object], sentence: str) -> None:
    with pytest.raises(StoreError, match=rf"'x' cannot be used .*{sentence}.*other tasks are not affected") as raised:
        act()
    assert str(raised.value).count(". ") == 0


@pytest.mark.parametrize(("sentence", "damage"), INSPECTING.values(), ids=INSPECTING)
def test_a_damaged_task_is_refused_and_left_out(whole: Path, tmp_path: Path, sentence: str, damage: Damage) -> None:
    taught = damaged(whole, tmp_path / "store", damage)
    in_a_sentence(lambda: taught.inspect(product(0, 1)[0], task="x"), sentence)
    in_a_sentence(lambda: taught.verify("x"), sentence)
    result = Dinosaur(tmp_path / "store").inspect(product(0, 1)[0])
    assert (result.task, result.left_out) == ("y", ("x",))
    assert result.verdict in ("unknown", "anomalous")
    assert taught.inspect(product(1, 1, seed=9)[0], task="y").verdict == "normal"
    assert taught.undo("x") == "learn"
    assert taught.inspect(product(0, 1, seed=9)[0]).task == "x"


@pytest.mark.parametrize(("sentence", "damage"), UPDATING.values(), ids=UPDATING)
def test_a_task_without_its_distances_inspects_and_is_not_updated(
    whole: Path, tmp_path: Path, sentence: str, damage: Damage
) -> None:
    taught = damaged(whole, tmp_path / "store", damage)
    in_a_sentence(lambda: taught.update("x", product(0, 3, seed=5)), sentence)
    in_a_sentence(lambda: taught.verify("x"), sentence)
    assert answers(taught, asked()) == answers(Dinosaur(whole), asked())
    assert taught.learn("x", product(0, 12), replace=True).images == 12


def test_a_flipped_bit_of_the_distances_is_found(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "store")
    path = next((folder / "tasks" / "x").rglob("calibration.safetensors"))
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)
    taught = Dinosaur(folder)
    for act in (lambda: taught.verify("x"), lambda: taught.update("x", product(0, 3, seed=5))):
        with pytest.raises(StoreError, match="x"):
            act()
    assert taught.inspect(product(0, 1, seed=9)[0]).verdict == "normal"


def test_two_presets_do_not_share_a_store(tmp_path: Path) -> None:
    taught_three_products(TINY_FAST).save(tmp_path / "store")
    with pytest.raises(StoreError, match="made with the preset 'tiny-fast', not with 'tiny'"):
        Dinosaur(tmp_path / "store", preset=TINY)
