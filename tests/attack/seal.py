"""Files of a store changed together with every hash that speaks of them, so that only their content is hostile.

How a document carries a hash of its own is found out from the intact one, because the format may change: some key holds
64 hexadecimal digits, and they are the hash of the rest in one of a few usual spellings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

Document = dict[str, Any]

SPELLINGS: tuple[Callable[[Any], bytes], ...] = tuple(
    (lambda document, options=options: json.dumps(document, **options).encode())  # type: ignore[misc]
    for options in (
        {"indent": indent, "ensure_ascii": ascii_only, "sort_keys": ordered, "separators": separators}
        for indent, separators in ((1, None), (None, (",", ":")), (None, None), (2, None))
        for ascii_only in (False, True)
        for ordered in (False, True)
    )
)


class UnknownSealError(Exception):
    """A document has a hash of its own that cannot be made anew here: the attack has to learn the new format."""


def current(store: Path, task: str = "a") -> Path:
    """The folder of the newest version of a task."""
    return max((store / "tasks" / task).glob("v*"))


def change_document(path: Path, change: Callable[[Document], Any]) -> None:
    """Change a document (store.json, task.json or manifest.json) and all hashes that depend on it."""
    before = path.read_bytes()
    document = json.loads(before)
    change(document)
    write_sealed(path, before, document)


def change_arrays(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the arrays of a file and all hashes that depend on it."""
    arrays = {name: array.copy() for name, array in safetensors.numpy.load(path.read_bytes()).items()}
    change(arrays)
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    change_bytes(path, safetensors.numpy.save(plain))


def change_bytes(path: Path, content: bytes) -> None:
    """Write an array file as it is, with a manifest that says so."""
    path.write_bytes(content)

    def record(document: Document) -> None:
        document["files"][path.stem] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    change_document(path.with_name("manifest.json"), record)


def write_sealed(path: Path, before: bytes, document: Any) -> None:
    """Write a document that was ``before``; its own hash, if it has one, and that in the pointer become right."""
    content = _sealed(before, document)
    path.write_bytes(content)
    if path.name == "manifest.json":
        old, new = (hashlib.sha256(data).hexdigest() for data in (before, content))
        pointer = path.parent.parent / "task.json"
        text = pointer.read_bytes()
        write_sealed(pointer, text, json.loads(text.replace(old.encode(), new.encode())))


def _sealed(before: bytes, document: Any) -> bytes:
    original = json.loads(before)
    written = next((spelling for spelling in SPELLINGS if spelling(original) == before), SPELLINGS[0])
    key = next((key for key, value in original.items() if _is_hash(value)), None)
    if key is None or not isinstance(document, dict):
        return written(document)
    digest = original[key]
    for spelling in SPELLINGS:
        for blank in (None, "", "0" * 64):
            if _hash(spelling, original, key, blank) == digest:
                return written(document | {key: _hash(spelling, document, key, blank)})
    raise UnknownSealError(f"the hash under {key!r} is of a kind that the attack does not know")


def _hash(spelling: Callable[[Any], bytes], document: Document, key: str, blank: str | None) -> str:
    rest = {name: value for name, value in document.items() if name != key}
    return hashlib.sha256(spelling(rest if blank is None else document | {key: blank})).hexdigest()


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")
