"""Names for pixels: equal key, equal pixels, wherever the file lies and whatever it is called.

Caches and checksums rest on these names, so a change to how images are read, drifted or drawn has to change
:data:`PIXELS_VERSION`. The decoder itself (Pillow) is not part of a key: a key means the same on every machine.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from dinosaur_ad.errors import InputError

PIXELS_VERSION = "pixels-1"
"""Raise the number when the same file, drift or synthetic product begins to give other pixels."""

KEY_DIGITS = 32

_HASHES: dict[tuple[str, int, int], str] = {}


def make_key(*parts: Any) -> str:
    """A key for what the ``parts`` (anything JSON can hold) describe: 32 hexadecimal digits.

    >>> make_key("a", {"x": 1, "y": 2}) == make_key("a", {"y": 2, "x": 1}) != make_key("b", {"x": 1, "y": 2})
    True
    """
    text = json.dumps([PIXELS_VERSION, *parts], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes; a file that has not changed since is not read again in this process.

    :raises InputError: the file cannot be read.
    """
    try:
        status = path.stat()
        # Under a hash of the path: what lives as long as the process must not list the files of a test set.
        known = (hashlib.sha256(os.fsencode(path)).hexdigest(), status.st_size, status.st_mtime_ns)
        if known not in _HASHES:
            with path.open("rb") as file:
                _HASHES[known] = hashlib.file_digest(file, "sha256").hexdigest()
        return _HASHES[known]
    except OSError as error:
        raise InputError(f"'{path}' cannot be read ({error.strerror}); check the path.") from error
