"""Hostile places: links, pipes and folders where files are expected, files that nobody but their owner may remove."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import chdir
from functools import partial
from pathlib import Path

from attack.hostile_documents import Damage
from attack.seal import current

# What a store consists of, and what its loss costs: all of it, the task a, or its newest version.
PARTS = (
    ("store.json", "store"),
    ("tasks", "store"),
    ("tasks/a", "task"),
    ("tasks/a/task.json", "task"),
    ("VERSION", "version"),
    ("VERSION/manifest.json", "version"),
    ("VERSION/bank.safetensors", "version"),
    ("VERSION/prototype.safetensors", "version"),
)
MARKS = (".lock", ".writer")


def place_cases() -> Iterator[tuple[str, str, Damage]]:
    """Name, scope and what does it; ``"stray"`` costs nothing: all tasks are intact."""
    for part, scope in PARTS:
        yield f"{part} is a link to a copy outside", scope, partial(_linked_copy, part)
    for part, scope in PARTS:
        if part.endswith((".json", ".safetensors")):
            yield f"{part} is a pipe", scope, partial(_pipe, part)
            yield f"{part} is a folder", scope, partial(_folder, part)
            yield f"{part} is a link to a device without end", scope, partial(_device, part)
        else:
            gone = part == "tasks/a"  # and nothing says that there was a task of that name
            yield f"{part} is a file", "gone" if gone else scope, partial(_file, part)
    for mark in MARKS:
        yield f"{mark} is a link to a file outside", "stray", partial(_link, mark, "secret.txt")
        yield f"{mark} is a link to a new file outside", "stray", partial(_link, mark, "new.txt")
        yield f"{mark} is a link to a folder outside", "stray", partial(_link, mark, "deep")
        yield f"{mark} is a pipe", "stray", partial(_pipe, mark)
        yield f"{mark} is a folder", "stray", partial(_folder, mark)
    for name in ("evil", "gone", "zz.tmp"):
        yield f"tasks/{name} is a link to a folder outside", "stray", partial(_link, f"tasks/{name}", "deep")
    yield "tasks/a/v0077 is a link to a folder outside", "stray", partial(_link, "tasks/a/v0077", "deep")
    yield "tasks/a/notes is a link to a folder outside", "stray", partial(_link, "tasks/a/notes", "deep")
    yield "tasks/loop is a link to itself", "stray", _loop
    yield "tasks/round is a link to the store", "stray", _round
    yield "notes in the folder of a task", "stray", partial(_note, "tasks/a/NOTES.txt")
    yield "a backup beside the tasks", "stray", partial(_note, "tasks/old-backup/bank.bin")
    yield "a file beside store.json", "stray", partial(_note, "README.txt")
    yield "names with line breaks and escapes", "stray", partial(_note, "tasks/x\x1b[2J\ny/z")
    yield "names that are no UTF-8", "stray", _no_text
    yield "task.json is a socket", "task", _socket
    yield "bank of a terabyte without content", "version", _sparse
    yield "bank cut in half", "version", _cut
    yield "task.json may not be read", "task", partial(_locked, "tasks/a/task.json")
    yield "the version may not be read", "version", partial(_locked, "VERSION")


KEPT = {"notes in the folder of a task": "tasks/a/NOTES.txt", "a backup beside the tasks": "tasks/old-backup/bank.bin"}
"""What was laid into a store without malice and must still be there after any command."""


def _path(store: Path, part: str) -> Path:
    return store / part.replace("VERSION", current(store).relative_to(store).as_posix())


def _linked_copy(part: str, store: Path, victim: Path) -> None:
    path, outside = _path(store, part), victim / "copy"
    shutil.move(path, outside)
    path.symlink_to(outside)


def _link(part: str, target: str, store: Path, victim: Path) -> None:
    path = _path(store, part)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(victim / target)


def _gone(path: Path) -> Path:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


def _pipe(part: str, store: Path, victim: Path) -> None:
    os.mkfifo(_gone(_path(store, part)))


def _folder(part: str, store: Path, victim: Path) -> None:
    path = _gone(_path(store, part))
    path.mkdir()
    (path / "file").write_text("a file in a folder\n")


def _file(part: str, store: Path, victim: Path) -> None:
    _gone(_path(store, part)).write_text("a file\n")


def _device(part: str, store: Path, victim: Path) -> None:
    _gone(_path(store, part)).symlink_to("/dev/zero")


def _loop(store: Path, victim: Path) -> None:
    (store / "tasks" / "loop").symlink_to("loop")


def _round(store: Path, victim: Path) -> None:
    (store / "tasks" / "round").symlink_to(store)


def _note(part: str, store: Path, victim: Path) -> None:
    path = store / part
    path.parent.mkdir(exist_ok=True)
    path.write_text("not made by the store\n")
    (store / ".writer").write_text("1")  # as after a crash: the next writer looks for rubbish


def _no_text(store: Path, victim: Path) -> None:
    Path(os.fsdecode(os.fsencode(store / "tasks") + b"/\xff\xfe")).mkdir()


def _socket(store: Path, victim: Path) -> None:
    path = _gone(store / "tasks/a/task.json")
    with socket.socket(socket.AF_UNIX) as made, chdir(path.parent):  # the path of a socket must be short
        made.bind(path.name)


def _sparse(store: Path, victim: Path) -> None:
    os.truncate(current(store) / "bank.safetensors", 2**40)


def _cut(store: Path, victim: Path) -> None:
    path = current(store) / "bank.safetensors"
    os.truncate(path, path.stat().st_size // 2)


def _locked(part: str, store: Path, victim: Path) -> None:
    _path(store, part).chmod(0)
