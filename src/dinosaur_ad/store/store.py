"""The two kinds of store: in a folder, and in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from dinosaur_ad._atomic import TEMPORARY, make_folder
from dinosaur_ad.errors import StoreError
from dinosaur_ad.store.codec import Json, decode_json, encode_json
from dinosaur_ad.store.files import LOCK, LOCKS, WRITER, Disk, Memory, reason, write_errors
from dinosaur_ad.store.records import FORMAT_VERSION
from dinosaur_ad.store.tasks import TaskStore
from dinosaur_ad.store.versions import now

FORMAT = "dinosaur-store"
_STORE = "store.json"


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

    def __init__(self, files: Disk, header: dict[str, Any]) -> None:
        super().__init__(files, header)
        self.path = files.root

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: Mapping[str, Json], *, exist_ok: bool = False) -> Store:
        """Make a store in a new or empty folder; with ``exist_ok``, open a store that is there as it is."""
        files = Disk(Path(path))
        _refuse_occupied(files.root, exist_ok)
        with write_errors(files):
            make_folder(files.root)
        with files.lock():
            _refuse_occupied(files.root, exist_ok)  # again: another process may have been faster
            if files.stamp(_STORE) is None:
                _initialise(files, header)
        return cls.open(path)

    @classmethod
    def find(cls, path: str | os.PathLike[str]) -> Store | None:
        """Open the store in a folder; None where one can be made, in a new or empty folder; refuse anything else."""
        root = Path(path)
        _refuse_occupied(root, exist_ok=True)
        return cls.open(root) if (root / _STORE).exists() else None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Store:
        """Open the store in a folder; takes no lock and writes nothing."""
        files = Disk(Path(path))
        try:
            document = decode_json(files.read(_STORE))
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(
                f"There is no store in {path}: check the path, or learn a task to make a store there."
            ) from None
        except (OSError, ValueError) as error:
            raise StoreError(
                f"The file {_STORE} in {path} cannot be used ({reason(error)}): restore it from a backup."
            ) from error
        return cls(files, _checked_header(files.root, document))


class MemoryStore(TaskStore):
    """A store that lives and dies with the process, for a detector without a folder.

    >>> MemoryStore({"layers": (6, 9)}).header  # as it would read back from a folder
    {'layers': [6, 9]}
    """

    def __init__(self, header: Mapping[str, Json]) -> None:
        super().__init__(Memory(), decode_json(encode_json(header)))


def _initialise(files: Disk, header: Mapping[str, Json]) -> None:
    document: dict[str, Json] = {"format": FORMAT, "version": FORMAT_VERSION, "created": now(), "header": header}
    with write_errors(files):
        for stale in files.root.glob(TEMPORARY):  # of a process that was killed here
            stale.unlink()
        files.write(_STORE, encode_json(document))


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
        names = [entry.name for entry in root.iterdir()] if root.exists() else []
    # All that a crash while the store was made can have left does not count.
    contents = {name for name in names if name not in {LOCK, LOCKS, WRITER} and not fnmatch(name, TEMPORARY)}
    if _STORE in contents and not exist_ok:
        raise StoreError(f"There is a store in {root} already: open it, or choose another folder.")
    if contents and _STORE not in contents:
        raise StoreError(f"The folder {root} holds other files: choose a new or empty folder for the store.")
