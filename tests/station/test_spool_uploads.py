"""Uploads on disk: there after a crash, each once, gone when recorded."""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="the station needs the extra 'station'")

from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.station import spool as spool_module
from dinosaur_ad.station.spool import Spool

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def test_what_was_put_waits_after_a_restart_until_it_is_released(tmp_path: Path) -> None:
    first = Spool(tmp_path).put(b"two", "b.PNG", view="top", part="17", task="screw", taken=NOW + timedelta(seconds=1))
    Spool(tmp_path).put(b"one", "a.jpg", taken=NOW)
    assert first.path is not None
    assert (first.path.read_bytes(), first.path.suffix) == (b"two", ".png")
    waiting = Spool(tmp_path).waiting()
    assert [each.path.read_bytes() for each in waiting if each.path] == [b"one", b"two"]
    assert waiting[1] == first
    for each in waiting:
        assert each.release
        each.release()
    assert Spool(tmp_path).waiting() == []
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_is_sent_again_is_the_same_picture(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert spool.put(b"one", "a.png", key="7") == spool.put(b"one", "a.png", key="7")
    assert spool.put(b"one", "a.png").key != spool.put(b"one", "a.png").key
    assert spool.state() == {"waiting": 3}


def test_names_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    for name in ("../../evil.png", "/etc/passwd", "a\x00b.png", "x" * 5000, "..", "a.sh", ".png/../.."):
        picture = spool.put(b"data", name, key="../" + name)
        assert picture.path is not None
        assert picture.path.parent == tmp_path / "spool"
        assert picture.path.suffix in (".png", ".picture")
        assert len(picture.key) <= 400
    assert [path.name for path in tmp_path.iterdir()] == ["spool"]


def test_an_upload_that_was_cut_off_by_a_crash_leaves_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    picture = spool.put(b"one", "a.png")
    assert picture.path
    picture.path.unlink()  # as if the crash had come between the note and the bytes
    (tmp_path / ".dinosaur-123.tmp").write_bytes(b"half")
    (tmp_path / "damaged.json").write_bytes(b"{")
    assert Spool(tmp_path).waiting() == []
    assert list(tmp_path.iterdir()) == []


def test_a_note_that_points_elsewhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / "a.json").write_text('{"key": "k", "source": "s", "taken": "2026-11-18", "file": "../secret.png"}')
    assert Spool(folder).waiting() == []
    assert (tmp_path / "secret.png").exists()


def test_a_full_disk_refuses_in_a_sentence_and_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = spool_module.write_atomic

    def full(path: Path, content: bytes, **options: Any) -> None:
        if path.suffix != ".json":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, content, **options)

    monkeypatch.setattr(spool_module, "write_atomic", full)
    with pytest.raises(StoreError, match="No space left on device"):
        Spool(tmp_path).put(b"one", "a.png")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="empty"):
        Spool(tmp_path).put(b"", "a.png")
