"""Confirmed defects are kept with a task, asked again after every change, and never learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from detector_helpers import product, spoil, tiny, tree_hash
from dinosaur_ad import Dinosaur, InputError, StoreError
from dinosaur_ad.bank import gallery
from dinosaur_ad.bank.gallery import Gallery
from dinosaur_ad.bank.image_features import PreparedImage


@pytest.fixture
def taught(tmp_path: Path) -> Dinosaur:
    """A store with the product 0."""
    detector = tiny(tmp_path)
    detector.learn("nut", product(0, 20))
    return detector


def spoiled(count: int, seed: int = 11) -> list[np.ndarray]:
    return [spoil(image) for image in product(0, count, seed=seed)]


def test_defects_are_kept_and_change_no_verdict(taught: Dinosaur, tmp_path: Path) -> None:
    before = taught.inspect(product(0, 1, seed=40)[0])
    changed = taught.add_defects("nut", spoiled(3))
    assert (changed.added, len(changed.defects), changed.dropped) == (3, 3, ())
    again = Dinosaur(tmp_path)
    assert [each.image for each in again.defects("nut")] == [f"image-{n:06d}" for n in range(3)]
    after = again.inspect(product(0, 1, seed=40)[0])
    assert (after.score, after.threshold) == (before.score, before.threshold)
    again.verify("nut")


def test_the_same_picture_is_kept_once(taught: Dinosaur) -> None:
    taught.add_defects("nut", spoiled(4)[:3])
    changed = taught.add_defects("nut", spoiled(4))
    assert (changed.added, len(changed.defects)) == (1, 4)


def test_a_normal_picture_is_no_defect(taught: Dinosaur, tmp_path: Path) -> None:
    before = tree_hash(tmp_path)
    with pytest.raises(InputError, match=r"'image-000001' is called normal by 'nut'.*--force"):
        taught.add_defects("nut", [spoiled(1)[0], product(0, 1, seed=40)[0]])
    passing = r"'image-000000', 'image-000001', 'image-000002' and 1 more are called normal by 'nut'.*leave them out"
    with pytest.raises(InputError, match=passing):
        taught.add_defects("nut", product(0, 4, seed=40))
    assert tree_hash(tmp_path) == before
    assert taught.add_defects("nut", product(0, 1, seed=40), force=True).added == 1


def test_a_change_that_lets_a_defect_pass_names_it(taught: Dinosaur) -> None:
    taught.add_defects("nut", spoiled(2))
    assert taught.update("nut", product(0, 5, seed=3)).gallery_missed == ()
    assert len(taught.defects("nut")) == 2
    blinded = taught.update("nut", spoiled(6, seed=12), force=True)
    assert blinded.gallery_missed == ("image-000000", "image-000001")
    assert taught.undo("nut") == "update"
    assert all(each.verdict == "anomalous" for each in taught.inspect(spoiled(2), task="nut"))


def test_learning_anew_and_recalibrating_keep_the_gallery_and_ask_it(taught: Dinosaur) -> None:
    taught.add_defects("nut", spoiled(2))
    assert taught.learn("nut", product(0, 12, seed=5), replace=True).gallery_missed == ()
    assert taught.recalibrate("nut", product(0, 12, seed=6), force=True).gallery_missed == ()
    assert len(taught.defects("nut")) == 2
    blinded = taught.learn("nut", [*product(0, 12, seed=5), *spoiled(12, seed=8)], replace=True, force=True)
    assert blinded.gallery_missed == ("image-000000", "image-000001")


def test_only_the_newest_are_kept(taught: Dinosaur, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "MOST_DEFECTS", 3)
    taught.add_defects("nut", spoiled(2))
    changed = taught.add_defects("nut", spoiled(4, seed=13))
    assert len(changed.defects) == 3
    assert changed.dropped == ("image-000000", "image-000001", "image-000000")


def test_removing_and_undoing(taught: Dinosaur, tmp_path: Path) -> None:
    for name, image in zip("ab", spoiled(2), strict=True):
        Image.fromarray(image).save(tmp_path.parent / f"{tmp_path.name}-{name}.png")
    paths = sorted(tmp_path.parent.glob(f"{tmp_path.name}-?.png"))
    taught.add_defects("nut", paths)
    assert taught.remove_defects("nut", [paths[0].name]).defects[0].image == str(paths[1])
    assert taught.undo("nut") == "defect"
    assert len(taught.defects("nut")) == 2
    with pytest.raises(InputError, match=r"no defect 'c.png'"):
        taught.remove_defects("nut", ["c.png"])
    assert taught.remove_defects("nut", [str(path) for path in paths]).defects == ()
    assert "gallery" not in taught.store.record("nut").files


def test_a_task_without_a_gallery_has_none(taught: Dinosaur) -> None:
    assert taught.defects("nut") == ()
    with pytest.raises((InputError, StoreError), match="bolt"):
        taught.defects("bolt")


def test_a_copy_of_the_store_has_it_too(taught: Dinosaur, tmp_path: Path) -> None:
    taught.add_defects("nut", spoiled(2))
    taught.save(tmp_path / "copy")
    assert len(Dinosaur(tmp_path / "copy").defects("nut")) == 2


@pytest.mark.parametrize("damage", ["entries", "ends", "size", "bytes"])
def test_a_damaged_gallery_is_one_sentence(taught: Dinosaur, damage: str) -> None:
    taught.add_defects("nut", spoiled(2))
    store, record = taught.store, taught.store.record("nut")
    files = {file: dict(store.arrays(record, file)) for file in record.files}
    manifest = dict(record.manifest)
    if damage == "entries":
        manifest["gallery"] = manifest["gallery"][:1]
    elif damage == "ends":
        files["gallery"]["ends"] = files["gallery"]["ends"][::-1].copy()
    elif damage == "size":
        small, _ = Gallery().with_images(
            PreparedImage(f"{n}", np.full((8, 8, 3), n, np.uint8), f"8:{n}", (8, 8)) for n in range(2)
        )
        files |= small.files()
    else:
        files["gallery"]["png"] = np.zeros_like(files["gallery"]["png"])
    store.put("nut", files, manifest, action="update")
    for act in (taught.defects, taught.verify):
        with pytest.raises(StoreError, match=r"gallery of the task 'nut' cannot be used .*: restore it"):
            act("nut")


def test_the_pictures_come_back_as_they_were() -> None:
    rng = np.random.default_rng(0)
    images = [PreparedImage(str(n), rng.integers(0, 256, (20, 20, 3), np.uint8), str(n), (5, 9)) for n in range(4)]
    kept, dropped = Gallery().with_images(images)
    assert dropped == ()
    for image, pixels in zip(images, kept.pixels(), strict=True):
        np.testing.assert_array_equal(image.pixels, pixels)
