"""How the journal writes an entry: a head with a checksum, a JSON document, the bytes of files.

magic (8) | length of the body (8) | BLAKE2 of the body (16) | body
body: number of files (4) | length of the document (4) | length of each file (8 each) | document | files
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

from dinosaur_ad.station.history.storable import storable

MAGIC = b"\x93DSJRN1\n"
_HEAD = struct.Struct("<8sQ16s")
_COUNTS = struct.Struct("<II")
HEAD_SIZE = _HEAD.size
LARGEST = 8 * 1024**3
"""A longer body is no entry but a damaged length."""
_CHUNK = 1024 * 1024


class DamagedEntryError(Exception):
    """The bytes at a position are no whole entry."""


def frame(document: dict[str, Any], files: Sequence[bytes]) -> bytes:
    """An entry as bytes."""
    text = json.dumps(document, ensure_ascii=True, separators=(",", ":"), default=storable).encode("ascii")
    sizes = struct.pack(f"<{len(files)}Q", *map(len, files))
    body = b"".join((_COUNTS.pack(len(files), len(text)), sizes, text, *files))
    return _HEAD.pack(MAGIC, len(body), _digest(body)) + body


def read_frame(file: BinaryIO, offset: int, end: int) -> tuple[dict[str, Any], tuple[bytes, ...], int]:
    """The document, the files and the size of the entry at ``offset``, of a file that is valid up to ``end``.

    :raises DamagedEntryError: there is none.
    """
    length, digest = _head(file, offset, end)
    body = file.read(length)
    if len(body) != length or _digest(body) != digest:
        raise DamagedEntryError
    try:
        return *_unpacked(body), HEAD_SIZE + length
    except (struct.error, ValueError) as error:  # a checksum that fits by chance
        raise DamagedEntryError from error


def frame_size(file: BinaryIO, offset: int, end: int) -> int:
    """The size of the entry at ``offset`` by its head alone.

    :raises DamagedEntryError: there is none.
    """
    return HEAD_SIZE + _head(file, offset, end)[0]


def next_magic(file: BinaryIO, offset: int, end: int) -> int:
    """Where the next entry may begin, at ``offset`` or behind it; ``end`` if nowhere."""
    overlap = len(MAGIC) - 1
    while offset < end:
        file.seek(offset)
        chunk = file.read(min(_CHUNK + overlap, end - offset))
        found = chunk.find(MAGIC)
        if found >= 0:
            return offset + found
        offset += max(1, len(chunk) - overlap)
    return end


def _head(file: BinaryIO, offset: int, end: int) -> tuple[int, bytes]:
    file.seek(offset)
    head = file.read(HEAD_SIZE)
    if len(head) < HEAD_SIZE:
        raise DamagedEntryError
    magic, length, digest = _HEAD.unpack(head)
    if magic != MAGIC or length > LARGEST or offset + HEAD_SIZE + length > end:
        raise DamagedEntryError
    return length, digest


def _unpacked(body: bytes) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    files, text = _COUNTS.unpack_from(body)
    sizes = struct.unpack_from(f"<{files}Q", body, _COUNTS.size)
    position = _COUNTS.size + 8 * files + text
    document: dict[str, Any] = json.loads(body[_COUNTS.size + 8 * files : position])
    contents = []
    for size in sizes:
        contents.append(body[position : position + size])
        position += size
    return document, tuple(contents)


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()
