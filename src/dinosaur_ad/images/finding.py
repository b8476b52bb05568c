"""From arguments (files, folders, globs) to image files, and paths as text for messages, results and stores."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from dinosaur_ad._text import escaped
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.formats import is_image_name, is_overlay_name, is_picture_name


class Found(list[Path]):
    """The result of :func:`find_images`; not searched again, so that a file removed since is one rejected image."""


def find_images(arguments: Iterable[str | Path], *, strict: bool = False) -> Found:
    """The image files of ``arguments`` (files, folders and globs), in the order given, each file once.

    A folder is searched to the bottom, sorted, without hidden files and links to folders, for the known
    extensions only. A file is taken whatever its extension. A glob (``**`` included) gives files with a known
    extension, or with the one that the pattern spells out, and searches the folders it matches.

    Pictures of kinds that are not read (HEIC, PDF, video: see :data:`~dinosaur_ad.images.formats.UNREAD_KINDS`), links
    that lead nowhere and folders that cannot be listed are among the paths: reading them raises the error that says
    what is wrong, so that none is skipped silently. With ``strict``, for datasets, other kinds are left out and a
    folder that cannot be listed raises.

    :raises InputError: an argument leads to no image; the sentence names it.
    """
    found: dict[str, Path] = {}
    for argument in arguments:
        for path in _expand(argument, strict):
            found.setdefault(os.path.realpath(path), path)  # unlike Path.resolve it takes links in a circle
    if not found:
        raise InputError("No images were given; name at least one file, folder or glob.")
    return Found(found.values())


def _expand(argument: str | Path, strict: bool) -> list[Path]:
    if str(argument) == "":  # Path("") would be the current folder
        raise InputError("A path is empty; name a file, a folder or a glob.")
    path = Path(argument)
    if _is_folder(path):
        found = _images_below(path, strict)
        if not found:
            raise InputError(
                f"The folder '{shown_path(path)}' holds no images; expected .png, .jpg, .tif, .webp or the like."
            )
        return found
    if _is_there(path):
        return [path]
    if not glob.has_magic(str(argument)):
        raise InputError(f"'{shown_path(path)}' does not exist; give an image file, a folder or a glob.")
    found = _glob(str(argument), strict)
    if not found:
        raise InputError(f"The pattern '{shown_path(argument)}' matches no images; check it.")
    return found


def is_single_file(argument: str | Path) -> bool:
    """Whether a path means one file: it is no folder and, unless a file has just this name, no glob."""
    path = Path(argument)
    return not _is_folder(path) and (_is_there(path) or not glob.has_magic(str(argument)))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # no permission above it, or no possible name
        return False


def _is_there(path: Path) -> bool:
    """Whether there is something of that name, be it a link that leads nowhere or a file that may not be read."""
    try:
        path.lstat()
    except PermissionError:
        return True  # it cannot be said that it is not there; reading it says what is wrong
    except (OSError, ValueError):
        return False
    return True


def _glob(pattern: str, strict: bool) -> list[Path]:
    # Path.glob takes no absolute patterns and finds hidden files.
    matches = glob.iglob(pattern, recursive=True)  # noqa: PTH207
    spelled_out = Path(pattern).suffix.lower()
    found: list[Path] = []
    for match in sorted(Path(name) for name in matches):
        if _is_folder(match):
            found += _images_below(match, strict)
        elif is_overlay_name(match) and not is_overlay_name(Path(pattern)):
            continue
        elif _counts(match, strict) or match.suffix.lower() == spelled_out != "":
            found.append(match)
    return found


def _images_below(folder: Path, strict: bool) -> list[Path]:
    found: list[Path] = []

    def unlisted(error: OSError) -> None:
        if strict:
            raise unlistable(error.filename, error)
        found.append(Path(error.filename))

    for parent, folders, files in os.walk(folder, onerror=unlisted):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [path for path in (Path(parent, name) for name in files) if _counts(path, strict)]
    return sorted(found)


def _counts(path: Path, strict: bool) -> bool:
    return is_image_name(path) if strict else is_picture_name(path)


def unlistable(folder: str | Path, error: OSError) -> InputError:
    """The sentence for a folder whose files cannot be seen."""
    reason = error.strerror or type(error).__name__
    return InputError(f"The folder '{shown_path(folder)}' cannot be listed ({reason}); change its permissions.")


# Paths as text: always one printable line, whatever bytes the file system holds.


def shown_path(path: str | Path) -> str:
    """A path as text that can be printed and written as UTF-8: what cannot be is escaped.

    A name that is UTF-8 on disk is shown as such even where Python was started without UTF-8.

    >>> shown_path("a\\nb.png"), shown_path("Deckel groß.png"), shown_path("part-\\udcff.png")
    ('a\\\\nb.png', 'Deckel groß.png', 'part-\\\\xff.png')
    """
    text = str(path)
    if not is_text(text):
        try:
            text = os.fsencode(text).decode("utf-8", "backslashreplace")
        except UnicodeEncodeError:  # surrogates that stand for no byte
            text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return escaped(text)


def is_text(path: str | Path) -> bool:
    """Whether a path can be written as UTF-8, as results and stores need it."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def name_of(path: Path) -> str:
    """What a file is called in results and stores: its path, escaped only where it could not be written as UTF-8."""
    return str(path) if is_text(path) else shown_path(path)


def why_no_text(path: str | Path) -> str:
    """What is wrong with a path that is no text, and what to do."""
    try:
        os.fsencode(path).decode("utf-8")
    except UnicodeError:
        return "is not UTF-8, in which results are written; rename the file"
    return "this process cannot handle, because it was started without UTF-8; set PYTHONUTF8=1"
