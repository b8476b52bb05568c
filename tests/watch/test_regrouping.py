"""Two tasks that look the same are proposed for merging, one that shows two things for splitting."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from watch_helpers import Pixels, kinds, opened, write

from detector_helpers import product, spoil
from dinosaur_ad import Dinosaur, InputError
from dinosaur_ad.watch import regrouping
from dinosaur_ad.watch.regrouping import begin_merge, finish_merge, merge_tasks
from dinosaur_ad.watch.tray import Tray


def darker(images: list[Pixels], gain: float) -> list[Pixels]:
    return [np.clip(image * gain, 0, 255).astype(np.uint8) for image in images]


def files(folder: Path, images: list[Pixels]) -> list[Path]:
    return sorted(write(folder, images).iterdir())


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two levels of light of one tile, learned as two tasks, and another product."""
    folder = tmp_path_factory.mktemp("levels")
    detector = opened(folder / "store")
    detector.learn("tile-1", files(folder / "one", product(0, 20)))
    detector.learn("tile-2", files(folder / "two", darker(product(0, 20, seed=1), 0.93)), force=True)
    detector.learn("cap", files(folder / "cap", product(1, 20)))
    return folder / "store"


@pytest.fixture
def levels(template: Path, tmp_path: Path) -> Dinosaur:
    """A detector on a copy of it."""
    shutil.copytree(template, tmp_path / "store")
    return opened(tmp_path / "store")


def names(detector: Dinosaur) -> list[str]:
    return sorted(each.name for each in detector.tasks())


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regrouping, "EVERY", 1)


@pytest.mark.usefixtures("often")
def test_two_levels_of_one_tile_are_proposed_once_for_merging_and_other_products_are_not(
    levels: Dinosaur, tmp_path: Path
) -> None:
    stream = [
        image
        for three in zip(
            product(0, 30, seed=5), darker(product(0, 30, seed=6), 0.93), product(1, 30, seed=7), strict=True
        )
        for image in three
    ]
    events = list(levels.watch(write(tmp_path / "pictures", stream)))
    merges = [each for each in events if each.kind == "merge proposed"]
    assert [each.tasks for each in merges] == [("tile-1", "tile-2")]
    assert "look like one product now" in merges[0].reason
    assert "split proposed" not in kinds(events)
    (proposal,) = levels.proposals()
    assert (proposal.kind, proposal.tasks) == ("merge proposed", ("tile-1", "tile-2"))
    merged = levels.adopt(proposal.proposal or 0, "tile")
    assert (merged.kind, merged.task) == ("merged", "tile")
    assert names(levels) == ["cap", "tile"]
    assert levels.proposals() == []


@pytest.mark.usefixtures("often")
def test_a_task_that_shows_two_products_is_proposed_for_splitting_with_both_groups(tmp_path: Path) -> None:
    detector = opened(tmp_path / "store")
    detector.learn("both", [*product(0, 20), *product(1, 20)], force=True)
    stream = [image for pair in zip(product(0, 25, seed=5), product(1, 25, seed=6), strict=True) for image in pair]
    events = list(detector.watch(write(tmp_path / "pictures", stream)))
    (split,) = [each for each in events if each.kind == "split proposed"]
    assert split.task == "both"
    assert len(split.groups) == 2
    for group in split.groups:
        assert len({int(Path(path).stem) % 2 for path in group}) == 1
    with pytest.raises(InputError, match="learn its two groups of pictures under two names"):
        detector.adopt(split.proposal or 0, "one")
    detector.dismiss(split.proposal or 0)
    assert detector.proposals() == []
    write(tmp_path / "pictures", [*product(0, 12, seed=8), *product(1, 12, seed=9)])
    assert "split proposed" not in kinds(list(detector.watch(tmp_path / "pictures")))


def test_a_merged_task_knows_the_pictures_of_both_and_undo_brings_them_back(levels: Dinosaur, tmp_path: Path) -> None:
    learned = {task: set(levels.store.record(task).manifest["digests"]) for task in ("tile-1", "tile-2")}
    event = merge_tasks(levels, tmp_path / "store", ("tile-1", "tile-2"), "tile")
    assert "learned from 40 of their 40 pictures" in event.reason
    assert set(levels.store.record("tile").manifest["digests"]) == learned["tile-1"] | learned["tile-2"]
    found = levels.inspect([*product(0, 10, seed=8), *darker(product(0, 10, seed=9), 0.93)])
    assert {each.task for each in found} == {"tile"}
    assert sum(each.verdict == "normal" for each in found) >= 18
    assert all(each.verdict != "normal" for each in levels.inspect([spoil(image) for image in product(0, 5, seed=8)]))
    levels.undo("tile")
    assert (levels.undo("tile-1"), levels.undo("tile-2")) == ("forget", "forget")
    assert names(levels) == ["cap", "tile-1", "tile-2"]


def test_a_task_can_keep_its_name(levels: Dinosaur, tmp_path: Path) -> None:
    merge_tasks(levels, tmp_path / "store", ("tile-1", "tile-2"), "tile-1")
    assert names(levels) == ["cap", "tile-1"]
    assert len(levels.store.record("tile-1").manifest["images"]) == 40
    levels.undo("tile-1")
    assert len(levels.store.record("tile-1").manifest["images"]) == 20


def test_confirmed_defects_come_along(levels: Dinosaur, tmp_path: Path) -> None:
    levels.add_defects("tile-1", [spoil(image) for image in product(0, 2, seed=4)])
    merge_tasks(levels, tmp_path / "store", ("tile-1", "tile-2"), "tile")
    assert len(levels.defects("tile")) == 2


@pytest.mark.parametrize("name", ["tile", "tile-1"])
def test_a_merge_that_would_let_a_confirmed_defect_pass_changes_nothing(
    levels: Dinosaur, tmp_path: Path, name: str
) -> None:
    levels.add_defects("tile-1", product(0, 1, seed=44), force=True)  # it looks like a good part
    before = {each.name: each.id for each in levels.tasks()}
    with pytest.raises(InputError, match="1 of 1 confirmed defects"):
        merge_tasks(levels, tmp_path / "store", ("tile-1", "tile-2"), name)
    assert {each.name: each.id for each in levels.tasks()} == before


def test_what_cannot_be_merged_is_a_sentence(levels: Dinosaur, tmp_path: Path) -> None:
    place = tmp_path / "store"
    for tasks, name, sentence in (
        (("tile-1", "tile-1"), "tile", "Two different tasks"),
        (("tile-1", "none"), "tile", "none"),
        (("tile-1", "tile-2"), "cap", "There is a task 'cap' already"),
    ):
        with pytest.raises(Exception, match=sentence) as caught:
            merge_tasks(levels, place, tasks, name)
        assert caught.type.__name__ in ("InputError", "StoreError", "UnknownTaskError")
    paths = files(tmp_path / "bolt", product(2, 20))
    levels.learn("bolt", paths)
    for path in paths[:15]:
        path.unlink()
    with pytest.raises(InputError, match="Only 5 of the 20 pictures that 'bolt' learned"):
        merge_tasks(levels, place, ("tile-1", "bolt"), "tile")
    levels.set("tile-1", sensitivity=7)
    with pytest.raises(InputError, match="settings of its own"):
        merge_tasks(levels, place, ("tile-1", "cap"), "tile")
    assert names(levels) == ["bolt", "cap", "tile-1", "tile-2"]


@pytest.mark.parametrize(
    ("step", "name"), [("learn", "tile"), ("learn", "tile-2"), ("add_defects", "tile"), ("forget", "tile-2")]
)
def test_a_merge_that_was_interrupted_is_finished_by_the_next_watch(
    levels: Dinosaur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, name: str
) -> None:
    levels.add_defects("tile-1", [spoil(image) for image in product(0, 1, seed=4)])
    tray = Tray(tmp_path / "store")
    proposal = begin_merge(levels, tray, ("tile-1", "tile-2"), name)
    done = getattr(levels, step)

    def once(*arguments: object, **options: object) -> None:
        done(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(levels, step, once)
    with pytest.raises(KeyboardInterrupt):
        finish_merge(levels, tray, proposal)
    tray.close()
    again = opened(tmp_path / "store")
    events = list(again.watch(write(tmp_path / "pictures", product(0, 1, seed=3))))
    assert kinds(events) == {"merged": 1, "inspected": 1}
    assert names(again) == ["cap", name]
    assert len(again.store.record(name).manifest["images"]) == 40
    assert len(again.defects(name)) == 1
    again.undo(name)  # the defects
