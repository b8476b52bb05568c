"""The container of a submitted row: a zip archive that may come from a stranger, checked before any of it is used.

Nothing is ever unpacked onto a disk. Names that could lead out of a folder, links, devices, two files of one name,
sizes beyond all rows and hashes that differ from the manifest are refused, each with one sentence.
"""

from __future__ import annotations

import hashlib
import io
import json
import stat
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dinosaur_ad._plain import read_plain
from dinosaur_ad.bench.foreign_results import (
    DAMAGED_ARRAYS,
    format_of,
    listed,
    manifest,
    method_name,
    read_document,
    record,
    relative_parts,
    text,
)
from dinosaur_ad.errors import InputError

FORMAT, KIND = 1, "dinosaur-ad benchmark row"
MANIFEST, FOLDER = "manifest.json", "results"

LARGEST_ROW, LARGEST_ARRAYS = 32 * 2**20, 256 * 2**20
"""Bytes: of an archive and of its files, which are hardly compressed further; of all their arrays when unpacked."""
LARGEST_TEXT = 4 * 2**20
"""Bytes of one of its JSON files; those of this repository have 28 thousand at the most."""
MOST_FILES = 2001

_EPOCH = (1980, 1, 1, 0, 0, 0)
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}


class RefusedRowError(InputError):
    """An archive that is no row: it was not made by ``dinosaur bench submit``, or was changed since."""


def write_row(files: Mapping[str, bytes], about: Mapping[str, Any]) -> bytes:
    """An archive with these files and a manifest of them and of what they are ``about``; equal input, equal bytes."""
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    document = {"format": FORMAT, "kind": KIND, **about, "files": hashes}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in ((MANIFEST, (json.dumps(document, indent=1) + "\n").encode()), *sorted(files.items())):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return buffer.getvalue()


def read_row(path: Path) -> dict[str, bytes]:
    """The files of an archive by name, the manifest among them.

    :raises RefusedRowError: it is no archive, holds what a row cannot hold, or differs from its manifest.
    """
    try:
        files = _unpack(read_plain(path, LARGEST_ROW))
        _check_hashes(files)
    except (*DAMAGED_ARRAYS, KeyError) as error:
        missing = f"its manifest lacks {error}" if isinstance(error, KeyError) else "it is damaged"
        reason = str(error) if type(error) is ValueError else missing
        raise RefusedRowError(
            f"'{path}' is no row of the benchmark ({reason}); ask for one made with dinosaur bench submit."
        ) from error
    return files


def read_manifest(files: Mapping[str, bytes]) -> dict[str, Any]:
    """What an archive says about itself; ValueError or KeyError says what is wrong with it."""
    document = read_document(files[MANIFEST])
    if document.get("kind") != KIND:
        raise ValueError(f"{MANIFEST} is of another kind")
    if (version := format_of(document)) > FORMAT:
        raise ValueError(f"it is of format {version}, and this version of dinosaur-ad reads formats up to {FORMAT}")
    names = dict.fromkeys(("revisions", "package_sha256", "method_sha256"), _texts)
    record(document, {"method": method_name, "files": _hashes, "exact": _flag, **names})
    return document


def _unpack(content: bytes) -> dict[str, bytes]:
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise ValueError("it is no zip archive")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_FILES:
            raise ValueError(f"it has {len(entries)} files, more than the {MOST_FILES} that are possible")
        _refuse_names(entries)
        if sum(entry.file_size for entry in entries) > LARGEST_ROW:
            raise ValueError(f"it would unpack to more than {LARGEST_ROW >> 20} MiB")
        files = {entry.filename: archive.read(entry) for entry in entries}
    _refuse_large(files)
    return files


def _refuse_names(entries: Iterable[zipfile.ZipInfo]) -> None:
    """Refuse names that no row has, and entries that are no plain files."""
    seen = set()
    for entry in entries:
        parts = relative_parts(entry.filename)
        strange = ":" in entry.filename or entry.filename != entry.orig_filename
        device = any(part.partition(".")[0].rstrip(" ").lower() in _DEVICES for part in parts)
        if strange or device or any(part.endswith((".", " ")) for part in parts):
            raise ValueError(f"{entry.filename[:60]!r} is no name that every system can have")
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG) or entry.is_dir():
            raise ValueError(f"{entry.filename[:60]!r} is no plain file")
        if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{entry.filename[:60]!r} is encrypted or packed in an unusual way")
        if entry.filename.casefold() in seen:
            raise ValueError(f"{entry.filename[:60]!r} is in it twice")
        seen.add(entry.filename.casefold())


def _refuse_large(files: Mapping[str, bytes]) -> None:
    """Refuse JSON and arrays far beyond those of any row; an array file is an archive again."""
    unpacked = 0
    for name, content in files.items():
        if name.endswith(".json") and len(content) > LARGEST_TEXT:
            raise ValueError(f"{name[:60]!r} has more than {LARGEST_TEXT} bytes")
        if name.endswith(".npz") and zipfile.is_zipfile(io.BytesIO(content)):
            with zipfile.ZipFile(io.BytesIO(content)) as arrays:
                unpacked += sum(entry.file_size for entry in arrays.infolist())
    if unpacked > LARGEST_ARRAYS:
        raise ValueError(f"its arrays would unpack to more than {LARGEST_ARRAYS >> 20} MiB")


def _check_hashes(files: Mapping[str, bytes]) -> None:
    if MANIFEST not in files:
        raise ValueError(f"{MANIFEST} is missing")
    hashes = read_manifest(files)["files"]
    for name in sorted({*files, *hashes} - {MANIFEST}):
        if name not in files:
            raise ValueError(f"{name[:60]!r} is missing")
        if name not in hashes:
            raise ValueError(f"{name[:60]!r} is not in its manifest")
        if hashlib.sha256(files[name]).hexdigest() != hashes[name]:
            raise ValueError(f"{name[:60]!r} was changed: its hash is not that of the manifest")
    if not any(name.endswith("/result.json") for name in files):
        raise ValueError("it holds no results")


def _hashes(value: Any) -> dict[str, str]:
    return manifest(json.dumps(record(value)).encode())


def _texts(value: Any) -> list[str]:
    return listed(value, text)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false was expected")
    return value
