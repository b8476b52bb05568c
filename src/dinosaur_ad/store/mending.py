"""What is done with files that no pointer names: found again where the pointer is lost, removed where they are rubbish.

Only what the store itself writes is removed, by name, and links are left alone.
"""

from __future__ import annotations

from contextlib import suppress

from dinosaur_ad.store.disk import Disk
from dinosaur_ad.store.documents import MAX_MANIFEST_BYTES, MAX_POINTER_BYTES, MAX_VERSION
from dinosaur_ad.store.in_memory import MemoryFiles
from dinosaur_ad.store.names import (
    FORGOTTEN,
    POINTER,
    forgotten_path,
    manifest_path,
    pointer_path,
    task_folder,
    version_folder,
    version_number,
)
from dinosaur_ad.store.reading import load_arrays
from dinosaur_ad.store.versions import Pointer, State, TaskRecord, decode_record, decode_state, kept, now


def stored_versions(files: Disk | MemoryFiles, name: str) -> list[int]:
    """Return the versions of a task that have a folder, whether or not a pointer names them."""
    numbers = (version_number(child) for child in files.children(task_folder(name)))
    return sorted(number for number in numbers if number is not None and 0 < number < MAX_VERSION)


def recovered(files: Disk | MemoryFiles, name: str) -> Pointer:
    """Return a pointer to the newest versions that are intact, for a task whose own pointer is damaged.

    A version counts if all of it fits the hashes in its manifest, and the manifest its own hash or one that can still
    be found in the damaged pointer.
    """
    clues = b""
    for path in (pointer_path(name), forgotten_path(name)):
        with suppress(OSError, ValueError):
            clues += files.read(path, MAX_POINTER_BYTES)
    found, states = stored_versions(files, name), []
    for version in found:
        with suppress(OSError, ValueError):
            states.append(_proven(files, name, version, clues))
    entry = {"action": "recover", "date": now(), "version": states[-1].version if states else 0}
    return Pointer((State(), *kept(states)), max(found, default=0) + 1, (entry,))


def check_version(files: Disk | MemoryFiles, name: str, state: State) -> TaskRecord:
    """Read all of one version; an OSError or ValueError says what is wrong with it."""
    data = files.read(manifest_path(name, state.version), MAX_MANIFEST_BYTES)
    record = decode_record(name, Pointer((state,)), data)
    for file in record.files:
        load_arrays(files, record, file)
    return record


def _proven(files: Disk | MemoryFiles, name: str, version: int, clues: bytes) -> State:
    data = files.read(manifest_path(name, version), MAX_MANIFEST_BYTES)
    state, proves_itself = decode_state(version, data)
    if not proves_itself and state.sha256.encode() not in clues:
        raise ValueError("nothing proves that it is as it was written")
    state.check()
    check_version(files, name, state)
    return state


def sweep(files: Disk | MemoryFiles, name: str, pointer: Pointer, own: set[int]) -> list[str]:
    """Remove what the store has written for a task and its pointer does not name; return what was removed.

    Where there is no pointer, a folder may be the user's own: only the ``own`` versions are removed then, which are
    those that a change has written or was about to remove.
    """
    folder, removed = task_folder(name), []
    pointed = {POINTER, FORGOTTEN} & set(files.children(folder))
    for version in stored_versions(files, name):
        if version in pointer.versions:
            removed += files.discard_temporaries(version_folder(name, version))
        elif pointed or version in own:
            removed += files.discard_version(version_folder(name, version))
    if pointed or own:
        removed += files.discard_temporaries(folder)
    if POINTER in pointed:
        removed += files.discard(forgotten_path(name))
    if own and not pointed:
        removed += files.discard_folder(folder)
    return removed
