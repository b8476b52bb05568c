"""File names in sentences: always one printable line, whatever bytes the file system holds."""

from __future__ import annotations

import os
from pathlib import Path

from dinosaur_ad._text import escaped


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
