"""One version of a task as the world sees it, and the ``manifest.json`` that it is read from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from dinosaur_ad.store.codec import Json, seal
from dinosaur_ad.store.documents import FORMAT_VERSION, MANIFEST, MANIFEST_1, read_document
from dinosaur_ad.store.names import is_file_name
from dinosaur_ad.store.versions import Pointer, State


class FileInfo(NamedTuple):
    """Size and hash of one array file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class TaskRecord:
    """One committed version of a task, without its arrays. All who ask for it share it, so leave it as it is.

    ``id`` stands for the content of this version: a key for caches. ``created`` is when the task was learned,
    ``date`` when this version was written (ISO 8601, UTC). ``history`` lists what was done to the task,
    oldest first: ``{"action", "date", "version", ...}``. ``change`` counts the changes of the whole store: of two
    records the one with the larger number was written later, whatever the clock said; 0 for those of before it counted.
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
    change: int = 0


def file_info(content: bytes) -> FileInfo:
    """Return size and hash of a file with this content."""
    return FileInfo(len(content), hashlib.sha256(content).hexdigest())


def encode_manifest(state: State, blobs: Mapping[str, bytes], manifest: Mapping[str, Json]) -> bytes:
    """Return the content of ``manifest.json`` for array files with these contents."""
    files: dict[str, Json] = {file: file_info(blob)._asdict() for file, blob in blobs.items()}
    about: dict[str, Json] = {key: value for key, value in asdict(state).items() if key != "sha256"}
    data = seal({"format": FORMAT_VERSION, **about, "files": files, "manifest": manifest})
    read_document(data, MANIFEST, MANIFEST_1)  # what could not be read back is not written
    return data


def decode_record(name: str, pointer: Pointer, data: bytes) -> TaskRecord:
    """Return the current version of a task from its ``manifest.json``; a ValueError says what is wrong with it."""
    state = pointer.current
    if file_info(data).sha256 != state.sha256:
        raise ValueError("its sha256 is not the recorded one")
    document, _ = read_document(data, MANIFEST, MANIFEST_1)
    # A name becomes part of a path, so one that leads elsewhere must not get through.
    if not all(is_file_name(file) for file in document["files"]):
        raise ValueError("it does not describe its files")
    return TaskRecord(
        name=name,
        id=state.sha256,
        version=state.version,
        action=state.action,
        created=state.created,
        date=state.date,
        files={file: FileInfo(**info) for file, info in document["files"].items()},
        manifest=document["manifest"],
        history=pointer.history,
        change=state.change,
    )


def decode_state(version: int, data: bytes) -> tuple[State, bool]:
    """Return the state that a manifest was written with, and whether the manifest proves itself by its own hash."""
    document, old = read_document(data, MANIFEST, MANIFEST_1)
    document["created"] = document.get("created", document["date"])
    document["version"] = document.get("version", version)
    if document["version"] != version:
        raise ValueError("it is of another version")
    known: dict[str, Any] = {"action": "learn", "ordinal": 0, "change": 0} | document
    fields = {key: known[key] for key in ("version", "action", "date", "created", "ordinal", "change")}
    return State(sha256=file_info(data).sha256, **fields), not old
