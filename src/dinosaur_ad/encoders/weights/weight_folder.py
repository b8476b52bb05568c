"""The folder of an encoder in the cache: where it lies, the record that makes its weights count, its lock.

It holds ``model.safetensors`` and ``weights.json``, which has the origin, the hashes and the licence and is written
last: without a record that can be read there are no weights, so an interrupted fetch leaves nothing half finished.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock

from dinosaur_ad._atomic import TEMPORARY
from dinosaur_ad._plain import read_plain
from dinosaur_ad._schema import anything, record, text, whole
from dinosaur_ad.encoders.specs import BackboneSpec
from dinosaur_ad.errors import EncoderError

FETCHING = ".fetch-"
"""How the name of a folder for temporary files begins."""
MOST_RECORD_BYTES = 100_000

_HASH = text(64, "[0-9a-f]{64}")
_RECORD = record(
    {
        "source": text(500),
        **{"source_sha256": _HASH, "tensors_sha256": _HASH, "file_sha256": _HASH, "file_bytes": whole(0, 2**40)},
    },
    others=anything(4),
)


@dataclass(frozen=True)
class Record:
    """What ``weights.json`` must say for the weights beside it to count."""

    source: str
    source_sha256: str
    tensors_sha256: str
    file_sha256: str
    file_bytes: int

    @classmethod
    def from_json(cls, document: Any) -> Record | None:
        """The record, or None when it is not one."""
        try:
            _RECORD(document, "")
        except ValueError:
            return None
        if not document["source"].isprintable():
            return None
        return cls(**{name: document[name] for name in cls.__dataclass_fields__})

    def is_genuine(self, spec: BackboneSpec) -> bool:
        """Whether these are the weights that the registry pins; of an encoder without a hash there, any are.

        The tensors decide where their hash is known, and else the file that they came from.
        """
        if spec.tensors_sha256 is not None:
            return self.tensors_sha256 == spec.tensors_sha256
        return spec.sha256 is None or self.source_sha256 == spec.sha256


def cache_home() -> Path:
    """Return the folder for weights and graphs: ``$DINOSAUR_HOME``, else ``~/.cache/dinosaur``."""
    try:
        if home := os.environ.get("DINOSAUR_HOME"):
            return Path(home).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "dinosaur"
    except RuntimeError:  # a user without a home
        raise EncoderError(
            "There is no home folder to keep weights and graphs in; set DINOSAUR_HOME to a folder for them."
        ) from None


def folder_of(spec: BackboneSpec) -> Path:
    """The folder of an encoder."""
    return cache_home() / "encoders" / spec.name


def model_of(spec: BackboneSpec) -> Path:
    """The file with the canonical weights of an encoder."""
    return folder_of(spec) / "model.safetensors"


def record_path(spec: BackboneSpec) -> Path:
    """The file with the record of an encoder."""
    return folder_of(spec) / "weights.json"


def read_record(spec: BackboneSpec) -> Record | None:
    """Return the content of ``weights.json``, or None when there is none that can be used."""
    return Record.from_json(read_json(record_path(spec)))


def read_json(path: Path) -> Any:
    """The content of a small JSON file, or None when there is none that can be read."""
    try:
        return json.loads(read_plain(path, MOST_RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def sweep(folder: Path) -> None:
    """Remove what a killed fetch left behind, by the names that are given here and no others."""
    for stale in folder.glob(f"{FETCHING}*"):
        if stale.is_dir() and not stale.is_symlink():
            shutil.rmtree(stale)
    for file in folder.glob(TEMPORARY):
        if file.is_file() and not file.is_symlink():
            file.unlink()


@contextmanager
def exclusive(spec: BackboneSpec, progress: Callable[[str], None]) -> Iterator[Path]:
    """Hold the encoder's folder alone; another process that fetches the same weights is waited for."""
    folder = folder_of(spec)
    with explained(f"write to {folder}", "free some space or set DINOSAUR_HOME to a folder you can write to"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / "lock")
        try:
            lock.acquire(timeout=0.5)
        except filelock.Timeout:
            progress(f"Waiting for another process that is fetching '{spec.name}'.")
            lock.acquire()
        try:
            yield folder
        finally:
            lock.release()


@contextmanager
def explained(action: str, advice: str) -> Iterator[None]:
    """Turn a full, read-only or missing disk into one sentence: what failed, why, what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise EncoderError(f"Could not {action}: {reason}; {advice}.") from error
