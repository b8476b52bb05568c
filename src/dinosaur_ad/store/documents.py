"""The documents of a store: what ``store.json``, ``task.json`` and ``manifest.json`` may hold, and how much of it.

Whatever is wrong with one is a :class:`ValueError` that says what, for the caller to explain.
"""

from __future__ import annotations

from typing import Any

from dinosaur_ad._schema import (
    PRESET,
    SETTINGS,
    TILES,
    Shape,
    anything,
    flag,
    items,
    maybe,
    moment,
    number,
    one_of,
    record,
    text,
    texts,
    whole,
)
from dinosaur_ad.store.codec import unseal

FORMAT = "dinosaur-store"
FORMAT_VERSION = 2
"""2: every document carries a hash of its own, and a change its number. 1: as it began."""
POINTER_VERSION = 3
"""Of a ``task.json`` that holds undone changes for redo; written only then, so that version 2 reads all others."""

MAX_STORE_BYTES = 1_000_000
MAX_POINTER_BYTES = 4_000_000
MAX_MANIFEST_BYTES = 64_000_000  # it names every image that was learned
MAX_ARRAY_BYTES = 2**36
MAX_VERSION = 10**9

_SHA256 = r"[0-9a-f]{64}"
_FREE = anything(12)
_COUNT = whole(0, 2**53)
_WORD = text(200)

HEADER = record(
    {"encoder": record({"encoder": _WORD, "fingerprint": _WORD}, others=_FREE), "preset": PRESET},
    {"seed": whole(-(2**63), 2**63)},
    others=_FREE,
)
"""What the detector wants to know about a whole store."""

STORE = record({"format": one_of(FORMAT), "version": whole(1, FORMAT_VERSION), "created": moment, "header": HEADER})

_STATE_1 = {
    "version": whole(0, MAX_VERSION),
    "action": _WORD,
    "date": moment,
    "created": moment,
    "ordinal": whole(0, 2**53),
    "sha256": text(64, rf"({_SHA256})?"),
}
_ENTRY = record({"action": _WORD, "date": moment, "version": whole(0, MAX_VERSION)}, others=_FREE)
_POINTER_1 = {"next_version": whole(1, MAX_VERSION + 1), "history": items(_ENTRY, most=1000)}

_STATE = record(_STATE_1 | {"change": _COUNT})

POINTER_1 = record({"states": items(record(_STATE_1), most=100, least=1), **_POINTER_1})
POINTER = record(
    {"format": whole(2, POINTER_VERSION), "states": items(_STATE, most=100, least=1), **_POINTER_1},
    {"redo": items(_STATE, most=100)},
)

_FILE_INFO = record({"bytes": whole(0, MAX_ARRAY_BYTES), "sha256": text(64, _SHA256)})
# A name becomes part of a path; that it leads nowhere else is checked where names are.
_MANIFEST_1 = {"date": moment, "files": record({}, others=_FILE_INFO)}

TASK = record(
    {"images": texts(longest=10_000, most=10_000_000), "members": whole(0, 10**9)},
    {
        "bank": record(
            {
                "precision": one_of("float32", "float16", "int8"),
                "channels": _COUNT,
                "width": _COUNT,
                "whole": _COUNT,
                "budget": maybe(_COUNT),
            },
            others=_FREE,
        ),
        "budgets": record({}, others=maybe(_COUNT)),
        "calibration": record({}, others=_FREE),
        "preset": text(200),
        "encoder": record({"encoder": _WORD}, others=_FREE),
        "settings": SETTINGS,
        "position": record(
            {"kind": one_of("aligned", "moving", "free"), "registered": flag, "given": flag},
            {"reach": number(0, 10), "clear": number(0, 1)},
        ),
        "image_size": items(whole(1, 1_000_000), most=2, least=2),
        "tiles": TILES,
    },
    others=_FREE,
)
"""What the detector wants to know about a task."""

MANIFEST_1 = record({"format": whole(1, 1), **_MANIFEST_1, "manifest": TASK})
MANIFEST = record(
    {
        "format": whole(2, FORMAT_VERSION),
        **_MANIFEST_1,
        # As in the pointer: enough to find a version again whose pointer is lost.
        "version": whole(1, MAX_VERSION),
        "action": _WORD,
        "created": moment,
        "ordinal": whole(0, 2**53),
        "change": _COUNT,
        "manifest": TASK,
    }
)


class NewerFormatError(ValueError):
    """A document that a later version of this package wrote."""

    def __init__(self, number: int) -> None:
        super().__init__(f"it was written by a newer DINOSaur, in format {number}")


def read_document(
    data: bytes, shape: Shape, old_shape: Shape, newest: int = FORMAT_VERSION
) -> tuple[dict[str, Any], bool]:
    """Return ``task.json`` or ``manifest.json``, and whether it is of format 1, which carried no hash of its own."""
    document, sealed = unseal(data)
    if sealed and type(number := document.get("format")) is int and number > newest:
        raise NewerFormatError(number)
    if not sealed and document.get("format", 1) != 1:
        raise ValueError("it does not carry its sha256")
    (shape if sealed else old_shape)(document, "")
    return document, not sealed
