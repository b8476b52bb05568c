"""How documents and arrays become bytes, and how bytes are read back with suspicion.

Whatever is wrong with the bytes is a :class:`ValueError` that says what, for the caller to explain.
"""

from __future__ import annotations

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
_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors format


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
