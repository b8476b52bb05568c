"""The journal: whole entries in order, whatever was cut off or damaged."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import BinaryIO

import pytest

pytest.importorskip("sqlalchemy", reason="the extra 'station' is not installed")

from dinosaur_ad.errors import StoreError
from dinosaur_ad.station.history.journal import Journal, write_durably


def numbers(journal: Journal) -> list[int]:
    return [entry.document["n"] for entry in journal.pending()]


def finish(journal: Journal) -> None:
    for entry in journal.pending():
        journal.done(entry)
    journal.rest()
    journal.remove_finished()


def test_entries_come_back_in_order_with_their_files(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append({"n": 1, "text": "Schraube ü \udcff"}, [b"picture", b"", b"map"])
    journal.append_many([({"n": n}, [bytes([n])]) for n in (2, 3)])

    entries = list(journal.pending())

    assert [entry.document["n"] for entry in entries] == [1, 2, 3]
    assert entries[0].files == (b"picture", b"", b"map")
    assert entries[0].document["text"] == "Schraube ü \udcff"
    assert journal.waiting == 3


def test_an_entry_is_not_removed_with_its_segment_while_it_is_written(tmp_path: Path) -> None:
    """The other thread finds everything done, and rests, just when the bytes are on the disk and do not count yet."""

    def write(file: BinaryIO, content: bytes) -> None:
        write_durably(file, content)
        finish(journal)

    journal = Journal(tmp_path, write=write)
    for n in range(3):
        journal.append({"n": n})
        assert journal.waiting == 1
        assert numbers(journal) == [n]
        for entry in journal.pending():
            journal.done(entry)
    finish(journal)
    assert journal.size == 0


def test_entries_are_there_after_a_restart_until_they_are_done(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    for n in range(5):
        first.append({"n": n})
    first.close()

    second = Journal(tmp_path)
    assert numbers(second) == [0, 1, 2, 3, 4]
    assert second.waiting == 5
    second.append({"n": 5})
    finish(second)
    second.close()

    third = Journal(tmp_path)
    assert numbers(third) == []
    assert not list(tmp_path.glob("segment-*"))


def test_done_entries_are_not_read_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for n in range(4):
        journal.append({"n": n})
    for entry in list(journal.pending())[:3]:
        journal.done(entry)

    assert numbers(journal) == [3]
    assert journal.waiting == 1


def test_segments_are_removed_only_when_all_in_them_is_done(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=200)
    for n in range(10):
        journal.append({"n": n}, [bytes(50)])
    segments = len(list(tmp_path.glob("segment-*")))
    assert segments > 2

    entries = list(journal.pending())
    for entry in entries[:4]:
        journal.done(entry)
    journal.remove_finished()

    assert 1 < len(list(tmp_path.glob("segment-*"))) < segments
    assert numbers(journal) == [4, 5, 6, 7, 8, 9]


def test_cut_off_at_any_byte_the_whole_entries_remain(tmp_path: Path) -> None:
    whole = Journal(tmp_path / "whole")
    ends = []
    for n in range(3):
        whole.append({"n": n}, [bytes([n]) * 40])
        ends.append(whole.size)
    whole.close()
    content = next((tmp_path / "whole").glob("segment-*")).read_bytes()

    for length in range(len(content)):
        folder = tmp_path / f"cut-{length}"
        folder.mkdir()
        (folder / "segment-000000000001.journal").write_bytes(content[:length])
        journal = Journal(folder)
        expected = [n for n, end in enumerate(ends) if end <= length]
        assert numbers(journal) == expected, length
        torn = length not in (0, *ends)
        assert journal.set_aside == torn, length
        journal.append({"n": 99})
        assert numbers(journal) == [*expected, 99]
        finish(journal)
        assert journal.waiting == 0
        assert not list(folder.glob("segment-*"))
        assert len(list(folder.glob("damaged-*"))) == torn
        journal.close()


def test_a_damaged_entry_is_set_aside_and_those_behind_it_are_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for n in range(5):
        journal.append({"n": n}, [bytes([n]) * 40])
    journal.close()
    segment = next(tmp_path.glob("segment-*"))
    content = bytearray(segment.read_bytes())
    rng = random.Random(1)
    size = len(content) // 5

    for _ in range(40):
        damaged = bytearray(content)
        damaged[2 * size + rng.randrange(size)] ^= 1 << rng.randrange(8)
        segment.write_bytes(damaged)
        again = Journal(tmp_path)
        assert numbers(again) == [0, 1, 3, 4]
        assert numbers(again) == [0, 1, 3, 4]
        assert again.set_aside == 1
        again.close()


def test_a_full_disk_keeps_what_was_there_and_takes_more_later(tmp_path: Path) -> None:
    full = False

    def write(file: BinaryIO, content: bytes) -> None:
        if full:
            file.write(content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        write_durably(file, content)

    journal = Journal(tmp_path, write)
    journal.append({"n": 0})
    full = True
    for n in (1, 2):
        with pytest.raises(OSError, match="No space"):
            journal.append({"n": n})
    full = False
    journal.append({"n": 3})

    assert numbers(journal) == [0, 3]
    journal.close()
    again = Journal(tmp_path)
    assert numbers(again) == [0, 3]
    assert again.set_aside == 0


def test_some_of_the_disk_is_left_to_others(tmp_path: Path) -> None:
    journal = Journal(tmp_path, reserve=2**60)
    with pytest.raises(OSError, match="No space"):
        journal.append({"n": 0})
    assert numbers(journal) == []


def test_one_station_at_a_time(tmp_path: Path) -> None:
    first, second = Journal(tmp_path), Journal(tmp_path)
    first.open()
    with pytest.raises(StoreError, match="Another station uses the folder"):
        second.open()
    first.close()
    second.open()


def test_a_folder_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("")
    with pytest.raises(StoreError, match="cannot be opened"):
        Journal(tmp_path / "journal").open()
