"""The journal: parts that are judged but not yet in the database, on the local disk, in order, whole or not at all.

It is a folder of segments, files that are only ever appended to. Each process begins a new one, so that what a killed
one left behind is never written to again. A segment is removed once all its entries are in the database.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import filelock

from dinosaur_ad._atomic import make_folder, sync_path
from dinosaur_ad._text import first_line, printable
from dinosaur_ad.errors import StoreError
from dinosaur_ad.station.history.journal_frames import DamagedEntryError, frame, frame_size, next_magic, read_frame

log = logging.getLogger(__name__)

SEGMENT_BYTES = 32 * 1024 * 1024
RESERVE = 8 * 1024 * 1024
"""Bytes of the disk that the journal leaves free, so that feedback and teaching still work when it is full."""
MOST_SET_ASIDE = 50
"""Damaged pieces that are kept to be looked at; of more, the oldest are removed."""

_SEGMENT = re.compile(r"segment-(\d{12})\.journal")

Write = Callable[[BinaryIO, bytes], None]


@dataclass(frozen=True)
class JournalEntry:
    """What was appended; ``segment`` and ``offset`` are where it is."""

    document: dict[str, Any]
    files: tuple[bytes, ...]
    segment: int
    offset: int
    size: int


@dataclass
class _Segment:
    number: int
    path: Path
    end: int = 0
    """Bytes that are on the disk for certain."""
    position: int = 0
    """Where reading goes on: everything before it is in the database."""
    entries: int = 0
    """Entries from ``position`` on."""


def write_durably(file: BinaryIO, content: bytes) -> None:
    """Append to a file and wait until the disk has it."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())


@dataclass
class Journal:
    """The journal in ``folder``; one process at a time. ``write`` is how bytes get to the disk.

    One thread may append while another reads.
    """

    folder: Path
    write: Write = write_durably
    segment_bytes: int = SEGMENT_BYTES
    reserve: int = RESERVE
    set_aside: int = field(default=0, init=False)
    """Damaged pieces found since it was opened: each is a part, or the beginning of one, that was not yet kept."""

    def __post_init__(self) -> None:
        self.folder = Path(self.folder)
        self._lock = threading.RLock()
        self._owner = filelock.FileLock(self.folder / "journal.lock", timeout=0, thread_local=False)
        self._segments: list[_Segment] = []
        self._writing: BinaryIO | None = None
        self._appending = threading.Lock()
        self._next = 1
        self._damaged: set[tuple[int, int]] = set()
        self._opened = False

    def open(self) -> None:
        """Take the folder and look what is left from before; does nothing if that was done.

        :raises StoreError: another station has it, or it cannot be written.
        """
        with self._lock:
            if self._opened:
                return
            try:
                make_folder(self.folder)
                self._owner.acquire()
                self._segments = [self._found(path) for path in sorted(self.folder.iterdir()) if _number(path)]
                self._next = max([segment.number for segment in self._segments], default=0) + 1
            except filelock.Timeout:
                raise StoreError(
                    f"Another station uses the folder '{printable(self.folder)}'; stop it, or give this one another."
                ) from None
            except OSError as error:
                sentence = f"The journal in '{printable(self.folder)}' cannot be opened: {first_line(error)}."
                raise StoreError(sentence) from error
            self._opened = True

    def close(self) -> None:
        """Close the files and release the lock of the folder."""
        with self._lock:
            self._end_segment()
            self._opened = False
            self._owner.release()

    def append(self, document: dict[str, Any], files: Sequence[bytes] = ()) -> None:
        """Add an entry; it is on the disk when this returns.

        :raises OSError: it could not be written, and is not there.
        """
        self.append_many([(document, files)])

    def append_many(self, entries: Sequence[tuple[dict[str, Any], Sequence[bytes]]]) -> None:
        """Add entries with one wait for the disk: all of them or, if that fails, none.

        :raises OSError: they could not be written, and are not there.
        """
        self.open()
        content = b"".join(frame(document, files) for document, files in entries)
        if shutil.disk_usage(self.folder).free < self.reserve + len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder))
        with self._appending:
            with self._lock:
                segment, file = self._current()
            try:
                self.write(file, content)  # without the lock: reading goes on meanwhile
            except BaseException:
                self._undo(segment, file)
                raise
            with self._lock:
                segment.end += len(content)
                segment.entries += len(entries)

    def pending(self) -> Iterator[JournalEntry]:
        """The entries that are not done, in order; damaged ones are set aside.

        Entries that are appended meanwhile come too. Call :meth:`done` for each in the same order.
        """
        self.open()
        with self._lock:
            segments = [(segment, segment.position) for segment in self._segments]
        for segment, position in segments:
            if position < segment.end:
                yield from self._entries(segment, position)

    def done(self, entry: JournalEntry) -> None:
        """Say that an entry is in the database, and with it all before it."""
        with self._lock:
            for segment in self._segments:
                if segment.number == entry.segment and segment.position < entry.offset + entry.size:
                    segment.position = entry.offset + entry.size
                    segment.entries = max(0, segment.entries - 1)

    def finished(self) -> bool:
        """Whether segments can be removed: all their entries are done, and nothing will be appended to them."""
        with self._lock:
            return any(self._is_finished(segment) for segment in self._segments)

    def remove_finished(self) -> None:
        """Remove the segments whose entries are all done; call it when their pictures are on the disk for good.

        :raises OSError: a file could not be removed.
        """
        with self._lock:
            for segment in [each for each in self._segments if self._is_finished(each)]:
                segment.path.unlink(missing_ok=True)
                self._segments.remove(segment)

    def refuse(self, entry: JournalEntry) -> None:
        """Set aside an entry that the database does not take, and go on with the next."""
        self._keep_aside(f"refused-{entry.segment:012d}-{entry.offset}.bin", frame(entry.document, entry.files))
        self.done(entry)

    def rest(self) -> None:
        """End the current segment, so that it can be removed when its entries are done; the next append begins one.

        Does nothing while an entry is being written: it does not count yet, and would be removed with the segment.
        """
        if self._appending.acquire(blocking=False):
            try:
                with self._lock:
                    self._end_segment()
            finally:
                self._appending.release()

    @property
    def waiting(self) -> int:
        """Entries that are not done."""
        with self._lock:
            return sum(segment.entries for segment in self._segments)

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        with self._lock:
            return sum(segment.end for segment in self._segments)

    # Writing

    def _current(self) -> tuple[_Segment, BinaryIO]:
        last = self._segments[-1] if self._segments else None
        if self._writing is not None and last is not None:
            if last.end < self.segment_bytes:
                return last, self._writing
            self._end_segment()
        segment = _Segment(self._next, self.folder / f"segment-{self._next:012d}.journal")
        file = segment.path.open("xb", buffering=0)
        self._next += 1
        self._segments.append(segment)
        self._writing = file
        try:
            sync_path(self.folder)
        except OSError:
            self._end_segment()
            raise
        return segment, file

    def _undo(self, segment: _Segment, file: BinaryIO) -> None:
        """Take back what was half written. If even that fails, the rest of the segment is set aside when it is read."""
        with self._lock:
            try:
                file.seek(segment.end)
                file.truncate()
            except (OSError, ValueError):
                log.warning("A journal segment could not be cut back to its last entry; a new one begins.")
                self._end_segment()

    def _end_segment(self) -> None:
        if self._writing is not None:
            with suppress(OSError):  # what counts was flushed
                self._writing.close()
            self._writing = None

    def _is_finished(self, segment: _Segment) -> bool:
        active = self._writing is not None and segment is self._segments[-1]
        return not active and segment.position >= segment.end

    # Reading

    def _found(self, path: Path) -> _Segment:
        segment = _Segment(_number(path), path, end=path.stat().st_size)
        with path.open("rb") as file, suppress(DamagedEntryError):
            position = 0
            while position < segment.end:
                position += frame_size(file, position, segment.end)
                segment.entries += 1
        return segment

    def _entries(self, segment: _Segment, position: int) -> Iterator[JournalEntry]:
        with segment.path.open("rb") as file:
            while position < segment.end:
                end = segment.end
                try:
                    document, files, size = read_frame(file, position, end)
                except DamagedEntryError:
                    position = self._skip(segment, file, position, end)
                    continue
                yield JournalEntry(document, files, segment.number, position, size)
                position += size

    def _skip(self, segment: _Segment, file: BinaryIO, position: int, end: int) -> int:
        """Set the bytes up to the next whole entry aside; where that begins."""
        following = next_magic(file, position + 1, end)
        while following < end:
            with suppress(DamagedEntryError):
                read_frame(file, following, end)
                break
            following = next_magic(file, following + 1, end)
        if (segment.number, position) not in self._damaged:
            self._damaged.add((segment.number, position))
            file.seek(position)
            self._keep_aside(f"damaged-{segment.number:012d}-{position}.bin", file.read(following - position))
        with self._lock:
            if segment.position == position:
                segment.position = following
            if segment.position >= end:
                segment.entries = 0
        return following

    def _keep_aside(self, name: str, content: bytes) -> None:
        self.set_aside += 1
        target = self.folder / name
        log.warning("%d bytes of the journal could not be used; they were set aside in %s.", len(content), target)
        with suppress(OSError):  # a full disk
            target.write_bytes(content)
            for old in sorted(self.folder.glob("*.bin"), key=lambda path: path.stat().st_mtime)[:-MOST_SET_ASIDE]:
                old.unlink()


def _number(path: Path) -> int:
    """The number of a segment's file, 0 for other files."""
    match = _SEGMENT.fullmatch(path.name)
    return int(match[1]) if match else 0
