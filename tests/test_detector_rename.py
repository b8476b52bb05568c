"""Dinosaur.rename and Dinosaur.redo: results stay, names change, and other detectors of the store notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from detector_helpers import product, spoil, tiny
from dinosaur_ad import Dinosaur
from dinosaur_ad.errors import InputError, StoreError


@pytest.fixture(params=["folder", "memory"])
def detector(request: pytest.FixtureRequest, tmp_path: Path) -> Dinosaur:
    made = tiny(tmp_path / "store" if request.param == "folder" else None)
    for kind, name in enumerate(["screw", "nut"]):
        made.learn(name, product(kind, 12))
    return made


def test_a_renamed_task_judges_as_before(detector: Dinosaur) -> None:
    images = [product(0, 1, seed=5)[0], spoil(product(0, 1, seed=6)[0]), product(1, 1, seed=7)[0]]
    before = detector.inspect(images)
    detector.rename("screw", "Schraube groß")
    after = detector.inspect(images)
    assert [each.task for each in after] == ["Schraube groß", "Schraube groß", "nut"]
    assert [(each.score, each.verdict, each.p_value) for each in after] == [
        (each.score, each.verdict, each.p_value) for each in before
    ]
    assert "screw" not in detector
    with pytest.raises(InputError, match="There is no task 'screw'"):
        detector.inspect(images, task="screw")
    detector.update("Schraube groß", product(0, 3, seed=8))
    assert detector.undo("Schraube groß") == "update"
    assert detector.redo("Schraube groß") == "update"


def test_names_that_are_swapped_are_not_confused(detector: Dinosaur) -> None:
    images = [product(0, 1, seed=5)[0], product(1, 1, seed=7)[0]]
    scores = [each.score for each in detector.inspect(images)]
    for old, new in (("screw", "x"), ("nut", "screw"), ("x", "nut")):
        detector.rename(old, new)
    after = detector.inspect(images)
    assert ([each.task for each in after], [each.score for each in after]) == (["nut", "screw"], scores)


def test_another_detector_of_the_store_notices(tmp_path: Path) -> None:
    writer = tiny(tmp_path)
    writer.learn("screw", product(0, 12))
    reader, image = Dinosaur(tmp_path), product(0, 1, seed=5)
    assert reader.inspect(image)[0].task == "screw"
    writer.rename("screw", "bolt")
    assert reader.inspect(image)[0].task == "bolt"
    writer.undo("bolt")
    with pytest.raises(InputError, match="no task has been taught"):
        reader.inspect(image)
    writer.redo("bolt")
    assert reader.inspect(image)[0].task == "bolt"


def test_nothing_taught_means_nothing_to_rename_or_redo() -> None:
    with pytest.raises(InputError, match="nothing has been taught"):
        tiny().redo("screw")
    with pytest.raises(InputError, match="nothing has been taught"):
        tiny().rename("screw", "bolt")


def test_redo_without_an_undo_is_refused(detector: Dinosaur) -> None:
    with pytest.raises(StoreError, match="nothing to redo"):
        detector.redo("screw")
