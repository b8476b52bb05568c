"""Every change can be taken back, and is noticed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from store_helpers import actual_files, contents, expected_files, manifest, teach, value_of

from dinosaur_ad.errors import InputError, StoreError, VersionGoneError
from dinosaur_ad.store import Store, TaskStore, versions
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


def test_changes_of_settings_do_not_cost_the_undo_of_what_was_taught(tasks: TaskStore) -> None:
    teach(tasks, "screw", 1)
    teach(tasks, "screw", 2, "set")
    for value in range(3, 9):
        teach(tasks, "screw", value, "update" if value == 3 else "set" if value % 2 else "defect")
    undone = [(tasks.undo("screw"), value_of(tasks, "screw")) for _ in range(5)]
    assert undone == [("defect", 7), ("set", 6), ("defect", 3), ("update", 2), ("set", 1)]
    assert [tasks.redo("screw") for _ in range(5)] == ["set", "update", "defect", "set", "defect"]
    assert value_of(tasks, "screw") == 8
    for value in range(9, 40):
        teach(tasks, "screw", value, "update" if value % 4 == 0 else "set")
    assert len(tasks._pointer("screw").versions) <= 3 * KEEP - 1, "the disk does not fill up"
    assert not actual_files(tasks) - expected_files(tasks) if isinstance(tasks, Store) else True


def test_a_damaged_pointer_is_recovered_with_all_that_undo_could_go_to(folder: Store) -> None:
    for value, action in enumerate(["learn", "set", "set", "set"], start=1):
        teach(folder, "screw", value, action)
    (folder.path / "tasks/screw/task.json").write_bytes(b"{}")
    store = Store.open(folder.path)
    assert [(store.undo("screw"), value_of(store, "screw")) for _ in range(4)] == [
        ("damage", 4),
        ("set", 3),
        ("set", 2),
        ("set", 1),
    ]


@given(st.lists(st.sampled_from(["put", "set", "drop", "undo", "redo"]), max_size=20))
@example(["put"] * (KEEP + 2))
@example(["put"] + ["set"] * (KEEP + 2) + ["undo"] * KEEP)
def test_undo_takes_back_exactly_the_last_change(changes: list[str]) -> None:
    pointer, before, undone, used = Pointer(), [], [], []
    for change in changes:
        if change == "undo" and before:
            undone.append(pointer.current)
            pointer = pointer.undone()
            assert pointer.current == before.pop()
        elif change == "redo" and undone:
            before.append(pointer.current)
            pointer = pointer.redone()
            assert pointer.current == undone.pop()
        elif change == "put" or (change in ("set", "drop") and pointer.exists):
            before.append(pointer.current)
            undone = []
            if change == "drop":
                pointer = pointer.dropped()
            else:
                used.append(pointer.next_version)
                state = pointer.next_state("learn" if change == "put" else "set", ordinal=1, change=1)
                pointer = pointer.with_version(replace(state, sha256="0" * 64), {})
            left = [state for state in before if state in pointer.states]
            taught = [state for state in before if state.action == "learn"][-KEEP + (change == "put") :]
            assert set(taught) <= set(left), "what was taught stays within reach"
            assert before[1 - KEEP :] == left[1 - KEEP :], "and so do the last changes"
            before = left
            assert len(pointer.versions) < 3 * KEEP
        assert len(pointer.redo) == len(undone)
        assert Pointer.decode(pointer.encode()) == pointer
    assert len(set(used)) == len(used), "a version number stands for one content only"


def test_redo_makes_again_what_undo_took_back(tasks: TaskStore) -> None:
    teach(tasks, "screw", 1)
    teach(tasks, "screw", 2, "update")
    tasks.drop("screw")
    assert [tasks.undo("screw") for _ in range(3)] == ["forget", "update", "learn"]
    assert tasks.names() == []
    with pytest.raises(InputError, match="its learning was undone, and redo brings it back"):
        tasks.record("screw")
    assert tasks.redoable("screw") == "learn"
    assert (tasks.redo("screw"), value_of(tasks, "screw")) == ("learn", 1)
    assert (tasks.redo("screw"), value_of(tasks, "screw")) == ("update", 2)
    assert (tasks.redo("screw"), tasks.names()) == ("forget", [])
    assert tasks.redoable("screw") is None
    with pytest.raises(StoreError, match=r"nothing to redo for task 'screw'.*not an undo"):
        tasks.redo("screw")
    assert [entry["action"] for entry in tasks._pointer("screw").history][-2:] == ["redo update", "redo forget"]


@pytest.mark.parametrize("change", ["put", "drop"])
def test_another_change_ends_what_redo_could_do(tasks: TaskStore, change: str) -> None:
    for value in (1, 2):
        teach(tasks, "screw", value)
    tasks.undo("screw")
    teach(tasks, "screw", 3) if change == "put" else tasks.drop("screw")
    assert any("v0002" in path for path in tasks.removed), "the undone version is removed"
    with pytest.raises(StoreError, match="nothing to redo"):
        tasks.redo("screw")
    tasks.undo("screw")
    assert value_of(tasks, "screw") == 1


def test_redo_passes_over_a_damaged_version(folder: Store) -> None:
    for value in (1, 2, 3):
        teach(folder, "screw", value)
    folder.undo("screw")
    folder.undo("screw")
    (folder.path / "tasks/screw/v0002/bank.safetensors").write_bytes(b"")
    assert (folder.redo("screw"), value_of(folder, "screw")) == ("learn", 3)
    folder.undo("screw")
    (folder.path / "tasks/screw/v0003/manifest.json").write_bytes(b"{}")
    with pytest.raises(StoreError, match="cannot be made again: no later version of it"):
        folder.redo("screw")
    assert value_of(folder, "screw") == 1


def test_a_task_whose_learning_was_undone_is_pruned_like_a_forgotten_one(folder: Store) -> None:
    teach(folder, "screw", 1)
    folder.undo("screw")
    assert folder.prune() == ["screw"]
    assert not (folder.path / "tasks/screw").exists()
    with pytest.raises(StoreError, match="nothing to redo"):
        folder.redo("screw")


def test_a_pointer_names_format_3_only_while_there_is_something_to_redo(folder: Store) -> None:
    pointer = folder.path / "tasks/screw/task.json"
    teach(folder, "screw", 1)
    plain = json.loads(pointer.read_bytes())
    assert (plain["format"], "redo" in plain) == (2, False)
    folder.undo("screw")
    assert json.loads(pointer.read_bytes())["format"] == 3
    folder.redo("screw")
    assert json.loads(pointer.read_bytes())["format"] == 2


def test_rename_keeps_history_undo_and_redo(tasks: TaskStore) -> None:
    for value in (1, 2, 3):
        teach(tasks, "screw", value)
    teach(tasks, "nut", 9)
    tasks.undo("screw")
    before = tasks.record("screw")
    stamp = tasks.stamp()
    tasks.rename("screw", "bolt")
    assert tasks.stamp() != stamp
    assert tasks.names() == ["bolt", "nut"], "the order of learning stays"
    assert contents(tasks) == {"bolt": 2, "nut": 9}
    assert replace(tasks.record("bolt"), name="screw") == before
    with pytest.raises(VersionGoneError):
        tasks.arrays(before, "bank")
    assert (tasks.redo("bolt"), value_of(tasks, "bolt")) == ("learn", 3)
    assert (tasks.undo("bolt"), tasks.undo("bolt"), value_of(tasks, "bolt")) == ("learn", "learn", 1)
    tasks.rename("bolt", "screw")
    teach(tasks, "bolt", 5)
    assert contents(tasks) == {"screw": 1, "nut": 9, "bolt": 5}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("screw", "nut", "There is a task 'nut' already; choose another name"),
        ("screw", "screw", "There is a task 'screw' already"),
        ("screw", "gone", "'gone' already, forgotten or undone: tasks --prune removes it"),
        ("screw", "NUT", "differs only in case from the task 'nut'"),
        ("screw", "../nut", "A task cannot be called '../nut'"),
        ("gone", "new", "it was forgotten, and undo brings it back"),
        ("bolt", "new", "There is no task 'bolt'"),
    ],
)
def test_rename_refuses_what_is_taken_bad_or_missing(tasks: TaskStore, old: str, new: str, sentence: str) -> None:
    for value, name in enumerate(["screw", "nut", "gone"]):
        teach(tasks, name, value)
    tasks.drop("gone")
    with pytest.raises(InputError, match=re.escape(sentence)):
        tasks.rename(old, new)
    assert contents(tasks) == {"screw": 0, "nut": 1}


def test_rename_leaves_foreign_files_and_links_alone(folder: Store, tmp_path: Path) -> None:
    teach(folder, "screw", 1)
    (folder.path / "tasks/notes").mkdir()
    (folder.path / "tasks/notes/mine.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"There are other files in .*notes: choose another name"):
        folder.rename("screw", "notes")
    (folder.path / "tasks/link").symlink_to(tmp_path)
    with pytest.raises(InputError, match="There is a task 'link' already"):
        folder.rename("screw", "link")
    (folder.path / "tasks/link").unlink()
    (folder.path / "tasks/empty").mkdir()
    folder.rename("screw", "empty")
    assert contents(Store.open(folder.path)) == {"empty": 1}


def test_a_task_may_change_its_case(tasks: TaskStore) -> None:
    teach(tasks, "screw", 1)
    tasks.rename("screw", "Screw")
    assert contents(tasks) == {"Screw": 1}


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
