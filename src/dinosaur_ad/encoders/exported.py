"""Running what ``dinosaur export`` wrote: an encoder in a folder, whole and checked, without its weights.

``manifest.json`` says what the folder holds: which encoder in which precision, for which run time, under which licence,
size and SHA-256 of every file, and how near it came to float32 when it was made. An export keeps the fingerprint of the
float32 encoder, so that stores accept it. Nothing is run before every file has been compared with its hash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._atomic import sha256_file, write_atomic
from dinosaur_ad.encoders.base import Encoder, Floats, Layer, Tokens, check_layers, check_size, fingerprint
from dinosaur_ad.encoders.exported_runs import Run, open_run
from dinosaur_ad.encoders.providers import PRECISIONS
from dinosaur_ad.encoders.registry import get_spec, token_encoder
from dinosaur_ad.encoders.weights import Weights, to_stderr
from dinosaur_ad.encoders.words import first_line
from dinosaur_ad.errors import EncoderError

FORMAT = 1
MANIFEST = "manifest.json"
MODEL_FILES = {"onnx": ("model.onnx",), "openvino": ("model.xml", "model.bin"), "tensorrt": ("model.onnx",)}
"""What each kind of export is run from; the first one is opened."""

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\.[a-z]+")


class FileInfo(NamedTuple):
    """Size and hash of one file of an export."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What an export says of itself; ``manifest.json`` holds these fields and ``format``.

    ``parity`` are the figures of the gate and ``bank`` says which task is scored in the graph, if one is; ``made`` is
    what made it, for people.
    """

    kind: str
    precision: str
    encoder: str
    fingerprint: str
    layers: tuple[Layer, ...]
    size: int
    weights_sha256: str
    weights_source: str
    licence: str
    licence_url: str
    files: Mapping[str, FileInfo]
    parity: Mapping[str, Any]
    bank: Mapping[str, Any] | None
    made: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        files = {name: info._asdict() for name, info in self.files.items()}
        return {"format": FORMAT} | asdict(self) | {"layers": list(self.layers), "files": files}

    @classmethod
    def from_json(cls, document: Any) -> Manifest:
        """The manifest that :meth:`to_json` gave; a ValueError says what is wrong with it."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError("it is of another format")
        fields = {key: value for key, value in document.items() if key != "format"}
        wanted: dict[str, Any] = {
            **dict.fromkeys(("kind", "precision", "encoder", "fingerprint", "weights_sha256", "weights_source"), str),
            **dict.fromkeys(("licence", "licence_url"), str),
            **dict.fromkeys(("files", "parity", "made"), dict),
            **{"layers": list, "size": int, "bank": dict | None},
        }
        wrong = [key for key, kind in wanted.items() if key not in fields or not isinstance(fields[key], kind)]
        if wrong or fields.keys() - wanted.keys():
            raise ValueError(f"it has wrong fields ({', '.join(wrong or sorted(fields.keys() - wanted.keys()))})")
        if fields["kind"] not in MODEL_FILES or fields["precision"] not in PRECISIONS:
            raise ValueError(f"its kind '{fields['kind']}' or precision '{fields['precision']}' is unknown")
        files = {name: _file_info(name, info) for name, info in fields["files"].items()}
        if not set(MODEL_FILES[fields["kind"]]) <= files.keys():
            raise ValueError("it does not list the model")
        return cls(**{**fields, "layers": tuple(fields["layers"]), "files": files})


def _file_info(name: str, info: Any) -> FileInfo:
    # A name becomes part of a path, so one that leads elsewhere must not get through.
    if not _FILE_NAME.fullmatch(name) or not isinstance(info, dict) or info.keys() != set(FileInfo._fields):
        raise ValueError("it does not describe its files")
    return FileInfo(**info)


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Write ``manifest.json`` for the files that lie in ``folder`` now, and return it."""
    others = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    files = {path.name: FileInfo(path.stat().st_size, sha256_file(path)) for path in others}
    whole = replace(manifest, files=files)
    write_atomic(folder / MANIFEST, (json.dumps(whole.to_json(), indent=1) + "\n").encode())
    return whole


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of an export whose files are all there and unchanged.

    :raises EncoderError: there is no export, it is damaged, or it is not what its manifest says.
    """
    folder = Path(folder)
    try:
        manifest = Manifest.from_json(json.loads((folder / MANIFEST).read_text()))
    except (FileNotFoundError, NotADirectoryError):
        raise EncoderError(f"There is no export in {folder}; make one with: dinosaur export --out {folder}.") from None
    except OSError as error:
        raise EncoderError(f"The export {folder} cannot be read ({error.strerror}); check its permissions.") from error
    except ValueError as error:
        raise EncoderError(
            f"The manifest of the export {folder} cannot be used: {first_line(error)}; export again with this version."
        ) from error
    _check_files(folder, manifest)
    _check_identity(folder, manifest)
    return manifest


def _check_files(folder: Path, manifest: Manifest) -> None:
    for name, info in manifest.files.items():
        path = folder / name
        try:
            # Not through a link: a file outside the folder is not part of the export.
            intact = not path.is_symlink() and path.stat().st_size == info.bytes and sha256_file(path) == info.sha256
        except OSError:
            intact = False
        if not intact:
            raise EncoderError(
                f"The export {folder} is damaged: {name} is missing or not the file that was written; copy the folder "
                "again, or export again."
            )


def _check_identity(folder: Path, manifest: Manifest) -> None:
    """The fingerprint must follow from the encoder, layers, size and weights that are named beside it."""
    spec = token_encoder(get_spec(manifest.encoder))
    check_size(manifest.size, spec)
    layers = check_layers(manifest.layers, spec.depth)
    if fingerprint(spec, layers, manifest.size, manifest.weights_sha256) != manifest.fingerprint:
        raise EncoderError(
            f"The manifest of the export {folder} does not fit itself: its fingerprint {manifest.fingerprint} belongs "
            "to another encoder, size or layers than it names; export again."
        )


class Scored(NamedTuple):
    """What an export with a bank says of N images: score (N,), map (N, H, W), and whether it is anomalous (N,)."""

    score: Floats
    map: Floats
    anomalous: NDArray[np.bool_]


class ExportedEncoder(Encoder):
    """An encoder that runs from the files of an export."""

    def __init__(self, folder: Path, manifest: Manifest, threads: int | None = None) -> None:
        spec = token_encoder(get_spec(manifest.encoder))
        super().__init__(
            Weights(spec, manifest.weights_sha256, manifest.weights_source, dict), manifest.layers, manifest.size
        )
        self.folder, self.manifest = folder, manifest
        self._running: Run = open_run(
            folder / MODEL_FILES[manifest.kind][0],
            manifest.kind,
            manifest.precision,
            threads,
            exact=manifest.bank is not None,
        )
        self.backend, self.provider = self._running.backend, self._running.provider
        self.precision, self.fallback = self._running.precision, self._running.fallback
        self.threads = self._running.threads

    def _run(self, pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:
        cls, patches = self._running(pixels, ("cls", "patches"))
        return cls, patches

    def score(self, pixels: NDArray[np.uint8]) -> Scored:
        """Score prepared pixels (N, size, size, 3) against the bank in the graph."""
        return self.encode_and_score(pixels)[1]

    def encode_and_score(self, pixels: NDArray[np.uint8]) -> tuple[Tokens, Scored]:
        """The tokens and the scores of prepared pixels from one run of the graph."""
        if self.manifest.bank is None:
            raise EncoderError(f"The export {self.folder} holds no bank; export with --task NAME --with-bank.")
        parts = [
            self._running(pixels[start : start + self.batch_size], ("cls", "patches", *Scored._fields))
            for start in range(0, len(pixels), self.batch_size)
        ]
        cls, patches, *scored = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Tokens(cls, patches), Scored(*scored)

    def info(self) -> dict[str, object]:
        """What every encoder says, and the export it runs from."""
        return super().info() | {"export": {"folder": self.folder.name, "kind": self.manifest.kind}}


def open_exported(
    folder: str | Path,
    *,
    layers: Sequence[Layer] | None = None,
    size: int | None = None,
    threads: int | None = None,
    strict: bool = False,
) -> ExportedEncoder:
    """The encoder of an export, verified, opened in its run time and run once.

    ``layers`` and ``size``, where given, must be those of the export. What this machine cannot do as the manifest says
    (bfloat16 on a CPU without it, TensorRT where there is none) is said on stderr and in ``info()["fallback"]``, and
    refused with ``strict``.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    asked = (manifest.layers if layers is None else tuple(layers), manifest.size if size is None else size)
    if asked != (manifest.layers, manifest.size):
        raise EncoderError(
            f"The export {folder} gives layers {manifest.layers} at {manifest.size} px, but {asked[0]} at {asked[1]} "
            "px are asked for; export it for the store at hand (--store)."
        )
    encoder = _opened(folder, manifest, threads)
    if encoder.fallback:
        if strict:
            raise EncoderError(f"{encoder.fallback.rstrip('.')}; leave out --strict to accept that.")
        to_stderr(f"fallback: {encoder.fallback}")
    return encoder


def _opened(folder: Path, manifest: Manifest, threads: int | None) -> ExportedEncoder:
    made = ", ".join(
        f"{key} {value}" for key, value in manifest.made.items() if key in ("opset", "onnxruntime", "openvino")
    )
    try:
        encoder = ExportedEncoder(folder, manifest, threads)
        stamped = encoder._running.fingerprint
        tokens = encoder.encode_prepared(np.full((1, manifest.size, manifest.size, 3), 128, np.uint8))
    except EncoderError:
        raise
    except Exception as error:  # run times fail in their own ways
        raise EncoderError(
            f"The export {folder} does not run here: {first_line(error)}; it was made with {made}: update the run "
            "time, or export again on this machine."
        ) from error
    if stamped != manifest.fingerprint:
        raise EncoderError(
            f"The model in the export {folder} is another one than its manifest says (fingerprint {stamped}, not "
            f"{manifest.fingerprint}); export again."
        )
    if not (np.isfinite(tokens.cls).all() and np.isfinite(tokens.patches).all()):
        raise EncoderError(
            f"The export {folder} gives numbers that are not finite on this machine; use another precision."
        )
    return encoder
