"""What methods get to see, and that it is all they can get at."""

from __future__ import annotations

import gc
import hashlib
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dinosaur_ad.bench.lessons import lesson, photo, task_checksum, test_photos
from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.data import ColorDrift, DriftedSample, FileSample, Sample, Scenario, Task, mvtec_scenario
from dinosaur_ad.data.synthetic import synthetic_drift_scenario, synthetic_scenario
from dinosaur_ad.methods.contract import Lesson, Photo


def save(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (8, 8, 3), np.uint8)).save(path)


def on_disk(root: Path) -> Scenario:
    """Two categories of files: two normals to learn from, one normal and two cracks to test on."""
    for number, category in enumerate(("bottle", "cable")):
        names = ["train/good/0", "train/good/1", "test/good/0", "test/crack/0", "test/crack/1"]
        names += ["ground_truth/crack/0_mask", "ground_truth/crack/1_mask"]
        for image, name in enumerate(names):
            save(root / category / f"{name}.png", 10 * number + image)
    return mvtec_scenario(root)


def drifting(root: Path) -> Scenario:
    """The first of these categories under two drifts, with a widened range for replay."""
    base = on_disk(root).tasks[0]

    def under(samples: tuple[Sample, ...], factor: float) -> tuple[Sample, ...]:
        return tuple(replace(sample, drift=ColorDrift(factor)) for sample in samples)  # type: ignore[type-var]

    tasks = (
        Task(str(factor), under(base.train, factor), test=under(base.test, factor), widened=under(base.train, 1.05))
        for factor in (1.1, 1.2)
    )
    return Scenario("drifting", tuple(tasks), same_images=True)


SCENARIOS: dict[str, Callable[[Path], Scenario]] = {
    "files": on_disk,
    "drifting files": drifting,
    "synthetic": lambda root: open_scenario("synthetic-tiny"),
    "drifting synthetic": lambda root: synthetic_drift_scenario(
        "geo", levels=(1, 10), train=2, test_normal=1, test_per_kind=1, size=64
    ),
}


@pytest.fixture(params=SCENARIOS)
def scenario(request: pytest.FixtureRequest, tmp_path: Path) -> Scenario:
    return SCENARIOS[request.param](tmp_path)


# Out of reach


def reachable(root: object) -> list[Any]:
    """Everything that can be got at from ``root`` by attributes, items, bound arguments and closures."""
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType | BuiltinFunctionType):
            continue
        seen[id(thing)] = thing
        if isinstance(thing, FunctionType):  # not its globals, which lead to everything there is
            waiting += [cell.cell_contents for cell in thing.__closure__ or ()]
            waiting += [thing.__defaults__, thing.__kwdefaults__, thing.__dict__]
        else:
            waiting += gc.get_referents(thing)
    return list(seen.values())


def forbidden(root: object, scenario: Scenario) -> list[object]:
    """What a method must not get at: test samples, anomalies, their files, and the tasks that hold them."""
    things = reachable(root)
    test = [sample for task in scenario.tasks for sample in task.test]
    files = {path for sample in test if isinstance(sample, FileSample) for path in (sample.path, *sample.mask_paths)}
    samples = [thing for thing in things if isinstance(thing, Sample)]
    return [
        *(thing for thing in things if isinstance(thing, Task | Scenario)),
        *(sample for sample in samples if sample.label == 1 or any(sample is other for other in test)),
        *(sample for sample in samples if any(sample == other for other in test)),
        *(thing for thing in things if isinstance(thing, Path) and thing in files),
        *(thing for thing in things if isinstance(thing, str) and thing in {str(path) for path in files}),
    ]


def test_nothing_of_the_test_can_be_reached_from_a_lesson(scenario: Scenario) -> None:
    for index in range(len(scenario.tasks)):
        taught = lesson(scenario, index)
        assert len(reachable(taught)) > 10
        assert forbidden(taught, scenario) == []


def test_the_search_finds_what_is_hidden(scenario: Scenario) -> None:
    task = scenario.tasks[0]
    taught = lesson(scenario, 0)
    bound = replace(taught, train=(Photo("key", task.test[-1].image),))
    closed = replace(taught, held_out=(Photo("key", lambda: task.test[0].image()),))
    default = replace(taught, widened=(Photo("key", lambda hidden=task.test[-1]: hidden.image()),))
    for leaking in (bound, closed, default):
        assert forbidden(leaking, scenario)


def test_the_photo_of_a_test_file_tells_its_path_and_nothing_else(tmp_path: Path) -> None:
    crack = on_disk(tmp_path).tasks[0].test[-1]
    assert isinstance(crack, FileSample)
    for sample in (crack, DriftedSample(crack, ColorDrift(1.1))):
        things = reachable(photo(sample))
        assert not any(isinstance(thing, Sample) for thing in things)
        assert not set(crack.mask_paths) & {thing for thing in things if isinstance(thing, Path)}
        assert crack.path in [thing for thing in things if isinstance(thing, Path)]


# What is taught


def test_a_photo_has_the_pixels_and_the_key_of_its_sample(scenario: Scenario) -> None:
    for sample in (scenario.tasks[1].train[0], scenario.tasks[1].test[-1]):
        shown = photo(sample)
        assert shown.key == sample.key()
        assert np.array_equal(shown.pixels(), sample.image())
        assert np.array_equal(pickle.loads(pickle.dumps(shown)).pixels(), sample.image())  # for other processes


def keys(photos: tuple[Photo, ...]) -> list[str]:
    return [shown.key for shown in photos]


def test_a_lesson_has_the_tasks_before_it_and_none_after(scenario: Scenario) -> None:
    first, second = (lesson(scenario, index) for index in range(2))
    assert (first.task, first.earlier) == (scenario.tasks[0].name, ())
    assert [keys(photos) for photos in second.earlier] == [keys(first.train)]
    assert keys(second.train) == [sample.key() for sample in scenario.tasks[1].train]
    assert keys(second.widened) == [sample.key() for sample in scenario.tasks[1].widened]


def test_held_out_normals_are_the_validation_images() -> None:
    good = synthetic_scenario(train=3, test_normal=0, test_per_kind=0, size=64, products=["gear"]).tasks[0].train
    taught = lesson(Scenario("line", (Task("gear", good[:2], validation=good[2:]),)), 0)
    assert isinstance(taught, Lesson)
    assert (keys(taught.train), keys(taught.held_out)) == (
        [sample.key() for sample in good[:2]],
        [sample.key() for sample in good[2:]],
    )


def test_replay_follows_the_rule_of_the_scenario(tmp_path: Path) -> None:
    widened, stored = drifting(tmp_path / "a"), on_disk(tmp_path / "b")
    assert keys(lesson(widened, 1).rehearse(100)) == [sample.key() for sample in widened.tasks[1].widened]
    assert len(lesson(stored, 1).rehearse(1)) == 3


# The order of the test images


def test_the_order_can_be_undone(scenario: Scenario) -> None:
    task = scenario.tasks[0]
    photos, order = test_photos(task, seed=5)
    assert sorted(order.tolist()) == list(range(len(task.test)))
    assert keys(photos) == [task.test[n].key() for n in order]
    in_order = np.array(keys(photos))[np.argsort(order)]
    assert in_order.tolist() == [sample.key() for sample in task.test]


def test_the_order_depends_on_seed_and_task_and_on_nothing_a_method_could_guess() -> None:
    one, other = open_scenario("synthetic").tasks[:2]
    cut = replace(other, test=other.test[: len(one.test)])
    orders = [test_photos(task, seed)[1].tolist() for task in (one, cut) for seed in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert test_photos(one, 0)[1].tolist() == orders[0]
    assert np.random.default_rng(0).permutation(len(one.test)).tolist() not in orders


def test_position_says_nothing_about_the_label() -> None:
    task = open_scenario("synthetic").tasks[0]  # normals first, then kind by kind
    labels = np.array([sample.label for sample in task.test])
    correlations = []
    for seed in range(50):
        _, order = test_photos(task, seed)
        correlations.append(np.corrcoef(np.arange(len(labels)), labels[order])[0, 1])
    assert abs(np.mean(correlations)) < 0.06
    assert abs(np.corrcoef(np.arange(len(labels)), labels)[0, 1]) > 0.8


# Checksums


def test_a_checksum_changes_with_pixels_labels_names_and_splits(tmp_path: Path) -> None:
    task = on_disk(tmp_path).tasks[0]
    normal, crack = task.test[0], task.test[1]
    assert isinstance(crack, FileSample)
    changed = [
        task,
        replace(task, train=task.train[:1]),
        replace(task, train=task.train[:1], validation=task.train[1:]),
        replace(task, test=(normal,)),
        replace(task, test=(normal, crack, replace(task.test[2], label=0))),  # type: ignore[type-var]
        replace(task, test=(normal, crack, replace(task.test[2], name="other"))),  # type: ignore[type-var]
        replace(task, test=(normal, crack, replace(task.test[2], drift=ColorDrift(1.1)))),  # type: ignore[type-var]
        replace(task, widened=task.train),
    ]
    checksums = [task_checksum(task) for task in changed]
    assert len(set(checksums)) == len(changed)
    assert all(len(checksum) == 64 for checksum in checksums)
    save(crack.path, seed=99)
    assert task_checksum(task) != checksums[0]


def test_a_checksum_does_not_depend_on_order_or_place(tmp_path: Path) -> None:
    here, there = on_disk(tmp_path / "a").tasks[0], on_disk(tmp_path / "b").tasks[0]
    assert task_checksum(here) == task_checksum(there)
    assert task_checksum(replace(here, train=here.train[::-1], test=here.test[::-1])) == task_checksum(here)


def test_files_are_hashed_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = drifting(tmp_path).tasks[0]
    hashed: list[str] = []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: hashed.append(file.name) or digest(file, name))
    for _ in range(2):
        task_checksum(task)
        lesson(Scenario("one", (task,)), 0)
        test_photos(task, 0)
    assert len(hashed) == len(set(hashed)) == len(task.train) + len(task.test)
