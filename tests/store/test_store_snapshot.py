"""A reader sees all tasks at one moment; damage and change of one of them stop nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_helpers import teach

from dinosaur_ad.errors import StoreError, VersionGoneError
from dinosaur_ad.store import Snapshot, Store, TaskStore, names, versions


def values(snapshot: Snapshot) -> dict[str, float]:
    return {name: record.manifest["value"] for name, record in snapshot.records.items()}


def test_a_snapshot_has_all_tasks_in_the_order_learned(tasks: TaskStore) -> None:
    assert tasks.snapshot()[1:] == ({}, {})
    teach(tasks, "zip", 1)
    teach(tasks, "bottle", 2)
    assert list(values(tasks.snapshot()).items()) == [("zip", 1), ("bottle", 2)]
    assert tasks.snapshot().damaged == {}


def test_a_snapshot_is_the_same_until_something_changes(tasks: TaskStore) -> None:
    teach(tasks, "screw", 1)
    teach(tasks, "bottle", 2)
    first = tasks.snapshot()
    assert tasks.snapshot() is first
    teach(tasks, "screw", 3, "update")
    second = tasks.snapshot()
    assert (values(first)["screw"], values(second)["screw"]) == (1, 3)
    assert second.stamp != first.stamp
    assert second.records["bottle"] is first.records["bottle"]
    tasks.drop("screw")
    assert list(tasks.snapshot().records) == ["bottle"]


@pytest.mark.parametrize("file", ["task.json", "v0001/manifest.json"])
def test_a_damaged_task_is_named_and_the_others_are_there(folder: Store, file: str) -> None:
    teach(folder, "screw", 1)
    teach(folder, "bottle", 2)
    path = folder.path / "tasks" / "screw" / file
    sound = path.read_bytes()
    path.write_bytes(b"{}")
    snapshot = Store.open(folder.path).snapshot()
    assert values(snapshot) == {"bottle": 2}
    assert list(snapshot.damaged) == ["screw"]
    assert file in snapshot.damaged["screw"]
    path.write_bytes(sound)
    assert values(Store.open(folder.path).snapshot()) == {"screw": 1, "bottle": 2}


@pytest.mark.parametrize("file", ["task.json", "v0001/manifest.json"])
def test_a_restored_task_is_noticed(folder: Store, file: str) -> None:
    teach(folder, "screw", 1)
    path = folder.path / "tasks" / "screw" / file
    sound = path.read_bytes()
    path.write_bytes(b"{}")
    reader = Store.open(folder.path)
    assert list(reader.snapshot().damaged) == ["screw"]
    path.write_bytes(sound)
    assert values(reader.snapshot()) == {"screw": 1}


def test_what_vanishes_between_listing_and_reading_is_left_out(folder: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    teach(folder, "screw", 1)
    teach(folder, "bottle", 2)
    reader, plain = Store.open(folder.path), Store.record

    def record(store: Store, name: str) -> object:
        if name == "screw" and "screw" in folder:
            folder.drop("screw")
            folder.prune()
        return plain(store, name)

    monkeypatch.setattr(Store, "record", record)
    assert values(reader.snapshot()) == {"bottle": 2}
    assert reader.snapshot().damaged == {}


def test_a_version_that_is_gone_has_an_error_of_its_own(tasks: TaskStore) -> None:
    teach(tasks, "screw", 0)
    old = tasks.snapshot().records["screw"]
    for value in range(1, versions.KEEP + 1):
        assert tasks.arrays(old, "bank")["patches"][0, 0] == 0
        teach(tasks, "screw", value, "update")
    with pytest.raises(VersionGoneError, match="no longer in the store"):
        tasks.arrays(old, "bank")
    current = tasks.snapshot().records["screw"]
    tasks.drop("screw")
    assert tasks.arrays(current, "bank")["patches"][0, 0] == versions.KEEP
    tasks.prune()
    with pytest.raises(VersionGoneError, match="no longer in the store"):
        tasks.arrays(current, "bank")


def test_damage_is_not_taken_for_a_version_that_is_gone(folder: Store) -> None:
    teach(folder, "screw", 1)
    record = folder.snapshot().records["screw"]
    Path(folder.path / names.array_path("screw", 1, "bank")).unlink()
    with pytest.raises(StoreError, match="No such file") as refusal:
        folder.arrays(record, "bank")
    assert not isinstance(refusal.value, VersionGoneError)
