"""Running what ``dinosaur export`` wrote: an encoder from a folder, without its weights.

An export keeps the fingerprint of the float32 encoder, so that stores accept it. Nothing runs before every file was
compared with its hash and the model was checked (:mod:`.exported_files`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.core.exposure import Exposure
from dinosaur_ad.encoders.backends.exported_files import (
    MANIFEST,
    MODEL_FILES,
    ExportFile,
    Manifest,
    model_problem,
    read_export,
    read_manifest,
    write_manifest,
)
from dinosaur_ad.encoders.backends.onnx_backend import session_options
from dinosaur_ad.encoders.backends.openvino_backend import OpenVinoRunner
from dinosaur_ad.encoders.base import Encoder, Floats, Layer, Tokens
from dinosaur_ad.encoders.providers import get_provider, has_int8_dot_product, thread_count, why_not
from dinosaur_ad.encoders.registry import get_spec, token_encoder
from dinosaur_ad.encoders.weights.local import Weights, to_stderr
from dinosaur_ad.errors import EncoderError

__all__ = [
    "MANIFEST",
    "MODEL_FILES",
    "STAMP",
    "ExportFile",
    "ExportedEncoder",
    "Manifest",
    "Scored",
    "open_exported",
    "read_manifest",
    "write_manifest",
]

STAMP = "dinosaur_fingerprint"
"""The metadata key under which a model file carries the fingerprint of its encoder."""


class Scored(NamedTuple):
    """Results of an export with a bank for N images: score (N,), map (N, H, W), whether the score is above the
    threshold (N,), and whether the image shows none of the learned products (N,), which then is the verdict.

    Exports of earlier versions do not say the last; it is false then.
    """

    score: Floats
    map: Floats
    anomalous: NDArray[np.bool_]
    unknown: NDArray[np.bool_]


class ExportedEncoder(Encoder):
    """An encoder that runs from the files of an export."""

    def __init__(self, folder: Path, manifest: Manifest, contents: Sequence[bytes], threads: int | None = None) -> None:
        spec = token_encoder(get_spec(manifest.encoder))
        super().__init__(
            Weights(spec, manifest.weights_sha256, manifest.weights_source, dict), manifest.layers, manifest.size
        )
        self.folder, self.manifest = folder, manifest
        self.precision, self.threads = manifest.precision, thread_count(threads)
        if manifest.bank is not None and manifest.bank.get("exposure"):
            self.matches = Exposure(*map(float, manifest.bank["exposure"]))
        self._runner: Callable[[NDArray[np.uint8], Sequence[str]], list[NDArray[Any]]]
        if manifest.kind == "openvino":
            self._open_openvino(contents)
        else:
            self._open_onnx(contents[0])

    def _open_onnx(self, content: bytes) -> None:
        """On the CPU, or through TensorRT where the export is for it and this machine has it."""
        import onnxruntime as ort

        self.backend, self.provider = "onnx", "onnx-cpu"
        if self.manifest.kind == "tensorrt":
            absent = why_not("tensorrt", "float32")
            self.provider = "onnx-cpu" if absent else "tensorrt"
            if absent:
                self.fallback = (
                    f"The export is for TensorRT, which cannot run here ({absent}), so onnx-cpu runs instead."
                )
        elif self.precision == "int8" and not has_int8_dot_product():
            self.fallback = (
                "This CPU sums products of bytes in 16 bits, which can overflow, so this int8 export may be less exact "
                "here than its manifest says; run dinosaur export --check on it."
            )
        wanted = get_provider(self.provider).execution
        session = ort.InferenceSession(content, session_options(self.threads, severity=4), providers=[wanted])
        if wanted not in session.get_providers():
            raise EncoderError(
                f"ONNX Runtime has '{self.provider}' but could not start it; check that its libraries are installed."
            )
        self.stamp = session.get_modelmeta().custom_metadata_map.get(STAMP, "none")
        self._runner = lambda pixels, outputs: session.run(list(outputs), {"images": np.ascontiguousarray(pixels)})

    def _open_openvino(self, contents: Sequence[bytes]) -> None:
        if reason := why_not("openvino", "float32"):
            raise EncoderError(f"The export {self.folder} is for OpenVINO, which cannot run here: {reason}.")
        import openvino

        self.backend, self.provider = "openvino", "openvino"
        reason = why_not("openvino", "bfloat16")
        if self.precision == "bfloat16" and reason:
            self.precision = "float32"
            self.fallback = f"The export is for bfloat16, but {reason}, so it runs in float32 instead."
        model = openvino.Core().read_model(contents[0], contents[1])
        self.stamp = str(model.get_rt_info(STAMP).value) if model.has_rt_info(STAMP) else "none"
        # What int8 leaves in float may be bfloat16, which rounds less than int8 does; but not distances to a bank.
        rounded = not reason and self.manifest.bank is None and self.precision in ("bfloat16", "int8")
        settings = {"INFERENCE_PRECISION_HINT": "bf16" if rounded else "f32"}
        self._runner = OpenVinoRunner(lambda: model, settings, self.threads)

    def _run(self, pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:
        cls, patches = self._runner(pixels, ("cls", "patches"))
        return cls, patches

    def score(self, pixels: NDArray[np.uint8]) -> Scored:
        """Score prepared pixels (N, size, size, 3) against the bank in the graph."""
        return self.encode_and_score(pixels)[1]

    def encode_and_score(self, pixels: NDArray[np.uint8]) -> tuple[Tokens, Scored]:
        """The tokens and the scores of prepared pixels from one run of the graph."""
        if self.manifest.bank is None:
            raise EncoderError(f"The export {self.folder} holds no bank; export with --task NAME --with-bank.")
        earlier = "unknown_level" not in self.manifest.bank
        outputs = ("cls", "patches", *(name for name in Scored._fields if name != "unknown" or not earlier))
        parts = [
            self._runner(pixels[start : start + self.batch_size], outputs)
            for start in range(0, len(pixels), self.batch_size)
        ]
        cls, patches, *scored = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Tokens(cls, patches), Scored(*scored, *([np.zeros(len(pixels), np.bool_)] if earlier else []))

    def info(self) -> dict[str, object]:
        """That of every encoder, and the export it runs from."""
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

    ``layers`` and ``size``, where given, must be those of the export. What this machine lacks
    (bfloat16 products, TensorRT) leads to a fallback with a message on stderr and in ``info()["fallback"]``, or to an
    error with ``strict``.
    """
    folder = Path(folder)
    manifest, contents = read_export(folder)
    asked = (manifest.layers if layers is None else tuple(layers), manifest.size if size is None else size)
    if asked != (manifest.layers, manifest.size):
        raise EncoderError(
            f"The export {folder} gives layers {manifest.layers} at {manifest.size} px, but {asked[0]} at {asked[1]} "
            "px are asked for; export it for this store (--store)."
        )
    encoder = _opened(folder, manifest, contents, threads)
    if encoder.fallback:
        if strict:
            raise EncoderError(f"{encoder.fallback.rstrip('.')}; leave out --strict to accept that.")
        to_stderr(f"fallback: {encoder.fallback}")
    return encoder


def _opened(folder: Path, manifest: Manifest, contents: Sequence[bytes], threads: int | None) -> ExportedEncoder:
    made = ", ".join(
        printable(f"{key} {value}", 40)
        for key, value in manifest.made.items()
        if key in ("opset", "onnxruntime", "openvino")
    )
    if problem := model_problem(manifest.kind, contents):
        raise EncoderError(
            f"The export {folder} does not run here: {problem}, so dinosaur export did not write it; export again."
        )
    try:
        encoder = ExportedEncoder(folder, manifest, contents, threads)
        pixels = np.full((1, manifest.size, manifest.size, 3), 128, np.uint8)
        tokens, scored = Tokens(*encoder._run(pixels)), None
        if manifest.bank is not None:
            tokens, scored = encoder.encode_and_score(pixels)
    except EncoderError:
        raise
    except Exception as error:  # run times raise exceptions of any type
        raise EncoderError(
            f"The export {folder} does not run here: {first_line(error)}; it was made with {made}: update the run "
            "time, or export again on this machine."
        ) from error
    if encoder.stamp != manifest.fingerprint:
        raise EncoderError(
            f"The model in the export {folder} is another one than its manifest says (fingerprint "
            f"{printable(encoder.stamp, 40)}, not {manifest.fingerprint}); export again."
        )
    _check_outputs(encoder, tokens, scored)
    return encoder


def _check_outputs(encoder: ExportedEncoder, tokens: Tokens, scored: Scored | None) -> None:
    """The outputs for one image must have the shapes of the manifest and be finite."""
    channels, grid = encoder.channels, encoder.grid
    expected: list[tuple[NDArray[Any], type, tuple[int, ...]]]
    expected = [(tokens.cls, np.float32, (1, channels)), (tokens.patches, np.float32, (1, *grid, channels))]
    if scored is not None:
        expected += [(scored.score, np.float32, (1,)), (scored.map, np.float32, (1, *grid))]
        expected += [(scored.anomalous, np.bool_, (1,)), (scored.unknown, np.bool_, (1,))]
    if any(value.dtype != dtype or value.shape != shape for value, dtype, shape in expected):
        raise EncoderError(
            f"The model in the export {encoder.folder} gives outputs of other shapes than its manifest says; export "
            "again."
        )
    if not all(np.isfinite(value).all() for value, _, _ in expected):
        raise EncoderError(
            f"The export {encoder.folder} gives numbers that are not finite on this machine; use another precision."
        )
