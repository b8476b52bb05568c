"""Validation of stored results, which may come from strangers: every field is checked before it is used.

Every check raises ValueError with a few words; the caller adds which file it was. Values are never printed whole.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

FOLDER = "folder:"
LARGEST_DOCUMENT = 64 * 2**20
LARGEST_ARRAYS = 4 * 2**30
"""Bytes: of a JSON file, and of all arrays of a file when they are unpacked."""
MOST_TASKS, DEEPEST, LONGEST = 10_000, 32, 100_000

# All that NumPy is known to raise for a damaged .npz file, wherever the damage is.
DAMAGED_ARRAYS = (
    ValueError, KeyError, TypeError, EOFError, OSError, RuntimeError, SyntaxError, OverflowError, MemoryError,
    NotImplementedError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip

_NAME = re.compile(r"\w[\w.+-]{0,99}")
SHA256 = re.compile(r"[0-9a-f]{64}")


# --- files ---


def read_document(content: bytes) -> dict[str, Any]:
    """A JSON object without NaN, infinities, numbers beyond 64 bits, and without end of nesting."""
    try:
        document = json.loads(content, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_bounded)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        place = f", from line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"it is no JSON{place}") from error
    if not isinstance(document, dict):
        raise ValueError(f"it is {_kind(document)}, and an object was expected")
    _refuse_depth(document, DEEPEST)
    return document


def read_arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file, none of them larger than the file says; ValueError when it is damaged."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LARGEST_ARRAYS:
                raise ValueError("its arrays are larger than is possible")
            return {entry.filename.removesuffix(".npy"): _array(archive, entry) for entry in archive.infolist()}
    except DAMAGED_ARRAYS as error:
        raise ValueError(f"its arrays cannot be read: {type(error).__name__}") from error


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    """One array; its header must not promise more than there is, because NumPy makes room for what it promises."""
    with archive.open(entry) as file:
        version = npy.read_magic(file)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        shape, _, dtype = readers[version](file)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != entry.file_size - file.tell():
            raise ValueError("the header does not fit")
    with archive.open(entry) as file:
        array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    return array


def manifest(content: bytes) -> dict[str, str]:
    """Which files a saved state has, by relative names, and their SHA-256."""
    hashes = read_document(content)
    for name, digest in hashes.items():
        relative_parts(name)
        if not (isinstance(digest, str) and SHA256.fullmatch(digest)):
            raise ValueError("a hash in it is none")
    return hashes


# --- names ---


def relative_parts(name: str) -> tuple[str, ...]:
    """The parts of a relative file name such as ``rows/03.npz``.

    >>> relative_parts("rows/03.npz")
    ('rows', '03.npz')

    :raises ValueError: the name could lead out of the folder it is used in, or be none at all.
    """
    parts = tuple(name.split("/"))
    strange = "\\" in name or (os.name == "nt" and ":" in name) or not name.isprintable()
    if strange or any(part in ("", ".", "..") for part in parts) or len(name) > 1000:
        shown = name if len(name) <= 60 else f"{name[:60]}…"
        raise ValueError(f"{shown!r} is no plain relative name")
    return parts


def method_name(value: Any) -> str:
    """A method, or one with its variant: ``dinosaur:paper``."""
    name = text(value)
    base, colon, variant = name.partition(":")
    if not _NAME.fullmatch(base) or (colon and not _NAME.fullmatch(variant)):
        raise ValueError(f"{name[:60]!r} is no name of a method")
    return name


def scenario_name(value: Any) -> str:
    """A scenario, or a folder of the user's: ``folder:photos/line 3``."""
    name = text(value)
    if name.startswith(FOLDER) and name.isprintable() and len(name) <= 4096:
        return name
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:60]!r} is no name of a scenario")
    return name


def plain_name(value: Any) -> str:
    """One word that can be part of a file's name, such as that of a preset."""
    name = text(value)
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:60]!r} is no name")
    return name


def names_a_cell(document: Mapping[str, Any]) -> tuple[str, str, int]:
    """Method, scenario and seed of a result or of a failure."""
    return method_name(document["method"]), scenario_name(document["scenario"]), whole(document["seed"])


def format_of(document: Mapping[str, Any]) -> int:
    """The version of the schema that a stored document follows; 1 for one that does not say.

    >>> format_of({"format": 2}), format_of({})
    (2, 1)
    """
    version = document.get("format", 1)
    if type(version) is not int or version < 1:
        raise ValueError(f"format: {_kind(version)} stands where a whole number from 1 on was expected")
    return version


# --- values ---


def text(value: Any) -> str:
    """A string of at most ``LONGEST`` characters."""
    if not isinstance(value, str) or len(value) > LONGEST:
        raise ValueError(f"{_kind(value)} stands where a text was expected")
    return value


def whole(value: Any) -> int:
    """A whole number from 0 on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{_kind(value)} stands where a whole number from 0 on was expected")
    return value


def number(value: Any) -> float:
    """A finite number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{_kind(value)} stands where a number was expected")
    return value


def maybe(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same check, for values that may be missing."""
    return lambda value: None if value is None else check(value)


def record(value: Any, fields: Mapping[str, Callable[[Any], Any]] | None = None) -> dict[str, Any]:
    """An object; its named fields must be there and pass, others may be there."""
    if not isinstance(value, dict):
        raise ValueError(f"{_kind(value)} stands where an object was expected")
    for name, check in (fields or {}).items():
        try:
            check(value[name])
        except KeyError:
            raise ValueError(f"'{name}' is missing") from None
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return value


def listed(value: Any, check: Callable[[Any], Any], count: int | None = None) -> list[Any]:
    """A list of ``count`` values that all pass."""
    if not isinstance(value, list) or (count is not None and len(value) != count):
        expected = "a list" if count is None else f"a list of {count}"
        raise ValueError(f"{_kind(value)} stands where {expected} was expected")
    for each in value:
        check(each)
    return value


def square(value: Any, side: int, low: float = -math.inf, high: float = math.inf) -> NDArray[np.float64]:
    """A matrix of numbers with null for what is undefined, (side, side)."""
    rows = listed(value, lambda row: listed(row, maybe(number), side), side)
    matrix = np.asarray([[math.nan if each is None else each for each in row] for row in rows], np.float64)
    if bool(((matrix < low) | (matrix > high)).any()):
        raise ValueError(f"a number is outside of {low:g} to {high:g}")
    return matrix


def array(found: NDArray[Any], kinds: str, *shape: int | None) -> NDArray[Any]:
    """An array of one of the dtype ``kinds`` (``f`` float, ``iu`` whole, ``U`` text) with this shape, None for any."""
    fits = found.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, found.shape, strict=True))
    if found.dtype.kind not in kinds or not fits:
        raise ValueError(f"an array is {found.dtype} {found.shape}, which does not fit")
    return found


def indices(found: NDArray[Any], count: int, below: int) -> NDArray[Any]:
    """``count`` whole numbers from 0 to ``below``."""
    array(found, "iu", count)
    if count and (int(found.min()) < 0 or int(found.max()) >= below):
        raise ValueError("an index is outside of its range")
    return found


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str) and len(value) > LONGEST:
        return "a text beyond all measure"
    return names.get(type(value), f"the number {str(value)[:20]}")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it holds {name}")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("it holds a number without end")
    return value


def _bounded(digits: str) -> int:
    if len(digits.lstrip("-")) > 19 or abs(int(digits)) >= 2**63:
        raise ValueError("it holds a number beyond 64 bits")
    return int(digits)


def _refuse_depth(value: Any, left: int) -> None:
    if left < 0:
        raise ValueError("it is nested too deeply")
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        if isinstance(child, (dict, list)):
            _refuse_depth(child, left - 1)


# --- a whole result: result.json and arrays.npz ---

Check = Callable[[Any], Any]

_TASK: Mapping[str, Check] = {
    "name": text, "train": whole, "held_out": whole, "test_normal": whole, "test_anomalous": whole, "checksum": text,
}  # fmt: skip
_ROW: Mapping[str, Check] = {
    "task": text, "learn_seconds": number, "score_seconds": number, "images_scored": whole, "storage_bytes": whole,
    "peak_memory_bytes": maybe(whole), "peak_device_bytes": maybe(whole),
}  # fmt: skip


def check_document(document: Mapping[str, Any]) -> None:
    """Every field of a result's JSON; ValueError or KeyError says which is not what it must be."""
    names_a_cell(document)
    tasks = listed(document["tasks"], partial(record, fields=_TASK))
    count = len(tasks)
    if not 0 < count <= MOST_TASKS or len({task["name"] for task in tasks}) < count:
        raise ValueError(f"it has {count} tasks, or two of one name")
    share = partial(square, side=count, low=0.0, high=1.0)
    fields: dict[str, Check] = {
        "summary": text,
        "settings": record,
        "info": record,
        "parameters": partial(record, fields={"total": whole, "trainable": whole}),
        "scenario_info": record,
        "pixel": maybe(partial(listed, check=_measured, count=count)),
        "rows": partial(listed, check=partial(record, fields=_ROW), count=count),
        "environments": partial(listed, check=record),
        "auroc": share,
        "nan_scores": partial(listed, check=partial(listed, check=whole, count=count), count=count),
        "thresholds": partial(square, side=count),
        "oracle_auroc": maybe(share),
        "routing": maybe(share),
    }
    record(document, fields)
    if not isinstance(document.get("published", False), bool):
        raise ValueError("published: true or false was expected")


def check_arrays(arrays: Mapping[str, NDArray[Any]], index: int, tasks: list[dict[str, Any]]) -> None:
    """The arrays of one task; ValueError or KeyError says what is wrong with them."""
    count = tasks[index]["test_normal"] + tasks[index]["test_anomalous"]
    labels = indices(arrays[f"{index}/labels"], count, 2)
    if int(labels.sum()) != tasks[index]["test_anomalous"]:
        raise ValueError(f"the labels of task {index + 1} are not as many as it says")
    names = array(arrays[f"{index}/kind_names"], "U", None)
    indices(arrays[f"{index}/kinds"], count, len(names))
    array(arrays[f"{index}/scores"], "f", count)
    optional: dict[str, Callable[[NDArray[Any]], Any]] = {
        "oracle": lambda found: array(found, "f", count),
        "routes": lambda found: indices(found, count, len(tasks)),
        "own_thresholds": lambda found: array(found, "f", count),
        "history": lambda found: array(found, "f", len(tasks), count),
        "names": lambda found: array(found, "U", count),
        "maps": lambda found: array(found, "f", count, None, None),
    }
    for name, check in optional.items():
        if f"{index}/{name}" in arrays:
            check(arrays[f"{index}/{name}"])


def _measured(value: Any) -> dict[str, Any]:
    """Metrics by name, null for what is undefined."""
    for each in record(value).values():
        maybe(number)(each)
    return record(value)
