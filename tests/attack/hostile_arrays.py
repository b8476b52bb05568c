"""Hostile arrays: files with right hashes whose numbers are none, or whose shapes fit nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attack.hostile_documents import Damage
from attack.seal import change_arrays, change_bytes, current

Arrays = dict[str, Any]


def _fill(name: str, value: float) -> Callable[[Arrays], None]:
    """All of an array becomes one value."""
    return lambda arrays: arrays.update({name: np.full_like(arrays[name], value)})


def _one(name: str, value: float) -> Callable[[Arrays], None]:
    """One element becomes this."""
    return lambda arrays: arrays[name].reshape(-1).__setitem__(0, value)


def _as(name: str, change: Callable[[Any], Any]) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update({name: change(arrays[name])})


BANK: dict[str, Callable[[Arrays], Any]] = {
    "scores NaN": _fill("scores", np.nan),
    "one score NaN": _one("scores", np.nan),
    "scores infinite": _fill("scores", np.inf),
    "one score infinite": _one("scores", np.inf),
    "scores negative": _fill("scores", -np.inf),
    "scores beyond reach": _fill("scores", 1e37),
    "no scores": lambda arrays: arrays.pop("scores"),
    "empty scores": _as("scores", lambda array: array[:0]),
    "scores in two axes": _as("scores", lambda array: array[None]),
    "scores as integers": _as("scores", lambda array: array.astype(np.int64)),
    "scores as flags": _as("scores", lambda array: array > 0),
    "levels NaN": _fill("levels", np.nan),
    "levels that do not fit": _as("levels", lambda array: array[:1]),
    "no levels": lambda arrays: arrays.pop("levels"),
    "vectors NaN": _fill("vectors", np.nan),
    "one vector infinite": _one("vectors", np.inf),
    "vectors of other channels": _as("vectors", lambda array: array[..., :3]),
    "vectors on another grid": _as("vectors", lambda array: array[:2]),
    "vectors in three axes": _as("vectors", lambda array: array[0]),
    "no members": _as("vectors", lambda array: array[:, :, :0]),
    "no vectors": lambda arrays: arrays.pop("vectors"),
    "vectors as codes": lambda arrays: arrays.update(codes=arrays.pop("vectors").astype(np.int8)),
    "source beyond the images": _fill("source", 10_000),
    "source negative": _as("source", lambda array: np.full(array.shape, -7, np.int32)),
    "source as floats": _as("source", lambda array: array.astype(np.float32) + 0.5),
    "no source": lambda arrays: arrays.pop("source"),
    "windows NaN": _fill("coarse_vectors", np.nan),
    "windows on another grid": _as("coarse_vectors", lambda array: array[:1]),
    "windows of other channels": _as("coarse_vectors", lambda array: array[..., :3]),
    "windows of images beyond": _fill("coarse_source", 10_000),
    "no windows": lambda arrays: arrays.pop("coarse_vectors"),
    "usual distances of zero": _fill("usual", 0),
    "usual distances on another grid": _as("usual", lambda array: array[:2]),
    "means of readings NaN": _one("reading_mean", np.nan),
    "deviations of zero": _fill("reading_spread", 0),
    "too few readings": _as("reading_spread", lambda array: array[:1]),
    "map level negative": _fill("map_level", -1),
    "rest of maps NaN": lambda arrays: arrays.update(map_rest=np.full(1, np.nan, np.float32)),
    "control levels NaN": _fill("foreign_levels", np.nan),
    "no array at all": lambda arrays: arrays.clear(),
}

PROTOTYPE: dict[str, Callable[[Arrays], Any]] = {
    "NaN": _fill("prototype", np.nan),
    "infinite": _fill("prototype", np.inf),
    "too short": _as("prototype", lambda array: array[:3]),
    "in two axes": _as("prototype", lambda array: array[None]),
    "as integers": _as("prototype", lambda array: array.astype(np.int64)),
    "exposure NaN": _fill("exposure", np.nan),
    "exposure of three numbers": _as("exposure", lambda array: np.append(array, array[:1])),
    "no exposure": lambda arrays: arrays.pop("exposure"),
    "exposure_range NaN": _fill("exposure_range", np.nan),
    "exposure_range upside down": _as("exposure_range", lambda array: array[::-1]),
    "exposure_range of one row": _as("exposure_range", lambda array: array[:1]),
    "thumbnail too short": _as("thumbnail", lambda array: array[:5]),
    "thumbnail infinite": _one("thumbnail", np.inf),
    "not there": lambda arrays: arrays.clear(),
}

RESERVE: dict[str, Callable[[Arrays], Any]] = {
    "NaN": _fill("vectors", np.nan),
    "of other channels": _as("vectors", lambda array: array[..., :3]),
    "not there": lambda arrays: arrays.clear(),
}

CALIBRATION: dict[str, Callable[[Arrays], Any]] = {
    "NaN": _fill("point", np.nan),
    "negative": _fill("coarse", -1),
    "on another grid": _as("point", lambda array: array[:, :2]),
    "of other images": _as("scored", lambda array: array[1:]),
    "of images beyond": _fill("scored", 10_000),
    "none that count": _as("counts", lambda array: ~array),
    "not there": lambda arrays: arrays.clear(),
}


def _safetensors(header: bytes, length: int | None = None, data: bytes = b"\0" * 64) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


RAW: dict[str, bytes] = {
    "empty": b"",
    "a header of 2**63 bytes": _safetensors(b"{}", 2**63),
    "a header that is no JSON": _safetensors(b"hello"),
    "a header that is a list": _safetensors(b"[]"),
    "deep nesting": _safetensors(b'{"a":' * 50_000),
    "a giant shape": _safetensors(b'{"vectors":{"dtype":"F16","shape":[1099511627776,1024],"data_offsets":[0,64]}}'),
    "a shape that overflows": _safetensors(
        b'{"vectors":{"dtype":"F16","shape":[4294967296,4294967296],"data_offsets":[0,0]}}'
    ),
    "an unknown dtype": _safetensors(b'{"vectors":{"dtype":"X9","shape":[8,8],"data_offsets":[0,64]}}'),
    "arrays that overlap": _safetensors(
        b'{"scores":{"dtype":"F32","shape":[8],"data_offsets":[0,32]},"vectors":{"dtype":"F32","shape":[8],"data_offsets":[16,48]}}'
    ),
    "offsets that run backwards": _safetensors(b'{"scores":{"dtype":"F32","shape":[8],"data_offsets":[64,32]}}'),
}


def array_cases() -> Iterator[tuple[str, str, Damage]]:
    """Name, scope and what does it."""
    tables = {"bank": BANK, "prototype": PROTOTYPE, "reserve": RESERVE, "calibration": CALIBRATION}
    for file, table in tables.items():
        for name, change in table.items():
            scope = "version" if file in ("bank", "prototype") else "unread"
            yield f"{file}: {name}", scope, partial(_changed, file, change)
    for name, content in RAW.items():
        yield f"bank: {name}", "version", partial(_overwritten, content)


def _changed(file: str, change: Callable[[Arrays], Any], store: Path, victim: Path) -> None:
    change_arrays(current(store) / f"{file}.safetensors", change)


def _overwritten(content: bytes, store: Path, victim: Path) -> None:
    change_bytes(current(store) / "bank.safetensors", content)
