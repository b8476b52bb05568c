"""A task as one file that moves between boxes: a ZIP archive without compression, every byte of it under a hash.

::

    bundle.json              sealed with its own sha256: format, task, encoder, preset, size and sha256 of each file
    bank.safetensors, ...    the array files of the current version of the task, the gallery among them

Earlier versions and the history of the task do not travel. Nothing that is read is trusted: see :func:`read_bundle`.
The hashes find damage; they do not prove who made the file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from dinosaur_ad._atomic import make_folder, move_atomic, sha256_file, temporary_name
from dinosaur_ad._schema import moment, one_of, record, text, whole
from dinosaur_ad._text import first_line, printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.store.codec import Array, Json, decode_arrays, encode_arrays, seal, unseal
from dinosaur_ad.store.documents import HEADER, MAX_ARRAY_BYTES, MAX_MANIFEST_BYTES, TASK
from dinosaur_ad.store.names import ARRAYS, check_task_name, is_array_file
from dinosaur_ad.store.task_store import TaskStore
from dinosaur_ad.store.versions import TaskRecord, file_info

FORMAT = "dinosaur-task"
FORMAT_VERSION = 1
MOST_FILES = 100
"""Members of a bundle; a task has half a dozen."""

_DOCUMENT = "bundle.json"
_FILE = record({"bytes": whole(0, MAX_ARRAY_BYTES), "sha256": text(64, r"[0-9a-f]{64}")})
_SHAPE = record(
    {
        "format": one_of(FORMAT),
        "version": whole(1, FORMAT_VERSION),
        "task": text(200),
        "learned": moment,
        "changed": moment,
        "header": HEADER,
        "files": record({}, others=_FILE),
        "manifest": TASK,
    }
)
# What zipfile raises for archives that are damaged or made to do harm.
_DAMAGE = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, OverflowError, struct.error)
_ONCE = (1980, 1, 1, 0, 0, 0)  # the time of every member: the same version of a task gives the same file
_PLAIN_FILE = (stat.S_IFREG | 0o644) << 16


@dataclass(frozen=True)
class Bundle:
    """A task that was read from a file: its name, the header of the store it comes from, arrays and manifest.

    ``learned`` and ``changed`` are when the task was learned and last changed there (ISO 8601, UTC).
    """

    task: str
    header: dict[str, Any]
    files: dict[str, dict[str, Array]]
    manifest: dict[str, Any]
    learned: str
    changed: str


@dataclass(frozen=True)
class WrittenBundle:
    """A bundle that was written: where, its size, and the hash of the whole file."""

    task: str
    path: Path
    bytes: int
    sha256: str


def write_bundle(store: TaskStore, name: str, path: str | Path, *, paths: bool = True) -> WrittenBundle:
    """Write the current version of a task to a new file, whole or not at all.

    The manifest of a task names its training images and its confirmed defects as they were given, folders included;
    with ``paths=False`` only the last part of each name travels.

    :raises InputError: there is no such task, or there is a file of that name.
    """
    target, task = Path(path), store.record(name)
    _refuse_taken(target)
    try:
        make_folder(target.parent)
        temporary = temporary_name(target.parent)
        try:
            with temporary.open("xb") as file:
                _write(file, store, task, paths)
                file.flush()
                os.fsync(file.fileno())
            _refuse_taken(target)
            move_atomic(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        return WrittenBundle(task.name, target, target.stat().st_size, sha256_file(target))
    except OSError as error:
        raise InputError(
            f"The bundle {printable(target)} could not be written ({error.strerror or type(error).__name__}); check "
            "the folder and the space on its disk, or choose another one."
        ) from error


def _write(file: Any, store: TaskStore, task: TaskRecord, paths: bool) -> None:
    blobs = {each: encode_arrays(store.arrays(task, each)) for each in task.files}
    header = store.header
    files: dict[str, Json] = {each: file_info(blob)._asdict() for each, blob in blobs.items()}
    document: dict[str, Json] = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "task": task.name,
        "learned": task.created,
        "changed": task.date,
        "header": {key: header[key] for key in ("encoder", "preset", "seed") if key in header},
        "files": files,
        "manifest": task.manifest if paths else _without_folders(task.manifest),
    }
    members = {_DOCUMENT: seal(document)} | {f"{each}{ARRAYS}": blob for each, blob in blobs.items()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for member, content in members.items():
            info = zipfile.ZipInfo(member, _ONCE)
            info.external_attr = _PLAIN_FILE
            archive.writestr(info, content)


def read_bundle(path: str | Path) -> Bundle:
    """Read a bundle and check all of it: structure, sizes, hashes and what its documents may hold.

    :raises InputError: there is no such file, or it is no bundle, is damaged, or holds what a bundle never does.
    """
    source = Path(path)
    try:
        with source.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{printable(source)} is not a plain file; name one that tasks export wrote.")
            with _reading(source), zipfile.ZipFile(file) as archive:
                return _read(archive, status.st_size)
    except IsADirectoryError:
        raise InputError(f"{printable(source)} is a folder; name a file that tasks export wrote.") from None
    except OSError as error:
        raise InputError(
            f"The bundle {printable(source)} cannot be read ({error.strerror or type(error).__name__}); check the path."
        ) from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        refuse_bundle(path, error)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a place before the beginning, where a damaged directory leads
            raise
        refuse_bundle(path, "its directory leads out of it")


def refuse_bundle(path: str | Path, why: object) -> NoReturn:
    """Say why a bundle cannot be used."""
    reason = first_line(why) if isinstance(why, BaseException) else printable(why)
    raise InputError(
        f"The bundle {printable(path)} cannot be used ({reason}) and nothing was changed; export the task again and "
        "compare the sha256 of the file after it was copied."
    ) from (why if isinstance(why, BaseException) else None)


def _read(archive: zipfile.ZipFile, size: int) -> Bundle:
    """The checked content of an archive in a file of ``size`` bytes; a ValueError says what is wrong with it."""
    members = _checked_members(archive, size)
    if _DOCUMENT not in members:
        raise ValueError(f"it has no {_DOCUMENT}, so it was not written by tasks export")
    document = _read_document(_content(archive, members.pop(_DOCUMENT), MAX_MANIFEST_BYTES))
    files: dict[str, Any] = document["files"]
    if set(members) != {f"{each}{ARRAYS}" for each in files}:
        raise ValueError("it does not hold exactly the files that it names")
    arrays = {}
    for each, expected in files.items():
        content = _content(archive, members[f"{each}{ARRAYS}"], expected["bytes"])
        if len(content) != expected["bytes"] or hashlib.sha256(content).hexdigest() != expected["sha256"]:
            raise ValueError(f"the sha256 of {each}{ARRAYS} is not the recorded one")
        arrays[each] = decode_arrays(np.frombuffer(content, np.uint8))
    task, header, manifest = document["task"], document["header"], document["manifest"]
    return Bundle(task, header, arrays, manifest, document["learned"], document["changed"])


def _checked_members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The members by name, none of which is packed, a link, elsewhere, there twice, or larger than it can be."""
    infos = archive.infolist()
    if len(infos) > MOST_FILES:
        raise ValueError(f"it holds {len(infos)} files, and a bundle has at most {MOST_FILES}")
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = printable(ascii(info.orig_filename), 60)
        if info.orig_filename != info.filename or not (info.filename == _DOCUMENT or is_array_file(info.filename)):
            raise ValueError(f"it holds a file called {name}, which no bundle does")
        if info.filename in members:
            raise ValueError(f"it holds the file {name} twice")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG) or info.is_dir():
            raise ValueError(f"its {name} is a link or a folder instead of a file")
        if info.flag_bits & 1 or info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise ValueError(f"its {name} is packed or encrypted, and tasks export packs nothing")
        members[info.filename] = info
    # Nothing is packed, so that more bytes than the file has are members that lie over each other.
    if sum(info.file_size for info in infos) > size:
        raise ValueError("it declares more bytes than it has")
    return members


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int) -> bytes:
    """The bytes of a member, at most so many."""
    if info.file_size > most:
        raise ValueError(f"its {info.filename} has {info.file_size} bytes, and {most} is the most")
    with archive.open(info) as member:
        return member.read(most + 1)


def _read_document(data: bytes) -> dict[str, Any]:
    document, sealed = unseal(data)
    if not sealed:
        raise ValueError(f"its {_DOCUMENT} does not carry its sha256")
    version = document.get("version") if document.get("format") == FORMAT else None
    if type(version) is int and version > FORMAT_VERSION:
        raise ValueError(f"it was written by a newer DINOSaur, in format {version}; upgrade dinosaur-ad to read it")
    _SHAPE(document, "")
    check_task_name(document["task"])
    if not document["files"] or not all(is_array_file(f"{each}{ARRAYS}") for each in document["files"]):
        raise ValueError("it does not describe its files")
    return document


def put_bundle(store: TaskStore, bundle: Bundle, name: str | None = None, *, replace: bool = False) -> TaskRecord:
    """Write the task of a bundle into a store as one change, "import", which undo takes back; nothing is merged.

    Whether the task fits the store is for the caller to check before.

    :raises InputError: there is a task of that name, and ``replace`` was not asked for.
    """
    name = check_task_name(bundle.task if name is None else name)
    with store.teaching(name), store.writer():
        if not replace and name in store:
            raise InputError(
                f"There is a task '{name}' already; import it under another name (--name), or in place of that one "
                "(--replace), which undo takes back."
            )
        note: dict[str, Json] = {"images": len(bundle.manifest["images"]), "task": bundle.task}
        return store.put(name, bundle.files, bundle.manifest, action="import", note=note)


def _without_folders(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest whose images are named by the last part of their paths."""
    changed = dict(manifest)
    changed["images"] = [_last_part(each) for each in manifest["images"]]
    if isinstance(gallery := manifest.get("gallery"), list):
        changed["gallery"] = [
            each | {"image": _last_part(each["image"])} if isinstance(each.get("image"), str) else each
            for each in gallery
        ]
    return changed


def _last_part(path: str) -> str:
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path


def _refuse_taken(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{printable(path)} is a folder; name a file, such as {printable(path / 'task.zip')}.")
    if os.path.lexists(path):
        raise InputError(f"There is a file {printable(path)} already; choose another name, or remove it first.")
