"""Encoders on ONNX Runtime: the default, without torch. And the graphs that every backend but torch runs."""

from __future__ import annotations

import hashlib
import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad._telemetry import silence
from dinosaur_ad.encoders.backends.setup import Setup
from dinosaur_ad.encoders.base import Encoder, Floats
from dinosaur_ad.encoders.graph.pair_graph import encoder_graph
from dinosaur_ad.encoders.graph.vit_graph import GRAPH_VERSION
from dinosaur_ad.encoders.providers import get_provider, has_int8_dot_product, thread_count
from dinosaur_ad.encoders.weights.local import Weights
from dinosaur_ad.encoders.weights.weight_folder import cache_home
from dinosaur_ad.errors import EncoderError

log = logging.getLogger(__name__)

# Only what this module named itself may be dropped.
_GRAPH_NAME = re.compile(r".+-[0-9a-f]{16}-v\d+(?:-[a-z0-9-]+)?\.onnx")

KEPT_GRAPHS = 8  # of all encoders together; a graph is as large as its weights


class OnnxEncoder(Encoder):
    """A graph of :mod:`dinosaur_ad.encoders.graph.vit_graph` in an ONNX Runtime session."""

    backend = "onnx"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.weights, setup.layers, setup.size)
        import onnxruntime as ort

        provider, precision = setup.provider, setup.precision
        self.provider, self.precision, self.threads = provider, precision, thread_count(setup.threads)
        options = session_options(self.threads)
        wanted = get_provider(provider).execution
        settings = _provider_options(provider, precision, self.threads)
        graph = serialised_graph(self, setup.weights, _form(provider, precision))
        self._session = ort.InferenceSession(graph, options, providers=[(wanted, settings)])
        # A provider whose libraries are missing is left out without an error: the session then runs on the CPU.
        if wanted not in self._session.get_providers():
            raise EncoderError(
                f"ONNX Runtime has '{provider}' but could not start it; see that its libraries are there."
            )

    def _run(self, pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:
        if self.precision == "int8" and len(pixels) > 1:
            # One scale for all that is in a product: an image's tokens must not depend on its neighbours.
            each = [self._run(pixels[n : n + 1]) for n in range(len(pixels))]
            return np.concatenate([cls for cls, _ in each]), np.concatenate([patches for _, patches in each])
        cls, patches = self._session.run(["cls", "patches"], {"images": np.ascontiguousarray(pixels)})
        return cls, patches


def _form(provider: str, precision: str) -> str:
    """Which form of the graph a provider needs for a precision; TensorRT makes its own float16 of a float32 graph."""
    if precision == "float16" and provider != "tensorrt":
        return "float16"
    if precision == "int8":
        return "int8-dynamic" if has_int8_dot_product() else "int8-dynamic-7bit"
    return "float32"


def _provider_options(provider: str, precision: str, threads: int | None) -> dict[str, Any]:
    if provider == "tensorrt":
        return {"trt_fp16_enable": precision == "float16"}
    if provider == "cuda":
        return {"use_tf32": 0}  # float32 means float32
    if provider == "coreml":
        return {"ModelFormat": "MLProgram"}
    if provider == "xnnpack" and threads:
        return {"intra_op_num_threads": str(threads)}
    return {}


def session_options(threads: int | None, *, severity: int = 3) -> Any:
    """How every session here is opened: ``threads`` of its own (None for one a core), messages from ``severity`` on."""
    import onnxruntime as ort

    silence(ort)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = severity
    # Otherwise its threads keep their cores busy for tens of milliseconds after an image, waiting for the next one,
    # while that image is being scored.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def serialised_graph(encoder: Encoder, weights: Weights, form: str = "float32") -> bytes:
    """The ONNX graph of an encoder as bytes, from the cache where there is one; see :mod:`.graph_forms` for forms."""
    if encoder.spec.source.startswith("seed:"):  # built faster than read
        return _built(encoder, weights, form)
    suffix = "" if form == "float32" else f"-{form}"
    path = cache_home() / "graphs" / f"{encoder.name}-{encoder.fingerprint}-v{GRAPH_VERSION}{suffix}.onnx"
    cached = _read_cached(path)
    if cached is not None:
        return cached
    built = _built(encoder, weights, form)
    _write_cached(path, built)
    return built


def _built(encoder: Encoder, weights: Weights, form: str) -> bytes:
    if form == "float32":
        model = encoder_graph(encoder.spec, weights.tensors(), encoder.layers, encoder.size)
    else:
        import onnx

        from dinosaur_ad.encoders.graph.forms import in_form

        model = in_form(onnx.load_from_string(serialised_graph(encoder, weights)), form)
    graph: bytes = model.SerializeToString()
    return graph


def _read_cached(path: Path) -> bytes | None:
    """Return a cached graph (its SHA-256, then the ONNX bytes), or None without one that is intact."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("Cannot read the cached graph %s (%s); building it anew.", path, error.strerror)
        return None
    digest, graph = content[:32], content[32:]
    if hashlib.sha256(graph).digest() != digest:
        log.warning("The cached graph %s is damaged; building it anew.", path)
        return None
    with suppress(OSError):  # a cache that may only be read is as good
        path.touch()  # the least recently used graphs are dropped first
    return graph


def _write_cached(path: Path, graph: bytes) -> None:
    """Keep a graph for the next time; a cache that cannot be written costs time, not the result."""
    try:
        write_atomic(path, hashlib.sha256(graph).digest() + graph)
        ours = [file for file in path.parent.iterdir() if _GRAPH_NAME.fullmatch(file.name) and not file.is_symlink()]
        by_age = sorted(ours, key=lambda file: file.stat().st_mtime, reverse=True)
        for old in by_age[KEPT_GRAPHS:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        log.warning("Cannot keep the graph %s (%s); it will be built again next time.", path, error.strerror)
