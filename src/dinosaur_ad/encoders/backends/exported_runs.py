"""The run times of an export: one call from pixels to the outputs asked for."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.encoders.backends.onnx_backend import session_options
from dinosaur_ad.encoders.backends.openvino_backend import PATIENCE
from dinosaur_ad.encoders.providers import get_provider, has_int8_dot_product, thread_count, why_not
from dinosaur_ad.errors import EncoderError

STAMP = "dinosaur_fingerprint"
"""Under which name a model file carries the fingerprint of its encoder."""


class Run(ABC):
    """A model file, opened. ``fallback`` is the sentence that says where this is not what the export asks for."""

    backend: str
    provider: str
    precision: str
    fingerprint: str
    threads: int | None = None
    fallback: str | None = None

    @abstractmethod
    def __call__(self, pixels: NDArray[np.uint8], outputs: Sequence[str]) -> list[NDArray[Any]]:
        """The named outputs for prepared pixels (N, size, size, 3)."""


def open_run(
    folder: Path, contents: Sequence[bytes], kind: str, precision: str, threads: int | None, *, exact: bool
) -> Run:
    """Open the model of an export in the run time of its kind; ``exact``: what is float32 in it must stay so.

    ``contents`` are its files, as they were hashed; ``folder``, where they came from, is only named.
    """
    if kind == "openvino":
        return _OpenVino(folder, contents, precision, threads, exact)
    return _Onnx(contents[0], kind, precision, threads)


class _Onnx(Run):
    """ONNX Runtime: on the CPU, or through TensorRT where the export is for it and it is here."""

    backend = "onnx"

    def __init__(self, content: bytes, kind: str, precision: str, threads: int | None) -> None:
        import onnxruntime as ort

        self.provider, self.precision, self.threads = "onnx-cpu", precision, thread_count(threads)
        if kind == "tensorrt":
            absent = why_not("tensorrt", "float32")
            self.provider = "onnx-cpu" if absent else "tensorrt"
            if absent:
                self.fallback = (
                    f"The export is for TensorRT, which cannot run here ({absent}), so onnx-cpu runs instead."
                )
        elif precision == "int8" and not has_int8_dot_product():
            self.fallback = (
                "This CPU sums products of bytes in 16 bits, which can overflow, so this int8 export may be less exact "
                "here than its manifest says; run dinosaur export --check on it."
            )
        options = session_options(self.threads, severity=4)
        wanted = get_provider(self.provider).execution
        self._session = ort.InferenceSession(content, options, providers=[wanted])
        if wanted not in self._session.get_providers():
            raise EncoderError(
                f"ONNX Runtime has '{self.provider}' but could not start it; see that its libraries are there."
            )
        self.fingerprint = self._session.get_modelmeta().custom_metadata_map.get(STAMP, "none")

    def __call__(self, pixels: NDArray[np.uint8], outputs: Sequence[str]) -> list[NDArray[Any]]:
        found: list[NDArray[Any]] = self._session.run(list(outputs), {"images": np.ascontiguousarray(pixels)})
        return found


class _OpenVino(Run):
    """OpenVINO on the CPU, an image at a time: what is compiled for one image is faster than what takes any number.

    As in :mod:`~dinosaur_ad.encoders.backends.openvino_backend`, many images in batches get one stream per core
    after a while.
    """

    backend, provider = "openvino", "openvino"

    def __init__(
        self, folder: Path, contents: Sequence[bytes], precision: str, threads: int | None, exact: bool
    ) -> None:
        if reason := why_not("openvino", "float32"):
            raise EncoderError(f"The export {folder} is for OpenVINO, which cannot run here: {reason}.")
        import openvino

        self.precision, self.threads, narrow = precision, thread_count(threads), why_not("openvino", "bfloat16") is None
        if precision == "bfloat16" and not narrow:
            self.precision = "float32"
            reason = why_not("openvino", "bfloat16")
            self.fallback = f"The export is for bfloat16, but {reason}, so it runs in float32 instead."
        model = openvino.Core().read_model(contents[0], contents[1])
        self.fingerprint = str(model.get_rt_info(STAMP).value) if model.has_rt_info(STAMP) else "none"
        _, *shape = model.input("images").get_partial_shape()
        model.reshape({"images": [1, *(dimension.get_length() for dimension in shape)]})
        # What int8 leaves in float may as well be bfloat16, which rounds less than int8 does; but not distances.
        rounded = narrow and not exact and precision in ("bfloat16", "int8")
        self._settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "bf16" if rounded else "f32"}
        if self.threads:
            self._settings["INFERENCE_NUM_THREADS"] = self.threads
        self._model = model
        self._request = self._compiled("LATENCY").create_infer_request()
        self._queue: Any = None
        self._patience = PATIENCE
        self._lock = threading.Lock()  # a request is for one caller at a time

    def _compiled(self, hint: str) -> Any:
        import openvino

        return openvino.Core().compile_model(self._model, "CPU", {"PERFORMANCE_HINT": hint} | self._settings)

    def __call__(self, pixels: NDArray[np.uint8], outputs: Sequence[str]) -> list[NDArray[Any]]:
        images = np.ascontiguousarray(pixels)
        with self._lock:
            if len(images) > 1 and self._for_throughput(len(images)):
                rows = self._in_streams(images, outputs)
            else:
                rows = [self._one(images[n : n + 1], outputs) for n in range(len(images))]
        return [np.concatenate(each) for each in zip(*rows, strict=True)]

    def _one(self, image: NDArray[np.uint8], outputs: Sequence[str]) -> list[NDArray[Any]]:
        found = self._request.infer({"images": image})
        return [np.array(found[name]) for name in outputs]

    def _in_streams(self, images: NDArray[np.uint8], outputs: Sequence[str]) -> list[list[NDArray[Any]]]:
        rows: list[list[NDArray[Any]]] = [[] for _ in images]

        def keep(request: Any, n: int) -> None:
            rows[n] = [np.array(request.get_tensor(name).data) for name in outputs]

        self._queue.set_callback(keep)
        for n in range(len(images)):
            self._queue.start_async({"images": images[n : n + 1]}, n)
        self._queue.wait_all()
        return rows

    def _for_throughput(self, images: int) -> bool:
        """Whether batches go through streams by now; a core alone has nothing to gain."""
        self._patience -= images
        if self._queue is None and self._patience < 0 and self.threads != 1:
            import openvino

            self._queue = openvino.AsyncInferQueue(self._compiled("THROUGHPUT"))
        return self._queue is not None
