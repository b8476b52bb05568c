"""The files of an export: the manifest, the hashes it lists, and what a model file may contain.

``manifest.json`` says what the folder holds: which encoder in which precision, for which run time, under which licence,
size and SHA-256 of every file, and the figures of the parity check. A folder may come from anywhere, so everything in
it is checked: types and limits of fields, file names, hashes; links and pipes are not followed. What is returned are
the bytes that were hashed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from dinosaur_ad._atomic import sha256_file, write_atomic
from dinosaur_ad._plain import read_plain
from dinosaur_ad._schema import anything, either, items, maybe, number, one_of, record, text, whole
from dinosaur_ad._text import first_line
from dinosaur_ad.encoders.base import MOST_PIXELS, Layer, check_layers, check_size, fingerprint
from dinosaur_ad.encoders.providers import PRECISIONS
from dinosaur_ad.encoders.registry import get_spec, token_encoder
from dinosaur_ad.errors import EncoderError

FORMAT = 1
MANIFEST = "manifest.json"
MODEL_FILES = {"onnx": ("model.onnx",), "openvino": ("model.xml", "model.bin"), "tensorrt": ("model.onnx",)}
"""What each kind of export is run from; the first one is opened."""
MOST_MANIFEST_BYTES, MOST_FILES, MOST_FILE_BYTES = 1_000_000, 32, 4 * 2**30
LONGEST_TEXT = 500

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\.[a-z]{1,9}")


def _plain_text(value: Any, place: str) -> None:
    """It is printed and passed on, so it must not carry control characters."""
    text(LONGEST_TEXT)(value, place)
    if not value.isprintable():
        raise ValueError(f"its '{place}' holds control characters")


_TEXTS = ("encoder", "fingerprint", "weights_sha256", "weights_source", "licence", "licence_url")
_BANK = {"task": _plain_text, "id": _plain_text, "threshold": number(-1e300, 1e300)}
_LATER = {"unknown_level": maybe(number(0, 1e300)), "exposure": maybe(items(number(0, 255), most=2, least=2))}
"""What banks in exports of earlier versions do not say."""
_MANIFEST = record(
    {
        **dict.fromkeys(_TEXTS, _plain_text),
        "format": whole(1, 1),
        "kind": one_of(*MODEL_FILES),
        "precision": one_of(*PRECISIONS),
        "layers": items(either(whole(0, 1000), one_of("final")), 100, 1),
        "size": whole(1, MOST_PIXELS),
        "files": record({}, others=record({"bytes": whole(0, MOST_FILE_BYTES), "sha256": text(64, "[0-9a-f]{64}")})),
        "parity": record({}, others=anything(8)),
        "made": record({}, others=anything(8)),
        "bank": maybe(record(_BANK, _LATER, others=anything(4))),
    }
)


class ExportFile(NamedTuple):
    """Size and hash of one file of an export."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of ``manifest.json``, which has ``format`` besides these fields.

    ``parity`` are the figures of the parity check, ``bank`` the task that is scored in the graph, if any, ``made`` the
    versions and settings it was made with.
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
    files: Mapping[str, ExportFile]
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
        _MANIFEST(document, "")
        listed = document["files"]
        # A name becomes part of a path, so one that leads elsewhere must not get through.
        if len(listed) > MOST_FILES or not all(_FILE_NAME.fullmatch(name) for name in listed):
            raise ValueError(f"it lists more than {MOST_FILES} files, or names that no file of an export has")
        if not set(MODEL_FILES[document["kind"]]) <= listed.keys():
            raise ValueError("it does not list the model")
        files = {name: ExportFile(**info) for name, info in listed.items()}
        fields = {key: value for key, value in document.items() if key != "format"}
        return cls(**{**fields, "layers": tuple(fields["layers"]), "files": files})


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Write ``manifest.json`` for the files that lie in ``folder`` now, and return it."""
    others = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    files = {path.name: ExportFile(path.stat().st_size, sha256_file(path)) for path in others}
    whole = replace(manifest, files=files)
    write_atomic(folder / MANIFEST, (json.dumps(whole.to_json(), indent=1) + "\n").encode())
    return whole


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of an export whose files are all there and unchanged.

    :raises EncoderError: there is no export, it is damaged, or it does not match its manifest.
    """
    return read_export(folder)[0]


def read_export(folder: str | Path) -> tuple[Manifest, list[bytes]]:
    """The manifest of an export, and the files of its model in the order of :data:`MODEL_FILES`, as they were hashed.

    :raises EncoderError: there is no export, it is damaged, or it does not match its manifest.
    """
    folder = Path(folder)
    try:
        manifest = Manifest.from_json(json.loads(read_plain(folder / MANIFEST, MOST_MANIFEST_BYTES, follow=False)))
    except (FileNotFoundError, NotADirectoryError):
        raise EncoderError(f"There is no export in {folder}; make one with: dinosaur export --out {folder}.") from None
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise EncoderError(f"The export {folder} cannot be read ({reason}); check its permissions.") from error
    except (ValueError, RecursionError) as error:
        raise EncoderError(
            f"The manifest of the export {folder} cannot be used: {first_line(error)}; export again with this version."
        ) from error
    contents = {name: _read_checked(folder, name, info) for name, info in manifest.files.items()}
    _check_identity(folder, manifest)
    return manifest, [contents[name] for name in MODEL_FILES[manifest.kind]]


def _read_checked(folder: Path, name: str, info: ExportFile) -> bytes:
    try:
        content = read_plain(folder / name, info.bytes, follow=False)
    except (OSError, ValueError):
        content = None
    if content is None or len(content) != info.bytes or hashlib.sha256(content).hexdigest() != info.sha256:
        raise EncoderError(
            f"The export {folder} is damaged: {name} is missing or not the file that was written; copy the folder "
            "again, or export again."
        )
    return content


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


# --- what a model file may contain ---
#
# An exported graph is a chain of standard operators with its weights inside. A model that refers to other files would
# read what was not hashed; one with loops or operators of its own could run for any time.

MOST_NODES = 20_000
"""Of the largest graph here there is a tenth."""

_LOOPS = {b"Loop", b"TensorIterator", b"If", b"ReadValue", b"Assign"}


def model_problem(kind: str, contents: Sequence[bytes]) -> str | None:
    """Why the model of an export is no plain graph in one piece; None when it is."""
    return _openvino_problem(contents[0]) if kind == "openvino" else _onnx_problem(contents[0])


def _onnx_problem(content: bytes) -> str | None:
    import onnx
    from onnx import TensorProto

    try:
        model = onnx.load_model_from_string(content)
    except Exception:  # the parser has errors of its own
        return "it is no readable ONNX model"
    graph = model.graph
    if len(graph.node) > MOST_NODES or len(graph.initializer) > MOST_NODES:
        return f"it has more than {MOST_NODES} nodes or tensors"
    if model.functions or graph.sparse_initializer or any(node.domain not in ("", "ai.onnx") for node in graph.node):
        return "it brings operators of its own"
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    if any(attribute.HasField("g") or attribute.graphs for attribute in attributes):
        return "it contains loops or branches"
    if any(each.data_location == TensorProto.EXTERNAL or each.external_data for each in _tensors(graph, attributes)):
        return "it takes weights from other files"
    return None


def _tensors(graph: Any, attributes: Sequence[Any]) -> Iterator[Any]:
    yield from graph.initializer
    for attribute in attributes:
        yield attribute.t
        yield from attribute.tensors


def _openvino_problem(xml: bytes) -> str | None:
    if b"<!DOCTYPE" in xml or b"<!ENTITY" in xml:
        return "its description defines entities"
    kinds = re.findall(rb'<layer\b[^>]*\btype\s*=\s*["\']([^"\']*)["\']', xml)
    if len(kinds) > MOST_NODES:
        return f"it has more than {MOST_NODES} layers"
    return "it contains loops or branches" if _LOOPS & set(kinds) else None
