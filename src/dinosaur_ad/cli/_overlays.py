"""Where the pictures of an inspection go: below one folder, as the images lie below theirs, never over anything else.

``cam1/000.png`` becomes ``DIR/cam1/000.png.overlay.png``. Each picture says of which image it is, so
that inspecting an image again replaces its picture, and inspecting another one of the same name does not.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from dinosaur_ad.cli._console import say
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.inspection import Inspection

MARK = "dinosaur-ad overlay of"
"""The name of the text in a PNG file that says of which image it is a picture, by a hash of the image's path."""

_LONGEST_NAME = 200  # bytes of the usual 255: leaves room for a number and the suffix
_UNSAFE = re.compile(r'[<>:"|?*\\/]')  # not allowed in names everywhere


def _real(path: Path) -> Path:
    """Where a path leads to; unlike ``Path.resolve`` it takes links in a circle."""
    return Path(os.path.realpath(path))


class Overlays:
    """The folder for overlays of ``images``, found under ``arguments``; what cannot be written is refused at once."""

    def __init__(
        self, folder: Path, arguments: Sequence[Path | str], images: Sequence[Path | str], store: Path
    ) -> None:
        paths = [_absolute(image) for image in images]
        self._folder, self._store = folder, _real(store)
        # What was named decides, and not what was found there: the same command gives the same names every day.
        self._root = Path(os.path.commonpath([*map(_searched, arguments), *(path.parent for path in paths)]))
        self._images = {_real(path) for path in paths}
        self._used: set[str] = set()
        _refuse_unwritable(folder)
        for parent in {self._place(path).parent for path in paths}:
            self._refuse_bad_place(parent)

    def save(self, inspection: Inspection) -> Path:
        """Draw an inspection of a file, write it, and return where."""
        from dinosaur_ad.images.drawing import save_overlay
        from dinosaur_ad.images.loading import read_image

        image = _absolute(inspection.path)
        mark = hashlib.sha256(os.fsencode(image)).hexdigest()
        path = self._free(self._place(image), mark)
        self._refuse_bad_place(path.parent)  # again: a link may have been made in the meantime
        save_overlay(path, read_image(inspection.path), inspection, marks={MARK: mark})
        return path

    def _place(self, image: Path) -> Path:
        """Where the overlay of an image belongs, without its suffix."""
        return self._folder.joinpath(*map(_safe, image.relative_to(self._root).parts))

    def _free(self, place: Path, mark: str) -> Path:
        """The first name that is free, or that this image had before."""
        from dinosaur_ad.images.formats import OVERLAY

        for number in count(1):
            path = place.with_name(f"{place.name}{f'-{number}' if number > 1 else ''}{OVERLAY}")
            key = str(path).casefold()  # not every file system knows case
            if key in self._used or _real(path) in self._images:
                continue
            if not os.path.lexists(path) or (not path.is_symlink() and _mark(path) == mark):
                self._used.add(key)
                return path
        raise AssertionError("numbers do not end")

    def _refuse_bad_place(self, parent: Path) -> None:
        """Refuse a folder that is a file, that leads elsewhere through a link, or that lies in the store."""
        below = parent.relative_to(self._folder)
        for step in (self._folder / Path(*below.parts[:depth]) for depth in range(1, len(below.parts) + 1)):
            if step.is_symlink() or (step.exists() and not step.is_dir()):
                kind = "a link" if step.is_symlink() else "a file"
                raise InputError(
                    f"'{step}' is {kind}, and overlays would be written below it; choose another folder for --overlays."
                )
        if _real(parent).is_relative_to(self._store):
            raise InputError(
                f"'{parent}' lies in the store, which keeps only what is taught; choose another folder for --overlays."
            )


def _absolute(path: Path | str) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - without following links: a path is what it is called


def _searched(argument: Path | str) -> Path:
    """The folder in which a file, a folder or a glob is looked for."""
    path = _absolute(argument)
    if path.is_dir():
        return path
    if path.exists():
        return path.parent
    return next((parent for parent in path.parents if not glob.has_magic(str(parent))), path.parent)


def _safe(name: str) -> str:
    """A part of a path as a name that every system takes, that is not hidden and leads nowhere else."""
    shown = "".join(letter if letter.isprintable() else "_" for letter in _UNSAFE.sub("_", name)).lstrip(".")
    if len(shown.encode()) > _LONGEST_NAME:
        digest = hashlib.sha256(shown.encode()).hexdigest()[:8]  # long names that begin alike stay apart
        shown = f"{shown.encode()[: _LONGEST_NAME - 9].decode(errors='ignore')}-{digest}"
    return shown or "_"


def _mark(path: Path) -> str | None:
    """Which image a picture of ours is of; None for any other file."""
    from PIL import Image

    try:
        with Image.open(path, formats=["PNG"]) as picture:
            mark = picture.info.get(MARK)
    except Exception:  # whatever it is, it is not one of ours
        return None
    return mark if isinstance(mark, str) else None


def _refuse_unwritable(folder: Path) -> None:
    """Refuse a folder that is or lies below a file, or that cannot be written to; nothing is left behind."""
    there = next((path for path in (folder, *folder.absolute().parents) if os.path.lexists(path)), Path("/"))
    if not there.is_dir():
        kind = "a link to nowhere" if there.is_symlink() else "a file"
        raise InputError(f"'{there}' is {kind}; give --overlays a folder.")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"'{there}' cannot be written to ({reason}); choose another folder for --overlays.") from None


def say_overlays_left_out(arguments: Iterable[str | Path]) -> None:
    """Say how many pictures of earlier inspections lie among the images, and are not taken for images."""
    from dinosaur_ad.images.formats import OVERLAY, is_overlay_name

    found: set[Path] = set()
    named = 0
    for path in map(Path, arguments):
        if path.is_dir():
            found.update(_overlays_below(path))
        elif path.exists():
            named += is_overlay_name(path)
        elif glob.has_magic(str(path)) and not is_overlay_name(path):
            matches = glob.iglob(str(path), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute patterns
            for match in map(Path, matches):
                found.update(_overlays_below(match) if match.is_dir() else [match] * is_overlay_name(match))
    if found:
        say(f"left out: {len(found)} overlay{'s' * (len(found) != 1)} of earlier inspections (*{OVERLAY})")
    if named:
        say(f"warning: {named} of the images named are called *{OVERLAY}, as pictures of earlier inspections are")


def _overlays_below(folder: Path) -> Iterator[Path]:
    from dinosaur_ad.images.formats import is_overlay_name

    for parent, _, files in os.walk(folder):
        yield from filter(is_overlay_name, (Path(parent, file) for file in files))
