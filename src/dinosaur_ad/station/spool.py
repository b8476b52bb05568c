"""Uploaded pictures on disk: written whole before they are acknowledged, removed once their part is recorded."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from dinosaur_ad._atomic import TEMPORARY, make_folder, write_atomic
from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.images.formats import EXTENSIONS
from dinosaur_ad.station.part import Picture

log = logging.getLogger(__name__)

NOTE = ".json"
UNNAMED = ".picture"
"""The extension of a picture whose name has none that is known; it is read by its content."""


@dataclass(frozen=True)
class _Note:
    """What has to be known of a picture beside its bytes."""

    key: str
    source: str
    taken: str
    file: str
    view: str = ""
    part: str = ""
    task: str | None = None


class Spool:
    """A folder of pictures that were accepted and are not recorded yet; they come again after a restart.

    A picture is two files: a note, written first, and the bytes as they came. The second one makes it complete.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def put(
        self,
        data: bytes,
        name: str = "",
        *,
        source: str = "upload",
        key: str = "",
        view: str = "",
        part: str = "",
        task: str | None = None,
        taken: datetime | None = None,
    ) -> Picture:
        """Keep a picture; when this returns it survives a crash.

        ``name`` is what the sender calls the file, of which only the extension is used. ``key`` is the sender's own
        identity of the picture, so that one that is sent twice is judged once; without it every upload is a new one.

        :raises InputError: there are no bytes.
        :raises StoreError: it cannot be written; it is not accepted then.
        """
        if not data:
            raise InputError(f"The picture '{printable(name)}' is empty (0 bytes); send it again.")
        identity = f"{source}:{key or uuid.uuid4().hex}"
        stem = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:40]
        extension = PurePath(name).suffix.lower()
        file = stem + (extension if extension in EXTENSIONS else UNNAMED)
        moment = (taken or datetime.now(UTC)).isoformat()
        note = _Note(_short(source, identity, stem), source, moment, file, view, part, task)
        try:
            with self._lock:
                if (found := self._read(self._folder / (stem + NOTE))) is not None:
                    return found
                write_atomic(self._folder / (stem + NOTE), json.dumps(note.__dict__).encode())
                write_atomic(self._folder / file, data)
        except OSError as error:
            self._remove(stem, file)
            reason = error.strerror or type(error).__name__
            raise StoreError(
                f"The picture could not be kept ({reason}); it was not accepted, send it again."
            ) from error
        return self._picture(note)

    def waiting(self) -> list[Picture]:
        """The pictures that were accepted before and not recorded, the oldest first; for the start of a station.

        Remains of an upload that a crash cut off are removed: it was never acknowledged.
        """
        with self._lock:
            if not self._folder.is_dir():
                return []
            for remains in self._folder.glob(TEMPORARY):
                remains.unlink(missing_ok=True)
            notes = sorted(self._folder.glob(f"*{NOTE}"))
            found = [(note, self._read(note)) for note in notes]
            for note, picture in found:
                if picture is None:
                    note.unlink(missing_ok=True)
        return sorted((picture for _, picture in found if picture), key=lambda picture: (picture.taken, picture.key))

    def state(self) -> dict[str, Any]:
        """How many pictures wait."""
        return {"waiting": sum(1 for _ in self._folder.glob(f"*{NOTE}"))}

    def prepare(self) -> None:
        """Make the folder.

        :raises StoreError: it cannot be made.
        """
        try:
            make_folder(self._folder)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise StoreError(
                f"The folder for uploads {printable(self._folder)} cannot be made ({reason}); check its place."
            ) from error

    def _read(self, path: Path) -> Picture | None:
        """The picture of a note; None if one of its files is not there or damaged."""
        try:
            note = _Note(**json.loads(path.read_bytes()))
            datetime.fromisoformat(note.taken)
            inside = PurePath(note.file).name == note.file and (self._folder / note.file).is_file()
        except (OSError, ValueError, TypeError):
            return None
        return self._picture(note) if inside else None

    def _picture(self, note: _Note) -> Picture:
        return Picture(
            key=note.key,
            source=note.source,
            taken=datetime.fromisoformat(note.taken),
            path=self._folder / note.file,
            part=note.part,
            view=note.view,
            task=note.task,
            release=partial(self._remove, PurePath(note.file).stem, note.file),
        )

    def _remove(self, stem: str, file: str) -> None:
        """Remove a picture; one that comes again after a crash is known by its key."""
        for name in (file, stem + NOTE):
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)


def _short(source: str, identity: str, stem: str) -> str:
    """The identity as a key, which the database limits in length."""
    return identity if len(identity) <= 300 and identity.isprintable() else f"{source}:{stem}"
