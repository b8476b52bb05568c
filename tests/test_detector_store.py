"""A detector and its store: undone, copied, shared with others, refused where it does not fit, never half changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from detector_helpers import TINY, product, spoil, taught_three_products, tiny, tree_hash
from dinosaur_ad import Dinosaur
from dinosaur_ad.encoders import load_encoder
from dinosaur_ad.errors import InputError, StoreError


@pytest.fixture(scope="module")
def taught() -> Dinosaur:
    return taught_three_products()


def test_forget_and_undo(tmp_path: Path) -> None:
    detector = tiny(tmp_path / "store")
    detector.learn("a", product(0, 20))
    detector.learn("b", product(1, 20))
    image = product(0, 1, seed=3)[0]
    known = detector.inspect(image)
    detector.forget("a")
    assert [record.name for record in detector.tasks()] == ["b"]
    assert detector.inspect(image).task == "b"
    assert detector.undo("a") == "forget"
    assert detector.inspect(image).score == known.score
    detector.update("a", product(0, 5, seed=30))
    assert detector.undo("a") == "update"
    assert detector.inspect(image).score == known.score
    assert detector.undo("b") == "learn"
    assert [record.name for record in detector.tasks()] == ["a"]


def test_save_and_load_keep_every_score(tmp_path: Path, taught: Dinosaur) -> None:
    images = [spoil(product(kind, 1, seed=12)[0]) for kind in range(3)]
    taught.save(tmp_path / "copy")
    loaded = Dinosaur.load(tmp_path / "copy")
    assert [record.name for record in loaded.tasks()] == [record.name for record in taught.tasks()]
    assert [each.score for each in loaded.inspect(images)] == [each.score for each in taught.inspect(images)]


def test_a_running_detector_sees_what_another_process_teaches(tmp_path: Path) -> None:
    teacher = tiny(tmp_path / "store")
    teacher.learn("a", product(0, 20))
    watcher = Dinosaur.load(tmp_path / "store")
    image = product(1, 1, seed=4)[0]
    assert watcher.inspect(image).task == "a"
    teacher.learn("b", product(1, 20))
    assert watcher.inspect(image).task == "b"


def test_banks_are_loaded_within_the_byte_budget(tmp_path: Path, taught: Dinosaur) -> None:
    taught.save(tmp_path / "copy")
    images = [product(kind, 1, seed=12)[0] for kind in range(3)]
    one_bank = max(taught._banks.bank(taught.store, record).nbytes for record in taught.tasks())
    detector = Dinosaur.load(tmp_path / "copy", cache_bytes=one_bank + 1)
    assert [each.task for each in detector.inspect(images)] == ["product-0", "product-1", "product-2"]
    assert len(detector._banks._cache) == 1
    assert detector._banks._cache.nbytes <= one_bank


def test_a_store_refuses_another_encoder_or_preset(tmp_path: Path) -> None:
    tiny(tmp_path / "store").learn("x", product(0, 20))
    before = tree_hash(tmp_path)
    with pytest.raises(StoreError, match="tiny-dinov2"):
        Dinosaur(tmp_path / "store", encoder="tiny-dinov3")
    with pytest.raises(StoreError, match="preset"):
        Dinosaur(tmp_path / "store", preset="paper")
    with pytest.raises(InputError, match="layers"):
        Dinosaur(tmp_path / "store", encoder=load_encoder("tiny-dinov2", layers=(0,), size=70))
    assert tree_hash(tmp_path) == before


def test_a_store_refuses_other_weights_of_the_same_name(tmp_path: Path) -> None:
    tiny(tmp_path / "store").learn("x", product(0, 20))
    other = load_encoder("tiny-dinov2", layers=TINY.layers, size=TINY.size)
    other.fingerprint = "0123456789abcdef"
    with pytest.raises(StoreError, match="other weights"):
        Dinosaur(tmp_path / "store", encoder=other)


def test_a_folder_that_is_not_a_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.txt").write_text("mine")
    with pytest.raises(StoreError):
        tiny(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.txt"]


def test_a_store_whose_making_was_interrupted_can_be_used(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    tiny(tmp_path).learn("x", product(0, 5))
    assert [record.name for record in Dinosaur.load(tmp_path).tasks()] == ["x"]


def test_a_task_learned_or_changed_by_someone_else_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    def meanwhile(act):
        yield from product(0, 5)
        act()
        yield from product(0, 5, seed=1)

    tiny(tmp_path).learn("before", product(1, 5))
    one, other = Dinosaur.load(tmp_path), Dinosaur.load(tmp_path)
    with pytest.raises(InputError, match="already"):
        one.learn("x", meanwhile(lambda: other.learn("x", product(2, 7))))
    assert len(one.tasks()[1].manifest["images"]) == 7
    one.update("x", meanwhile(lambda: other.update("x", product(2, 1, seed=2))), force=True)
    assert len(one.tasks()[1].manifest["images"]) == 18  # what the other added while our images came is kept
    with pytest.raises(InputError, match="it was forgotten"):
        one.update("x", meanwhile(lambda: other.forget("x")))


def test_a_mistyped_store_is_not_created_by_inspecting(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="taught yet"):
        tiny(tmp_path / "typo").inspect(product(0, 1)[0])
    with pytest.raises(StoreError):
        Dinosaur.load(tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_interrupting_learning_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    detector = tiny(tmp_path / "store")
    detector.learn("x", product(0, 20))
    before = tree_hash(tmp_path)

    def interrupted():
        yield from product(1, 40)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        detector.learn("y", interrupted())
    assert tree_hash(tmp_path) == before
    assert [record.name for record in detector.tasks()] == ["x"]
