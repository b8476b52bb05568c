"""Encoders on OpenVINO: the same graphs compiled for this CPU, also in bfloat16 and int8 where it supports them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.encoders.backends.onnx_backend import serialised_graph
from dinosaur_ad.encoders.backends.setup import Setup
from dinosaur_ad.encoders.base import Encoder, Floats
from dinosaur_ad.encoders.providers import thread_count, why_not

INT8_GROUP = 128
"""Channels that share a scale when activations are quantised; measured: 64 take longer, 384 move the tokens more."""
PATIENCE = 64
"""Images in batches before the graph is compiled once more for throughput, which takes about a second."""


class OpenVinoRunner:
    """A model compiled for one image at a time.

    A single image gets all cores (latency). After :data:`PATIENCE` images in batches the model is compiled again with
    one stream per core, and each stream runs an image of its own (throughput). Both give the same bits.
    """

    def __init__(self, read_model: Callable[[], Any], settings: Mapping[str, Any], threads: int | None) -> None:
        self._read_model, self._threads = read_model, threads
        self._settings = dict(settings) | ({"INFERENCE_NUM_THREADS": threads} if threads else {})
        self._single = self._compiled("LATENCY").create_infer_request()
        self._queue: Any = None
        self._patience = PATIENCE
        self._lock = threading.Lock()  # a request is for one caller at a time, as sessions of other backends are not

    def __call__(self, pixels: NDArray[np.uint8], outputs: Sequence[str]) -> list[NDArray[Any]]:
        """The named outputs for prepared pixels (N, size, size, 3)."""
        images = np.ascontiguousarray(pixels)
        with self._lock:
            if len(images) == 1:
                return self._one(images, outputs)
            if self._for_throughput(len(images)):
                rows = self._in_streams(images, outputs)
            else:
                rows = [self._one(images[n : n + 1], outputs) for n in range(len(images))]
        return [np.concatenate(each) for each in zip(*rows, strict=True)]

    def _compiled(self, hint: str) -> Any:
        import openvino

        model = self._read_model()
        _, *shape = model.input("images").get_partial_shape()
        # A model for exactly one image compiles to faster code than one for any number.
        model.reshape({"images": [1, *(dimension.get_length() for dimension in shape)]})
        return openvino.Core().compile_model(model, "CPU", {"PERFORMANCE_HINT": hint} | self._settings)

    def _one(self, image: NDArray[np.uint8], outputs: Sequence[str]) -> list[NDArray[Any]]:
        found = self._single.infer({"images": image}, share_inputs=True, share_outputs=True)
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
        """Whether batches go through streams by now; with one thread there is nothing to gain."""
        self._patience -= images
        if self._queue is None and self._patience < 0 and self._threads != 1:
            import openvino

            self._queue = openvino.AsyncInferQueue(self._compiled("THROUGHPUT"))
        return self._queue is not None


class OpenVinoEncoder(Encoder):
    """A graph of :mod:`dinosaur_ad.encoders.graph.vit_graph` compiled by OpenVINO."""

    backend, provider = "openvino", "openvino"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.weights, setup.layers, setup.size)
        precision = setup.precision
        self.precision, self.threads = precision, thread_count(setup.threads)
        # In int8, the rest of the graph runs in bfloat16: it rounds less than int8 does and halves the attention.
        narrow = precision == "bfloat16" or (precision == "int8" and why_not("openvino", "bfloat16") is None)
        settings = {"INFERENCE_PRECISION_HINT": "bf16" if narrow else "f32"}
        if precision == "int8":
            settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = str(INT8_GROUP)

        def read_model() -> Any:
            # Read again for the second compilation: keeping it would take as much memory as the compiled model.
            import openvino

            graph = serialised_graph(self, setup.weights, "int8-weights" if precision == "int8" else "float32")
            return openvino.Core().read_model(graph)

        self._runner = OpenVinoRunner(read_model, settings, self.threads)

    def _run(self, pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:
        cls, patches = self._runner(pixels, ("cls", "patches"))
        return cls, patches
