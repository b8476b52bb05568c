from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dinosaur_ad.datasets import (
    BlurDrift,
    ColorDrift,
    DriftedSample,
    FileSample,
    GeometricDrift,
    Sample,
    Scenario,
    Task,
)
from dinosaur_ad.datasets.samples import Saturation
from dinosaur_ad.errors import InputError

GOOD = FileSample("good/0.png", Path("good/0.png"))
BAD = FileSample("crack/0.png", Path("crack/0.png"), label=1, kind="crack")
SHIFT = GeometricDrift(rotation=0, translate_x=2, translate_y=0, scale=1, shear=0)


@pytest.fixture
def marked(tmp_path: Path) -> FileSample:
    """A 4 x 6 image with a white pixel, marked as the defect."""
    mask = np.zeros((4, 6), np.uint8)
    mask[1, 2] = 255
    Image.fromarray(mask).save(tmp_path / "a.png")
    Image.fromarray(mask).save(tmp_path / "a_mask.png")
    return FileSample("crack/a.png", tmp_path / "a.png", 1, "crack", (tmp_path / "a_mask.png",))


def test_both_kinds_of_sample_are_samples() -> None:
    assert isinstance(GOOD, Sample)
    assert isinstance(DriftedSample(GOOD, SHIFT), Sample)


def test_masks_are_empty_for_normals_and_unknown_without_files(marked: FileSample) -> None:
    normal = FileSample("good/a.png", marked.path)
    assert normal.mask().tolist() == [[False] * 6] * 4
    assert FileSample("crack/a.png", marked.path, 1, "crack").mask() is None
    assert marked.mask().sum() == 1
    assert marked.valid() is None


def test_a_mask_of_another_size_is_refused(marked: FileSample, tmp_path: Path) -> None:
    Image.new("L", (6, 5)).save(tmp_path / "a_mask.png")
    with pytest.raises(InputError, match=r"a_mask\.png' is 6 x 5 pixels but its image .* is 6 x 4 pixels"):
        marked.mask()


def test_drift_moves_image_and_mask_together(marked: FileSample) -> None:
    moved = FileSample(marked.name, marked.path, 1, "crack", marked.mask_paths, SHIFT)
    assert np.argwhere(moved.image()[..., 0] > 127).tolist() == [[1, 4]]
    assert np.argwhere(moved.mask()).tolist() == [[1, 4]]
    assert moved.valid().tolist() == [[False, False, True, True, True, True]] * 4


def test_samples_survive_pickling(marked: FileSample) -> None:
    drifted = FileSample(marked.name, marked.path, 1, "crack", marked.mask_paths, ColorDrift(0.9))
    copy = pickle.loads(pickle.dumps(drifted))
    assert copy == drifted
    assert np.array_equal(copy.image(), drifted.image())


def test_a_task_learns_from_normals_only() -> None:
    with pytest.raises(InputError, match=r"would learn from 'crack/0\.png', which is 'crack'"):
        Task("tiles", (GOOD, BAD))
    with pytest.raises(InputError, match="must be normal"):
        Task("tiles", (GOOD,), validation=(BAD,))
    with pytest.raises(InputError, match="'tiles' has no training images"):
        Task("tiles", (), test=(BAD,))


def test_an_image_is_never_in_two_splits() -> None:
    with pytest.raises(InputError, match=r"2 samples named 'good/0\.png'"):
        Task("tiles", (GOOD,), test=(GOOD, BAD))


def test_a_scenario_needs_tasks_with_different_names() -> None:
    task = Task("tiles", (GOOD,))
    with pytest.raises(InputError, match="2 tasks named 'tiles'"):
        Scenario("line", (task, task))
    with pytest.raises(InputError, match="'line' has no tasks"):
        Scenario("line", ())


def test_widened_images_are_training_images_and_nothing_else() -> None:
    other = FileSample("good/1.png", Path("good/1.png"))
    task = Task("tiles", (GOOD, other), test=(BAD,), widened=(DriftedSample(GOOD, SHIFT),))
    assert [sample.name for sample in task.widened] == ["good/0.png"]
    with pytest.raises(InputError, match=r"would learn from 'crack/0\.png'"):
        Task("tiles", (GOOD,), widened=(BAD,))
    with pytest.raises(InputError, match=r"would replay 'good/1\.png', which is not one of its training images"):
        Task("tiles", (GOOD,), test=(other,), widened=(other,))
    with pytest.raises(InputError, match=r"2 widened samples named 'good/0\.png'"):
        Task("tiles", (GOOD,), widened=(GOOD, GOOD))


def test_a_scenario_widens_all_tasks_or_none() -> None:
    plain, widened = Task("a", (GOOD,)), Task("b", (GOOD,), widened=(GOOD,))
    assert Scenario("line", (plain,)).replay == "stored"
    assert Scenario("line", (widened,)).replay == "widened"
    with pytest.raises(InputError, match="some tasks and not of others"):
        Scenario("line", (plain, widened))


def test_same_images_is_checked() -> None:
    one, two = Task("a", (GOOD,), test=(BAD,)), Task("b", (FileSample("x", Path("x")),), test=(GOOD,))
    assert Scenario("line", (one,), same_images=True).same_images
    with pytest.raises(InputError, match="test the same images, and they do not"):
        Scenario("line", (one, two), same_images=True)


# Drift on top of any sample


def test_a_drifted_sample_equals_the_file_under_the_same_drift(marked: FileSample) -> None:
    moved = FileSample(marked.name, marked.path, 1, "crack", marked.mask_paths, SHIFT)
    wrapped = DriftedSample(marked, SHIFT)
    assert (wrapped.name, wrapped.label, wrapped.kind) == (moved.name, moved.label, moved.kind)
    assert np.array_equal(wrapped.image(), moved.image())
    assert np.array_equal(wrapped.mask(), moved.mask())
    assert np.array_equal(wrapped.valid(), moved.valid())


def test_drift_on_drift_keeps_what_the_first_left_empty_out_of_the_metrics(marked: FileSample) -> None:
    twice = DriftedSample(DriftedSample(marked, SHIFT), SHIFT)
    assert twice.valid().tolist() == [[False] * 4 + [True] * 2] * 4
    assert DriftedSample(DriftedSample(marked, SHIFT), ColorDrift(1.1)).valid().sum() == 16
    assert DriftedSample(FileSample("crack/a.png", marked.path, 1, "crack"), SHIFT).mask() is None


# Keys


def test_a_key_names_pixels_and_not_files(marked: FileSample, tmp_path: Path) -> None:
    copy = Path(shutil.copy(marked.path, tmp_path / "copy.png"))
    assert FileSample("other/name", copy, 0).key() == marked.key()
    assert len(marked.key()) == 32
    drifts = (None, SHIFT, ColorDrift(0.9), ColorDrift(0.9000001), BlurDrift(3, 1.0))
    keys = [FileSample("a", copy, drift=drift).key() for drift in drifts]
    keys += [DriftedSample(marked, ColorDrift(0.9)).key(), DriftedSample(marked, ColorDrift(1.1)).key()]
    assert len(set(keys)) == len(keys)


def test_a_file_is_read_again_only_when_it_has_changed(marked: FileSample) -> None:
    before, stat = marked.key(), marked.path.stat()
    content = bytearray(marked.path.read_bytes())
    content[-1] ^= 1
    marked.path.write_bytes(content)
    os.utime(marked.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert marked.key() == before  # same size and time: taken from memory
    os.utime(marked.path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert marked.key() != before


def test_a_missing_file_has_no_key(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.png' cannot be read \(No such file"):
        FileSample("gone.png", tmp_path / "gone.png").key()


# Regions, for AU-sPRO


def two_regions(folder: Path) -> FileSample:
    """A 20 x 20 image with a 6 x 6 scratch (grey 1) and a 4 x 4 hole (grey 2)."""
    Image.new("L", (20, 20)).save(folder / "a.png")
    for number, (value, side) in enumerate([(1, 6), (2, 4)]):
        mask = np.zeros((20, 20), np.uint8)
        mask[2 : 2 + side, 2 : 2 + side] = value
        Image.fromarray(mask).save(folder / f"{number}.png")
    rules = ((1, Saturation(0.4, relative=True)), (2, Saturation(10, relative=False)))
    return FileSample("a", folder / "a.png", 1, "hole", (folder / "0.png", folder / "1.png"), saturations=rules)


def test_each_mask_file_is_a_region_with_its_own_saturation(tmp_path: Path) -> None:
    sample = two_regions(tmp_path)
    scratch, hole = sample.regions()
    assert (scratch[0].sum(), scratch[1]) == (36, 14)  # 14.4 rounded down
    assert (hole[0].sum(), hole[1]) == (16, 10)
    assert Saturation(400, relative=False).pixels(16) == 16
    assert Saturation(0.1, relative=True).pixels(3) == 1
    assert FileSample("a", sample.path, saturations=sample.saturations).regions() == []
    assert FileSample("a", sample.path, 1, "hole", saturations=sample.saturations).regions() is None
    assert FileSample("a", sample.path, 1, "hole", sample.mask_paths).regions() is None


def test_drift_moves_regions_and_keeps_the_share_to_be_found(tmp_path: Path) -> None:
    sample = two_regions(tmp_path)
    assert [area for _, area in DriftedSample(sample, ColorDrift(1.2)).regions()] == [14, 10]
    # Moved left by six pixels, two columns of the scratch are left and nothing of the hole.
    left = GeometricDrift(rotation=0, translate_x=-6, translate_y=0, scale=1, shear=0)
    for moved in (
        DriftedSample(sample, left),
        FileSample("a", sample.path, 1, "h", sample.mask_paths, left, sample.saturations),
    ):
        (scratch, found), (hole, _) = moved.regions()
        assert (scratch.sum(), found) == (12, 4)
        assert not hole.any()


def test_masks_that_do_not_fit_the_configuration_are_refused(tmp_path: Path) -> None:
    sample = two_regions(tmp_path)
    mixed = np.zeros((20, 20), np.uint8)
    mixed[0, :2] = 1, 2
    Image.fromarray(mixed).save(tmp_path / "1.png")
    with pytest.raises(InputError, match="has 2 grey values above 0"):
        sample.regions()
    Image.fromarray(np.full((20, 20), 7, np.uint8)).save(tmp_path / "1.png")
    with pytest.raises(InputError, match="has the grey value 7, which the dataset's configuration does not name"):
        sample.regions()
