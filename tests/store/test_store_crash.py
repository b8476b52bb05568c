"""Whatever stops a change, the store is the old one or the new one, and nothing is left over for long."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from store_helpers import HEADER, actual_files, contents, expected_files, redo_steps, teach, undo_steps

from dinosaur_ad.errors import StoreError
from dinosaur_ad.store import Store


class Died(BaseException):
    """The process is gone: nothing after this can touch the disk."""


class Faults:
    """Counts what reaches the disk, and raises at one of these steps (a write is first half done)."""

    def __init__(self, fail_at: int, error: BaseException) -> None:
        self.step, self.fail_at, self.error = 0, fail_at, error

    def __call__(self) -> None:
        self.step += 1
        if self.step == self.fail_at or (self.step > self.fail_at and isinstance(self.error, Died)):
            raise self.error

    @contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module, name in [(os, "replace"), (os, "mkdir"), (os, "unlink"), (os, "rmdir")]:
                patch.setattr(module, name, self._before(getattr(module, name)))
            patch.setattr(os, "fsync", lambda descriptor: self())
            patch.setattr(Path, "open", self._open(Path.open))
            yield

    def _before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            self()
            return function(*args, **kwargs)

        return step

    def _open(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if not {"w", "x"} & set(mode):
                return function(path, mode, *args, **kwargs)
            self()
            file = function(path, mode, *args, **kwargs)
            return HalfWriter(file, self)

        return step


class HalfWriter:
    def __init__(self, file: Any, faults: Faults) -> None:
        self.file, self.faults = file, faults

    def __enter__(self) -> HalfWriter:
        return self

    def __exit__(self, *details: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: Any) -> int:
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        self.faults()
        return int(self.file.write(data[len(data) // 2 :]))


CHANGES: dict[str, Callable[[Store], object]] = {
    "first learn": lambda target: teach(target, "new", 7),
    "update that drops an old version": lambda target: teach(target, "full", 7, "update"),
    "learn again after forgetting": lambda target: teach(target, "gone", 7),
    "forget": lambda target: target.drop("full"),
    "undo": lambda target: target.undo("full"),
    "undo of the first learn": lambda target: target.undo("once"),
    "prune": lambda target: target.prune(),
    "redo": lambda target: target.redo("undone"),
    "redo of the first learn": lambda target: target.redo("once"),
    "update instead of redo": lambda target: teach(target, "undone", 7, "update"),
    "rename": lambda target: target.rename("full", "other"),
}
BEFORE: dict[str, Callable[[Store], object]] = {"redo of the first learn": lambda target: target.undo("once")}


def whole(path: Path) -> tuple[dict[str, float], dict[str, list[int]], dict[str, list[int]]]:
    """All that a user can get out of a store: tasks with their values, and where undo and redo lead."""
    target = Store.open(path)
    return contents(target), undo_steps(target), redo_steps(target)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = Store.create(tmp_path_factory.mktemp("template") / "store", HEADER)
    for value in range(3):
        teach(target, "full", value)
    teach(target, "once", 5)
    teach(target, "gone", 6)
    target.drop("gone")
    for value in range(2):
        teach(target, "undone", value)
    target.undo("undone")
    return target.path


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "error",
    [
        Died(),
        KeyboardInterrupt(),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
    ids=["killed", "ctrl-c", "disk full"],
)
def test_at_any_step_the_store_is_the_old_or_the_new_one(
    template: Path, tmp_path: Path, change: str, error: BaseException
) -> None:
    if change in BEFORE:
        template = shutil.copytree(template, tmp_path / "before")
        BEFORE[change](Store.open(template))
    before, after = whole(template), whole(changed(template, tmp_path / "after", change))
    assert before != after
    outcomes = []
    path = shutil.copytree(template, tmp_path / "store")
    for step in range(1, 200):
        faults = Faults(step, error)
        raised: BaseException | None = None
        try:
            with faults.installed():
                CHANGES[change](Store.open(path))
        except (Died, KeyboardInterrupt, StoreError) as caught:
            raised = caught
        state = whole(path)
        assert state in (before, after)
        if raised is None:
            assert state == after
        elif isinstance(raised, StoreError) and "was left as it was" in str(raised):
            assert state == before
        next_writer_tidies(path)
        if faults.step < step:
            break
        if raised is not None:
            outcomes.append(state == after)
        if state == after:
            path = shutil.copytree(template, tmp_path / f"store{step}")
    assert faults.step < step, "the change never came to its end"
    assert outcomes == sorted(outcomes), "there is one moment of change"
    # Only forgetting and renaming need no space at all, so that a full disk can be freed.
    assert False in outcomes or (change in ("forget", "rename") and getattr(error, "errno", None) == errno.ENOSPC)


def changed(template: Path, path: Path, change: str) -> Path:
    shutil.copytree(template, path)
    CHANGES[change](Store.open(path))
    return path


def next_writer_tidies(path: Path) -> None:
    """The next writer, of whatever task, leaves no rubbish; its task is removed for those after it."""
    target = Store.open(path)
    teach(target, "next", 1)
    assert actual_files(target) == expected_files(target)
    shutil.rmtree(path / "tasks" / "next")


@pytest.mark.parametrize("error", [Died(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_store_is_made_whole_or_can_be_made_again(tmp_path: Path, error: BaseException) -> None:
    for step in range(1, 50):
        faults = Faults(step, error)
        try:
            with faults.installed():
                Store.create(tmp_path / str(step) / "store", HEADER)
        except (Died, StoreError):
            pass
        assert Store.create(tmp_path / str(step) / "store", HEADER, exist_ok=True).header == HEADER
        if faults.step < step:
            return
    pytest.fail("creating a store never came to its end")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.EROFS, "check its permissions or choose another folder"),
        (errno.EACCES, "check its permissions or choose another folder"),
        (errno.EIO, "check the disk"),
    ],
)
def test_a_refusing_disk_gets_a_sentence(
    folder: Store, monkeypatch: pytest.MonkeyPatch, code: int, sentence: str
) -> None:
    teach(folder, "screw", 1)

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StoreError, match=sentence) as refusal:
            teach(folder, "screw", 2)
    assert os.strerror(code) in str(refusal.value)
    assert contents(folder) == {"screw": 1}


def test_a_read_only_folder_gets_a_sentence_and_can_be_read(folder: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    teach(folder, "screw", 1)
    plain_open = os.open

    def read_only(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return plain_open(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", read_only)
    for change in (lambda: teach(folder, "screw", 2), lambda: folder.drop("screw"), folder.prune):
        with pytest.raises(StoreError, match="Read-only file system"):
            change()
    assert contents(Store.open(folder.path)) == {"screw": 1}


def test_all_of_a_version_is_on_the_disk_before_the_pointer_names_it(
    folder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    missing: list[set[str]] = []
    replace = os.replace

    def check(source: Path, target: Path) -> None:
        task = folder.path / "tasks" / "screw"
        if target == task / "task.json":
            needed = [folder.path, task.parent, task, source, *task.glob("v*"), *task.glob("v*/*")]
            missing.append({path.name for path in needed if path.stat().st_ino not in synced})
        replace(source, target)

    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    monkeypatch.setattr(os, "replace", check)
    teach(folder, "screw", 1)
    assert missing == [set()]


def test_an_error_of_the_caller_is_not_blamed_on_the_store(folder: Store) -> None:
    with pytest.raises(FileNotFoundError), folder.writer():
        Path("no-such-image.png").read_bytes()
    teach(folder, "screw", 1)
