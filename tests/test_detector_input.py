"""Wrong input to a detector: one sentence, nothing lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from detector_helpers import product, taught_three_products, tiny, tree_hash
from dinosaur_ad import Dinosaur
from dinosaur_ad.errors import InputError
from dinosaur_ad.inspection import Inspection, Rejected


@pytest.fixture(scope="module")
def taught() -> Dinosaur:
    return taught_three_products()


def test_a_bad_file_is_skipped_and_reported(tmp_path: Path) -> None:
    for index, image in enumerate(product(0, 20)):
        Image.fromarray(image).save(tmp_path / f"{index:02d}.png")
    (tmp_path / "07b.png").write_bytes(b"not an image")
    detector = tiny()
    report = detector.learn("x", tmp_path)
    assert report.images == 20
    assert [Path(each.path).name for each in report.rejected] == ["07b.png"]
    results = list(detector.stream(tmp_path))
    assert [type(each) for each in results].count(Rejected) == 1
    assert isinstance(results[8], Rejected)
    assert sum(isinstance(each, Inspection) for each in results) == 20
    with pytest.raises(InputError, match=r"07b\.png"):
        detector.inspect(tmp_path)


@pytest.mark.parametrize(
    ("images", "match"),
    [
        ([], "at least one image"),
        (product(0, 1), "at least 2 normal images"),
        ([np.zeros((70, 70, 3), np.float32)] * 3, "uint8"),
        ([np.zeros((70, 70, 2), np.uint8)] * 3, "shape"),
        ([np.zeros((3, 70, 70), np.uint8)] * 3, "channels"),
        (Path("no-such-folder"), "no-such-folder"),
    ],
)
def test_unusable_images_are_refused_and_nothing_changes(tmp_path: Path, images, match: str) -> None:
    detector = tiny(tmp_path / "store")
    detector.learn("good", product(0, 20))
    before = tree_hash(tmp_path)
    with pytest.raises(InputError, match=match):
        detector.learn("bad", images)
    assert tree_hash(tmp_path) == before


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "", "x" * 129, "con"])
def test_bad_names(name: str) -> None:
    with pytest.raises(InputError, match="cannot be called"):
        tiny().learn(name, product(0, 5))


def test_a_taken_name_is_refused_unless_replaced(tmp_path: Path) -> None:
    detector = tiny(tmp_path / "store")
    detector.learn("x", product(0, 20))
    before = tree_hash(tmp_path)
    with pytest.raises(InputError, match="already"):
        detector.learn("x", product(1, 20))
    assert tree_hash(tmp_path) == before
    detector.learn("x", product(1, 20), replace=True)
    assert not detector.inspect(product(1, 1, seed=5)[0]).anomalous


@pytest.mark.parametrize(
    "act",
    [
        lambda detector: detector.update("nothing", product(0, 2)),
        lambda detector: detector.forget("nothing"),
        lambda detector: detector.inspect(product(0, 1)[0], task="nothing"),
    ],
)
def test_unknown_tasks(taught: Dinosaur, act) -> None:
    with pytest.raises(InputError, match="nothing"):
        act(taught)
    with pytest.raises(InputError, match="taught yet"):
        act(tiny())


@pytest.mark.parametrize("rate", [0, 1, -0.1, 2, float("nan")])
def test_impossible_false_alarm_rates(taught: Dinosaur, rate: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        taught.inspect(product(0, 1)[0], false_alarms=rate)


def test_one_image_gives_one_inspection_and_several_give_a_list(taught: Dinosaur, tmp_path: Path) -> None:
    image = product(0, 1)[0]
    file = tmp_path / "folder" / "part.png"
    file.parent.mkdir()
    Image.fromarray(image).save(file)
    grey = image[..., 0]
    for one in (image, grey, grey[..., None], Image.fromarray(image), file, str(file)):
        assert isinstance(taught.inspect(one), Inspection)
    starred = tmp_path / "folder" / "part*[1].png"
    shutil.copy(file, starred)  # a file that is named like a glob is still one file
    assert taught.inspect(str(starred)).path == str(starred)
    starred.unlink()
    stack = np.stack([image, image])
    several = {
        1: (file.parent, str(file.parent / "*.png"), [image], (file,), iter([image]), stack[:1]),
        2: (stack, [file, image]),
    }
    for count, given in several.items():
        for images in given:
            results = taught.inspect(images)
            assert isinstance(results, list)
            assert [type(each) for each in results] == [Inspection] * count
