"""The weights on this machine: fetched or added once, kept in one canonical form, checked when read.

There is one folder per encoder (:mod:`~dinosaur_ad.encoders.weights.weight_folder`). A hash that the registry pins is
compared whenever weights are stored, verified or used.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad._text import printable_line
from dinosaur_ad.encoders.pair import PairSpec, joined_source
from dinosaur_ad.encoders.registry import get_spec
from dinosaur_ad.encoders.specs import BackboneSpec
from dinosaur_ad.encoders.weights.convert import Floats, check_tensors, tensors_sha256, to_canonical
from dinosaur_ad.encoders.weights.sources import Progress, download, random_tensors
from dinosaur_ad.encoders.weights.weight_files import Published, parsing, read_file, read_whole
from dinosaur_ad.encoders.weights.weight_folder import (
    FETCHING,
    Record,
    exclusive,
    explained,
    model_of,
    read_json,
    read_record,
    record_path,
    sweep,
)
from dinosaur_ad.errors import EncoderError

State = Literal["built in", "ready", "absent", "damaged", "foreign"]
"""``foreign``: not the weights that the registry pins under this name."""


@dataclass(frozen=True)
class Weights:
    """The weights of one encoder; ``tensors()`` reads and checks them only when they are needed."""

    spec: BackboneSpec
    sha256: str  # of names, shapes and values, see tensors_sha256
    source: str
    tensors: Callable[[], dict[str, Floats]] = field(repr=False)
    parts: tuple[Weights, ...] = ()  # of a pair, those of its two networks

    @classmethod
    def in_memory(cls, spec: BackboneSpec, tensors: dict[str, Floats], source: str) -> Weights:
        """Canonical tensors that are here already."""
        return cls(spec, tensors_sha256(tensors), source, lambda: tensors)

    @classmethod
    def paired(cls, spec: PairSpec, first: Weights, second: Weights) -> Weights:
        """Those of a pair; its hash is that of both hashes."""
        both = (first, second)

        def tensors() -> dict[str, Floats]:
            named = zip(("first", "second"), both, strict=True)
            return {f"{place}.{name}": value for place, part in named for name, value in part.tensors().items()}

        digest = _sha256(f"{first.sha256}+{second.sha256}".encode())
        return cls(spec, digest, joined_source([part.source for part in both]), tensors, both)

    def info(self) -> dict[str, object]:
        """What they are, as JSON-compatible values."""
        return {
            "encoder": self.spec.name,
            "description": self.spec.describe(self.source),
            "weights_source": self.source,
            "weights_sha256": self.sha256,
            "licence": self.spec.licence,
        }


@dataclass(frozen=True)
class WeightStatus:
    """The state of the weights of one encoder, as ``dinosaur weights list`` shows it."""

    name: str
    state: State
    source: str
    licence: str
    description: str
    path: Path | None = None
    bytes: int = 0
    sha256: str = ""


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
    if isinstance(spec, PairSpec):
        return Weights.paired(spec, *(ensure(part.name, progress) for part in spec.parts))
    if spec.source.startswith("seed:"):
        return Weights.in_memory(spec, random_tensors(spec), spec.source)
    if read_record(spec) is None:
        if not spec.embedded:
            raise EncoderError(_how_to_get(spec))
        fetch(name, progress=progress)
    return _load(spec)


def from_file(name: str, path: str | Path) -> Weights:
    """Return weights read from a file or folder of the user's, without keeping them in the cache."""
    spec, path = _with_weights(name), Path(path)
    return Weights.in_memory(spec, to_canonical(spec, read_published(spec, path).tensors), f"file:{path.name}")


def fetch(name: str, *, accept_licence: bool = False, progress: Progress = to_stderr) -> WeightStatus:
    """Download, check and convert the weights of ``name`` unless they are here and intact."""
    spec = _with_weights(name)
    if spec.source.startswith("seed:"):
        return status(name)
    with exclusive(spec, progress) as folder:
        if status(name).state == "ready" and _is_intact(spec, progress):
            return status(name)
        if spec.source == "file:":
            raise EncoderError(_how_to_get(spec))
        _accept(spec, folder, accept_licence)
        sweep(folder)
        with tempfile.TemporaryDirectory(dir=folder, prefix=FETCHING) as temporary:
            published = download(spec, Path(temporary), progress)
        progress(f"Converting the weights of '{name}'.")
        _install(spec, folder, published, spec.source)
    return status(name)


def add(name: str, path: str | Path, *, progress: Progress = to_stderr) -> WeightStatus:
    """Take the weights of ``name`` from a local file or folder in any published form, and keep them."""
    spec, path = _with_weights(name), Path(path)
    if spec.source.startswith("seed:"):
        raise EncoderError(f"The weights of '{name}' are made from a seed; there is nothing to add.")
    published = read_published(spec, path)
    with exclusive(spec, progress) as folder:
        _install(spec, folder, published, f"file:{path.name}")
    return status(name)


def verify(name: str) -> WeightStatus:
    """Re-hash the weights of ``name`` and compare names, shapes, values and what is pinned; raise when any is off."""
    spec = _with_weights(name)
    if spec.source.startswith("seed:"):
        return status(name)
    _load(spec).tensors()
    record = read_record(spec)
    # The tensors are all that is used; the bytes around them are compared so that any damage is seen.
    if record is None or _sha256(read_whole(model_of(spec))) != record.file_sha256:
        raise EncoderError(_damaged(spec))
    return status(name)


def status(name: str) -> WeightStatus:
    """The state of the weights of ``name``, without reading them."""
    spec = _with_weights(name)
    if spec.source.startswith("seed:"):
        return WeightStatus(name, "built in", spec.source, spec.licence, spec.description)
    record, path = read_record(spec), model_of(spec)
    if record is None:
        return WeightStatus(name, "absent", spec.source, spec.licence, spec.description)
    size = path.stat().st_size if path.is_file() else 0
    state: State = "ready" if record.is_genuine(spec) else "foreign"
    if size != record.file_bytes:
        state = "damaged"
    return WeightStatus(name, state, record.source, spec.licence, spec.description, path, size, record.tensors_sha256)


def _with_weights(name: str) -> BackboneSpec:
    """The entry called ``name``; a pair has no weights but those of its parts."""
    spec = get_spec(name)
    if isinstance(spec, PairSpec):
        first, second = (part.name for part in spec.parts)
        raise EncoderError(
            f"'{name}' is a pair, which has no weights of its own; name its parts one by one: {first}, then {second}."
        )
    return spec


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
    """Read a file or folder of the user's in any published form; a disk error becomes an error message."""
    with explained(f"read {path}", "check the path and its permissions"):
        return read_file(spec, path)


def _load(spec: BackboneSpec) -> Weights:
    record = read_record(spec)
    if record is None:
        raise EncoderError(_how_to_get(spec))
    if not record.is_genuine(spec):
        raise EncoderError(
            f"The weights that are kept as '{spec.name}' are not its own: {_beside(spec, record)}; run: "
            f"dinosaur weights fetch {spec.name}."
        )
    expected = record

    def tensors() -> dict[str, Floats]:
        from safetensors.numpy import load

        path = model_of(spec)
        try:
            with parsing(path, "safetensors file"):
                loaded = load(read_whole(path))
            check_tensors(spec, loaded)
        except EncoderError as error:
            raise EncoderError(_damaged(spec)) from error
        if tensors_sha256(loaded) != expected.tensors_sha256:
            raise EncoderError(_damaged(spec))
        return loaded

    return Weights(spec, expected.tensors_sha256, expected.source, tensors)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _beside(spec: BackboneSpec, record: Record) -> str:
    """The hash of weights beside that of the registry, for a message."""
    if spec.tensors_sha256 is not None:
        return f"their SHA-256 begins with {record.tensors_sha256[:12]}, expected {spec.tensors_sha256[:12]}"
    return f"their file's SHA-256 begins with {record.source_sha256[:12]}, expected {str(spec.sha256)[:12]}"


def _is_intact(spec: BackboneSpec, progress: Progress) -> bool:
    try:
        verify(spec.name)
    except EncoderError as error:
        progress(str(error))
        return False
    return True


def _install(spec: BackboneSpec, folder: Path, published: Published, source: str) -> None:
    """Write the canonical weights and then the record that makes them count; not those of something else."""
    from safetensors.numpy import save

    tensors = to_canonical(spec, published.tensors)
    content = save(tensors)
    record = Record(
        source=source,
        source_sha256=published.sha256,
        tensors_sha256=tensors_sha256(tensors),
        file_sha256=_sha256(content),
        file_bytes=len(content),
    )
    if not record.is_genuine(spec):
        raise EncoderError(
            f"{source.removeprefix('file:')} has the shape of '{spec.name}' ({spec.description}) but other numbers: "
            f"{_beside(spec, record)}; use weights of your own with --weights PATH, or add them under another name."
        )
    record_path(spec).unlink(missing_ok=True)
    write_atomic(model_of(spec), content)
    facts = {
        "encoder": spec.name,
        **asdict(record),
        "licence": spec.licence,
        "licence_url": spec.licence_url,
        "licence_accepted": _acceptance(folder),
        "date": _now(),
    }
    write_atomic(record_path(spec), json.dumps(facts, indent=2).encode())


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
    document = read_json(folder / "licence.json")
    accepted = document.get("accepted") if isinstance(document, dict) else None
    return accepted if isinstance(accepted, str) else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
