"""The store removes only what it wrote, says what that was, and never leaves its folder."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from store_helpers import HEADER, actual_files, contents, expected_files, teach

from dinosaur_ad.errors import StoreError
from dinosaur_ad.store import Store, TaskStore
from dinosaur_ad.store.versions import KEEP


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of somebody else that looks just like that of a task."""
    folder = tmp_path / "victim"
    (folder / "v0001").mkdir(parents=True)
    for file in ("v0001/manifest.json", "v0001/bank.safetensors", "notes.txt", ".dinosaur-0.tmp"):
        (folder / file).write_text("precious")
    return folder


def tree(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def crash(store: Store) -> None:
    """Leave the store as a writer would that was killed before it wrote anything."""
    (store.path / ".writer").write_text("1\n")


def test_a_linked_task_is_not_swept(folder: Store, victim: Path) -> None:
    teach(folder, "screw", 1)
    before = tree(victim)
    (folder.path / "tasks" / "evil").symlink_to("../../victim")
    for change in (folder.undo, folder.drop, lambda name: teach(folder, name, 1)):
        with pytest.raises(StoreError, match="tasks/evil is a link"):
            change("evil")
    crash(folder)
    teach(folder, "screw", 2)
    folder.prune()
    assert tree(victim) == before
    assert (folder.path / "tasks" / "evil").is_symlink()


def test_a_linked_tasks_folder_is_refused(folder: Store, victim: Path) -> None:
    shutil.copytree(victim, victim.parent / "linked" / "screw")
    before = tree(victim.parent / "linked")
    (folder.path / "tasks").symlink_to("../linked")
    for change in (folder.names, folder.prune, lambda: teach(folder, "screw", 1), lambda: folder.undo("screw")):
        with pytest.raises(StoreError, match="tasks is a link"):
            change()
    with pytest.raises(StoreError, match="tasks is a link"):
        Store.open(folder.path)
    assert tree(victim.parent / "linked") == before


@pytest.mark.parametrize("name", [".writer", ".lock"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "fifo", "folder"])
def test_a_lock_or_mark_that_is_no_file_is_refused(folder: Store, victim: Path, name: str, kind: str) -> None:
    teach(folder, "screw", 1)
    place, target = folder.path / name, victim / "notes.txt"
    place.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(target if kind == "link" else victim / "new")
    with pytest.raises(StoreError, match=rf"\{name} is not a plain file.*remove it"):
        teach(folder, "screw", 2)
    assert target.read_text() == "precious"
    assert not (victim / "new").exists()
    assert contents(Store.open(folder.path)) == {"screw": 1}


def test_a_hard_link_is_not_written_through(folder: Store, victim: Path) -> None:
    (folder.path / ".writer").hardlink_to(victim / "notes.txt")
    teach(folder, "screw", 1)
    assert (victim / "notes.txt").read_text() == "precious"


def test_foreign_files_stay(folder: Store) -> None:
    teach(folder, "screw", 0)
    task = folder.path / "tasks" / "screw"
    foreign = [
        task / "NOTES.txt",
        task / "photos" / "1.png",
        task / "v0001" / "remark.txt",
        task / "v1" / "bank.safetensors",
        folder.path / "tasks" / "old-backup" / "v0001" / "bank.safetensors",
        folder.path / "tasks" / "old-backup" / "anything",
        folder.path / "tasks" / "README",
        folder.path / "mine.txt",
    ]
    for file in foreign:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    for value in range(1, KEEP + 3):
        teach(folder, "screw", value, "update")
    crash(folder)
    teach(folder, "bottle", 1)
    folder.drop("screw")
    folder.undo("bottle")
    folder.prune()
    assert [file.read_text() for file in foreign] == ["mine"] * len(foreign)
    left = {path for path in (folder.path / "tasks").rglob("*") if path.is_file()}
    assert left == {file for file in foreign if "tasks" in file.parts}


def test_a_link_inside_a_version_is_not_removed_and_leads_nowhere(folder: Store, victim: Path) -> None:
    teach(folder, "screw", 0)
    version = folder.path / "tasks" / "screw" / "v0001"
    (version / "reserve.safetensors").symlink_to(victim / "notes.txt")
    (version / "more.safetensors").symlink_to(victim)
    before = tree(victim)
    for value in range(1, KEEP + 1):
        teach(folder, "screw", value, "update")
    assert sorted(path.name for path in version.iterdir()) == ["more.safetensors", "reserve.safetensors"]
    assert tree(victim) == before


def test_what_was_removed_is_said(tasks: TaskStore) -> None:
    for value in range(KEEP):
        teach(tasks, "screw", value)
        assert tasks.removed == []
    teach(tasks, "screw", 9)
    assert tasks.removed == ["tasks/screw/v0001"]
    tasks.drop("screw")
    assert tasks.removed == []
    tasks.prune()
    assert [path for path in tasks.removed if "/v" in path] == [f"tasks/screw/v000{n}" for n in (2, 3, 4)]


def test_a_stopped_writer_of_a_new_task_is_tidied_up_after_by_name(folder: Store) -> None:
    for name in ("half", "foreign"):
        version = folder.path / "tasks" / name / "v0001"
        version.mkdir(parents=True)
        (version / "bank.safetensors").write_text("?")
    (folder.path / ".dinosaur-0.tmp").write_text("?")
    (folder.path / ".writer").write_text("123\nhalf/v0001\n../../x/v0001\nforeign/v0001")  # the last line was cut
    teach(folder, "screw", 1)
    assert sorted(path.name for path in (folder.path / "tasks").iterdir()) == ["foreign", "screw"]
    assert not (folder.path / ".dinosaur-0.tmp").exists()
    assert not (folder.path / ".writer").exists()


def test_a_new_version_is_never_written_into_a_folder_that_is_there(folder: Store) -> None:
    mine = folder.path / "tasks" / "screw" / "v0001" / "bank.safetensors"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(TypeError):
        folder.put("screw", {"bank": {}}, {"bad": object()}, action="learn")  # type: ignore[dict-item]
    with pytest.raises(StoreError, match="nothing to undo"):
        folder.undo("screw")
    assert mine.read_text() == "mine"
    teach(folder, "screw", 1)
    assert folder.record("screw").version == 2


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no file can be written, and none be made."""
    plain = Path.open

    def refuse(path: Path, mode: str = "r", *args: object, **kwargs: object) -> object:
        if {"w", "x", "a"} & set(mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(path, mode, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)


def test_a_full_disk_can_be_freed(folder: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    teach(folder, "screw", 1)
    teach(folder, "bottle", 2)
    teach(folder, "nut", 3)
    with monkeypatch.context() as patch:
        full_disk(patch)
        with pytest.raises(StoreError, match="free some space"):
            teach(folder, "screw", 9)
        folder.drop("screw")
        folder.drop("nut")
        assert contents(Store.open(folder.path)) == {"bottle": 2}
        assert folder.undo("nut") == "forget"
        assert contents(Store.open(folder.path)) == {"bottle": 2, "nut": 3}
        assert folder.prune() == ["screw"]
    assert contents(Store.open(folder.path)) == {"bottle": 2, "nut": 3}
    assert actual_files(folder) == expected_files(folder)


def test_a_task_forgotten_on_a_full_disk_can_be_learned_again(folder: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    teach(folder, "screw", 1)
    with monkeypatch.context() as patch:
        full_disk(patch)
        folder.drop("screw")
    reader = Store.open(folder.path)
    assert reader.names() == []
    teach(folder, "screw", 2)
    assert contents(reader) == {"screw": 2}
    assert actual_files(folder) == expected_files(folder)
    assert [folder.undo("screw"), folder.undo("screw")] == ["learn", "forget"]
    assert contents(reader) == {"screw": 1}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_really_full_disk_can_be_freed(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        store = Store.create(disk / "store", HEADER)
        teach(store, "screw", 0)
        teach(store, "screw", 1)
        teach(store, "bottle", 2)
        with (disk / "ballast").open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        with pytest.raises(StoreError, match="free some space"):
            teach(store, "bottle", 3)
        store.drop("screw")
        assert contents(Store.open(disk / "store")) == {"bottle": 2}
        assert store.prune() == ["screw"]
        teach(store, "bottle", 4)
        assert contents(Store.open(disk / "store")) == {"bottle": 4}
    finally:
        subprocess.run(["umount", disk], check=True)
