"""Every change can be taken back, and is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from store_helpers import contents, manifest, teach, value_of

from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.store import TaskStore, versions
from dinosaur_ad.store.versions import KEEP, Pointer


def test_names_keep_the_order_of_learning(tasks: TaskStore) -> None:
    for number, name in enumerate(["zip", "bottle", "metal_nut"]):
        teach(tasks, name, number)
    teach(tasks, "zip", 9, "update")
    assert tasks.names() == ["zip", "bottle", "metal_nut"]
    tasks.drop("zip")
    teach(tasks, "zip", 10)
    assert tasks.names() == ["bottle", "metal_nut", "zip"]
    tasks.undo("zip")
    tasks.undo("zip")
    assert tasks.names() == ["zip", "bottle", "metal_nut"]


def test_a_record_says_what_happened(tasks: TaskStore) -> None:
    teach(tasks, "screw", 1)
    first = tasks.record("screw")
    teach(tasks, "screw", 2, "update")
    second = tasks.record("screw")
    assert (second.version, second.action, second.created) == (2, "update", first.created)
    assert second.id != first.id
    assert [(entry["action"], entry["version"], entry["images"]) for entry in second.history] == [
        ("learn", 1, 5),
        ("update", 2, 5),
    ]
    assert tasks.undo("screw") == "update"
    assert tasks.record("screw").id == first.id
    assert tasks.record("screw").history[-1]["action"] == "undo update"


def test_undo_goes_back_step_by_step(tasks: TaskStore) -> None:
    teach(tasks, "screw", 1)
    teach(tasks, "screw", 2, "update")
    tasks.drop("screw")
    assert "screw" not in tasks
    with pytest.raises(InputError, match="forgotten, and undo brings it back"):
        tasks.record("screw")
    assert (tasks.undo("screw"), value_of(tasks, "screw")) == ("forget", 2)
    assert (tasks.undo("screw"), value_of(tasks, "screw")) == ("update", 1)
    assert (tasks.undo("screw"), tasks.names()) == ("learn", [])
    with pytest.raises(StoreError, match="nothing to undo"):
        tasks.undo("screw")


def test_only_the_last_versions_are_kept(tasks: TaskStore) -> None:
    for value in range(6):
        teach(tasks, "screw", value)
    tasks.undo("screw")
    tasks.undo("screw")
    assert value_of(tasks, "screw") == 3
    with pytest.raises(StoreError, match="at the most 3 are kept"):
        tasks.undo("screw")
    assert value_of(tasks, "screw") == 3


def test_a_record_never_gets_the_arrays_of_another_version(tasks: TaskStore) -> None:
    teach(tasks, "screw", 1)
    old = tasks.record("screw")
    teach(tasks, "screw", 2, "update")
    assert tasks.arrays(old, "bank")["patches"][0, 0] == 1
    tasks.undo("screw")
    tasks.undo("screw")
    teach(tasks, "screw", 3)  # version 1 once more, of the same size
    with pytest.raises(StoreError, match="read the record of the task again"):
        tasks.arrays(old, "bank")


def test_prune_removes_forgotten_tasks_for_good(tasks: TaskStore) -> None:
    teach(tasks, "screw", 1)
    teach(tasks, "bottle", 2)
    tasks.drop("screw")
    assert tasks.prune() == ["screw"]
    assert contents(tasks) == {"bottle": 2}
    with pytest.raises(StoreError, match="nothing to undo"):
        tasks.undo("screw")


def test_stamp_changes_with_every_change_and_only_then(tasks: TaskStore) -> None:
    changes: list[Callable[[], object]] = [
        lambda: teach(tasks, "screw", 1),
        lambda: teach(tasks, "screw", 2),
        lambda: tasks.undo("screw"),
        lambda: tasks.drop("screw"),
        lambda: tasks.prune(),
    ]
    for change in changes:
        before = tasks.stamp()
        contents(tasks)
        assert tasks.stamp() == before
        change()
        assert tasks.stamp() != before


def test_an_unchanged_record_is_not_read_again_and_a_changed_one_is(tasks: TaskStore) -> None:
    teach(tasks, "screw", 1)
    first = tasks.record("screw")
    teach(tasks, "bottle", 2)
    assert tasks.record("screw") is first
    teach(tasks, "screw", 3, "update")
    assert tasks.record("screw").manifest == manifest(3)


@given(st.lists(st.sampled_from(["put", "drop", "undo"]), max_size=20))
@example(["put"] * (KEEP + 2))
def test_undo_takes_back_exactly_the_last_change(changes: list[str]) -> None:
    pointer, before, used = Pointer(), [], []
    for change in changes:
        if change == "undo" and before:
            pointer = pointer.undone()
            assert pointer.current == before.pop()
        elif change == "put" or (change == "drop" and pointer.exists):
            before.append(pointer.current)
            if change == "put":
                kept = min(len(pointer.versions) + 1, KEEP)
                used.append(pointer.next_version)
                state = pointer.next_state("learn", ordinal=1, change=1)
                pointer = pointer.with_version(replace(state, sha256="0" * 64), {})
                assert len(pointer.versions) == kept
            else:
                pointer = pointer.dropped()
            before = before[len(before) + 1 - len(pointer.states) :]
        assert Pointer.decode(pointer.encode()) == pointer
    assert len(set(used)) == len(used), "a version number stands for one content only"


def test_a_clock_that_is_set_back_does_not_matter(tasks: TaskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for year, name in zip((2030, 2020, 2010, 1990, 1970), ["zip", "bottle", "nut", "zip", "zip"], strict=True):
        monkeypatch.setattr(versions, "now", lambda year=year: f"{year}-01-01T00:00:00+00:00")
        teach(tasks, name, year)
    assert tasks.names() == ["zip", "bottle", "nut"]
    records = tasks.snapshot().records
    assert sorted(records, key=lambda name: records[name].change) == ["bottle", "nut", "zip"]
    assert records["zip"].version == 3
    assert (tasks.undo("zip"), value_of(tasks, "zip")) == ("learn", 1990)


def test_every_change_of_the_store_has_a_larger_number(tasks: TaskStore) -> None:
    numbers = []
    for name in ("screw", "bottle", "screw", "nut", "bottle"):
        teach(tasks, name, 1)
        numbers.append(tasks.record(name).change)
    assert numbers == [1, 2, 3, 4, 5]
