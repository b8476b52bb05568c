"""How parts lie: found from the images, kept with the task, and what is done about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from detector_helpers import TINY, TINY_FAST, TINY_PAPER, product, spoil, tiny
from dinosaur_ad import Dinosaur, InputError
from dinosaur_ad.bank.position import COPIES_REACH, Position
from dinosaur_ad.errors import StoreError
from dinosaur_ad.store import Store
from moved_product import lying, moving_photos, plate

Pixels = NDArray[np.uint8]
FAR, SMALL = (0.09, 9.0), (0.02, 1.5)
"""Shift as a share of the side, and degrees."""


def stored(detector: Dinosaur, name: str = "plate") -> Position | None:
    return Position.of(detector.store.record(name))


def learned(photos: list[Pixels], position: str = "auto", store: Path | None = None) -> Dinosaur:
    detector = tiny(store, preset=replace(TINY, size=140))
    detector.learn("plate", photos, position=position, force=True)
    return detector


@pytest.fixture(scope="module")
def registering() -> Dinosaur:
    return learned(moving_photos(24, *FAR), "moving")


# --- finding it out ---


def test_parts_that_lie_still_are_aligned() -> None:
    position = stored(learned(moving_photos(12, 0.0, 0.0)))
    assert position is not None
    assert (position.kind, position.registered, position.given) == ("aligned", False, False)
    assert position.reach is not None
    assert position.reach < 0.01


def test_small_movement_is_left_to_moved_copies() -> None:
    position = stored(learned(moving_photos(12, *SMALL)))
    assert position is not None
    assert (position.kind, position.registered) == ("moving", False)


def test_large_movement_is_measured_and_registered_only_where_asked_for(registering: Dinosaur) -> None:
    found, given = stored(learned(moving_photos(24, *FAR))), stored(registering)
    assert found is not None
    assert given is not None
    assert (found.kind, found.registered, found.given) == ("moving", False, False)
    assert (given.kind, given.registered, given.given) == ("moving", True, True)
    assert found.reach == given.reach
    assert found.reach is not None
    assert found.reach > COPIES_REACH
    assert registering.settings("plate").position == "moving, registered"


def test_images_without_a_clear_pose_are_taken_as_they_are() -> None:
    generator = np.random.default_rng(0)
    noise = [generator.integers(0, 256, (140, 140, 3), np.uint8) for _ in range(12)]
    position = stored(learned(noise))
    assert position is not None
    assert str(position) == "aligned"
    assert position.clear is not None
    assert position.clear < 0.2


def test_few_images_say_nothing_about_movement() -> None:
    position = stored(learned(moving_photos(4, *FAR)))
    assert position == Position("aligned")


def test_the_procedure_of_the_paper_knows_no_position() -> None:
    detector = tiny(preset=TINY_PAPER)
    assert detector.learn("part", product(0, 10)).position == ""
    assert "position" not in detector.store.record("part").manifest


# --- registered ---


def test_a_registered_product_knows_good_parts_wherever_they_lie(registering: Dinosaur) -> None:
    as_they_lie = learned(moving_photos(24, *FAR), "aligned")
    good = moving_photos(12, *FAR, seed=5)
    bad = [spoil(each, 100, 100) for each in good]

    def gap(detector: Dinosaur) -> float:
        scores, defects = ([each.score for each in detector.inspect(photos)] for photos in (good, bad))
        return float(np.mean(np.log(defects)) - np.mean(np.log(scores))) / float(np.std(np.log(scores)))

    assert gap(registering) > 1.5 * gap(as_they_lie)


def test_what_is_found_is_in_the_coordinates_of_the_photo(registering: Dinosaur) -> None:
    photo = lying(plate(), 0.09, -0.07, 8.0)
    photo[60:84, 140:164] = (250, 10, 240)
    seen = registering.inspect(photo)
    assert seen.verdict == "anomalous"
    assert seen.moved is not None
    still = registering.inspect(plate()).moved or {"right": 0.0, "degrees": 0.0}  # the normals lie around it
    assert seen.moved["right"] - still["right"] == pytest.approx(0.09, abs=0.02)
    assert seen.moved["degrees"] - still["degrees"] == pytest.approx(8.0, abs=2.0)
    left, top, right, bottom = seen.worst.box
    assert 125 <= (left + right) / 2 <= 180
    assert 45 <= (top + bottom) / 2 <= 100
    assert seen.map[seen.worst.row, seen.worst.column] == seen.map.max()
    region = seen.regions[0]
    assert region.peak == seen.map.max()
    assert region.box[0] < 164
    assert region.box[2] > 140
    assert seen.overlay(photo).shape[2] == 3
    assert seen.inspected is not None
    assert 0.6 < seen.inspected.mean() < 1


def test_a_picture_of_something_else_is_not_moved(registering: Dinosaur) -> None:
    noise = np.random.default_rng(3).integers(0, 256, (210, 210, 3), np.uint8)
    seen = registering.inspect(noise)
    assert seen.moved is None
    assert seen.verdict != "normal"


def test_photos_that_are_not_square_turn_as_they_do() -> None:
    wide = plate(140, 280)
    detector = learned(moving_photos(16, *FAR, image=wide), "moving")
    seen = detector.inspect(lying(wide, 0.05, 0.08, -7.0))
    assert seen.moved is not None
    still = detector.inspect(wide).moved or {"right": 0.0, "down": 0.0, "degrees": 0.0}
    found = [seen.moved[name] - still[name] for name in ("right", "down", "degrees")]
    assert found[:2] == pytest.approx([0.05, 0.08], abs=0.03)
    assert found[2] == pytest.approx(-7.0, abs=2.0)


def test_a_score_under_a_task_does_not_depend_on_other_tasks(registering: Dinosaur, tmp_path: Path) -> None:
    photo = moving_photos(1, *FAR, seed=8)[0]
    alone = registering.inspect(photo)
    registering.save(tmp_path / "store")
    both = Dinosaur.load(tmp_path / "store", encoder="tiny-dinov2")
    both.learn("noise", product(1, 12, size=140), force=True)
    for task in (None, "plate"):
        seen = both.inspect(photo, task=task)
        assert (seen.task, seen.moved) == ("plate", alone.moved)
        assert seen.score == pytest.approx(alone.score, rel=1e-4)
        assert np.allclose(seen.map, alone.map, rtol=1e-3)


def test_update_and_recalibrate_register_too(tmp_path: Path) -> None:
    detector = learned(moving_photos(12, *FAR), "moving", store=tmp_path / "store")
    before = detector.threshold("plate")
    detector.update("plate", moving_photos(6, *FAR, seed=2), position="moving")
    assert str(stored(detector)) == "moving, registered"
    detector.recalibrate("plate", moving_photos(8, *FAR, seed=3))
    assert str(stored(detector)) == "moving, registered"
    assert detector.threshold("plate") < 2 * before
    detector.verify("plate")


def test_a_reference_that_is_lost_is_damage(registering: Dinosaur, tmp_path: Path) -> None:
    registering.save(tmp_path / "store")
    store = Store.open(tmp_path / "store")
    record = store.record("plate")
    files = {file: dict(store.arrays(record, file)) for file in record.files}
    del files["prototype"]["reference"]
    store.put("plate", files, dict(record.manifest), action="update", note={})
    with pytest.raises(StoreError, match="no reference"):
        Dinosaur.load(tmp_path / "store", encoder="tiny-dinov2").inspect(plate())


# --- as it is said ---


def test_moving_as_given_registers_still_parts_too_and_adds_copies() -> None:
    detector = tiny(preset=replace(TINY_FAST, size=140))
    learned = detector.learn("plate", moving_photos(12, 0.0, 0.0), position="moving", force=True)
    assert learned.position == "moving, registered"
    manifest = detector.store.record("plate").manifest
    assert manifest["bank"]["copies"] == 36
    assert manifest["position"]["given"]


def test_free_compares_with_all_places() -> None:
    generator = np.random.default_rng(4)

    def photos(count: int) -> list[Pixels]:
        """A part that lies anywhere on a plain ground."""
        found = []
        for _ in range(count):
            photo = generator.normal(90, 3, (140, 140, 3))
            row, column = generator.integers(0, 8, 2) * 14
            photo[row : row + 28, column : column + 28] += np.kron([[90, -60], [-60, 90]], np.ones((14, 14)))[..., None]
            found.append(np.clip(photo, 0, 255).astype(np.uint8))
        return found

    normals, tests = photos(12), photos(12)
    free, placed = learned(normals, "free"), learned(normals, "aligned")
    assert stored(free) == Position("free", given=True)
    anywhere, nearby = (np.mean([each.worst.distance for each in one.inspect(tests)]) for one in (free, placed))
    assert anywhere < 0.7 * nearby
    seen = free.inspect(spoil(tests[0], 60, 60))
    assert seen.score > max(each.score for each in free.inspect(tests))
    assert seen.worst.distance > 0


def test_free_is_kept_by_update_recalibrate_and_set(tmp_path: Path) -> None:
    detector = tiny(tmp_path / "store")
    detector.learn("part", product(0, 12), position="free")
    detector.update("part", product(0, 6, seed=3))
    detector.recalibrate("part", product(0, 8, seed=4))
    mask = np.zeros((70, 70), bool)
    mask[:, 35:] = True
    detector.set("part", zones=mask)
    detector.verify("part")
    again = Dinosaur.load(tmp_path / "store", encoder="tiny-dinov2")
    assert again.settings("part").position == "free"
    assert again.inspect(spoil(product(0, 1, seed=9)[0], 30, 50)).anomalous


# --- wrong input ---


@pytest.mark.parametrize("verb", ["learn", "update"])
def test_an_unknown_position_is_refused(verb: str) -> None:
    detector = tiny()
    if verb == "update":
        detector.learn("part", product(0, 6))
    with pytest.raises(InputError, match="There is no position 'upside down'; choose one of: auto, aligned"):
        getattr(detector, verb)("part", product(0, 6, seed=1), position="upside down")


def test_the_procedure_of_the_paper_refuses_a_position() -> None:
    with pytest.raises(InputError, match="procedure of the paper"):
        tiny(preset=TINY_PAPER).learn("part", product(0, 6), position="free")


@pytest.mark.parametrize("kind", ["free", "moving"])
def test_an_update_cannot_change_the_position(kind: str) -> None:
    detector = tiny()
    detector.learn("part", product(0, 6))
    with pytest.raises(InputError, match=r"learned as 'aligned'.*learn it anew"):
        detector.update("part", product(0, 6, seed=1), position=kind)
    assert detector.update("part", product(0, 6, seed=1), position="aligned").images == 6


# --- older stores ---


def test_a_task_without_a_position_is_judged_as_before(tmp_path: Path) -> None:
    detector = tiny(tmp_path / "store")
    detector.learn("part", product(0, 12))
    photo = spoil(product(0, 1, seed=7)[0])
    now = detector.inspect(photo)
    store = Store.open(tmp_path / "store")
    record = store.record("part")
    files = {file: dict(store.arrays(record, file)) for file in record.files}
    older = {key: value for key, value in record.manifest.items() if key != "position"}
    store.put("part", files, older, action="update", note={})
    detector = Dinosaur.load(tmp_path / "store", encoder="tiny-dinov2")
    then = detector.inspect(photo)
    assert (then.score, then.threshold, then.regions) == (now.score, now.threshold, now.regions)
    assert np.array_equal(then.map, now.map)
    assert detector.settings("part").position == ""
    assert detector.update("part", product(0, 5, seed=2)).position == ""
