"""Changing tasks: one writer at a time, each change one replaced pointer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

from dinosaur_ad._atomic import UnconfirmedError
from dinosaur_ad._text import did_you_mean
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.store.codec import Array, Json, encode_arrays
from dinosaur_ad.store.disk import FULL, Disk, reason, write_errors
from dinosaur_ad.store.documents import MAX_VERSION
from dinosaur_ad.store.in_memory import MemoryFiles
from dinosaur_ad.store.mending import check_version, recovered, stored_versions, sweep
from dinosaur_ad.store.names import (
    array_path,
    check_task_name,
    forgotten_path,
    is_file_name,
    manifest_path,
    pointer_path,
    task_folder,
)
from dinosaur_ad.store.reading import DamagedError, TaskReader
from dinosaur_ad.store.versions import FORGET, KEEP, Pointer, State, TaskRecord, encode_manifest, file_info


class TaskStore(TaskReader):
    """Named arrays and a manifest per task, with versions and undo, in a folder or in memory.

    ``removed`` lists the files and folders that the last change removed, relative to the store.
    """

    def __init__(self, files: Disk | MemoryFiles, header: dict[str, Any]) -> None:
        super().__init__(files, header)
        self.removed: list[str] = []
        self._depth = 0
        self._own: dict[str, set[int]] = {}

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
        with self._changing(name) as name:
            pointers = self._pointers()
            _refuse_clash(name, pointers)
            pointer = self._changeable(name)
            ordinal, change = _next_numbers(pointers)
            state = pointer.next_state(action, ordinal=ordinal, change=change)
            document = encode_manifest(state, blobs, manifest)
            self._note(name, {state.version})
            for file, blob in blobs.items():
                self._files.write(array_path(name, state.version, file), blob)
            self._files.write(manifest_path(name, state.version), document)
            self._switch(name, pointer.with_version(replace(state, sha256=file_info(document).sha256), note or {}))
            return self.record(name)

    def drop(self, name: str) -> None:
        """Forget a task; :meth:`undo` brings it back until the next :meth:`prune`.

        Where that cannot be written, because the disk is full or the pointer damaged, the pointer gets another name
        instead, which takes no space; the history of the task then does not say that it was forgotten.
        """
        with self._changing(name) as name:
            try:
                self._switch(name, self._existing(name).dropped())
            except DamagedError:
                if self._files.stamp(pointer_path(name)) is None:
                    raise
                self._files.move(pointer_path(name), forgotten_path(name))
            except OSError as error:
                if error.errno not in FULL or isinstance(error, UnconfirmedError):
                    raise
                self._files.move(pointer_path(name), forgotten_path(name))

    def undo(self, name: str) -> str:
        """Take back the last change to a task and return its action; :meth:`redo` makes it again.

        Without its first change the task is not there, until redo or for good after :meth:`prune`.

        Where the version before is damaged, it goes on to the newest one that is intact. A task whose pointer is
        damaged gets its newest intact version back; the action is then "damage".
        """
        with self._changing(name) as name:
            if self._files.stamp(pointer_path(name)) is None and self._files.stamp(forgotten_path(name)) is not None:
                self._files.move(forgotten_path(name), pointer_path(name))
                return FORGET
            try:
                pointer = self._pointer(name)
            except DamagedError as error:
                self._switch(name, self._recovered(name, error))
                return "damage"
            self._refuse_misspelt(name, pointer)
            if len(pointer.states) < 2:
                raise StoreError(
                    f"There is nothing to undo for task {name!r}: the store {self._files} has no earlier "
                    f"version of it (at the most {KEEP} are kept)."
                )
            self._switch(name, pointer.undone(self._intact(name, pointer.states[-2::-1], "taken back")))
            return pointer.current.action

    def redo(self, name: str) -> str:
        """Make the change again that the last :meth:`undo` took back, and return its action.

        Any other change of the task in between removes what could be made again.
        """
        with self._changing(name) as name:
            pointer = self._pointer(name) if self._files.stamp(pointer_path(name)) is not None else Pointer()
            self._refuse_misspelt(name, pointer)
            if not pointer.redo:
                raise StoreError(
                    f"There is nothing to redo for task {name!r} in the store {self._files}: the last change of it was "
                    "not an undo."
                )
            again = pointer.redone(self._intact(name, pointer.redo[::-1], "made again"))
            self._switch(name, again)
            return again.current.action

    def rename(self, name: str, new: str) -> None:
        """Give a task another name, with its history and all that undo and redo can go to.

        Its folder is renamed, which happens at once; to take it back, rename it back.
        """
        name, new = check_task_name(name), check_task_name(new)
        with self.writer(), write_errors(self._files):
            self._existing(name)
            others = {other: pointer for other, pointer in self._pointers().items() if other != name}
            if new == name or new in others:
                gone = (pointer := others.get(new)) and not pointer.exists
                hint = ", forgotten or undone: tasks --prune removes it for good" if gone else ""
                raise InputError(f"There is a task {new!r} already{hint}; choose another name.")
            _refuse_clash(new, others)
            self._files.move_folder(task_folder(name), task_folder(new))

    def redoable(self, name: str) -> str | None:
        """Return the change that :meth:`redo` would make again; None if there is none."""
        redo = self._pointer(check_task_name(name)).redo
        return redo[-1].action if redo else None

    def undoable(self, name: str) -> list[tuple[str, bool]]:
        """Return the changes that :meth:`undo` can take back, the last first, each with whether a task is left then."""
        states = self._pointer(check_task_name(name)).states
        return [(after.action, before.version > 0) for before, after in pairwise(states)][::-1]

    def prune(self) -> list[str]:
        """Remove tasks that were forgotten, or whose learning was undone, for good, and return their names."""
        with self.writer():
            gone = [name for name in self._folders() if self._is_forgotten(name)]
            for name in gone:
                with self._changing(name) as name:
                    self._switch(name, Pointer())
        return gone

    @contextmanager
    def teaching(self, name: str, waiting: Callable[[str], None] | None = None) -> Iterator[None]:
        """Hold the lock for teaching a task, against any other thread or process.

        Reading, and teaching other tasks, is not blocked. ``waiting`` is called once with a sentence if acquiring the
        lock takes more than a second. It is re-entrant. Acquire it before :meth:`writer`, which is for the moment of
        writing, and never inside it.
        """
        name = check_task_name(name)
        sentence = f"Waiting until the task {name!r} has been taught by someone else; then it goes on."
        lock = self._files.task_lock(name).held(lambda: waiting(sentence) if waiting else None)
        with write_errors(self._files):
            lock.__enter__()
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Keep other writers out during several changes; re-entrant, and each change takes it itself."""
        with self._files.lock() as left:
            if not self._depth:
                self.removed, self._own = [], {}
                if left is not None:
                    self._tidy_up(left)
                self._upgrade()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def _upgrade(self) -> None:
        """Bring what is on disk to the current format; a store in memory has no other."""

    @contextmanager
    def _changing(self, name: str) -> Iterator[str]:
        name = check_task_name(name)  # before anything else: the sweep removes what it finds under this name
        with self.writer():
            try:
                with write_errors(self._files):
                    yield name
            finally:  # after a failure too, and after Ctrl-C: what the pointer does not name is rubbish
                self._sweep(name)

    def _changeable(self, name: str) -> Pointer:
        """Return the pointer to go on from, with a version that has no folder yet; of a damaged one what is left."""
        try:
            pointer = self._pointer(name)
        except DamagedError:
            pointer = recovered(self._files, name)
        version = max([pointer.next_version, *(number + 1 for number in stored_versions(self._files, name))])
        if version > MAX_VERSION:
            raise StoreError(f"The task {name!r} has used up its numbers for versions: learn it under another name.")
        return replace(pointer, next_version=version)

    def _switch(self, name: str, pointer: Pointer) -> None:
        """Write the pointer of a task: the one moment at which a change happens."""
        if pointer.versions:
            self._files.write(pointer_path(name), pointer.encode())
            return
        self._note(name, self._versions(name))
        for path in (pointer_path(name), forgotten_path(name)):
            if self._files.stamp(path) is not None:
                self._files.unlink(path)

    def _versions(self, name: str) -> set[int]:
        """Return the versions that the pointer of a task names; of a damaged one, all that are there."""
        try:
            return self._pointer(name).versions
        except DamagedError:
            return set(stored_versions(self._files, name))

    def _note(self, name: str, versions: set[int]) -> None:
        """Note which versions a change writes or removes: they are rubbish if no pointer names them in the end."""
        self._own.setdefault(name, set()).update(versions)
        self._files.note(name, versions)

    def _recovered(self, name: str, damage: DamagedError) -> Pointer:
        pointer = recovered(self._files, name)
        if not pointer.exists:
            raise StoreError(
                f"The task {name!r} of the store {self._files} cannot be brought back: its file {pointer_path(name)} "
                f"is damaged, and no version of it could be found intact without that; {self._remedy(name)}."
            ) from damage
        return pointer

    def _refuse_misspelt(self, name: str, pointer: Pointer) -> None:
        """Refuse a name that no task has or had if it is near to that of a task."""
        if not pointer.versions and (near := did_you_mean(name, self.names())):
            raise InputError(f"There is no task {name!r} in the store {self._files}{near}")

    def _intact(self, name: str, states: Iterable[State], what: str) -> int:
        """Return how many steps along ``states`` to go: one, or as many as lead to a version that is intact."""
        found = ""
        for steps, state in enumerate(states, start=1):
            if not state.version and steps == 1:
                return steps
            try:
                if state.version:
                    check_version(self._files, name, state)
                    return steps
            except (OSError, ValueError) as error:
                found = found or f" ({manifest_path(name, state.version).rpartition('/')[0]}: {reason(error)})"
        raise StoreError(
            f"The last change of task {name!r} cannot be {what}: no {'later' if what == 'made again' else 'earlier'} "
            f"version of it in the store {self._files} is intact{found}; nothing was changed, restore that version "
            "from a backup, or forget the task."
        )

    def _is_forgotten(self, name: str) -> bool:
        """Tell whether a task was there and can still be brought back."""
        if self._files.stamp(pointer_path(name)) is None:
            return self._files.stamp(forgotten_path(name)) is not None
        with suppress(StoreError):
            pointer = self._pointer(name)
            return bool(pointer.versions) and not pointer.exists
        return False

    def _tidy_up(self, left: set[tuple[str, int]]) -> None:
        """Remove what a writer that was stopped has left: beside pointers, and the versions it was busy with."""
        self.removed += self._files.discard_temporaries("")
        for name, version in left:
            self._own.setdefault(name, set()).add(version)
        for name in self._folders():
            self._sweep(name)

    def _sweep(self, name: str) -> None:
        """Remove what was written for a task and its pointer does not name; nothing if that cannot be read."""
        with suppress(OSError, StoreError):
            self.removed += sweep(self._files, name, self._pointer(name), self._own.get(name, set()))


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
            gone = pointer and not pointer.exists
            raise InputError(
                f"The name {name!r} differs only in case from the {'forgotten or undone ' if gone else ''}task "
                f"{other!r}, which not every file system can tell apart: use that spelling or another name."
            )


def _next_numbers(pointers: Mapping[str, Pointer | None]) -> tuple[int, int]:
    """Return the place of a new task, and the number of the next change."""
    states = [state for pointer in pointers.values() if pointer for state in (*pointer.states, *pointer.redo)]
    ordinal, change = (max((getattr(state, key) for state in states), default=0) for key in ("ordinal", "change"))
    return ordinal + 1, change + 1
