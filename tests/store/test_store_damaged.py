"""A damaged task stops nobody else, and the advice that its error gives works."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from store_helpers import contents, reseal, teach, value_of

from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.store import Store


@pytest.fixture
def two(folder: Store) -> Store:
    teach(folder, "screw", 1)
    teach(folder, "screw", 2, "update")
    teach(folder, "bottle", 3)
    return folder


def pointer_of(store: Store) -> Path:
    return store.path / "tasks" / "screw" / "task.json"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda task: flip(task / "task.json"),
    "an empty pointer": lambda task: (task / "task.json").write_bytes(b""),
    "garbage": lambda task: (task / "task.json").write_bytes(b"\x00\xff" * 1000),
    "a deep pointer": lambda task: (task / "task.json").write_bytes(b"[" * 100_000),
    "a link for a pointer": lambda task: replace_by_link(task / "task.json"),
    "a pipe for a pointer": lambda task: ((task / "task.json").unlink(), os.mkfifo(task / "task.json")),
    "a flipped manifest": lambda task: flip(task / "v0002" / "manifest.json"),
    "no manifest": lambda task: (task / "v0002" / "manifest.json").unlink(),
    "a pipe for a manifest": lambda task: (
        (task / "v0002" / "manifest.json").unlink(),
        os.mkfifo(task / "v0002" / "manifest.json"),
    ),
    "no version": lambda task: shutil.rmtree(task / "v0002"),
    "a linked version": lambda task: replace_by_link(task / "v0002"),
}
POINTER_DAMAGES = [name for name in DAMAGES if "pointer" in name or name in ("a flipped bit", "garbage")]


def replace_by_link(path: Path) -> None:
    store = next(folder for folder in path.parents if folder.name == "store")
    elsewhere = store.parent / f"elsewhere-{path.name}"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_others_are_read_taught_and_undone(two: Store, damage: str) -> None:
    DAMAGES[damage](two.path / "tasks" / "screw")
    store = Store.open(two.path)
    assert set(store.names()) == {"bottle", "screw"}
    snapshot = store.snapshot()
    assert list(snapshot.records) == ["bottle"]
    assert "tasks/screw/" in snapshot.damaged["screw"]
    assert snapshot.damaged["screw"].endswith("the other tasks are not affected.")
    for read in (store.record, store.verify):
        with pytest.raises(StoreError, match="tasks/screw/"):
            read("screw")
    assert value_of(store, "bottle") == 3
    teach(store, "new", 4)
    teach(store, "bottle", 5, "update")
    assert store.undo("bottle") == "update"
    store.drop("new")
    assert store.prune() == ["new"]
    assert value_of(Store.open(two.path), "bottle") == 3
    assert set(Store.open(two.path).names()) == {"bottle", "screw"}


@pytest.mark.parametrize("damage", DAMAGES)
def test_it_can_be_forgotten(two: Store, damage: str) -> None:
    DAMAGES[damage](two.path / "tasks" / "screw")
    store = Store.open(two.path)
    store.drop("screw")
    assert contents(Store.open(two.path)) == {"bottle": 3}
    teach(store, "bottle", 4, "update")  # sweeps; nothing of the forgotten one is lost before it is pruned
    assert (two.path / "tasks" / "screw" / "v0001" / "bank.safetensors").exists()
    assert Store.open(two.path).prune() == ["screw"]
    assert Store.open(two.path).names() == ["bottle"]
    assert not (two.path / "tasks" / "screw" / "v0001").exists()
    teach(store, "screw", 7)
    assert contents(Store.open(two.path)) == {"bottle": 4, "screw": 7}


@pytest.mark.parametrize("damage", DAMAGES)
def test_it_can_be_learned_anew(two: Store, damage: str) -> None:
    DAMAGES[damage](two.path / "tasks" / "screw")
    teach(Store.open(two.path), "screw", 7)
    assert contents(Store.open(two.path)) == {"bottle": 3, "screw": 7}


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name not in POINTER_DAMAGES])
def test_undo_leads_back_to_an_intact_version(two: Store, damage: str) -> None:
    DAMAGES[damage](two.path / "tasks" / "screw")
    assert Store.open(two.path).undo("screw") == "update"
    assert contents(Store.open(two.path)) == {"screw": 1, "bottle": 3}


@pytest.mark.parametrize("damage", POINTER_DAMAGES)
def test_undo_finds_the_newest_intact_version_without_a_pointer(two: Store, damage: str) -> None:
    DAMAGES[damage](two.path / "tasks" / "screw")
    assert Store.open(two.path).undo("screw") == "damage"
    store = Store.open(two.path)
    assert contents(store) == {"screw": 2, "bottle": 3}
    assert store.names() == ["screw", "bottle"], "it has its place back"
    assert store.undo("screw") == "update"
    assert contents(store) == {"screw": 1, "bottle": 3}


def test_undo_passes_over_damaged_versions(two: Store) -> None:
    teach(two, "screw", 4, "update")
    flip(two.path / "tasks" / "screw" / "v0002" / "bank.safetensors")
    assert two.undo("screw") == "update"
    assert value_of(two, "screw") == 1


def test_undo_does_not_trust_a_damaged_manifest_without_a_pointer(two: Store) -> None:
    pointer_of(two).write_bytes(b"")
    flip(two.path / "tasks" / "screw" / "v0002" / "manifest.json")
    assert two.undo("screw") == "damage"
    assert value_of(two, "screw") == 1


def test_undo_says_what_can_be_done_where_it_cannot_help(two: Store) -> None:
    for version in ("v0001", "v0002"):
        flip(two.path / "tasks" / "screw" / version / "bank.safetensors")
    with pytest.raises(StoreError, match=r"no earlier version .* intact .*v0001.* forget the task"):
        two.undo("screw")
    pointer_of(two).write_bytes(b"")
    with pytest.raises(StoreError, match=r"cannot be brought back: .*learn the task anew .* or forget it"):
        two.undo("screw")
    assert (two.path / "tasks" / "screw" / "v0001" / "bank.safetensors").exists()
    two.drop("screw")
    assert contents(two) == {"bottle": 3}


def test_forgetting_a_damaged_task_can_be_taken_back(two: Store) -> None:
    sound = pointer_of(two).read_bytes()
    flip(pointer_of(two))
    two.drop("screw")
    with pytest.raises(StoreError, match="forgotten"):
        two.record("screw")
    assert two.undo("screw") == "forget"
    assert list(two.snapshot().damaged) == ["screw"]
    pointer_of(two).write_bytes(sound)  # from a backup
    assert value_of(two, "screw") == 2


def test_a_forgotten_damaged_task_can_be_learned_anew(two: Store) -> None:
    flip(pointer_of(two))
    two.drop("screw")
    teach(two, "screw", 7)
    assert contents(two) == {"bottle": 3, "screw": 7}
    assert not (two.path / "tasks" / "screw" / "forgotten.json").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_advises_permissions(two: Store) -> None:
    pointer_of(two).chmod(0)
    _assert_permissions_are_advised(two)


def test_a_refused_file_advises_permissions(two: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = os.open

    def refuse(path: object, *args: object, **kwargs: object) -> int:
        if str(path).endswith("screw/task.json"):
            raise PermissionError(13, "Permission denied")
        return plain(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    _assert_permissions_are_advised(two)


def _assert_permissions_are_advised(two: Store) -> None:
    store = Store.open(two.path)
    assert list(store.snapshot().records) == ["bottle"]
    for change in (store.record, store.drop, store.undo, lambda name: teach(store, name, 9)):
        with pytest.raises(StoreError, match=r"Permission denied.*check its permissions") as refusal:
            change("screw")
        assert "remove" not in str(refusal.value)
        assert "forget" not in str(refusal.value)


def test_a_linked_task_folder_is_named_and_left_alone(two: Store, tmp_path: Path) -> None:
    replace_by_link(two.path / "tasks" / "screw")
    before = sorted(path.name for path in (tmp_path / "elsewhere-screw").rglob("*"))
    store = Store.open(two.path)
    assert set(store.names()) == {"bottle", "screw"}
    assert "remove the link" in store.snapshot().damaged["screw"]
    for change in (store.record, store.drop, store.undo, lambda name: teach(store, name, 9)):
        with pytest.raises(StoreError, match="tasks/screw is a link"):
            change("screw")
    teach(store, "bottle", 4)
    assert sorted(path.name for path in (tmp_path / "elsewhere-screw").rglob("*")) == before
    (two.path / "tasks" / "screw").unlink()  # the advice
    assert contents(Store.open(two.path)) == {"bottle": 4}


def test_a_folder_in_the_place_of_a_pointer_is_left_to_the_user(two: Store) -> None:
    sound = pointer_of(two).read_bytes()
    pointer_of(two).unlink()
    (pointer_of(two) / "mine").mkdir(parents=True)
    store = Store.open(two.path)
    assert list(store.snapshot().records) == ["bottle"]
    for change in (store.record, store.drop, store.undo, lambda name: teach(store, name, 9)):
        with pytest.raises(StoreError, match=r"it is a folder.*remove that folder and restore the file"):
            change("screw")
    shutil.rmtree(pointer_of(two))
    pointer_of(two).write_bytes(sound)
    assert contents(store) == {"screw": 2, "bottle": 3}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", "../../../etc"),
        ("version", -1),
        ("version", 99),
        ("version", True),
        ("version", 0),
        ("ordinal", None),
        ("date", "yesterday"),
        ("sha256", "../x"),
        ("action", 3),
        ("change", 1.5),
    ],
)
def test_a_pointer_that_leads_astray_is_not_followed(two: Store, field: str, value: object) -> None:
    reseal(pointer_of(two), lambda document: document["states"][-1].update({field: value}))
    forged = pointer_of(two).read_bytes()
    store = Store.open(two.path)
    with pytest.raises(StoreError, match=r"tasks/screw/task.json .* other tasks are not affected"):
        store.record("screw")
    assert store.names() == ["bottle", "screw"]
    assert value_of(store, "bottle") == 3
    assert pointer_of(two).read_bytes() == forged
    assert store.undo("screw") == "damage"
    assert value_of(store, "screw") == 2


def test_a_pointer_of_a_newer_version_is_neither_used_nor_overwritten(two: Store) -> None:
    reseal(pointer_of(two), lambda document: document.update(format=4))
    for change in (two.record, two.drop, two.undo, lambda name: teach(two, name, 9)):
        with pytest.raises(StoreError, match=r"newer DINOSaur, in format 4.*upgrade dinosaur-ad"):
            change("screw")
    assert json.loads(pointer_of(two).read_bytes())["format"] == 4


def test_an_unknown_task_is_still_unknown(two: Store) -> None:
    with pytest.raises(InputError, match="There is no task 'nut'"):
        two.drop("nut")
    for change in (two.undo, two.redo):
        with pytest.raises(StoreError, match=r"nothing to (un|re)do for task 'nut'"):
            change("nut")
        with pytest.raises(InputError, match=r"There is no task 'scerw' .*, did you mean screw"):
            change("scerw")
    assert not (two.path / "tasks" / "nut").exists()
