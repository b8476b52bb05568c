"""Changing tasks: one writer at a time, each change one replaced pointer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise

from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.store.codec import Array, Json, encode_arrays
from dinosaur_ad.store.files import write_errors
from dinosaur_ad.store.names import (
    POINTER,
    array_path,
    check_task_name,
    is_file_name,
    manifest_path,
    pointer_path,
    task_folder,
    version_name,
)
from dinosaur_ad.store.reading import TaskReader
from dinosaur_ad.store.records import TaskRecord, encode_manifest, file_info
from dinosaur_ad.store.versions import KEEP, Pointer, now


class TaskStore(TaskReader):
    """Named arrays and a manifest per task, with versions and undo, in a folder or in memory."""

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
        if not all(is_file_name(file) for file in files):
            raise ValueError(f"file names are lower-case words, not {list(files)}")
        blobs = {file: encode_arrays(arrays) for file, arrays in files.items()}
        with self._changing(name):
            pointers = self._pointers()
            _refuse_clash(name, pointers)
            date, pointer = now(), self._pointer(name)
            document = encode_manifest(date, blobs, manifest)
            for file, blob in blobs.items():
                self._files.write(array_path(name, pointer.next_version, file), blob)
            self._files.write(manifest_path(name, pointer.next_version), document)
            sha256, ordinal = file_info(document).sha256, _next_ordinal(pointers)
            self._switch(name, pointer.with_version(action, date, sha256=sha256, ordinal=ordinal, note=note or {}))
            return self.record(name)

    def drop(self, name: str) -> None:
        """Forget a task; :meth:`undo` brings it back until the next :meth:`prune`."""
        with self._changing(name):
            self._switch(name, self._existing(name).dropped())

    def undo(self, name: str) -> str:
        """Take back the last change to a task and return its action; without its first, the task is gone."""
        with self._changing(name):
            pointer = self._pointer(name)
            if len(pointer.states) < 2:
                raise StoreError(
                    f"There is nothing to undo for task {name!r}: the store {self._files} has no earlier "
                    f"version of it (at the most {KEEP} are kept)."
                )
            self._switch(name, pointer.undone())
            return pointer.current.action

    def undoable(self, name: str) -> list[tuple[str, bool]]:
        """Return the changes that :meth:`undo` can take back, the last first, each with whether a task is left then."""
        states = self._pointer(check_task_name(name)).states
        return [(after.action, before.version > 0) for before, after in pairwise(states)][::-1]

    def prune(self) -> list[str]:
        """Remove forgotten tasks for good, to free their space, and return their names."""
        with self.writer():
            gone = [name for name, pointer in self._pointers().items() if pointer and not pointer.exists]
            for name in gone:
                with self._changing(name):
                    self._switch(name, Pointer())
        return gone

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

    def _switch(self, name: str, pointer: Pointer) -> None:
        """Make ``pointer`` the truth about a task: the one moment at which a change happens."""
        if pointer.versions:
            self._files.write(pointer_path(name), pointer.encode())
        else:
            self._files.unlink(pointer_path(name))

    def _sweep(self, name: str) -> None:
        """Remove what the pointer of a task does not name; all of it stays if the pointer cannot be read."""
        folder = task_folder(name)
        with suppress(OSError, StoreError):
            versions = self._pointer(name).versions
            if not versions:
                self._files.discard(folder)
            for child in set(self._files.children(folder)) - {POINTER, *map(version_name, versions)}:
                self._files.discard(f"{folder}/{child}")


def copy_tasks(source: TaskStore, target: TaskStore) -> None:
    """Copy the current version of every task into a store of its own."""
    for name in source.names():
        record = source.record(name)
        files = {file: source.arrays(record, file) for file in record.files}
        note = {"images": len(record.manifest["images"])}
        target.put(name, files, record.manifest, action="learn", note=note)


def _refuse_clash(name: str, pointers: Mapping[str, Pointer | None]) -> None:
    """Refuse a name that would share its folder with another where file systems ignore case."""
    for other, pointer in pointers.items():
        if other != name and other.casefold() == name.casefold():
            forgotten = pointer and not pointer.exists
            raise InputError(
                f"The name {name!r} differs only in case from the {'forgotten ' if forgotten else ''}task "
                f"{other!r}, which not every file system can tell apart: use that spelling or another name."
            )


def _next_ordinal(pointers: Mapping[str, Pointer | None]) -> int:
    states = (state for pointer in pointers.values() if pointer for state in pointer.states)
    return 1 + max((state.ordinal for state in states), default=0)
