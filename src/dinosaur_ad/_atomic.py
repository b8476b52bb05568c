"""Files that are written whole and read with suspicion: durable writes, JSON documents, named arrays.

Nothing here knows what a task is. A write happens completely or not at all; what is read back is checked
before it is believed, and the reason for a refusal is a :class:`ValueError`, which the caller explains.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
import os
import shutil
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import filelock
import numpy as np
import safetensors.numpy

from dinosaur_ad.errors import StoreError

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

# JSON has no infinity and no NaN, but a threshold may well be infinite: they travel as {"$float": "inf"}.
_FLOAT_TAG = "$float"
_NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}

_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors format


@contextmanager
def write_errors(where: object) -> Iterator[None]:
    """Turn the operating system's refusal to write into the sentence the user sees."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}:
            advice = "free some space and try again"
        elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            advice = "check its permissions or choose another folder"
        else:
            advice = "check the disk and try again"
        raise StoreError(
            f"The store {where} could not be written ({_reason(error)}) and was left as it was; {advice}."
        ) from error


class Disk:
    """The files of a store in a folder. Paths are relative to it; what is written is durable on return."""

    # All that a crash while the store is made can leave behind.
    LEFTOVERS = frozenset({".lock", ".writer", ".store.json.tmp"})

    def __init__(self, root: Path, lock_timeout: float) -> None:
        self.root = root
        self._lock = filelock.FileLock(root / ".lock", timeout=lock_timeout)
        self._mark = root / ".writer"
        self._tidy = True

    def __str__(self) -> str:
        return str(self.root)

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Keep other writers out, re-entrantly; yields whether the writer before may have left rubbish."""
        with self._acquired():
            outermost = self._lock.lock_counter == 1
            untidy = outermost and self._mark.exists()
            if outermost:
                self._leave_mark()
            yield untidy
            # Not after an error or an interruption, nor where something could not be removed: then the mark
            # stays, as it does after a crash, and tells the next writer to look for rubbish.
            if outermost and self._tidy:
                with suppress(OSError):
                    self._mark.unlink()

    def _leave_mark(self) -> None:
        self._tidy = True
        with write_errors(self):
            self._mark.touch()
        with suppress(OSError):  # a full disk may take a name but no content, and prune must work there
            self._mark.write_text(str(os.getpid()))

    def _acquired(self) -> AbstractContextManager[object]:
        with write_errors(self):
            try:
                return self._lock.acquire()
            except filelock.Timeout:  # an OSError too, but not a refusal to write
                raise StoreError(
                    f"The store {self} is being written by {self._holder()}; wait a moment and try again."
                ) from None
            except NotImplementedError as error:
                raise StoreError(
                    f"The file system of the store {self} cannot lock files, so nothing was written; "
                    "choose a folder on another one."
                ) from error

    def _holder(self) -> str:
        try:
            return f"process {int(self._mark.read_text())}"
        except (OSError, ValueError):
            return "another process"

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def view(self, path: str) -> Array:
        """Return the bytes of a file (uint8, 1-D) as a read-only memory map."""
        return np.memmap(self.root / path, dtype=np.uint8, mode="r")

    def sha256(self, path: str) -> str:
        # Not through the map, where a failing disk kills the process instead of raising an error.
        with (self.root / path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def stamp(self, path: str) -> Hashable | None:
        """Return what tells one version of a replaced file from another, None if there is no such file."""
        try:
            stat = (self.root / path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:  # it is there, and reading it will say what is wrong
            return error.errno
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def children(self, path: str) -> list[str]:
        try:
            with os.scandir(self.root / path) as entries:
                return sorted(entry.name for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def write_folder(self, path: str, files: Mapping[str, bytes]) -> None:
        """Write the files of a new folder; it counts only once something durable names it."""
        folder = self.root / path
        made = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            _write_synced(folder / name, data)
        for each in (folder, *(child.parent for child in made)):
            _sync_folder(each)

    def replace(self, path: str, data: bytes) -> None:
        """Replace a file: whoever reads it, at whatever moment, sees all of the old or all of the new."""
        target = self.root / path
        temporary = target.with_name(f".{target.name}.tmp")
        _write_synced(temporary, data)
        temporary.replace(target)
        _confirm(target)

    def unlink(self, path: str) -> None:
        """Remove one file, at once and durably."""
        (self.root / path).unlink()
        _confirm(self.root / path)

    def discard(self, path: str) -> None:
        """Remove a file or folder that nothing names, if possible: a later writer tries again."""
        target = self.root / path
        try:
            shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
        except OSError:
            self._tidy = False


class Memory:
    """The same files in memory, for a store without a folder."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[int, bytes]] = {}
        self._changes = itertools.count()
        self._lock = threading.RLock()

    def __str__(self) -> str:
        return "(in memory)"

    @contextmanager
    def lock(self) -> Iterator[bool]:
        with self._lock:
            yield False

    def read(self, path: str) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._files[path][1]

    def view(self, path: str) -> Array:
        return np.frombuffer(self.read(path), np.uint8)

    def sha256(self, path: str) -> str:
        return hashlib.sha256(self.read(path)).hexdigest()

    def stamp(self, path: str) -> Hashable | None:
        return self._files[path][0] if path in self._files else None

    def children(self, path: str) -> list[str]:
        parts = (PurePosixPath(each).parts for each in list(self._files))
        depth = len(PurePosixPath(path).parts)
        return sorted({each[depth] for each in parts if each[:depth] == PurePosixPath(path).parts})

    def write_folder(self, path: str, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            self.replace(f"{path}/{name}", data)

    def replace(self, path: str, data: bytes) -> None:
        self._files[path] = (next(self._changes), data)

    def unlink(self, path: str) -> None:
        del self._files[path]

    def discard(self, path: str) -> None:
        for each in list(self._files):
            if each == path or each.startswith(f"{path}/"):
                del self._files[each]


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """Wait until the disk has the names in a folder."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _confirm(path: Path) -> None:
    """Sync the folder of a file that was replaced or removed."""
    try:
        _sync_folder(path.parent)
    except OSError as error:
        # The change has happened, so the sentence of write_errors, "left as it was", would be untrue.
        raise StoreError(
            f"The change to {path} was made, but the disk did not confirm it ({_reason(error)}), "
            "so it may not survive a power cut; check the disk."
        ) from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def encode_json(document: Mapping[str, Json]) -> bytes:
    """Return ``document`` as strict UTF-8 JSON.

    >>> decode_json(encode_json({"threshold": float("inf")}))
    {'threshold': inf}
    """
    return json.dumps(_finite(document), indent=1, ensure_ascii=False, allow_nan=False).encode()


def decode_json(data: bytes) -> dict[str, Any]:
    """Read back what :func:`encode_json` wrote; a ValueError for anything that is not a JSON object."""
    try:
        document = json.loads(data, object_hook=_restore_float)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not valid JSON") from error
    if not isinstance(document, dict):
        raise ValueError("it does not hold a JSON object")
    return document


def encode_arrays(arrays: Mapping[str, Array]) -> bytes:
    """Return named arrays as the bytes of a safetensors file; the same arrays give the same bytes."""
    plain = {}
    for name, array in arrays.items():
        # safetensors copies raw memory, so it needs C order. (ascontiguousarray would make 0-d arrays 1-d.)
        plain[name] = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        if plain[name].dtype not in _DTYPES.values():
            raise TypeError(f"array {name!r} has dtype {array.dtype}, which cannot be stored")
    return safetensors.numpy.save(plain)


def decode_arrays(buffer: Array) -> dict[str, Array]:
    """Return read-only views into the bytes (uint8, 1-D) of a safetensors file, without reading the data.

    The library's own reader copies every tensor; a view on a memory map costs nothing until it is used.

    >>> blob = encode_arrays({"prototype": np.arange(3, dtype=np.float32)})
    >>> decode_arrays(np.frombuffer(blob, np.uint8))["prototype"]
    array([0., 1., 2.], dtype=float32)
    """
    header, start = _array_header(buffer)
    arrays = {}
    position = 0
    spans = [(*_checked_entry(name, entry), name) for name, entry in header.items()]
    for begin, end, dtype, shape, name in sorted(spans, key=lambda span: span[:2]):
        if begin != position:
            raise ValueError(f"array {name!r} does not begin where the one before it ends")
        if start + end > buffer.size:
            raise ValueError(f"it ends before array {name!r} does")
        arrays[name] = np.ndarray(shape, dtype, buffer=buffer, offset=start + begin)
        arrays[name].flags.writeable = False
        position = end
    if start + position != buffer.size:
        raise ValueError("it goes on after its last array")
    return arrays


def _finite(value: Json) -> Json:
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT_TAG: repr(float(value))}
    if isinstance(value, Mapping):
        if _FLOAT_TAG in value:
            raise ValueError(f"the key {_FLOAT_TAG!r} is reserved")
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _restore_float(value: dict[str, Any]) -> Any:
    if len(value) == 1 and isinstance(tag := value.get(_FLOAT_TAG), str):
        return _NON_FINITE.get(tag, value)
    return value


def _array_header(buffer: Array) -> tuple[dict[str, Any], int]:
    """Return the JSON header of a safetensors file and where the data starts."""
    length = int.from_bytes(buffer[:_LENGTH_BYTES].tobytes(), "little")
    start = _LENGTH_BYTES + length
    if buffer.size < start or length > _MAX_HEADER_BYTES:
        raise ValueError("it is shorter than its header says")
    header = decode_json(buffer[_LENGTH_BYTES:start].tobytes())
    header.pop("__metadata__", None)
    return header, start


def _checked_entry(name: str, entry: Any) -> tuple[int, int, np.dtype[Any], list[int]]:
    """Return begin, end, dtype and shape of one array, after checking that they fit each other."""
    try:
        dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        sizes = [*shape, begin, end]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the description of array {name!r} cannot be understood") from error
    if not all(type(size) is int and size >= 0 for size in sizes) or not isinstance(shape, list):
        raise ValueError(f"array {name!r} has sizes that are not counts")
    if end - begin != dtype.itemsize * math.prod(shape):
        raise ValueError(f"array {name!r} has a shape that does not fit its bytes")
    return begin, end, dtype, shape
