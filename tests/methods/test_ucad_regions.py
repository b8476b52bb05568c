"""The regions that UCAD's prompts are trained on: superpixels, or the masks of Segment-Anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ucad_helpers import LESSONS, TESTS, tiny, torch

from dinosaur_ad.errors import EncoderError
from dinosaur_ad.methods import NoCache, Photo, Workbench
from dinosaur_ad.methods.ucad import regions_sam
from dinosaur_ad.methods.ucad.regions import Superpixels, make_regions, most_frequent, own_slic


class Remembering(NoCache):
    """Counts what is computed, and keeps it."""

    def __init__(self) -> None:
        self.computed: list[str] = []
        self.kept: dict[tuple[str, str], Any] = {}

    def features(self, recipe: str, photos: Sequence[Photo], compute: Callable[..., Any]) -> Any:
        missing = [photo for photo in photos if (recipe, photo.key) not in self.kept]
        self.computed += [photo.key for photo in missing]
        if missing:
            self.kept |= {(recipe, photo.key): row for photo, row in zip(missing, compute(missing), strict=True)}
        return np.stack([self.kept[recipe, photo.key] for photo in photos])


def test_regions_are_made_once_an_image_and_only_in_training() -> None:
    cached = Remembering()
    for seed in (0, 1):
        method = tiny(workbench=Workbench(seed=seed, cache=cached))
        method.learn(LESSONS[0])
        method.score(TESTS)
    assert cached.computed == [photo.key for photo in LESSONS[0].train]


def halves(size: int = 32) -> NDArray[np.uint8]:
    """Left red, right blue."""
    image = np.zeros((size, size, 3), np.uint8)
    image[:, : size // 2, 0], image[:, size // 2 :, 2] = 200, 200
    return image


def test_superpixels_do_not_cross_an_edge() -> None:
    labels = Superpixels(4, own=True)(halves()[None], (4, 4))[0]
    assert labels.shape == (4, 4)
    assert not set(labels[:, :2].ravel().tolist()) & set(labels[:, 2:].ravel().tolist())
    assert labels.min() >= 1


def test_superpixels_of_a_plain_image_are_a_regular_grid() -> None:
    labels = own_slic(np.full((16, 16, 3), 0.5), 4)
    assert np.unique(labels, return_counts=True)[1].tolist() == [64, 64, 64, 64]


def test_superpixels_are_the_same_every_time() -> None:
    image = np.random.default_rng(0).integers(0, 255, (1, 32, 32, 3), dtype=np.uint8)
    np.testing.assert_array_equal(Superpixels(5, own=True)(image, (4, 4)), Superpixels(5, own=True)(image, (4, 4)))


def test_a_cell_gets_the_label_of_most_of_its_pixels() -> None:
    labels = np.random.default_rng(0).integers(0, 4, (12, 12))
    found = most_frequent(labels, (3, 4))
    for row in range(3):
        for column in range(4):
            cell = labels[4 * row : 4 * row + 4, 3 * column : 3 * column + 3]
            assert found[row, column] == np.bincount(cell.ravel()).argmax()


def test_sam_is_taken_where_it_is_and_named_where_it_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DINOSAUR_HOME", str(tmp_path))
    options: dict[str, Any] = {"segments": 4, "device": "cpu"}
    assert isinstance(make_regions("auto", sam="", **options), Superpixels)
    with pytest.raises(EncoderError, match=r"facebook/sam-vit-base there.*regions=superpixels"):
        make_regions("sam", sam="", **options)
    with pytest.raises(EncoderError, match="no Segment-Anything model"):
        make_regions("auto", sam=str(tmp_path / "nowhere"), **options)
    (tmp_path / "regions" / "sam-vit-base").mkdir(parents=True)
    (tmp_path / "regions" / "sam-vit-base" / "config.json").write_text("{}")
    assert isinstance(make_regions("auto", sam="", **options), regions_sam.SamRegions)
    assert isinstance(make_regions("superpixels", sam="", **options), Superpixels)


class FakeSam:
    """Answers a point with the left half, the right half, or a mask that it does not trust."""

    config = SimpleNamespace(vision_config=SimpleNamespace(image_size=64))

    def get_image_embeddings(self, pixel_values: Any) -> Any:
        assert pixel_values.shape == (1, 3, 64, 64)
        return pixel_values

    def __call__(self, *, image_embeddings: Any, input_points: Any, multimask_output: bool) -> Any:
        count = input_points.shape[1]
        logits = torch.full((1, count, 3, 16, 16), -9.0)
        logits[:, :, 0, :, :8] = 9.0
        logits[:, :, 1, 4:12, 12:] = 9.0
        logits[:, :, 2] = 9.0
        trust = torch.tensor([0.95, 0.9, 0.2]).expand(1, count, 3)
        return SimpleNamespace(pred_masks=logits, iou_scores=trust)


def test_sams_masks_become_labels(tmp_path: Path) -> None:
    maker = regions_sam.SamRegions(tmp_path, "cpu", points=3)
    maker.__dict__["_model"] = FakeSam()
    # The left half is the larger of the two trusted masks, so it is 1; the untrusted one leaves bare ground.
    expected = [[1, 1, 0, 0], [1, 1, 0, 2], [1, 1, 0, 2], [1, 1, 0, 0]]
    np.testing.assert_array_equal(maker(halves(64)[None], (4, 4))[0], expected)


def test_no_mask_at_all_is_one_region_of_bare_ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions_sam, "MIN_IOU", 2.0)
    maker = regions_sam.SamRegions(tmp_path, "cpu", points=3)
    maker.__dict__["_model"] = FakeSam()
    assert set(maker(halves(64)[None], (4, 4)).ravel().tolist()) == {0}


def test_boxes_and_their_repeats() -> None:
    masks = torch.zeros(3, 8, 8, dtype=torch.bool)
    masks[0, 1:5, 2:6] = masks[1, 1:5, 2:7] = masks[2, 6:, 6:] = True
    assert regions_sam.boxes(masks).tolist() == [[2, 1, 6, 5], [2, 1, 7, 5], [6, 6, 8, 8]]
    trust = torch.tensor([0.9, 0.95, 0.92])
    assert regions_sam.suppress_repeats(regions_sam.boxes(masks), trust, 0.7) == [1, 2]  # IoU of 0 and 1: 16 / 20
    assert regions_sam.suppress_repeats(regions_sam.boxes(masks), trust, 0.85) == [1, 2, 0]
