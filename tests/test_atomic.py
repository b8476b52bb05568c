"""A file is written whole or not at all."""

from __future__ import annotations

import doctest
import errno
import os
from pathlib import Path

import pytest

from dinosaur_ad import _atomic
from dinosaur_ad._atomic import UnconfirmedError, move_atomic, remove_atomic, sha256_file, write_atomic


def refuse_folders(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk sync files but no folders."""
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if os.fstat(descriptor).st_mode & 0o040000:
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)


def test_the_longest_name_that_a_file_can_have_is_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / ("x" * 255)
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert sha256_file(path) == "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def fail(*_: object) -> None:
        raise error

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, fail)
            with pytest.raises(type(error)):
                write_atomic(path, b"new")
        assert path.read_bytes() == b"old"
        assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_change_that_the_disk_does_not_confirm_is_not_called_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    refuse_folders(errno.EIO, monkeypatch)
    with pytest.raises(UnconfirmedError, match="Input/output error"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    with pytest.raises(UnconfirmedError):
        remove_atomic(path)
    assert not path.exists()


def test_a_drive_that_cannot_sync_folders_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_folders(errno.EINVAL, monkeypatch)
    write_atomic(tmp_path / "new" / "file", b"content")
    assert (tmp_path / "new" / "file").read_bytes() == b"content"


def test_examples_in_the_docstrings_run() -> None:
    results = doctest.testmod(_atomic)
    assert results.attempted > 0
    assert results.failed == 0


def test_a_distinct_file_has_a_time_of_its_own_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_atomic.time, "time_ns", lambda: 10**18)
    times = set()
    for _ in range(20):
        write_atomic(tmp_path / "file", b"x", distinct=True)
        times.add((tmp_path / "file").stat().st_mtime_ns)
    assert len(times) == 20
    assert {time // 10**9 for time in times} == {10**9}


def test_a_moved_file_has_its_new_name_only(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"x")
    (tmp_path / "new").write_bytes(b"y")
    move_atomic(tmp_path / "old", tmp_path / "new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("new", b"x")]
