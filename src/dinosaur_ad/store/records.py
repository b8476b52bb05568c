"""One version of a task as the world sees it, and the ``manifest.json`` that it is read from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dinosaur_ad.store.codec import Json, decode_json, encode_json
from dinosaur_ad.store.names import is_file_name
from dinosaur_ad.store.versions import Pointer

FORMAT_VERSION = 1


class FileInfo(NamedTuple):
    """Size and hash of one array file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class TaskRecord:
    """One committed version of a task, without its arrays. All who ask for it share it, so leave it as it is.

    ``id`` stands for the content of this version: a key for caches. ``created`` is when the task was learned,
    ``date`` when this version was written (ISO 8601, UTC). ``history`` lists what was done to the task,
    oldest first: ``{"action", "date", "version", ...}``.
    """

    name: str
    id: str
    version: int
    action: str
    created: str
    date: str
    files: dict[str, FileInfo]
    manifest: dict[str, Any]
    history: tuple[dict[str, Any], ...]


def file_info(content: bytes) -> FileInfo:
    """Return size and hash of a file with this content."""
    return FileInfo(len(content), hashlib.sha256(content).hexdigest())


def encode_manifest(date: str, blobs: Mapping[str, bytes], manifest: Mapping[str, Json]) -> bytes:
    """Return the content of ``manifest.json`` for array files with these contents."""
    files: dict[str, Json] = {file: file_info(blob)._asdict() for file, blob in blobs.items()}
    return encode_json({"format": FORMAT_VERSION, "date": date, "files": files, "manifest": manifest})


def decode_record(name: str, pointer: Pointer, data: bytes) -> TaskRecord:
    """Return the current version of a task from its ``manifest.json``; a ValueError says what is wrong with it."""
    state = pointer.current
    if file_info(data).sha256 != state.sha256:
        raise ValueError("its sha256 is not the recorded one")
    files, manifest = _checked(decode_json(data))
    return TaskRecord(
        name=name,
        id=state.sha256,
        version=state.version,
        action=state.action,
        created=state.created,
        date=state.date,
        files=files,
        manifest=manifest,
        history=pointer.history,
    )


def _checked(document: dict[str, Any]) -> tuple[dict[str, FileInfo], dict[str, Any]]:
    files, manifest = document.get("files"), document.get("manifest")
    if document.get("format") != FORMAT_VERSION:
        raise ValueError("it is of another format")
    if not isinstance(files, dict) or not isinstance(manifest, dict):
        raise ValueError("it is not a manifest")
    infos = {}
    for file, info in files.items():
        # A name becomes part of a path, so one that leads elsewhere must not get through.
        if not is_file_name(file) or not isinstance(info, dict) or info.keys() != set(FileInfo._fields):
            raise ValueError("it does not describe its files")
        infos[file] = FileInfo(**info)
    return infos, manifest
