"""Picture files of a folder: which there are, the identity of each, and whether one is written completely."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dinosaur_ad.images.formats import is_image_name
from dinosaur_ad.station.config import SourceConfig
from dinosaur_ad.station.part import Picture

LONGEST_NAME = 200
"""Characters of a path within a key; the database limits keys."""

_ENDS = {".png": (b"IEND\xaeB`\x82",), ".jpg": (b"\xff\xd9",), ".jpeg": (b"\xff\xd9",)}
"""How complete files end."""


@dataclass(frozen=True)
class FileVersion:
    """A file as it was at a moment; ``name`` is its path below the folder, with slashes."""

    path: Path
    name: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path, folder: Path) -> FileVersion | None:
        """None if it is no regular file, or one that a link leads to outside the folder."""
        try:
            status = path.stat()
            if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
                return None
            if not path.is_file():
                return None
        except OSError:
            return None
        return cls(path, path.relative_to(folder).as_posix(), status.st_size, status.st_mtime_ns)

    def key(self, source: str) -> str:
        """``SOURCE:relative/path:size:mtime_ns``: another one once the file is written anew."""
        name = self.name
        if len(name) > LONGEST_NAME or not name.isprintable():
            name = hashlib.sha256(os.fsencode(name)).hexdigest()
        return f"{source}:{name}:{self.size}:{self.mtime_ns}"

    def picture(self, config: SourceConfig, key: str = "") -> Picture:
        """Views of one part have the same name in the folders of their cameras, but for the extension."""
        part = self.name.rsplit(".", 1)[0][:LONGEST_NAME] if config.view else ""
        taken = datetime.fromtimestamp(self.mtime_ns / 1e9, UTC)
        return Picture(
            key or self.key(config.name), config.name, taken, self.path, part=part, view=config.view, task=config.task
        )


def files_below(folder: Path) -> Iterator[Path]:
    """All files that are not hidden, sorted; folders behind links are left out.

    :raises OSError: the folder itself cannot be listed.
    """
    with os.scandir(folder):  # os.walk would be silent about it
        pass
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(place) / name


def images_below(folder: Path) -> list[FileVersion]:
    """The image files below a folder, sorted.

    :raises OSError: the folder itself cannot be listed.
    """
    versions = (FileVersion.of(path, folder) for path in files_below(folder) if is_image_name(path))
    return [version for version in versions if version]


def is_written(file: FileVersion) -> bool | None:
    """Whether a file is complete as far as can be seen: no program has it open for writing, and it ends as it should.

    False if a program is writing it; None where that cannot be found out.
    """
    being_written = _has_writer(file.path)
    if being_written:
        return False
    if being_written is None or file.size == 0:
        return None
    ends = _ENDS.get(file.path.suffix.lower())
    if ends is None:
        return True
    try:
        with file.path.open("rb") as opened:
            opened.seek(max(0, file.size - 64))
            return True if any(end in opened.read(64) for end in ends) else None
    except OSError:
        return None


def _has_writer(path: Path) -> bool | None:
    """Whether a program has a file open for writing; None where the system cannot say.

    Linux grants a read lease on a file only if nobody writes it.
    """
    if sys.platform != "linux":
        return None
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(descriptor)
    return False
