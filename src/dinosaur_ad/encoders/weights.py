"""The weights on this machine: fetched or added once, kept in one canonical form, checked when read.

Each encoder has a folder under :func:`cache_home` with ``model.safetensors`` and ``weights.json``, which says
where the weights came from, what they hash to and under which licence. ``weights.json`` is written last:
without it there are no weights, so an interrupted fetch leaves nothing half there.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import filelock

from dinosaur_ad._atomic import sha256_file, write_atomic
from dinosaur_ad._text import printable_line
from dinosaur_ad.encoders.convert import Floats, check_tensors, tensors_sha256, to_canonical
from dinosaur_ad.encoders.registry import get_spec
from dinosaur_ad.encoders.sources import Progress, Published, download, random_tensors, read_file
from dinosaur_ad.encoders.specs import BackboneSpec
from dinosaur_ad.errors import EncoderError

State = Literal["built in", "ready", "absent", "damaged"]


@dataclass(frozen=True)
class Weights:
    """The weights of one encoder; ``tensors()`` reads and checks them only when they are needed."""

    spec: BackboneSpec
    sha256: str  # of names, shapes and values, see tensors_sha256
    source: str
    tensors: Callable[[], dict[str, Floats]] = field(repr=False)

    @classmethod
    def in_memory(cls, spec: BackboneSpec, tensors: dict[str, Floats], source: str) -> Weights:
        """Canonical tensors that are here already."""
        return cls(spec, tensors_sha256(tensors), source, lambda: tensors)


@dataclass(frozen=True)
class Status:
    """What ``dinosaur weights list`` says about one encoder."""

    name: str
    state: State
    source: str
    licence: str
    description: str
    path: Path | None = None
    bytes: int = 0
    sha256: str = ""


def cache_home() -> Path:
    """Return the folder for weights and graphs: ``$DINOSAUR_HOME``, else ``~/.cache/dinosaur``."""
    home = os.environ.get("DINOSAUR_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "dinosaur"))
    try:
        return Path(home).expanduser()
    except RuntimeError:  # neither HOME nor an entry of this user in the password file, as in some containers
        raise EncoderError(
            "There is no home folder to keep weights in, because this user has none; set DINOSAUR_HOME to a folder "
            "that can be written to."
        ) from None


def to_stderr(message: str) -> None:
    """Print a line of progress where it does not mix with results."""
    print(printable_line(message), file=sys.stderr, flush=True)


def licence_notice(name: str) -> str:
    """Return what a person should know before accepting the licence of an encoder."""
    spec = get_spec(name)
    return (
        f"{spec.description}. Its weights are under the {spec.licence}: {spec.licence_url}\nYou may use, "
        "change and pass them on only as that agreement says; what you build with them must keep its terms, "
        "and some uses are excluded. Please read it."
    )


def ensure(name: str, progress: Progress = to_stderr) -> Weights:
    """Return the weights of ``name``; those that need no account are fetched when they are not here yet."""
    spec = get_spec(name)
    if spec.source.startswith("seed:"):
        return Weights.in_memory(spec, random_tensors(spec), spec.source)
    if _read_record(spec) is None:
        if not spec.embedded:
            raise EncoderError(_how_to_get(spec))
        fetch(name, progress=progress)
    return _load(spec)


def from_file(name: str, path: str | Path) -> Weights:
    """Return weights read from a file or folder of the user's, without keeping them in the cache."""
    spec, path = get_spec(name), Path(path)
    return Weights.in_memory(spec, to_canonical(spec, read_published(spec, path).tensors), f"file:{path.name}")


def fetch(name: str, *, accept_licence: bool = False, progress: Progress = to_stderr) -> Status:
    """Download, check and convert the weights of ``name`` unless they are here and intact."""
    spec = get_spec(name)
    if spec.source.startswith("seed:"):
        return status(name)
    with _exclusive(spec, progress) as folder:
        if status(name).state == "ready" and _is_intact(spec, progress):
            return status(name)
        if spec.source == "file:":
            raise EncoderError(_how_to_get(spec))
        _accept(spec, folder, accept_licence)
        _sweep(folder)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
            published = download(spec, Path(temporary), progress)
        progress(f"Converting the weights of '{name}'.")
        _install(spec, folder, published, spec.source)
    return status(name)


def add(name: str, path: str | Path, *, progress: Progress = to_stderr) -> Status:
    """Take the weights of ``name`` from a local file or folder in any published form, and keep them."""
    spec, path = get_spec(name), Path(path)
    if spec.source.startswith("seed:"):
        raise EncoderError(f"The weights of '{name}' are made from a seed; there is nothing to add.")
    published = read_published(spec, path)
    with _exclusive(spec, progress) as folder:
        _install(spec, folder, published, f"file:{path.name}")
    return status(name)


def verify(name: str) -> Status:
    """Re-hash the weights of ``name`` and compare names, shapes and values; raise when anything is off."""
    spec = get_spec(name)
    if spec.source.startswith("seed:"):
        return status(name)
    record = _read_record(spec)
    if record is None:
        raise EncoderError(_how_to_get(spec))
    path = _folder(spec) / "model.safetensors"
    if not path.is_file() or sha256_file(path) != record["file_sha256"]:
        raise EncoderError(_damaged(spec))
    _load(spec).tensors()
    return status(name)


def status(name: str) -> Status:
    """Say what is known of the weights of ``name`` without reading them."""
    spec = get_spec(name)
    if spec.source.startswith("seed:"):
        return Status(name, "built in", spec.source, spec.licence, spec.description)
    record, path = _read_record(spec), _folder(spec) / "model.safetensors"
    if record is None:
        return Status(name, "absent", spec.source, spec.licence, spec.description)
    size = path.stat().st_size if path.is_file() else 0
    state: State = "ready" if size == record["file_bytes"] else "damaged"
    return Status(name, state, record["source"], spec.licence, spec.description, path, size, record["tensors_sha256"])


def _folder(spec: BackboneSpec) -> Path:
    return cache_home() / "encoders" / spec.name


def _how_to_get(spec: BackboneSpec) -> str:
    if spec.embedded:
        return f"The weights of '{spec.name}' are not here; run: dinosaur weights fetch {spec.name}."
    if spec.source == "file:":
        return (
            f"The weights of '{spec.name}' have no download; add a file: dinosaur weights add {spec.name} {spec.file}."
        )
    flag = " --accept-licence" if spec.gated else ""
    page = f"https://huggingface.co/{spec.source.removeprefix('hub:')}"
    gate = f" (ask for access at {page} and accept the {spec.licence} first)" if spec.gated else ""
    return (
        f"The weights of '{spec.name}' are not here; run: dinosaur weights fetch {spec.name}{flag}{gate}, or "
        f"add a file that you have: dinosaur weights add {spec.name} {spec.original_file or spec.file}."
    )


def _damaged(spec: BackboneSpec) -> str:
    advice = (
        "add them again" if spec.source == "file:" else f"run: dinosaur weights fetch {spec.name}, or add them again"
    )
    return f"The weights of '{spec.name}' are damaged on disk; {advice}."


def read_published(spec: BackboneSpec, path: Path) -> Published:
    """Read a file or folder of the user's in any published form; a disk that fails is answered with a sentence."""
    with _explained(f"read {path}", "check the path and its permissions"):
        return read_file(spec, path)


def _load(spec: BackboneSpec) -> Weights:
    record = _read_record(spec)
    if record is None:
        raise EncoderError(_how_to_get(spec))
    expected = str(record["tensors_sha256"])

    def tensors() -> dict[str, Floats]:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            loaded = load_file(_folder(spec) / "model.safetensors")
        except (SafetensorError, OSError) as error:
            raise EncoderError(_damaged(spec)) from error
        if tensors_sha256(loaded) != expected:
            raise EncoderError(_damaged(spec))
        check_tensors(spec, loaded)
        return loaded

    return Weights(spec, expected, str(record["source"]), tensors)


def _read_record(spec: BackboneSpec) -> dict[str, Any] | None:
    """Return ``weights.json``, or None when there is none that can be read."""
    try:
        record = json.loads((_folder(spec) / "weights.json").read_text())
    except (OSError, ValueError):
        return None
    needed = {"source", "tensors_sha256", "file_sha256", "file_bytes"}
    return record if isinstance(record, dict) and needed <= record.keys() else None


def _is_intact(spec: BackboneSpec, progress: Progress) -> bool:
    try:
        verify(spec.name)
    except EncoderError as error:
        progress(str(error))
        return False
    return True


def _install(spec: BackboneSpec, folder: Path, published: Published, source: str) -> None:
    """Write the canonical weights and then the record that makes them count."""
    from safetensors.numpy import save

    tensors = to_canonical(spec, published.tensors)
    content = save(tensors)
    model, record = folder / "model.safetensors", folder / "weights.json"
    record.unlink(missing_ok=True)
    write_atomic(model, content)
    facts = {
        "encoder": spec.name,
        "source": source,
        "source_sha256": published.sha256,
        "tensors_sha256": tensors_sha256(tensors),
        "file_sha256": sha256_file(model),
        "file_bytes": len(content),
        "licence": spec.licence,
        "licence_url": spec.licence_url,
        "licence_accepted": _acceptance(folder),
        "date": _now(),
    }
    write_atomic(record, json.dumps(facts, indent=2).encode())


def _sweep(folder: Path) -> None:
    """Remove what a killed fetch left behind: every temporary name begins with a dot."""
    for stale in folder.glob(".*"):
        if stale.is_dir():
            shutil.rmtree(stale)
        else:
            stale.unlink()


def _accept(spec: BackboneSpec, folder: Path, accept_licence: bool) -> None:
    """Let a gated licence be accepted once; it is remembered even when the download then fails."""
    if not spec.gated or _acceptance(folder):
        return
    if not accept_licence:
        raise EncoderError(
            f"{licence_notice(spec.name)}\nTo accept it, run: dinosaur weights fetch {spec.name} --accept-licence"
        )
    write_atomic(folder / "licence.json", json.dumps({"licence": spec.licence, "accepted": _now()}).encode())


def _acceptance(folder: Path) -> str | None:
    try:
        return str(json.loads((folder / "licence.json").read_text())["accepted"])
    except (OSError, ValueError, KeyError):
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def _exclusive(spec: BackboneSpec, progress: Progress) -> Iterator[Path]:
    """Hold the encoder's folder alone; another process that fetches the same weights is waited for."""
    folder = _folder(spec)
    with _explained(f"write to {folder}", "free some space or set DINOSAUR_HOME to a folder you can write to"):
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
def _explained(action: str, advice: str) -> Iterator[None]:
    """Turn a full, read-only or missing disk into one sentence: what failed, why, what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise EncoderError(f"Could not {action}: {reason}; {advice}.") from error
