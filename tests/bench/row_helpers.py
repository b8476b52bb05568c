"""A submitted row of seconds, and archives that were tampered with."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cell_helpers import Log, around

from dinosaur_ad.bench import environment
from dinosaur_ad.bench.row_files import MANIFEST, write_row
from dinosaur_ad.bench.runner import plan, run_local

REVISION = "0123456789ab"
CELL = "results/synthetic-tiny/photometer/seed-0"


def run_photometer(folder: Path, methods: tuple[str, ...] = ("photometer",), seeds: tuple[int, ...] = (0, 1)) -> Path:
    """Cells that need no encoder, as if run from a commit without changes; returns the folder of results."""
    where = around(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "git_revision", lambda: REVISION)
        done, failed = run_local(plan(methods, ["synthetic-tiny"], seeds), where, Log())
    assert (len(done), failed) == (len(methods) * len(seeds), [])
    return Path(where.out)


def unpacked(row: Path) -> dict[str, bytes]:
    """The files of an archive."""
    with zipfile.ZipFile(row) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def forge(files: Mapping[str, bytes], **about: Any) -> bytes:
    """An archive of these files with hashes that fit, and a manifest that says something else in ``about``."""
    said = json.loads(files[MANIFEST])
    said = {key: value for key, value in said.items() if key not in ("format", "kind", "files")} | about
    return write_row({name: content for name, content in files.items() if name != MANIFEST}, said)


def raw(entries: list[tuple[zipfile.ZipInfo | str, bytes]]) -> bytes:
    """An archive with exactly these entries, whatever their names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


def declare(archive: bytes, size: int) -> bytes:
    """The same archive, the first entry of which says that it has ``size`` bytes."""
    at = archive.index(b"PK\x01\x02")
    return archive[: at + 24] + struct.pack("<I", size) + archive[at + 28 :]


def edit_json(files: Mapping[str, bytes], change: Callable[[dict[str, Any]], object]) -> dict[str, bytes]:
    """The files with a changed result of the first seed."""
    document = json.loads(files[f"{CELL}/result.json"])
    change(document)
    return {**files, f"{CELL}/result.json": json.dumps(document).encode()}


def edit_arrays(files: Mapping[str, bytes], change: Callable[[dict[str, Any]], object]) -> dict[str, bytes]:
    """The files with changed arrays of the first seed."""
    with np.load(io.BytesIO(files[f"{CELL}/arrays.npz"])) as stored:
        arrays = dict(stored)
    change(arrays)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return {**files, f"{CELL}/arrays.npz": buffer.getvalue()}
