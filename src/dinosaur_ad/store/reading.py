"""Reading tasks by name, without a lock, while others may be writing them."""

from __future__ import annotations

import errno
import hashlib
import math
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from dinosaur_ad._text import did_you_mean
from dinosaur_ad.errors import InputError, StoreError, VersionGoneError
from dinosaur_ad.store.codec import Array, decode_arrays
from dinosaur_ad.store.disk import Disk, LinkError, reason
from dinosaur_ad.store.documents import MAX_MANIFEST_BYTES, MAX_POINTER_BYTES, NewerFormatError
from dinosaur_ad.store.in_memory import MemoryFiles
from dinosaur_ad.store.names import (
    TASKS,
    array_path,
    check_task_name,
    forgotten_path,
    is_task_name,
    manifest_path,
    pointer_path,
)
from dinosaur_ad.store.versions import FORGET, Pointer, TaskRecord, decode_record

_Result = TypeVar("_Result")
_NAMED = 5  # tasks that a refusal names

# What to do where the file itself is not to blame.
_ADVICE = {
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.EISDIR: "remove that folder and restore the file from a backup",
    errno.ENOMEM: "free some memory and try again",
    errno.EMFILE: "close other files and try again",
    errno.ENFILE: "close other files and try again",
}


class Snapshot(NamedTuple):
    """All tasks of a store at one moment; shared between callers, so do not change it.

    ``stamp`` differs after any change by anyone. ``records`` are those that read intact, in the order in which they
    were learned; their arrays are checked when they are read. ``damaged`` says of each other task what is wrong.
    """

    stamp: Hashable
    records: dict[str, TaskRecord]
    damaged: dict[str, str]


class DamagedError(StoreError):
    """A file of a task is damaged; the task can be forgotten, learned anew and perhaps undone."""


class TaskReader:
    """The half of a store that changes nothing.

    ``header`` is what the owner of the store wants to know about all of it (which encoder, which preset).
    """

    def __init__(self, files: Disk | MemoryFiles, header: dict[str, Any]) -> None:
        self.header = header
        self._files = files
        # Files are read once: a pointer again when its stamp has changed, a record when its pointer was read again.
        self._known: dict[str, tuple[Hashable, Pointer]] = {}
        self._records: dict[str, tuple[Pointer, TaskRecord]] = {}
        self._snapshot: Snapshot | None = None

    def names(self) -> list[str]:
        """Return the tasks in the order in which they were learned; no bank is read.

        A task whose pointer is damaged is not hidden but comes last; :meth:`record` says what is wrong.
        """
        found = self._pointers().items()
        order = {name: each.current.ordinal if each else math.inf for name, each in found if not each or each.exists}
        return sorted(order, key=lambda name: (order[name], name))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and unicodedata.normalize("NFC", name) in self.names()

    def record(self, name: str) -> TaskRecord:
        """Return the newest version of a task, without its arrays; costs one look at its pointer's stamp."""
        return self._retrying(name, self._record)

    def snapshot(self) -> Snapshot:
        """Return all tasks as they are now; costs a look at each pointer's stamp while nothing has changed."""
        known = self._snapshot
        if known is None or known.stamp != (self.stamp(), self._restorable(known.damaged)):
            known = self._snapshot = self._new_snapshot()
        return known

    def _new_snapshot(self) -> Snapshot:
        stamp = self.stamp()  # before anything is read: what changes meanwhile makes the next snapshot
        records: dict[str, TaskRecord] = {}
        damaged: dict[str, str] = {}
        for name in self.names():
            try:
                records[name] = self.record(name)
            except InputError:  # forgotten since it was listed
                continue
            except StoreError as error:
                damaged[name] = str(error)
        return Snapshot((stamp, self._restorable(damaged)), records, damaged)

    def _restorable(self, damaged: Iterable[str]) -> Hashable:
        """The stamps of the manifests of damaged tasks: one may be restored without a change of its pointer."""
        known = ((name, self._known.get(name)) for name in damaged)
        versions = ((name, pointer[1].current.version) for name, pointer in known if pointer)
        return tuple(self._files.stamp(manifest_path(name, version)) for name, version in versions)

    def arrays(self, task: str | TaskRecord, file: str) -> dict[str, Array]:
        """Return read-only arrays of one file of a task, which is compared with its hash every time it is read.

        Given a record, they are the arrays of just that version, so that they fit its manifest; a
        :class:`~dinosaur_ad.errors.VersionGoneError` if that version is no longer in the store.
        """
        if isinstance(task, str):
            return self._retrying(task, lambda name, pointer: self.arrays(self._record(name, pointer), file))
        try:
            return self._arrays(task, file)
        finally:  # whether it could be read or not: its folder may be gone, or be that of a task learned anew
            self._refuse_outdated(task)

    def bytes(self, name: str | None = None) -> int:
        """Return the size of the array files of one task, or of all, in their current version."""
        names = self.names() if name is None else [name]
        return sum(info.bytes for each in names for info in self.record(each).files.values())

    def verify(self, name: str) -> None:
        """Read all that a task has and compare it with its hashes; a StoreError names what differs."""
        self._retrying(name, self._verify)

    def files_stamp(self, record: TaskRecord) -> Hashable:
        """Return what differs once an array file of this version was replaced, for instance from a backup."""
        paths = (array_path(record.name, record.version, file) for file in record.files)
        return tuple(self._files.stamp(path) for path in paths)

    def stamp(self) -> Hashable:
        """Return what differs after any change by anyone, without reading a file."""
        stamps = ((name, self._files.stamp(pointer_path(name))) for name in self._folders())
        return tuple(pair for pair in stamps if pair[1] is not None)

    def _folders(self) -> list[str]:
        try:
            # Some file systems of macOS decompose the letters of names.
            names = (unicodedata.normalize("NFC", name) for name in self._files.children(TASKS))
            return [name for name in dict.fromkeys(names) if is_task_name(name)]
        except OSError as error:
            no_folder = isinstance(error, LinkError | NotADirectoryError)
            advice = "put the folder itself in its place" if no_folder else "check its permissions"
            raise StoreError(f"The store {self._files} cannot be listed ({reason(error)}): {advice}.") from error

    def _pointers(self) -> dict[str, Pointer | None]:
        """Return the pointers of the tasks that are there or were; None stands for a damaged one."""
        pointers: dict[str, Pointer | None] = {}
        for name in self._folders():
            try:
                pointers[name] = self._pointer(name)
            except StoreError:
                if self._files.stamp(pointer_path(name)) is not None:  # else it was forgotten as damaged
                    pointers[name] = None
        return {name: pointer for name, pointer in pointers.items() if pointer is None or pointer.versions}

    def _pointer(self, name: str) -> Pointer:
        """Return the pointer of a task, an empty one if it has none."""
        path = pointer_path(name)
        stamp = self._files.stamp(path)
        if stamp is None:
            path = forgotten_path(name)
            stamp = self._files.stamp(path)
        if stamp is None:
            return Pointer()
        known = self._known.get(name)
        if known is None or known[0] != (path, stamp):
            pointer = Pointer()
            with self._reading(path, name), suppress(FileNotFoundError):  # removed just now
                pointer = Pointer.decode(self._files.read(path, MAX_POINTER_BYTES))
            if path == forgotten_path(name) and pointer.exists:
                pointer = replace(pointer.dropped(), redo=pointer.redo)  # undo brings back the file with all it names
            known = self._known[name] = ((path, stamp), pointer)
        return known[1]

    def _existing(self, name: str) -> Pointer:
        """Return the pointer of a task that is there."""
        name = check_task_name(name)
        pointer = self._pointer(name)
        if pointer.exists:
            return pointer
        if pointer.versions:
            forgotten = pointer.current.action == FORGET
            hint = (
                f"{'it was forgotten, and undo' if forgotten else 'its learning was undone, and redo'} brings it back"
            )
        elif near := did_you_mean(name, names := self.names()):
            raise InputError(f"There is no task {name!r} in the store {self._files}{near}")
        elif names:
            hint = f"it has {', '.join(names[:_NAMED])}{' and more' if len(names) > _NAMED else ''}"
        else:
            hint = "no task has been learned yet"
        raise InputError(f"There is no task {name!r} in the store {self._files}: {hint}.")

    def _retrying(self, name: str, read: Callable[[str, Pointer], _Result]) -> _Result:
        """Read the current version; if that fails because a writer has moved on, read the new one."""
        name = check_task_name(name)
        while True:
            pointer = self._existing(name)
            try:
                return read(name, pointer)
            except StoreError:
                if self._existing(name) == pointer:
                    raise

    def _record(self, name: str, pointer: Pointer) -> TaskRecord:
        known = self._records.get(name)
        if known is None or known[0] is not pointer:
            known = self._records[name] = (pointer, self._read_record(name, pointer))
        return known[1]

    def _read_record(self, name: str, pointer: Pointer) -> TaskRecord:
        path = manifest_path(name, pointer.current.version)
        with self._reading(path, name):
            return decode_record(name, pointer, self._files.read(path, MAX_MANIFEST_BYTES))

    def _arrays(self, record: TaskRecord, file: str) -> dict[str, Array]:
        if file not in record.files:
            raise StoreError(f"Task {record.name!r} has no file {file!r}; it has {', '.join(record.files)}.")
        with self._reading(array_path(record.name, record.version, file), record.name):
            return load_arrays(self._files, record, file)

    def _verify(self, name: str, pointer: Pointer) -> None:
        record = self._read_record(name, pointer)  # not the one in memory, which the disk may no longer hold
        for file in record.files:
            self._arrays(record, file)

    def _refuse_outdated(self, record: TaskRecord) -> None:
        if record.id not in {state.sha256 for state in self._pointer(record.name).states}:
            raise VersionGoneError(
                f"Version {record.version} of task {record.name!r} is no longer in the store {self._files}: "
                "read the record of the task again."
            )

    @contextmanager
    def _reading(self, path: str, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            kind, advice = StoreError, _ADVICE.get(getattr(error, "errno", None) or 0, "")
            if isinstance(error, LinkError):
                advice = (
                    "a store follows no links, so put the folder itself in the place of the link, or remove the link"
                )
            elif isinstance(error, NewerFormatError):
                advice = "upgrade dinosaur-ad to use it"
            elif not advice:
                kind, advice = DamagedError, self._remedy(name)
            raise kind(
                f"The file {path} of the store {self._files} cannot be used ({reason(error)}): {advice}; "
                "the other tasks are not affected."
            ) from error

    def _remedy(self, name: str) -> str:
        """What helps a damaged task, as far as its pointer is known."""
        known = self._known.get(name)
        earlier = known is not None and any(state.version for state in known[1].states[:-1])
        undo = "undo its last change, " if earlier else ""
        return f"restore it from a backup, {undo}learn the task anew with replace (--replace), or forget it"


def load_arrays(files: Disk | MemoryFiles, record: TaskRecord, file: str) -> dict[str, Array]:
    """Return the arrays of one file, after comparing all of it with its size and hash in the manifest."""
    expected = record.files[file]
    buffer = files.load(array_path(record.name, record.version, file), expected.bytes)
    if hashlib.sha256(buffer.data).hexdigest() != expected.sha256:
        raise ValueError("its sha256 is not the recorded one")
    return decode_arrays(buffer)
