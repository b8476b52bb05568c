"""A folder that pictures are written into: each file is judged once, as soon as it is complete."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from watchfiles import Change, watch

from dinosaur_ad._text import printable
from dinosaur_ad.images.formats import is_image_name
from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.station.sources.folder_files import FileVersion, files_below, is_written
from dinosaur_ad.station.sources.source import Source, SourceLostError

RESCAN = 20.0
"""Seconds between looks at the whole folder: network drives do not tell of all changes."""
SETTLED = 0.5
"""Seconds without a change after which a file counts as complete, where the system cannot say who writes it."""
STUCK = 10.0
"""The same for a file that is empty, or that a program keeps open."""
TICK_MS = 100
AT_ONCE = 500
"""Keys that the history is asked for together."""


@dataclass
class _Arriving:
    """A file that is not known to be complete: as it was last seen, and when it was first seen so."""

    version: FileVersion
    since: float


class WatchedFolder(Source):
    """Gives every image below a folder once, those that came while the station was down too.

    A file that is written anew is a new picture. Files wait in the folder while judging is slower than they come, so
    none is dropped. If the folder goes away (a network drive, a card), it is waited for.
    """

    def _run(self) -> None:
        assert self.config.path is not None
        folder = self.config.path.absolute()  # as the changes name it
        self.backoff.most = 2.0
        self._given: set[int] = set()
        self._arriving: dict[Path, _Arriving] = {}
        self._ignored: set[int] = set()
        identity = _identity(folder)
        changes = watch(
            folder,
            watch_filter=None,
            debounce=TICK_MS,
            step=TICK_MS // 4,
            rust_timeout=TICK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
            stop_event=self._stopping,
            ignore_permission_denied=True,
        )
        try:
            self._watch(folder, identity, changes)
        except FileNotFoundError:
            raise _missing(folder) from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise SourceLostError(f"The folder {printable(folder)} cannot be read ({reason}).") from None

    def _watch(self, folder: Path, identity: tuple[int, int], changes: Iterable[set[tuple[Change, str]]]) -> None:
        scanned = None
        for changed in changes:  # the first comes after the watching began: what came before is found by the scan
            # A new folder may get the number of the one that was deleted.
            if _identity(folder) != identity or (Change.deleted, str(folder)) in changed:
                raise SourceLostError(f"The folder {printable(folder)} was replaced by another; it is opened again.")
            if scanned is None or time.monotonic() - scanned > RESCAN:
                self._scan(folder)
                scanned = time.monotonic()
                self._works()
            self._note(folder, changed)
            self._give_complete(folder)

    def _scan(self, folder: Path) -> None:
        """Look at all files; those that the history has are passed over."""
        versions, ignored = [], set()
        for path in files_below(folder):
            version = FileVersion.of(path, folder) if is_image_name(path) else None
            if version:
                versions.append(version)
            else:
                ignored.add(hash(path))
        self._count("ignored", len(ignored - self._ignored))
        self._ignored = ignored
        keys = {hash(version.key(self.name)): version for version in versions}
        new = {key: version for key, version in keys.items() if key not in self._given}
        for some in batched(new.items(), AT_ONCE):
            recorded = self._recorded([version.key(self.name) for _, version in some])
            for key, version in some:
                if version.key(self.name) in recorded:
                    self._count("known")
                    self._given.add(key)
                else:
                    self._see(version)
        self._given &= keys.keys()  # what was deleted need not be remembered

    def _recorded(self, keys: list[str]) -> set[str]:
        try:
            return self._known(keys) if self._known else set()
        except Exception:  # the history is down: it keeps a key once anyway
            return set()

    def _note(self, folder: Path, changed: set[tuple[Change, str]]) -> None:
        """Take the files that changed into account."""
        for change, name in changed:
            path = Path(name)
            if change == Change.deleted:
                self._arriving.pop(path, None)
            elif path.is_dir() and not path.is_symlink():
                for each in files_below(path):  # a folder that was moved here comes as one change
                    self._note(folder, {(Change.added, str(each))})
            elif any(part.startswith(".") for part in path.relative_to(folder).parts):
                continue
            elif is_image_name(path) and (version := FileVersion.of(path, folder)):
                self._see(version)
            elif path.is_file() and hash(path) not in self._ignored:
                self._ignored.add(hash(path))
                self._count("ignored")

    def _see(self, version: FileVersion) -> None:
        if hash(version.key(self.name)) in self._given:
            return
        seen = self._arriving.get(version.path)
        if seen is None or seen.version != version:
            self._arriving[version.path] = _Arriving(version, time.monotonic())

    def _give_complete(self, folder: Path) -> None:
        for path, arriving in sorted(self._arriving.items(), key=_order):
            if self._stopping.is_set():
                return
            version = FileVersion.of(path, folder)
            if version is None:
                del self._arriving[path]
            elif version != arriving.version:
                self._arriving[path] = _Arriving(version, time.monotonic())
            elif _is_complete(arriving):
                self._give(version.picture(self.config), when_full="wait")
                self._given.add(hash(version.key(self.name)))
                del self._arriving[path]


def _order(arriving: tuple[Path, _Arriving]) -> tuple[int, str]:
    """As they were written: changes that are told together are told in no order."""
    version = arriving[1].version
    return version.mtime_ns, version.name


def _is_complete(file: _Arriving) -> bool:
    age = time.monotonic() - file.since
    written = is_written(file.version)
    if written:
        return True
    return age > (STUCK if written is False or file.version.size == 0 else SETTLED)


def _identity(folder: Path) -> tuple[int, int]:
    """What tells a folder from another of the same name."""
    try:
        status = folder.stat()
        if not folder.is_dir():
            raise SourceLostError(f"{printable(folder)} is not a folder; it is waited for.")
        with os.scandir(folder):
            return status.st_dev, status.st_ino
    except FileNotFoundError:
        raise _missing(folder) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SourceLostError(f"The folder {printable(folder)} cannot be read ({reason}); it is tried again.") from None


def _missing(folder: Path) -> SourceLostError:
    return SourceLostError(f"The folder {printable(folder)} is not there; it is waited for.")
