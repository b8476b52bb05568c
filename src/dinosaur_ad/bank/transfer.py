"""A task out of a store into one file, and back into another store where it fits; see :mod:`dinosaur_ad.store.bundle`.

Needs no encoder: encoder, weights and preset are compared by name and fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dinosaur_ad._text import printable
from dinosaur_ad.bank.bank_files import read_tiling
from dinosaur_ad.bank.verdict import read_whole_task
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import MemoryStore, Store, TaskRecord
from dinosaur_ad.store.bundle import Bundle, WrittenBundle, put_bundle, read_bundle, refuse_bundle, write_bundle

__all__ = ["export_task", "import_task"]


def export_task(store: Store, name: str, path: str | Path, *, paths: bool = True) -> WrittenBundle:
    """Write a task to a new file, which :func:`import_task` reads on another box.

    With ``paths=False`` the folders of its training images and defects do not travel, only the names of their files.

    :raises InputError: there is no such task, or a file of that name, or the file lies in the store.
    """
    if Path(path).resolve().is_relative_to(store.path.resolve()):
        raise InputError(f"{printable(path)} lies in the store, which keeps only what is taught; choose another place.")
    read_whole_task(Preset.from_json(store.header["preset"]), store, store.record(name))  # a damaged one stays here
    return write_bundle(store, name, path, paths=paths)


def import_task(
    place: str | Path | Store, path: str | Path, *, name: str | None = None, replace: bool = False
) -> TaskRecord:
    """Take a task out of a file into the store in a folder, which is made if there is none, under ``name`` or its own.

    All of the file is checked before anything is written. The task gives the same scores as where it was exported.
    :meth:`~dinosaur_ad.detector.Dinosaur.undo` takes the import back.

    :raises InputError: the file is no bundle or damaged, or there is a task of that name (``replace`` goes over it).
    :raises StoreError: the store has another encoder, other weights or another preset.
    """
    bundle = read_bundle(path)
    found = place if isinstance(place, Store) else Store.find(place)
    preset = Preset.from_json(bundle.header["preset"])
    if found is not None:
        _refuse_another(found, bundle, preset)
    _check_content(path, bundle, preset, found.header if found else bundle.header)
    if found is None:
        assert not isinstance(place, Store)
        found = Store.create(place, bundle.header, exist_ok=True)
        _refuse_another(found, bundle, preset)  # another process may have made it
    return put_bundle(found, bundle, name, replace=replace)


def _refuse_another(store: Store, bundle: Bundle, preset: Preset) -> None:
    here, there = store.header["encoder"], bundle.header["encoder"]
    own = Preset.from_json(store.header["preset"])
    if here["encoder"] != there["encoder"]:
        differs = f"the encoder '{printable(there['encoder'], 60)}', and the store has '{here['encoder']}'"
    elif own != preset:
        differing = ", ".join(key for key, value in own.to_json().items() if preset.to_json()[key] != value)
        differs = (
            f"the preset '{printable(preset.name, 60)}', and the store has '{own.name}' (they differ in {differing})"
        )
    elif here["fingerprint"] != there["fingerprint"]:
        differs = (
            f"other weights of '{here['encoder']}' (fingerprint {printable(there['fingerprint'], 60)}, in the store "
            f"{here['fingerprint']})"
        )
    else:
        return
    raise StoreError(
        f"The task '{bundle.task}' cannot be used in the store {store.path}, because it was taught with {differs}; "
        "import it into a store of its own."
    )


def _check_content(path: str | Path, bundle: Bundle, preset: Preset, header: Mapping[str, Any]) -> None:
    """Read the task as a detector would, from a store in memory; what it cannot use is refused."""
    memory = MemoryStore(bundle.header)
    try:
        record = memory.put(bundle.task, bundle.files, bundle.manifest, action="import")
        bank = read_whole_task(preset, memory, record)
        grid = header["encoder"].get("grid")
        if grid and read_tiling(record) is None and list(bank.packed.values_HWMK.shape[:2]) != grid:
            raise ValueError("its bank is not on the encoder's grid of patches")
    except (StoreError, ValueError, TypeError) as error:
        refuse_bundle(path, error.__cause__ if isinstance(error, StoreError) and error.__cause__ else error)
