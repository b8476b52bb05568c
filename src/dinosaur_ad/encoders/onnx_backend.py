"""Encoders on ONNX Runtime: the default, without torch."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.encoders.base import Encoder, Floats, Layer
from dinosaur_ad.encoders.graph import GRAPH_VERSION, build_graph
from dinosaur_ad.encoders.weights import Weights, cache_home
from dinosaur_ad.errors import EncoderError

log = logging.getLogger(__name__)

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
KEPT_GRAPHS = 8  # of all encoders together; a graph is as large as its weights


class OnnxEncoder(Encoder):
    """A graph of :mod:`dinosaur_ad.encoders.graph` in an ONNX Runtime session."""

    backend = "onnx"

    def __init__(
        self,
        weights: Weights,
        layers: Sequence[Layer],
        size: int,
        threads: int | None = None,
        device: str = "cpu",
    ) -> None:
        super().__init__(weights, layers, size)
        import onnxruntime as ort

        self.provider = PROVIDERS.get(device, device)
        if self.provider not in ort.get_available_providers():
            known = ", ".join(name for name, ep in PROVIDERS.items() if ep in ort.get_available_providers())
            raise EncoderError(f"ONNX Runtime cannot use the device '{device}' here; available: {known}.")
        options = ort.SessionOptions()
        # ONNX Runtime takes all cores unless told; a scheduler that shares them out says so in this variable.
        options.intra_op_num_threads = threads or int(os.environ.get("OMP_NUM_THREADS") or 0)
        options.log_severity_level = 3
        self._session = ort.InferenceSession(self._graph(weights), options, providers=[self.provider])

    def _run(self, pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:
        cls, patches = self._session.run(["cls", "patches"], {"images": np.ascontiguousarray(pixels)})
        return cls, patches

    def _graph(self, weights: Weights) -> bytes:
        """Return the serialised graph, from the cache where there is one."""
        if self.spec.source.startswith("seed:"):  # built faster than read
            return self._build(weights)
        path = cache_home() / "graphs" / f"{self.name}-{self.fingerprint}-v{GRAPH_VERSION}.onnx"
        cached = _read_cached(path)
        if cached is not None:
            return cached
        built = self._build(weights)
        _write_cached(path, built)
        return built

    def _build(self, weights: Weights) -> bytes:
        graph: bytes = build_graph(self.spec, weights.tensors(), self.layers, self.size).SerializeToString()
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
    path.touch()  # the least recently used graphs are dropped first
    return graph


def _write_cached(path: Path, graph: bytes) -> None:
    """Keep a graph for the next time; a cache that cannot be written costs time, not the result."""
    try:
        write_atomic(path, hashlib.sha256(graph).digest() + graph)
        by_age = sorted(path.parent.glob("*.onnx"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in by_age[KEPT_GRAPHS:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        log.warning("Cannot keep the graph %s (%s); it will be built again next time.", path, error.strerror)
