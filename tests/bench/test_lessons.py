"""What methods get to see, and that it is all they can get at."""

from __future__ import annotations

import copy
import gc
import hashlib
import multiprocessing
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dinosaur_ad.bench.lessons import lesson, photo, task_checksum, test_photos
from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.datasets import ColorDrift, DriftedSample, FileSample, Sample, Scenario, Task, mvtec_scenario
from dinosaur_ad.datasets.synthetic import SyntheticSample, synthetic_drift_scenario, synthetic_scenario
from dinosaur_ad.methods import photo as photo_module
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


def parts(thing: Any) -> Iterator[object]:
    """All that one step leads to: what the collector sees, attributes, items, bound arguments, closures, globals."""
    yield from gc.get_referents(thing)
    if type(thing).__module__ != "builtins":
        yield from (repr(thing), str(thing))
    if isinstance(thing, FunctionType):
        yield from (cell.cell_contents for cell in thing.__closure__ or () if cell != CellType())
        yield from (thing.__defaults__, thing.__kwdefaults__, thing.__dict__, thing.__globals__)
    if isinstance(thing, partial):
        yield from (thing.func, thing.args, thing.keywords)
    for name in ("__self__", "__func__", "__wrapped__", "__dict__", "__callback__"):
        yield getattr(thing, name, None)
    for name in (name for kind in type(thing).__mro__ for name in kind.__dict__.get("__slots__", ())):
        yield getattr(thing, name, None)
    if isinstance(thing, Photo | Lesson):
        yield vars(thing)
        yield from (getattr(thing, name) for name in dir(thing))


def imported(thing: object) -> bool:
    """Modules, and code of other modules than those of photo and lesson: these lead to the whole process, see below."""
    ours = ("dinosaur_ad.methods.photo", "dinosaur_ad.methods.contract", __name__)
    code = isinstance(thing, type | FunctionType | BuiltinFunctionType)
    return isinstance(thing, ModuleType) or (code and getattr(thing, "__module__", None) not in ours)


def reachable(root: object) -> list[Any]:
    """Everything that can be got at from ``root``, through its types and their globals too; not what they import."""
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or imported(thing) or thing is globals():
            continue
        seen[id(thing)] = thing
        waiting += parts(thing)
    return list(seen.values())


def forbidden(root: object, scenario: Scenario) -> list[object]:
    """What a method must not get at: samples, tasks, files, and the words that tell a defect or a place."""
    samples = [sample for task in scenario.tasks for sample in (*task.train, *task.validation, *task.test)]
    files = {path for each in samples if isinstance(each, FileSample) for path in (each.path, *each.mask_paths)}
    words = {sample.name for sample in samples} | {sample.kind for sample in samples} - {"good"}
    words |= {text for path in files for text in (str(path), str(path.parent))}
    # Not the words of the types themselves: a field of the workbench is called like a defect, "scratch".
    words -= {text for text in reachable(Lesson("any", (Photo("any", bytes),))) if isinstance(text, str)}  # type: ignore[arg-type]
    things = reachable(root)
    return [
        *(thing for thing in things if isinstance(thing, FileSample | DriftedSample | SyntheticSample)),
        *(thing for thing in things if isinstance(thing, Task | Scenario)),
        *(thing for thing in things if isinstance(thing, Path) and thing in files),
        *(thing for thing in things if isinstance(thing, str) and thing in words),
    ]


def test_nothing_but_pixels_can_be_reached_from_a_lesson_or_a_test_photo(scenario: Scenario) -> None:
    for index, task in enumerate(scenario.tasks):
        shown = (lesson(scenario, index), test_photos(task, 0)[0])
        assert len(reachable(shown)) > 100
        assert forbidden(shown, scenario) == []


@pytest.mark.parametrize("hide", [lambda image: image, lambda image: partial(image), lambda image: lambda: image()])
def test_a_loader_is_out_of_reach_whatever_it_holds(hide: Callable[..., Any], scenario: Scenario) -> None:
    photo = Photo("key", hide(scenario.tasks[0].test[-1].image))
    assert photo.pixels().ndim == 3
    assert forbidden(photo, scenario) == []


def test_the_search_finds_what_is_hidden(scenario: Scenario) -> None:
    task = scenario.tasks[0]
    bound = task.test[-1].image

    class Slotted:
        __slots__ = ("inner",)

        def __init__(self) -> None:
            self.inner = task.test[-1]

    class Told:
        def __repr__(self) -> str:
            return task.test[-1].name

    def default(hidden: Sample = task.test[-1]) -> object:
        return hidden

    for leak in (bound, partial(bound), lambda: task.test[0].image(), default, Slotted(), [{"a": (bound,)}], Told()):
        assert forbidden(leak, scenario)


def test_neither_key_nor_pickle_tells_a_kind_or_a_path(scenario: Scenario) -> None:
    for sample in scenario.tasks[0].test:
        shown = photo(sample)
        assert re.fullmatch(r"[0-9a-f]{32}", shown.key)
        pickled = pickle.dumps(shown)
        words = [sample.name, *([sample.kind] if sample.label else [])]
        words += [str(sample.path), sample.path.name] if isinstance(sample, FileSample) else []
        assert not [word for word in words if word.encode() in pickled or word in repr(shown)]


WALK = """
import gc, sys
from pathlib import Path
from dinosaur_ad.bench.lessons import lesson, test_photos
from dinosaur_ad.datasets import Sample, Scenario, Task, mvtec_scenario

def everything(root):
    seen, waiting = {}, [root]
    while waiting:
        thing = waiting.pop()
        if id(thing) not in seen:
            seen[id(thing)] = thing
            waiting += gc.get_referents(thing)
    return list(seen.values())

def walk(shown):
    things = everything(shown)
    assert any(thing is sys.modules for thing in things) and len(things) > 10_000
    bad = [thing for thing in things if isinstance(thing, (Task, Scenario)) or (
        not isinstance(thing, type) and type(thing).__name__ in ("FileSample", "DriftedSample"))]
    bad += [thing for thing in things if isinstance(thing, Path) and "crack" in str(thing)]
    bad += [thing for thing in things if isinstance(thing, str) and thing.endswith(("crack", "crack/0.png"))]
    print(len(bad), bad[:3])

def show(root):
    scenario = mvtec_scenario(Path(root))
    shown = (lesson(scenario, 1), test_photos(scenario.tasks[0], 0)[0])
    shown[1][0].pixels()
    walk(shown)

show(sys.argv[1])
"""


def test_the_whole_process_as_the_collector_sees_it_leads_to_no_test_image(tmp_path: Path) -> None:
    """From a photo through types, globals and modules to all that ``gc.get_referents`` ever finds."""
    on_disk(tmp_path)
    command = [sys.executable, "-c", WALK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "0 []\n"


# What becomes of the loaders


def held() -> int:
    gc.collect()
    loaders = photo_module._LOADERS()
    assert loaders is not None
    return len(loaders)


def test_a_loader_goes_with_the_last_copy_of_its_photo(scenario: Scenario) -> None:
    before = held()
    shown = photo(scenario.tasks[0].train[0])
    other = copy.deepcopy(shown)
    assert other == shown
    assert held() == before + 1
    del shown
    assert other.pixels().ndim == 3
    del other
    assert held() == before


def test_a_photo_can_be_loaded_in_a_forked_process_and_says_so_in_another(tmp_path: Path) -> None:
    shown = photo(on_disk(tmp_path).tasks[0].train[0])
    with multiprocessing.get_context("fork").Pool(1) as pool:
        np.testing.assert_array_equal(pool.map(Photo.pixels, [shown])[0], shown.pixels())
    code = "import pickle, sys; pickle.load(sys.stdin.buffer).pixels()"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(shown), capture_output=True, timeout=60)
    assert b"InputError: The photo '" + shown.key.encode() + b"' was made in another process" in done.stderr


# What is taught


def test_a_photo_has_the_pixels_and_the_key_of_its_sample(scenario: Scenario) -> None:
    for sample in (scenario.tasks[1].train[0], scenario.tasks[1].test[-1]):
        shown = photo(sample)
        assert shown.key == sample.key()
        assert np.array_equal(shown.pixels(), sample.image())
        assert np.array_equal(pickle.loads(pickle.dumps(shown)).pixels(), sample.image())


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
