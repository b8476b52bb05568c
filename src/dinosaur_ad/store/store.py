"""The two kinds of store: in a folder, and in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dinosaur_ad._atomic import make_folder
from dinosaur_ad.errors import StoreError
from dinosaur_ad.store.codec import Json, decode_json, encode_json, seal, unseal
from dinosaur_ad.store.disk import FULL, Disk, reason, write_errors
from dinosaur_ad.store.documents import FORMAT, FORMAT_VERSION, HEADER, MAX_STORE_BYTES, STORE
from dinosaur_ad.store.in_memory import MemoryFiles
from dinosaur_ad.store.names import LOCK, LOCKS, TASKS, WRITER, is_temporary, pointer_path
from dinosaur_ad.store.task_store import TaskStore
from dinosaur_ad.store.versions import now

_STORE = "store.json"


class Store(TaskStore):
    """A store in a folder.

    >>> import numpy as np, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> encoder = {"encoder": "tiny-dinov2", "fingerprint": "7375cbc137a12318"}
    >>> store = Store.create(folder, {"encoder": encoder, "preset": {"name": "default"}})
    >>> bank = {"prototype": np.zeros(4, np.float32)}
    >>> _ = store.put("screw", {"bank": bank}, {"images": ["1.png"], "members": 1}, action="learn")
    >>> store = Store.open(folder)
    >>> store.names(), store.record("screw").manifest["images"], store.arrays("screw", "bank")["prototype"].shape
    (['screw'], ['1.png'], (4,))
    >>> store.undo("screw"), store.names()
    ('learn', [])
    """

    def __init__(self, files: Disk, document: dict[str, Any]) -> None:
        super().__init__(files, document["header"])
        self.path = files.root
        self._disk = files
        self._format = document["version"]

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
        return None if Disk(root).stamp(_STORE) is None else cls.open(root)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Store:
        """Open the store in a folder; takes no lock and writes nothing."""
        files = Disk(Path(path))
        try:
            return cls(files, _read(files))
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(
                f"There is no store in {path}: check the path, or learn a task to make a store there."
            ) from None
        except PermissionError as error:
            raise StoreError(f"The store {path} cannot be opened ({reason(error)}): check its permissions.") from error
        except (OSError, ValueError) as error:
            raise StoreError(
                f"The file {_STORE} in {path} cannot be used ({reason(error)}): restore it from a backup."
            ) from error

    def _upgrade(self) -> None:
        """Write every document anew in the current format, ``store.json`` last.

        A crash leaves some of them in the old format, which is read as well; the next writer goes on.
        """
        if self._format == FORMAT_VERSION:
            return
        try:
            with write_errors(self._files):
                document = _read(self._disk)
                for name, pointer in self._pointers().items():
                    if pointer and pointer.old and self._files.stamp(pointer_path(name)) is not None:
                        self._files.write(pointer_path(name), pointer.encode())
                if document["version"] != FORMAT_VERSION:
                    self._files.write(_STORE, seal(document | {"version": FORMAT_VERSION}))
        except StoreError as error:
            if getattr(error.__cause__, "errno", None) not in FULL:  # what frees a full disk must not be refused
                raise
        else:
            self._format = FORMAT_VERSION


class MemoryStore(TaskStore):
    """A store that lives and dies with the process, for a detector without a folder.

    >>> MemoryStore({"layers": (6, 9)}).header  # as it would read back from a folder
    {'layers': [6, 9]}
    """

    def __init__(self, header: Mapping[str, Json]) -> None:
        super().__init__(MemoryFiles(), decode_json(encode_json(header)))


def _initialise(files: Disk, header: Mapping[str, Json]) -> None:
    try:
        HEADER(decode_json(encode_json(header)), "header")  # what could not be read back is not written
    except ValueError as error:
        raise StoreError(f"A store cannot be made with these settings ({reason(error)}): choose others.") from error
    document: dict[str, Json] = {"format": FORMAT, "version": FORMAT_VERSION, "created": now(), "header": header}
    with write_errors(files):
        files.discard_temporaries("")  # of a process that was killed here
        files.write(_STORE, seal(document))


def _read(files: Disk) -> dict[str, Any]:
    """Return ``store.json``; a ValueError or OSError says what is wrong with it."""
    document, sealed = unseal(files.read(_STORE, MAX_STORE_BYTES))
    version = document.get("version")
    if document.get("format") != FORMAT:
        raise StoreError(f"The folder {files} is not a DINOSaur store: its {_STORE} is of another kind.")
    if type(version) is int and version > FORMAT_VERSION:
        raise StoreError(
            f"The store {files} was written by a newer DINOSaur (format {version}, and this one reads "
            f"{FORMAT_VERSION}): upgrade dinosaur-ad to open it."
        )
    if not sealed and version != 1:
        raise ValueError("it does not carry its sha256")
    STORE(document, "")
    files.children(TASKS)  # refuses a link
    return document


def _refuse_occupied(root: Path, exist_ok: bool) -> None:
    with write_errors(root):
        if root.exists() and not root.is_dir():
            raise StoreError(f"A store is a folder, and {root} is a file: choose another path.")
        names = [entry.name for entry in root.iterdir()] if root.exists() else []
    # All that a crash while the store was made can have left does not count.
    contents = {name for name in names if name not in {LOCK, LOCKS, WRITER} and not is_temporary(name)}
    if _STORE in contents and not exist_ok:
        raise StoreError(f"There is a store in {root} already: open it, or choose another folder.")
    if contents and _STORE not in contents:
        raise StoreError(f"The folder {root} holds other files: choose a new or empty folder for the store.")
