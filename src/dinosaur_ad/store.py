"""What is on disk: one safe, versioned, undoable folder per task.

::

    STORE/store.json                      format name and version, and the header its owner gave
    STORE/tasks/NAME/task.json            the pointer: current version, those undo goes back to, history
    STORE/tasks/NAME/v0003/manifest.json  what the detector wants to know; size and sha256 of each array file
    STORE/tasks/NAME/v0003/bank.safetensors
    STORE/.lock, STORE/.writer            one writer at a time; .writer says who, and stays after a crash

**A change is one rename.** A version folder is written and synced before the pointer names it, and never
changed afterwards; replacing ``task.json`` is the moment at which the change happens. A crash leaves files
that no pointer names: readers never look at them and the next writer removes them.

**Readers take no lock.** A version folder never changes, so a reader gets one version whole. The last few are
kept for undo; when a folder goes at last, a POSIX system keeps the data of a mapped file until the map is
closed (Windows refuses to remove it, and a later writer tries again).
"""

from __future__ import annotations

import difflib
import hashlib
import math
import os
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dinosaur_ad._atomic import (
    Array,
    Disk,
    Json,
    Memory,
    decode_arrays,
    decode_json,
    encode_arrays,
    encode_json,
    write_errors,
)
from dinosaur_ad.errors import InputError, StoreError

FORMAT = "dinosaur-store"
FORMAT_VERSION = 1
KEEP = 3
"""Versions of a task that stay on disk, the current one included."""

LOCK_TIMEOUT = 10.0
"""Seconds to wait for another writer; a change holds the lock for as long as writing a bank takes."""

_STORE, _TASKS, _POINTER, _MANIFEST = "store.json", "tasks", "task.json", "manifest.json"
_HISTORY_LIMIT = 100  # entries; a task updated every hour for years must not grow its pointer for ever
_MAX_NAME = 64
_NAME = re.compile(rf"(?!-)(?!\.)[A-Za-z0-9_.-]{{1,{_MAX_NAME}}}(?<!\.)")
_WINDOWS_DEVICES = {"CON", "PRN", "AUX", "NUL"} | {port + n for port in ("COM", "LPT") for n in "123456789"}
_FILE = re.compile(r"[a-z][a-z0-9_]*")

_Result = TypeVar("_Result")


def check_task_name(name: str) -> str:
    """Return ``name`` if it can name a folder on every system, else raise an InputError with one that can.

    >>> check_task_name("metal_nut-2.1")
    'metal_nut-2.1'
    """
    if _is_task_name(name):
        return name
    raise InputError(
        f"A task cannot be called {name!r}: use 1 to {_MAX_NAME} letters, digits, '_', '-' or dots, no dot "
        f"at an end, no '-' at the start and no name reserved by Windows, for example {_cleaned(name)!r}."
    )


def _is_task_name(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and name.partition(".")[0].upper() not in _WINDOWS_DEVICES


def _cleaned(name: str) -> str:
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    words = re.sub(r"[^A-Za-z0-9_.-]+", "-", ascii_name).strip(".-")[:_MAX_NAME].rstrip(".-")
    return words if _is_task_name(words) else f"task-{words}"[:_MAX_NAME].rstrip(".-")


class FileInfo(NamedTuple):
    """Size and hash of one array file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class TaskRecord:
    """One committed version of a task, without its arrays.

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


@dataclass(frozen=True)
class _State:
    """What a task was at one time; version 0 is a task that is not there."""

    version: int = 0
    action: str = ""
    date: str = ""
    created: str = ""
    ordinal: int = 0
    sha256: str = ""  # of manifest.json, which in turn holds those of the array files

    @classmethod
    def parse(cls, document: Any) -> _State:
        expected = asdict(cls())
        if not isinstance(document, dict) or document.keys() != expected.keys():
            raise ValueError("a state has missing or unknown fields")
        if any(type(value) is not type(expected[key]) for key, value in document.items()):
            raise ValueError("a state has a field of the wrong type")
        return cls(**document)


@dataclass(frozen=True)
class _Pointer:
    """The stack of states of one task: the last is current, undo goes back to the one before it."""

    states: tuple[_State, ...] = (_State(),)
    next_version: int = 1
    history: tuple[dict[str, Any], ...] = ()

    @property
    def current(self) -> _State:
        return self.states[-1]

    @property
    def versions(self) -> set[int]:
        return {state.version for state in self.states if state.version}

    def pushed(self, state: _State, keep: int, note: Mapping[str, Json]) -> _Pointer:
        states = (*self.states, state)
        while sum(state.version > 0 for state in states) > keep:
            states = states[1:]
        entry = {**note, "action": state.action, "date": state.date, "version": state.version}
        return _Pointer(states, max(self.next_version, state.version + 1), self._logged(entry))

    def popped(self) -> _Pointer:
        before = self.states[-2]
        entry = {"action": f"undo {self.current.action}", "date": _now(), "version": before.version}
        return replace(self, states=self.states[:-1], history=self._logged(entry))

    def _logged(self, entry: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        return (*self.history, entry)[-_HISTORY_LIMIT:]

    @classmethod
    def parse(cls, document: dict[str, Any]) -> _Pointer:
        states, following, history = (document.get(key) for key in ("states", "next_version", "history"))
        if not isinstance(states, list) or not states or type(following) is not int:
            raise ValueError("it does not point to a version")
        if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
            raise ValueError("its history is not a list of entries")
        parsed = tuple(_State.parse(state) for state in states)
        if not all(0 <= state.version < following for state in parsed):
            raise ValueError("it points to a version that cannot exist")
        return cls(parsed, following, tuple(history))


class TaskStore:
    """Named arrays and a manifest per task, with versions and undo, in a folder or in memory.

    ``header`` is what the owner of the store wants to know about all of it (which encoder, which preset).
    """

    def __init__(self, files: Disk | Memory, header: Mapping[str, Json], keep: int) -> None:
        if keep < 1:
            raise ValueError("keep counts the current version, so it is at least 1")
        self.header: dict[str, Any] = dict(header)
        self._files = files
        self._keep = keep
        self._cache: dict[str, tuple[Hashable, _Pointer | StoreError]] = {}

    def names(self) -> list[str]:
        """Return the tasks in the order in which they were learned; no bank is read.

        A task whose pointer is damaged is not hidden but comes last; :meth:`record` says what is wrong.
        """
        order = {}
        for name, pointer in self._pointers().items():
            if isinstance(pointer, StoreError):
                order[name] = math.inf
            elif pointer.current.version:
                order[name] = pointer.current.ordinal
        return sorted(order, key=lambda name: (order[name], name))

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def record(self, name: str) -> TaskRecord:
        """Return the newest version of a task, without its arrays."""
        return self._steadily(name, lambda pointer: self._record(name, pointer))

    def arrays(self, task: str | TaskRecord, file: str) -> dict[str, Array]:
        """Return read-only arrays of one file of a task; those of a :class:`Store` are read only when used.

        Given a record, they are the arrays of just that version, so that they fit its manifest.
        """
        if isinstance(task, str):
            return self._steadily(task, lambda pointer: self.arrays(self._record(task, pointer), file))
        try:
            return self._arrays(task, file)
        finally:  # whether it could be read or not: its folder may be gone, or be that of a task learned anew
            self._refuse_outdated(task)

    def put(
        self,
        name: str,
        files: Mapping[str, Mapping[str, Array]],
        manifest: Mapping[str, Json],
        *,
        action: str,
        note: Mapping[str, Json] | None = None,
    ) -> TaskRecord:
        """Write a whole new version of a task, make it the current one, and return it.

        ``files`` maps the name of a file ("bank") to its arrays; ``action`` ("learn", "update") and ``note``
        ({"images": 20}) go into the history. Nothing changes unless all of it is written.
        """
        check_task_name(name)
        if not all(_FILE.fullmatch(file) for file in files):
            raise ValueError(f"file names are lower-case words, not {list(files)}")
        blobs = {file: encode_arrays(arrays) for file, arrays in files.items()}
        with self._changing(name):
            pointers = self._pointers()
            _refuse_clash(name, pointers)
            pointer = _sound(pointers.get(name, _Pointer()))
            date = _now()
            document = _manifest_document(date, blobs, manifest)
            alive = pointer.current.version > 0
            state = replace(
                pointer.current if alive else _State(created=date, ordinal=_next_ordinal(pointers)),
                version=pointer.next_version,
                action=action,
                date=date,
                sha256=_sha256(document),
            )
            contents = {_array_file(file): blob for file, blob in blobs.items()} | {_MANIFEST: document}
            self._files.write_folder(_folder(name, state.version), contents)
            self._switch(name, pointer.pushed(state, self._keep, note or {}))
            return self._record(name, self._pointer(name))

    def drop(self, name: str) -> None:
        """Forget a task; :meth:`undo` brings it back until the next :meth:`prune`."""
        with self._changing(name):
            state = _State(action="forget", date=_now())
            self._switch(name, self._pointer(name).pushed(state, self._keep, {}))

    def undo(self, name: str) -> str:
        """Take back the last change to a task and return its action; without its first, the task is gone."""
        with self._changing(name):
            pointer = _sound(self._find(name) or _Pointer())
            if len(pointer.states) < 2:
                raise StoreError(
                    f"There is nothing to undo for task {name!r}: the store {self._files} has no earlier "
                    f"version of it (at the most {self._keep} are kept)."
                )
            before = pointer.popped()
            self._switch(name, before if before.versions else None)
            return pointer.current.action

    def prune(self) -> list[str]:
        """Remove forgotten tasks for good, to free their space, and return their names."""
        with self.writer():
            found = self._pointers().items()
            gone = [name for name, each in found if isinstance(each, _Pointer) and not each.current.version]
            for name in gone:
                with self._changing(name):
                    self._switch(name, None)
        return gone

    def bytes(self, name: str | None = None) -> int:
        """Return the size of the array files of one task, or of all, in their current version."""
        names = self.names() if name is None else [name]
        return sum(info.bytes for each in names for info in self.record(each).files.values())

    def verify(self, name: str) -> None:
        """Read all that a task has and compare it with its hashes; a StoreError names what differs."""
        record = self.record(name)
        for file, info in record.files.items():
            path = f"{_folder(record.name, record.version)}/{_array_file(file)}"
            with self._reading(path):
                if self._files.sha256(path) != info.sha256:
                    raise ValueError("its sha256 is not the recorded one")
            self._arrays(record, file)

    def stamp(self) -> Hashable:
        """Return what differs after any change by anyone, without reading a file."""
        stamps = ((name, self._files.stamp(_pointer_path(name))) for name in self._folders())
        return tuple(pair for pair in stamps if pair[1] is not None)

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Keep other writers out during several changes; re-entrant, and each change takes it itself."""
        with self._files.lock() as untidy:
            for name in self._folders() if untidy else []:
                self._sweep(name)
            yield

    @contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        check_task_name(name)  # before anything else: the sweep removes what it finds under this name
        with self.writer():
            try:
                with write_errors(self._files):
                    yield
            finally:  # after a failure too, and after Ctrl-C: what the pointer does not name is rubbish
                self._sweep(name)

    def _switch(self, name: str, pointer: _Pointer | None) -> None:
        """Make ``pointer`` the truth about a task: the one moment at which a change happens."""
        if pointer is None:
            self._files.unlink(_pointer_path(name))
        else:
            self._files.replace(_pointer_path(name), encode_json(asdict(pointer)))

    def _sweep(self, name: str) -> None:
        """Remove the versions of a task that its pointer does not name."""
        pointer = self._find(name)
        if pointer is None:
            self._files.discard(f"{_TASKS}/{name}")
        elif isinstance(pointer, _Pointer):
            named = {_POINTER, *(Path(_folder(name, version)).name for version in pointer.versions)}
            for child in set(self._files.children(f"{_TASKS}/{name}")) - named:
                self._files.discard(f"{_TASKS}/{name}/{child}")

    def _pointers(self) -> dict[str, _Pointer | StoreError]:
        return {name: pointer for name in self._folders() if (pointer := self._find(name)) is not None}

    def _folders(self) -> list[str]:
        try:
            return [name for name in self._files.children(_TASKS) if _is_task_name(name)]
        except OSError as error:
            raise StoreError(
                f"The store {self._files} cannot be listed ({error.strerror}): check its permissions."
            ) from error

    def _find(self, name: str) -> _Pointer | StoreError | None:
        """Return the pointer of a task that is there or was, read again only if it has changed."""
        path = _pointer_path(name)
        stamp = self._files.stamp(path)
        known, pointer = self._cache.get(name, (None, None))
        if stamp is None or stamp == known:
            return None if stamp is None else pointer
        try:
            with self._reading(path, remedy="or remove its folder"):
                pointer = _Pointer.parse(decode_json(self._files.read(path)))
        except StoreError as error:
            if self._files.stamp(path) is None:  # it was removed just now
                return None
            pointer = error
        self._cache[name] = (stamp, pointer)
        return pointer

    def _pointer(self, name: str) -> _Pointer:
        """Return the pointer of a task that can be read."""
        pointer = _sound(self._find(check_task_name(name)) or _Pointer())
        if pointer.current.version:
            return pointer
        if pointer.versions:
            hint = "it was forgotten, and undo brings it back"
        elif nearest := difflib.get_close_matches(name, self.names(), n=3, cutoff=0):
            hint = f"the nearest names are {', '.join(nearest)}"
        else:
            hint = "no task has been learned yet"
        raise InputError(f"There is no task {name!r} in the store {self._files}: {hint}.")

    def _steadily(self, name: str, read: Callable[[_Pointer], _Result]) -> _Result:
        """Read the current version; if that fails because a writer has moved on, read the new one."""
        while True:
            pointer = self._pointer(name)
            try:
                return read(pointer)
            except StoreError:
                if self._pointer(name) == pointer:
                    raise

    def _record(self, name: str, pointer: _Pointer) -> TaskRecord:
        state = pointer.current
        path = f"{_folder(name, state.version)}/{_MANIFEST}"
        with self._reading(path):
            document = self._files.read(path)
            if _sha256(document) != state.sha256:
                raise ValueError("its sha256 is not the recorded one")
            files, manifest = _parse_manifest(decode_json(document))
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

    def _arrays(self, record: TaskRecord, file: str) -> dict[str, Array]:
        if file not in record.files:
            raise StoreError(f"Task {record.name!r} has no file {file!r}; it has {', '.join(record.files)}.")
        path = f"{_folder(record.name, record.version)}/{_array_file(file)}"
        with self._reading(path):
            buffer = self._files.view(path)
            if buffer.size != record.files[file].bytes:
                raise ValueError(f"it has {buffer.size} bytes instead of {record.files[file].bytes}")
            return decode_arrays(buffer)

    def _refuse_outdated(self, record: TaskRecord) -> None:
        pointer = _sound(self._find(record.name) or _Pointer())
        if record.id not in {state.sha256 for state in pointer.states}:
            raise StoreError(
                f"Version {record.version} of task {record.name!r} is no longer in the store {self._files}: "
                "read the record of the task again."
            )

    @contextmanager
    def _reading(self, path: str, remedy: str = "or undo or forget the task") -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise StoreError(
                f"The file {path} of the store {self._files} cannot be used ({_why(error)}): "
                f"restore it from a backup, {remedy}; the other tasks are not affected."
            ) from error


class Store(TaskStore):
    """A store in a folder.

    >>> import numpy as np, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> store = Store.create(folder, {"preset": "default"})
    >>> bank = {"prototype": np.zeros(4, np.float32)}
    >>> _ = store.put("screw", {"bank": bank}, {"images": 20}, action="learn")
    >>> store = Store.open(folder)
    >>> store.names(), store.record("screw").manifest, store.arrays("screw", "bank")["prototype"].shape
    (['screw'], {'images': 20}, (4,))
    >>> store.undo("screw"), store.names()
    ('learn', [])
    """

    def __init__(self, files: Disk, header: Mapping[str, Json], keep: int) -> None:
        super().__init__(files, header, keep)
        self.path = files.root

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        header: Mapping[str, Json],
        *,
        exist_ok: bool = False,
        keep: int = KEEP,
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> Store:
        """Make a store in a new or empty folder; with ``exist_ok``, open a store that is there as it is."""
        root = Path(path)
        _refuse_occupied(root, exist_ok)
        document: dict[str, Json] = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "created": _now(),
            "header": header,
        }
        files = Disk(root, lock_timeout)
        with write_errors(root):
            files.write_folder("", {})
        with files.lock():
            _refuse_occupied(root, exist_ok)  # again: another process may have been faster
            if files.stamp(_STORE) is None:
                with write_errors(root):
                    files.replace(_STORE, encode_json(document))
        return cls.open(root, keep=keep, lock_timeout=lock_timeout)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, keep: int = KEEP, lock_timeout: float = LOCK_TIMEOUT) -> Store:
        """Open the store in a folder; takes no lock and writes nothing."""
        files = Disk(Path(path), lock_timeout)
        try:
            document = decode_json(files.read(_STORE))
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(
                f"There is no store in {path}: check the path, or learn a task to make a store there."
            ) from None
        except (OSError, ValueError) as error:
            raise StoreError(
                f"The file {_STORE} in {path} cannot be used ({_why(error)}): restore it from a backup."
            ) from error
        return cls(files, _checked_header(Path(path), document), keep)


class MemoryStore(TaskStore):
    """A store that lives and dies with the process, for a detector without a folder."""

    def __init__(self, header: Mapping[str, Json] | None = None, *, keep: int = KEEP) -> None:
        super().__init__(Memory(), decode_json(encode_json(header or {})), keep)


def _checked_header(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    version, header = document.get("version"), document.get("header")
    if document.get("format") != FORMAT:
        raise StoreError(f"The folder {path} is not a DINOSaur store: its {_STORE} is of another kind.")
    if type(version) is int and version > FORMAT_VERSION:
        raise StoreError(
            f"The store {path} was written by a newer DINOSaur (format {version}, and this one reads "
            f"{FORMAT_VERSION}): upgrade dinosaur-ad to open it."
        )
    if version != FORMAT_VERSION or not isinstance(header, dict):
        raise StoreError(f"The file {_STORE} in {path} is damaged: restore it from a backup.")
    return header


def _refuse_occupied(root: Path, exist_ok: bool) -> None:
    with write_errors(root):
        if root.exists() and not root.is_dir():
            raise StoreError(f"A store is a folder, and {root} is a file: choose another path.")
        contents = {entry.name for entry in root.iterdir()} - Disk.LEFTOVERS if root.exists() else set()
    if _STORE in contents and not exist_ok:
        raise StoreError(f"There is a store in {root} already: open it, or choose another folder.")
    if contents and _STORE not in contents:
        raise StoreError(f"The folder {root} holds other files: choose a new or empty folder for the store.")


def _refuse_clash(name: str, pointers: Mapping[str, _Pointer | StoreError]) -> None:
    """Refuse a name that would share its folder with another where file systems ignore case."""
    for other, pointer in pointers.items():
        if other != name and other.casefold() == name.casefold():
            forgotten = isinstance(pointer, _Pointer) and not pointer.current.version
            raise InputError(
                f"The name {name!r} differs only in case from the {'forgotten ' if forgotten else ''}task "
                f"{other!r}, which not every file system can tell apart: use that spelling or another name."
            )


def _sound(pointer: _Pointer | StoreError) -> _Pointer:
    if isinstance(pointer, StoreError):
        raise StoreError(str(pointer)) from pointer
    return pointer


def _next_ordinal(pointers: Mapping[str, _Pointer | StoreError]) -> int:
    sound = (pointer for pointer in pointers.values() if isinstance(pointer, _Pointer))
    return 1 + max((state.ordinal for pointer in sound for state in pointer.states), default=0)


def _manifest_document(date: str, blobs: Mapping[str, bytes], manifest: Mapping[str, Json]) -> bytes:
    files: dict[str, Json] = {file: {"bytes": len(blob), "sha256": _sha256(blob)} for file, blob in blobs.items()}
    return encode_json({"format": FORMAT_VERSION, "date": date, "files": files, "manifest": manifest})


def _parse_manifest(document: dict[str, Any]) -> tuple[dict[str, FileInfo], dict[str, Any]]:
    files, manifest = document.get("files"), document.get("manifest")
    if document.get("format") != FORMAT_VERSION:
        raise ValueError("it is of another format")
    if not isinstance(files, dict) or not isinstance(manifest, dict):
        raise ValueError("it is not a manifest")
    infos = {}
    for file, info in files.items():
        if not _FILE.fullmatch(file) or not isinstance(info, dict) or info.keys() != {"bytes", "sha256"}:
            raise ValueError("it does not describe its files")
        infos[file] = FileInfo(**info)
    return infos, manifest


def _why(error: OSError | ValueError) -> str:
    return str(error) if isinstance(error, ValueError) else error.strerror or type(error).__name__


def _folder(name: str, version: int) -> str:
    return f"{_TASKS}/{name}/v{version:04d}"


def _pointer_path(name: str) -> str:
    return f"{_TASKS}/{name}/{_POINTER}"


def _array_file(file: str) -> str:
    return f"{file}.safetensors"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat()
