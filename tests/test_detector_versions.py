"""One inspection, one version; a damaged task costs only itself; those who teach one task take turns."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from detector_helpers import TINY, TINY_FAST, product, spoil, taught_three_products, tiny, tree_hash
from dinosaur_ad import Dinosaur
from dinosaur_ad.bank.bank_set import BankSet
from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.presets import Preset


def flip(path: Path, position: int, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= bit
    path.write_bytes(content)


def test_score_and_threshold_are_of_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change between scoring and judging counts for the next image."""
    tiny(tmp_path).learn("x", product(0, 30))
    reader, writer = Dinosaur(tmp_path), Dinosaur(tmp_path)
    image = spoil(product(0, 1, seed=5)[0])
    before = reader.inspect(image)
    score = BankSet.score

    def score_then_change(self: BankSet, *arguments: Any) -> Any:
        scores = score(self, *arguments)
        if self is reader._banks:
            writer.update("x", [spoil(each) for each in product(0, 3, seed=len(writer.tasks()[0].history))])
        return scores

    monkeypatch.setattr(BankSet, "score", score_then_change)
    during = reader.inspect(image)
    monkeypatch.undo()
    after = reader.inspect(image)
    assert (during.score, during.threshold, during.p_value) == (before.score, before.threshold, before.p_value)
    assert (after.score, after.threshold) != (before.score, before.threshold)


def test_forgetting_a_task_does_not_stop_the_inspection_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught_three_products().save(tmp_path / "store")
    reader, writer = Dinosaur(tmp_path / "store"), Dinosaur(tmp_path / "store")
    view = BankSet.view

    def forget_after(self: BankSet, *arguments: Any) -> Any:
        found = view(self, *arguments)
        if self is reader._banks and "product-1" in writer.store:
            writer.forget("product-1")
            writer.store.prune()
        return found

    monkeypatch.setattr(BankSet, "view", forget_after)
    results = reader.inspect([product(kind, 1, seed=9)[0] for kind in range(3)])
    assert [each.task for each in results][::2] == ["product-0", "product-2"]
    assert results[1].task != "product-1"
    assert results[1].verdict == "unknown"


@pytest.mark.parametrize("file", ["task.json", "v0001/manifest.json", "v0001/bank.safetensors"])
def test_a_damaged_task_is_left_out_and_named(tmp_path: Path, file: str) -> None:
    taught_three_products().save(tmp_path / "store")
    images = [product(kind, 1, seed=9)[0] for kind in range(3)]
    before = Dinosaur(tmp_path / "store").inspect(images)
    path = tmp_path / "store" / "tasks" / "product-1" / file
    flip(path, len(path.read_bytes()) // 2)
    detector = Dinosaur(tmp_path / "store")
    after = detector.inspect(images)
    assert all(each.left_out == ("product-1",) for each in after)
    # Equal but for rounding: without the damaged task, images are encoded and compared in other groups.
    assert [each.score for each in after][::2] == pytest.approx([each.score for each in before][::2], rel=1e-5)
    assert after[1].task != "product-1"
    assert after[1].verdict == "unknown"  # it is a picture of something else now
    assert list(detector.damaged()) == ["product-1"]
    with pytest.raises(StoreError, match="product-1"):
        detector.inspect(images[1], task="product-1")
    # The others can be taught, and the damaged one can be taken away or learned anew.
    assert detector.update("product-2", product(2, 3, seed=4)).images == 3
    assert detector.learn("product-3", product(3, 20)).images == 20
    assert detector.learn("product-1", product(1, 30), replace=True).images == 30
    again = detector.inspect(images)
    assert again[1].task == "product-1"
    assert not again[1].left_out
    flip(tmp_path / "store" / "tasks" / "product-0" / "v0001" / "bank.safetensors", -9)
    Dinosaur(tmp_path / "store").forget("product-0")
    assert "product-0" not in Dinosaur(tmp_path / "store").store


@pytest.mark.parametrize("file", ["task.json", "v0001/manifest.json", "v0001/bank.safetensors"])
def test_a_running_detector_notices_that_a_task_was_restored(tmp_path: Path, file: str) -> None:
    taught_three_products().save(tmp_path / "store")
    detector, image = Dinosaur(tmp_path / "store"), product(1, 1, seed=9)[0]
    path = tmp_path / "store" / "tasks" / "product-1" / file
    backup = path.read_bytes()
    flip(path, len(backup) // 2)
    assert detector.inspect(image).left_out == ("product-1",)
    path.write_bytes(backup)
    assert (detector.inspect(image).task, detector.inspect(image).left_out) == ("product-1", ())


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_scores_that_are_no_distances_never_mean_normal(value: float) -> None:
    """With right hashes: whoever wrote the bank made a mistake."""
    detector = taught_three_products()
    store, record = detector.store, detector.store.record("product-0")
    files = {file: dict(store.arrays(record, file)) for file in record.files}
    files["bank"]["scores"] = np.full_like(files["bank"]["scores"], value)
    store.put("product-0", files, record.manifest, action="learn")
    result = detector.inspect(spoil(product(0, 1, seed=9)[0]))
    assert result.left_out == ("product-0",)
    assert result.verdict != "normal"


def test_a_prototype_of_another_size_is_left_out_also_after_looking() -> None:
    detector = taught_three_products()
    store, record = detector.store, detector.store.record("product-0")
    files = {file: dict(store.arrays(record, file)) for file in record.files}
    files["prototype"]["prototype"] = files["prototype"]["prototype"][:3]
    store.put("product-0", files, record.manifest, action="learn")
    assert detector.damaged() == {}  # that needs the encoder, and is found when an image comes
    result = detector.inspect(product(1, 1, seed=9)[0])
    assert (result.task, result.left_out) == ("product-1", ("product-0",))
    assert list(detector.damaged()) == ["product-0"]


def test_an_encoder_that_gives_no_numbers_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = taught_three_products()
    encode = FeatureExtractor.encode

    def broken(self: FeatureExtractor, pixels: Any, *exposure: Any) -> Any:
        patches, descriptors = encode(self, pixels, *exposure)
        patches[0, 2, 2] = np.nan
        return patches, descriptors

    monkeypatch.setattr(FeatureExtractor, "encode", broken)
    first, second = detector.stream(product(0, 2, seed=9))
    assert "no numbers" in first.reason
    assert second.verdict == "normal"
    assert len(detector.learn("y", product(4, 6)).rejected) == 1


@pytest.mark.parametrize("preset", [TINY, TINY_FAST], ids=["default", "fast"])
def test_a_threshold_that_nothing_reaches_is_not_ready(preset: Preset) -> None:
    """Two very different images: the extrapolated threshold lies beyond everything."""
    detector = tiny(preset=preset)
    odd = [product(0, 1)[0], np.zeros((70, 70, 3), np.uint8), np.full((70, 70, 3), 255, np.uint8)]
    learned = detector.learn("x", odd, force=True)
    noise = np.random.default_rng(0).integers(0, 255, (70, 70, 3), np.uint8)
    result, of_noise = detector.inspect([odd[0], noise], false_alarms=1e-6)
    assert result.threshold > result.score
    assert result.verdict == "not ready"
    assert not result.anomalous
    assert "teach it more normal images" in result.reason
    assert of_noise.verdict in ("not ready", "unknown")
    assert of_noise.reason
    assert bool(learned.not_ready) == (detector.inspect(odd[0]).verdict == "not ready")
    good = tiny(preset=preset)
    assert good.learn("x", product(0, 30)).not_ready == ""
    assert good.inspect(noise).verdict == "unknown"


def test_those_who_update_one_task_take_turns(tmp_path: Path) -> None:
    tiny(tmp_path).learn("x", product(0, 20))
    detectors = [Dinosaur(tmp_path) for _ in range(4)]
    failures: list[BaseException] = []

    def update(number: int) -> None:
        try:
            detectors[number].update("x", product(0, 3, seed=100 + number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=update, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(Dinosaur(tmp_path).tasks()[0].manifest["images"]) == 32


def test_a_training_image_that_was_replaced_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dinosaur_ad.images.drawing import nearest_normal

    folder = tmp_path / "a" / "photos"
    folder.mkdir(parents=True)
    for index, image in enumerate(product(0, 12)):
        Image.fromarray(image).save(folder / f"{index:02d}.png")
    monkeypatch.chdir(tmp_path / "a")
    detector = tiny(tmp_path / "store")
    detector.learn("x", Path("photos"))
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    result = detector.inspect(spoil(product(0, 1, seed=3)[0]))
    assert Path(result.worst.like_image).is_absolute()
    assert nearest_normal(result) is not None
    Image.fromarray(product(1, 1)[0]).save(result.worst.like_image)
    assert nearest_normal(result) is None


def test_small_promises(tmp_path: Path) -> None:
    import copy

    result = taught_three_products().inspect(product(0, 1)[0])
    assert result == copy.deepcopy(result)
    untaught = tiny(tmp_path / "store")
    with pytest.raises(InputError, match="nothing has been taught"):
        untaught.threshold("x")
    assert not (tmp_path / "store").exists()
    for rate in (0, 1, float("nan"), 1e-300):
        with pytest.raises(InputError, match="false-alarm rate"):
            taught_three_products().threshold("product-0", rate)


def test_nothing_is_touched_by_looking(tmp_path: Path) -> None:
    taught_three_products().save(tmp_path / "store")
    before = tree_hash(tmp_path)
    Dinosaur(tmp_path / "store").inspect(product(0, 2))
    assert tree_hash(tmp_path) == before
