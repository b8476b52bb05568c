"""Hostile documents: store.json, task.json and manifest.json with right hashes and wrong contents, or no documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from attack.seal import Document, change_document, current

Damage = Callable[[Path, Path], Any]
"""Damages a store, given its folder and that of a victim outside."""

HUGE = 10**400
DEEP: Any = []
for _ in range(400):
    DEEP = [DEEP]


def _put(value: Any, *keys: Any) -> Callable[[Document], None]:
    """A change of a document: this value at that place."""

    def change(document: Document) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


def _drop(*keys: Any) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        for key in keys[:-1]:
            document = document[key]
        del document[keys[-1]]

    return change


POINTER: dict[str, Callable[[Document], None]] = {
    "no states": _drop("states"),
    "empty states": _put([], "states"),
    "states that are an object": _put({}, "states"),
    "version 0": _put(0, "states", -1, "version"),
    "version -1": _put(-1, "states", -1, "version"),
    "version of 30 digits": _put(10**30, "states", -1, "version"),
    "version as text": _put("2", "states", -1, "version"),
    "version with a fraction": _put(2.5, "states", -1, "version"),
    "version that is not there": lambda document: (
        _put(99, "states", -1, "version")(document),
        document.update(next_version=100),
    )[0],
    "no next version": _drop("next_version"),
    "next version as text": _put("3", "next_version"),
    "next version of 400 digits": _put(HUGE, "next_version"),
    "history null": _put(None, "history"),
    "history of numbers": _put([1, 2, 3], "history"),
    "history without keys": _put([{}], "history"),
    "history with a date that is none": _put("yesterday", "history", -1, "date"),
    "history with a number for a date": _put(12, "history", -1, "date"),
    "history with a list for an action": _put([1], "history", -1, "action"),
    "hash that is a number": _put(12, "states", -1, "sha256"),
    "hash of nothing": _put("", "states", -1, "sha256"),
    "action of a megabyte": _put("x" * 1_000_000, "states", -1, "action"),
    "date that is none": _put("9999-99-99", "states", -1, "date"),
    "no creation date": _drop("states", -1, "created"),
    "ordinal as text": _put("first", "states", -1, "ordinal"),
    "ordinal of 400 digits": _put(HUGE, "states", -1, "ordinal"),
    "100,000 states": lambda document: document["states"].extend([document["states"][-1]] * 100_000),
    "deep nesting in the history": _put([{"action": "learn", "date": "", "version": 1, "deep": DEEP}], "history"),
}

MANIFEST: dict[str, Callable[[Document], None]] = {
    "no files": _drop("files"),
    "files that are a list": _put([], "files"),
    "no bank among the files": _drop("files", "bank"),
    "no prototype among the files": _drop("files", "prototype"),
    "a file that leads outside": _put({"bytes": 7, "sha256": "0" * 64}, "files", "../../../../victim/secret"),
    "a file that is not there": _put({"bytes": 7, "sha256": "0" * 64}, "files", "other"),
    "negative bytes": _put(-1, "files", "bank", "bytes"),
    "bytes as text": _put("many", "files", "bank", "bytes"),
    "bytes of 400 digits": _put(HUGE, "files", "bank", "bytes"),
    "hash that is a number": _put(12, "files", "bank", "sha256"),
    "no manifest": _drop("manifest"),
    "manifest that is a list": _put([], "manifest"),
    "no images": _drop("manifest", "images"),
    "images that are a number": _put(12, "manifest", "images"),
    "images that are numbers": _put([1, 2, 3, 4], "manifest", "images"),
    "one image for many": _put(["only.png"], "manifest", "images"),
    "members as text": _put("six", "manifest", "members"),
    "members negative": _put(-1, "manifest", "members"),
    "no encoder": _drop("manifest", "encoder"),
    "encoder that is a list": _put([], "manifest", "encoder"),
    "no preset": _drop("manifest", "preset"),
    "preset that is a number": _put(1, "manifest", "preset"),
    "bank that is text": _put("float16", "manifest", "bank"),
    "bank of no precision": _put("float3", "manifest", "bank", "precision"),
    "budgets that are text": _put("none", "manifest", "budgets"),
    "calibration that is a list": _put([], "manifest", "calibration"),
    "format of the future": _put(99, "format"),
    "deep nesting": _put(DEEP, "manifest", "deep"),
}

HEADER: dict[str, Callable[[Document], None]] = {
    "no header": _drop("header"),
    "header that is a list": _put([], "header"),
    "radius 300": _put(300, "header", "preset", "radius"),
    "radius -1": _put(-1, "header", "preset", "radius"),
    "size 0": _put(0, "header", "preset", "size"),
    "size of a billion": _put(10**9, "header", "preset", "size"),
    "layers as text": _put("abc", "header", "preset", "layers"),
    "no layers": _put([], "header", "preset", "layers"),
    "layers that are not there": _put([99], "header", "preset", "layers"),
    "ratio negative": _put(-1.0, "header", "preset", "ratio"),
    "minimum of a trillion": _put(10**12, "header", "preset", "minimum"),
    "top 5": _put(5.0, "header", "preset", "top"),
    "limit 0": _put(0, "header", "preset", "limit"),
    "margin negative": _put(-1.0, "header", "preset", "margin"),
    "margin that is no number": _put({"$float": "nan"}, "header", "preset", "margin"),
    "false alarms 0": _put(0, "header", "preset", "false_alarms"),
    "false alarms 2": _put(2.0, "header", "preset", "false_alarms"),
    "false alarms that are no number": _put({"$float": "nan"}, "header", "preset", "false_alarms"),
    "calibration unknown": _put("none", "header", "preset", "calibration"),
    "precision unknown": _put("float3", "header", "preset", "precision"),
    "preset that is a list": _put([], "header", "preset"),
    "no encoder": _drop("header", "encoder"),
    "encoder that leads outside": _put("../../victim/secret", "header", "encoder", "encoder"),
    "encoder that is a number": _put(7, "header", "encoder", "encoder"),
    "seed as text": _put("zero", "header", "seed"),
    "seed of 400 digits": _put(HUGE, "header", "seed"),
    "version as text": _put("1", "version"),
    "version -1": _put(-1, "version"),
    "format of another": _put("zip", "format"),
}

RAW: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"hello",
    "a list": b"[]",
    "cut off": b'{"states": [{"version": 1',
    "deep nesting": b'{"states":' * 100_000,
    "the same key twice": b'{"states": [], "states": [], "next_version": 1, "next_version": 9, "history": []}',
    "another encoding": '{"states": []}'.encode("utf-16"),
    "NaN": b'{"states": NaN, "next_version": Infinity, "history": []}',
    "half a character": b'{"states": "\\ud800", "next_version": 1, "history": []}',
    "20 MB of blanks": b" " * 20_000_000 + b"{}",
    "a number of 5,000 digits": b'{"version": ' + b"9" * 5000 + b"}",
}


def document_cases() -> Iterator[tuple[str, str, Damage]]:
    """Name, scope (what is damaged: the whole store, or the task a) and what does it."""
    for name, change in POINTER.items():
        yield f"task.json: {name}", "task", partial(_changed, "tasks/a/task.json", change)
    for name, change in MANIFEST.items():
        yield f"manifest.json: {name}", "version", partial(_changed, "manifest.json", change)
    for name, change in HEADER.items():
        yield f"store.json: {name}", "store", partial(_changed, "store.json", change)
    for name, content in RAW.items():
        yield f"task.json as it is: {name}", "task", partial(_overwritten, "tasks/a/task.json", content)
    for name in ("empty", "deep nesting", "the same key twice"):
        yield f"store.json as it is: {name}", "store", partial(_overwritten, "store.json", RAW[name])
        yield f"manifest.json as it is: {name}", "version", partial(_overwritten, "manifest.json", RAW[name])


def _path(store: Path, file: str) -> Path:
    return current(store) / file if file == "manifest.json" else store / file


def _changed(file: str, change: Callable[[Document], None], store: Path, victim: Path) -> None:
    change_document(_path(store, file), change)


def _overwritten(file: str, content: bytes, store: Path, victim: Path) -> None:
    _path(store, file).write_bytes(content)
