"""Pictures that are collected before a product is learned from them: a folder each, until it is learned or thrown away.

Names of uploaded files are kept for people to read; on disk a picture is called by its number.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import read_image

MOST_PICTURES = 2000
MOST_DRAFTS = 20
FORMATS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
_ID = re.compile(r"[0-9a-f]{16}")
_DESCRIPTION = "draft.json"
_lock = threading.Lock()


@dataclass(frozen=True)
class DraftPicture:
    """A picture of a draft: its number, its file, and what it was called."""

    number: int
    path: Path
    name: str


class Draft:
    """The pictures for one product that is to be taught."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = folder.name

    @classmethod
    def begin(cls, station_folder: Path, by: str) -> Draft:
        """A new, empty draft; the oldest that nothing was learned from is removed where there are too many."""
        base = station_folder / "teach"
        base.mkdir(parents=True, exist_ok=True)
        # Those that were learned from stay: a part shows the normal patch that it was compared with from there.
        unused = [path for path in base.iterdir() if _ID.fullmatch(path.name) and not cls(path)._learned]
        known = sorted(unused, key=lambda path: path.stat().st_mtime)
        for old in known[: max(0, len(known) - MOST_DRAFTS + 1)]:
            shutil.rmtree(old, ignore_errors=True)
        draft = cls(base / secrets.token_hex(8))
        draft.folder.mkdir()
        draft._write({"by": by, "names": {}, "next": 1, "task": "", "job": "", "capture": None})
        return draft

    @classmethod
    def find(cls, station_folder: Path, draft_id: str) -> Draft:
        """An existing draft.

        :raises InputError: there is none of that id.
        """
        folder = station_folder / "teach" / draft_id
        if not _ID.fullmatch(draft_id) or not (folder / _DESCRIPTION).is_file():
            raise InputError("These pictures are not there any more; begin again.")
        return cls(folder)

    @property
    def about(self) -> dict[str, Any]:
        """What is remembered of it: by whom, for which product, by which job it is learned, what is captured."""
        found: dict[str, Any] = json.loads((self.folder / _DESCRIPTION).read_text("utf-8"))
        return found

    @property
    def _learned(self) -> bool:
        try:
            return bool(self.about["job"])
        except (OSError, ValueError, KeyError):  # half made when the station was killed
            return False

    def note(self, **values: Any) -> None:
        """Remember something of it."""
        with _lock:
            self._write(self.about | values)

    def pictures(self) -> list[DraftPicture]:
        """Its pictures, in the order in which they came."""
        names = self.about["names"]
        found = [(int(path.name.partition(".")[0]), path) for path in self._files()]
        return [DraftPicture(number, path, str(names.get(str(number), path.name))) for number, path in sorted(found)]

    def add(self, content: bytes, name: str) -> None:
        """Add a picture.

        :raises InputError: it cannot be read, or there are too many.
        """
        suffix = Path(name).suffix.lower()
        if suffix not in FORMATS:
            raise InputError(f"'{printable(name, 80)}' is no picture; take {', '.join(FORMATS)}.")
        with _lock:
            about = self.about
            number = int(about["next"])
            if len(list(self._files())) >= MOST_PICTURES:
                raise InputError(f"There are {MOST_PICTURES} pictures already; learn the product from these first.")
            path = self.folder / f"{number:05d}{suffix}"
            write_atomic(path, content)
            try:
                read_image(path)
            except InputError:
                path.unlink(missing_ok=True)
                raise InputError(f"'{printable(name, 80)}' cannot be read as a picture; it is left out.") from None
            about["names"][str(number)] = printable(name, 200)
            self._write(about | {"next": number + 1})

    def remove(self, numbers: set[int]) -> None:
        """Take pictures out."""
        for picture in self.pictures():
            if picture.number in numbers:
                picture.path.unlink(missing_ok=True)

    def throw_away(self) -> None:
        """Remove it with all its pictures."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _files(self) -> Iterator[Path]:
        return (path for path in self.folder.iterdir() if path.suffix in FORMATS and path.name[:5].isdigit())

    def _write(self, about: dict[str, Any]) -> None:
        write_atomic(self.folder / _DESCRIPTION, json.dumps(about).encode())
