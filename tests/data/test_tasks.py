from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dinosaur_ad.data import ColorDrift, FileSample, GeometricDrift, Sample, Scenario, Task
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


def test_a_file_sample_is_a_sample() -> None:
    assert isinstance(GOOD, Sample)


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
