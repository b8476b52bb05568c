"""How documents and arrays become bytes, and how bytes are read back and checked.

Whatever is wrong with the bytes is a :class:`ValueError` that says what, for the caller to explain.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import safetensors.numpy

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
_MAX_HEADER_BYTES = 1_000_000  # a task has a dozen arrays; each takes about a hundred bytes
_MAX_DIMENSIONS = 16

# A sealed document begins with the hash of its own bytes, taken with zeros in the place of the hash.
_SEAL_KEY = "sha256"
_SEAL_START = b'{\n "sha256": "'
_BLANK_SEAL = "0" * 64
_SEAL_END = len(_SEAL_START) + len(_BLANK_SEAL)


def encode_json(document: Mapping[str, Json]) -> bytes:
    """Return ``document`` as strict JSON in UTF-8.

    >>> decode_json(encode_json({"threshold": float("inf")}))
    {'threshold': inf}
    """
    finite = _finite(document)
    try:
        return json.dumps(finite, indent=1, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # a file name that is no text travels as escapes
        return json.dumps(finite, indent=1, allow_nan=False).encode()


def decode_json(data: bytes) -> dict[str, Any]:
    """Read back what :func:`encode_json` wrote; a ValueError for anything that is not one plain JSON object."""
    try:
        document = json.loads(data.decode(), object_pairs_hook=_restored, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not valid JSON") from error
    if not isinstance(document, dict):
        raise ValueError("it does not hold a JSON object")
    return document


def seal(document: Mapping[str, Json]) -> bytes:
    """Return ``document`` as JSON that carries a hash of its own bytes, so that no flipped bit passes unnoticed.

    >>> unseal(seal({"format": 2}))
    ({'format': 2}, True)
    """
    data = encode_json({_SEAL_KEY: _BLANK_SEAL, **document})
    return data[: len(_SEAL_START)] + hashlib.sha256(data).hexdigest().encode() + data[_SEAL_END:]


def unseal(data: bytes) -> tuple[dict[str, Any], bool]:
    """Return a document, and whether it carries its hash; a ValueError if the hash is not that of its bytes.

    One without a hash is for the caller to judge: stores of format 1 have none.
    """
    if not data.startswith(_SEAL_START):
        return decode_json(data), False
    blank = data[: len(_SEAL_START)] + _BLANK_SEAL.encode() + data[_SEAL_END:]
    if hashlib.sha256(blank).hexdigest().encode() != data[len(_SEAL_START) : _SEAL_END]:
        raise ValueError("its sha256 is not that of its content")
    document = decode_json(data)
    del document[_SEAL_KEY]
    return document, True


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
    """Return read-only arrays from the bytes (uint8, 1-D) of a safetensors file.

    The largest are views; those of less than half the file are copies, so that a small array does not keep the buffer
    of a large one in memory.

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
        view = np.ndarray(shape, dtype, buffer=buffer, offset=start + begin)
        arrays[name] = view if 2 * view.nbytes >= buffer.size else view.copy()
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


def _restored(pairs: list[tuple[str, Any]]) -> Any:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key stands twice")
    if len(value) == 1 and isinstance(tag := value.get(_FLOAT_TAG), str):
        return _NON_FINITE.get(tag, value)
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _array_header(buffer: Array) -> tuple[dict[str, Any], int]:
    """Return the JSON header of a safetensors file and where the data starts."""
    length = int.from_bytes(buffer[:_LENGTH_BYTES].tobytes(), "little")
    start = _LENGTH_BYTES + length
    if buffer.size < start:
        raise ValueError("it is shorter than its header says")
    if length > _MAX_HEADER_BYTES:
        raise ValueError("its header is too long")
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
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS:
        raise ValueError(f"array {name!r} has no shape that an array can have")
    if not all(type(size) is int and 0 <= size < 2**63 for size in sizes):
        raise ValueError(f"array {name!r} has sizes that are not counts")
    if end - begin != dtype.itemsize * math.prod(shape):
        raise ValueError(f"array {name!r} has a shape that does not fit its bytes")
    return begin, end, dtype, shape
