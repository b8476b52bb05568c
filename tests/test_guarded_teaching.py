"""Learn and update look before they write: what would make a task blind is refused, and nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from detector_helpers import TINY, TINY_PAPER, product, shared_folder, spoil, tiny, tree_hash
from dinosaur_ad import Dinosaur, InputError
from dinosaur_ad.bank.guard import TeachingGuard
from dinosaur_ad.bank.image_features import ImageFeatures, control_images
from dinosaur_ad.core import outliers
from dinosaur_ad.errors import TeachingRefusedError

BLANK = np.zeros((70, 70, 3), np.uint8)


def mask(row: int = 20) -> NDArray[np.uint8]:
    image = np.zeros((70, 70, 3), np.uint8)
    image[row : row + 25, 10:50] = 255
    return image


def refused(store: Path, act: object, sentence: str) -> TeachingRefusedError:
    """``act`` is refused with that sentence, and the files of the store stay as they are."""
    before = tree_hash(store)
    with pytest.raises(TeachingRefusedError, match=sentence) as caught:
        act()  # type: ignore[operator]
    assert tree_hash(store) == before
    assert isinstance(caught.value, InputError)
    assert "--force" in str(caught.value)
    return caught.value


@pytest.fixture
def taught(tmp_path: Path) -> Dinosaur:
    """A store with the products 0 and 1."""
    detector = tiny(tmp_path)
    detector.learn("nut", product(0, 20))
    detector.learn("bolt", product(1, 20))
    return detector


# --- update ---


def test_a_genuine_update_says_the_threshold_before_and_after(taught: Dinosaur) -> None:
    before = taught.threshold("nut")
    learned = taught.update("nut", product(0, 10, seed=3))
    assert (learned.threshold_before, learned.threshold) == (before, taught.threshold("nut"))
    assert learned.suspects == ()


def test_an_update_with_a_product_that_is_not_known_is_refused(taught: Dinosaur, tmp_path: Path) -> None:
    error = refused(tmp_path, lambda: taught.update("nut", product(2, 5)), "5 of 5 images .* something else than 'nut'")
    assert error.paths == tuple(f"image-{n:06d}" for n in range(5))
    assert "image-000002" in str(error)
    assert "image-000003" not in str(error)
    assert "and 2 more" in str(error)


def test_an_update_with_images_of_another_task_names_it(taught: Dinosaur, tmp_path: Path) -> None:
    images = [*product(0, 4, seed=3), *product(1, 1, seed=3)]
    error = refused(
        tmp_path, lambda: taught.update("nut", images), "an image does .* .belongs to 'bolt'.; leave it out"
    )
    assert error.paths == ("image-000004",)


def test_an_update_with_a_blank_frame_is_refused(taught: Dinosaur, tmp_path: Path) -> None:
    refused(tmp_path, lambda: taught.update("nut", [*product(0, 3, seed=3), BLANK]), "image-000003 .blank")


def test_a_threshold_that_would_rise_far_is_refused(
    taught: Dinosaur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = [spoil(product(0, 1, seed=9)[0])]
    monkeypatch.setattr("dinosaur_ad.core.outliers.highest_threshold_ratio", lambda images: 1.0)
    refused(tmp_path, lambda: taught.update("nut", odd), r"threshold would rise from .* image-000000 \(scores .* times")


def test_a_rise_that_a_new_scale_hides_is_refused(taught: Dinosaur, tmp_path: Path) -> None:
    spoilt = [spoil(image) for image in product(0, 6, seed=3)]
    error = refused(
        tmp_path, lambda: taught.update("nut", spoilt), "threshold would rise from .* defects would be missed"
    )
    assert set(error.paths) <= {f"image-{n:06d}" for n in range(6)}


def test_force_learns_them_and_names_them(taught: Dinosaur) -> None:
    learned = taught.update("nut", [*product(0, 3, seed=3), BLANK, *product(1, 1, seed=3)], force=True)
    assert learned.images == 5
    assert {each.path for each in learned.suspects} == {"image-000003", "image-000004"}
    assert {each.reason for each in learned.suspects} == {"blank or nearly so", "belongs to 'bolt'"}


def test_a_false_alarm_is_learned_with_a_warning(taught: Dinosaur) -> None:
    learned = taught.update("nut", [spoil(image) for image in product(0, 3, seed=60)])
    assert learned.images == 3
    assert all("times the threshold" in each.reason and each.score > 1.5 for each in learned.suspects)
    assert learned.suspects


# --- learn ---


def test_clean_sets_of_any_size_are_learned(tmp_path: Path) -> None:
    detector = tiny(tmp_path)
    for kind, count in enumerate((2, 3, 5, 6, 8, 12, 20, 40)):
        learned = detector.learn(f"product-{kind}", product(kind, count, seed=kind))
        assert (learned.images, learned.suspects, learned.threshold_before) == (count, (), None)
        assert learned.threshold == detector.threshold(f"product-{kind}")


@pytest.mark.parametrize("count", [2, 20])
def test_blank_frames_among_the_normals_are_refused(taught: Dinosaur, tmp_path: Path, count: int) -> None:
    white = np.full((70, 70, 3), 255, np.uint8)
    error = refused(tmp_path, lambda: taught.learn("x", [*product(2, count), BLANK, white]), f"2 of {count + 2} images")
    assert error.paths == (f"image-{count:06d}", f"image-{count + 1:06d}")


def test_half_of_the_images_are_masks(taught: Dinosaur, tmp_path: Path) -> None:
    images = [*product(2, 8), *(mask(row) for row in range(10, 26, 2))]
    error = refused(tmp_path, lambda: taught.learn("x", images), "black and white like a mask")
    assert len(error.paths) == 8


def test_a_product_that_is_black_and_white_itself_is_learned() -> None:
    images = [mask(row) for row in range(10, 34)]
    assert tiny().learn("silhouette", images).images == 24


@pytest.mark.parametrize("count", [3, 20])
def test_an_image_of_a_task_that_is_known_is_refused(taught: Dinosaur, tmp_path: Path, count: int) -> None:
    images = [*product(2, count), *product(1, 1, seed=5)]
    error = refused(tmp_path, lambda: taught.learn("x", images), "belongs to 'bolt'")
    assert error.paths == (f"image-{count:06d}",)


def test_a_second_task_of_the_same_product_is_allowed(taught: Dinosaur) -> None:
    assert taught.learn("nut, new lamp", product(0, 20, seed=3)).images == 20
    assert taught.learn("nut", product(0, 20, seed=4), replace=True).images == 20


@pytest.mark.parametrize("others", [4, 5])
def test_two_products_in_a_small_set_are_warned_of(taught: Dinosaur, others: int) -> None:
    learned = taught.learn("x", [*product(2, 6), *product(3, others, seed=1)])
    named = {each.path for each in learned.suspects if "of another kind than most" in each.reason}
    assert named == {f"image-{n:06}" for n in range(6, 6 + others)}


def test_a_blank_image_among_those_held_out_is_refused(taught: Dinosaur, tmp_path: Path) -> None:
    held_out = [*product(2, 5, seed=1), BLANK]
    refused(tmp_path, lambda: taught.learn("x", product(2, 10), held_out=held_out), "image-000005 .blank")


@pytest.mark.parametrize("kind", [1, 3])
def test_another_product_among_those_held_out_is_refused(taught: Dinosaur, tmp_path: Path, kind: int) -> None:
    held_out = [*product(2, 5, seed=1), *product(kind, 3, seed=1)]
    error = refused(tmp_path, lambda: taught.learn("x", product(2, 20), held_out=held_out), "unlike those that are")
    assert error.paths == ("image-000005", "image-000006", "image-000007")
    refused(tmp_path, lambda: taught.learn("x", product(2, 20), held_out=product(kind, 8, seed=1)), "8 of 28 images")


def test_held_out_images_of_the_product_are_taken(taught: Dinosaur) -> None:
    for kind in range(2, 6):
        learned = taught.learn(f"product-{kind}", product(kind, 20), held_out=product(kind, 20, seed=1))
        assert (learned.calibrated, learned.suspects) == (20, ())


def test_a_black_frame_is_blank_even_if_another_task_calls_it_normal(
    taught: Dinosaur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def normal_everywhere(self: TeachingGuard, task: str, images: ImageFeatures) -> list[tuple[float, float]]:
        return [(0.0, 0.0) if name == "image-000020" else (9.0, 9.0) for name in images.names]

    monkeypatch.setattr(TeachingGuard, "_ratios_under", normal_everywhere)
    monkeypatch.setattr(outliers, "NEARER", 100.0)
    refused(tmp_path, lambda: taught.learn("x", [*product(2, 20), BLANK]), "image-000020 .blank or nearly so")


def test_the_same_picture_again_is_told(taught: Dinosaur) -> None:
    images = product(2, 6)
    again = [np.clip(each.astype(int) + 1, 0, 255).astype(np.uint8) for each in images[:2]]
    learned = taught.learn("x", [*images, *again])
    assert learned.near_duplicates == (("image-000006", "image-000000"), ("image-000007", "image-000001"))
    assert taught.learn("y", product(2, 20)).near_duplicates == ()


def test_force_learns_what_was_refused(taught: Dinosaur) -> None:
    learned = taught.learn("x", [*product(2, 20), BLANK], force=True)
    assert learned.images == 21
    assert [each.path for each in learned.suspects] == ["image-000020"]
    assert "x" in taught


def test_a_refused_first_learn_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(TeachingRefusedError):
        tiny(tmp_path / "store").learn("x", [*product(2, 20), BLANK])
    assert not (tmp_path / "store").exists()


def test_the_paper_procedure_is_not_guarded() -> None:
    assert tiny(preset=TINY_PAPER).learn("x", [*product(2, 20), BLANK]).suspects == ()


def test_a_damaged_task_does_not_prevent_learning(taught: Dinosaur, tmp_path: Path) -> None:
    (tmp_path / "tasks" / "bolt" / "v0001" / "bank.safetensors").write_bytes(b"")
    assert Dinosaur(tmp_path).learn("x", [*product(2, 5), *product(1, 1, seed=5)], force=True).images == 6
    assert Dinosaur(tmp_path).learn("y", product(3, 5)).images == 5


def test_learning_encodes_every_image_once(taught: Dinosaur, monkeypatch: pytest.MonkeyPatch) -> None:
    encode, seen = taught._features.encode, list[bytes]()

    def watched(pixels: NDArray[np.uint8], *exposure: Any) -> Any:
        seen.extend(image.tobytes() for image in pixels)
        return encode(pixels, *exposure)

    monkeypatch.setattr(taught._features, "encode", watched)
    taught.update("nut", product(0, 9, seed=3))
    taught.learn("x", product(2, 7))
    controls = {image.tobytes() for image in control_images(TINY.size)}
    taught_ones = [image for image in seen if image not in controls]
    assert len(taught_ones) == len(set(taught_ones)) == 16 * (1 + TINY.copies)


# --- real images ---


def photos(product_name: str, first: int, last: int) -> list[Path]:
    folder = shared_folder("DINOSAUR_DATA") / "mvtec_ad" / product_name / "train" / "good"
    return sorted(folder.iterdir())[first:last]


@pytest.fixture(scope="module")
def cable(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dinosaur, Path]:
    images = photos("cable", 0, 20)
    store = tmp_path_factory.mktemp("cable")
    detector = Dinosaur(store)
    assert detector.learn("cable", images).suspects == ()
    return detector, store


def test_real_cables_are_not_updated_with_screws(cable: tuple[Dinosaur, Path]) -> None:
    detector, store = cable
    refused(store, lambda: detector.update("cable", photos("screw", 0, 8)), "8 of 8 images do .* something else")
    refused(store, lambda: detector.update("cable", photos("screw", 0, 1)), "an image does .* something else")


def test_real_cables_are_updated_with_more_cables(cable: tuple[Dinosaur, Path]) -> None:
    detector, _ = cable
    learned = detector.update("cable", photos("cable", 20, 30))
    detector.undo("cable")
    assert learned.suspects == ()
    assert learned.threshold_before
    assert learned.threshold
    assert learned.threshold < 1.1 * learned.threshold_before


def test_one_real_bottle_among_cables_is_refused(cable: tuple[Dinosaur, Path]) -> None:
    detector, store = cable
    images = [*photos("cable", 30, 50), *photos("bottle", 0, 1)]
    error = refused(
        store, lambda: detector.learn("wire", images), "an image does not belong there: .*unlike the others"
    )
    assert [Path(path).name for path in error.paths] == ["000.webp"]
    assert "bottle" in error.paths[0]


def test_real_masks_among_photos_are_refused(cable: tuple[Dinosaur, Path], tmp_path: Path) -> None:
    detector, store = cable
    masks = sorted((shared_folder("DINOSAUR_DATA") / "mvtec_ad" / "bottle" / "ground_truth").rglob("*mask*"))[:8]
    error = refused(store, lambda: detector.learn("bottle", [*photos("bottle", 0, 8), *masks]), "8 of 16 images")
    assert all("ground_truth" in path for path in error.paths)


def test_a_defect_among_the_good_parts_is_learned_with_a_warning() -> None:
    images = product(0, 20)
    assert tiny().learn("nut", images).suspects == ()
    (suspect,) = tiny().learn("nut", [*images, spoil(product(0, 1, seed=9)[0])]).suspects
    assert (suspect.path, suspect.reason.endswith("times the median of the others")) == ("image-000020", True)
