"""Encoders on OpenVINO: the same graphs compiled for this CPU, also in bfloat16 and int8 where it knows them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.encoders.backends.onnx_backend import serialised_graph
from dinosaur_ad.encoders.base import Encoder, Floats, Layer, Tokens
from dinosaur_ad.encoders.providers import thread_count, why_not
from dinosaur_ad.encoders.weights.local import Weights

# Channels that share a scale when activations are quantised; measured: 64 take longer, 384 move the tokens more.
INT8_GROUP = 128
# Images in batches before the graph is compiled once more, for throughput; a few would not earn the second it takes.
PATIENCE = 64


class OpenVinoEncoder(Encoder):
    """A graph of :mod:`dinosaur_ad.encoders.graph.vit_graph` compiled by OpenVINO for one image at a time.

    A single image gets all cores (latency). When many come in batches, the graph is compiled again with a stream a
    core, and each stream works on an image of its own (throughput). Both give the same bits.
    """

    backend, provider = "openvino", "openvino"

    def __init__(
        self,
        weights: Weights,
        layers: Sequence[Layer],
        size: int,
        threads: int | None = None,
        precision: str = "float32",
    ) -> None:
        super().__init__(weights, layers, size)
        self.precision, self.threads = precision, thread_count(threads)
        self._weights = weights
        self._single = self._compiled("LATENCY").create_infer_request()
        self._queue: Any = None
        self._lock = threading.Lock()  # a request is for one caller at a time, as other backends' sessions are not
        self._patience = PATIENCE

    def _compiled(self, hint: str) -> Any:
        import openvino

        # Rounding to bfloat16 costs int8 nothing that its own rounding does not, and halves the attention.
        narrow = self.precision == "bfloat16" or (self.precision == "int8" and why_not("openvino", "bfloat16") is None)
        settings: dict[str, Any] = {
            "PERFORMANCE_HINT": hint,
            "INFERENCE_PRECISION_HINT": "bf16" if narrow else "f32",
        }
        if self.precision == "int8":
            settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = str(INT8_GROUP)
        if self.threads:
            settings["INFERENCE_NUM_THREADS"] = self.threads
        # Read anew each time: a graph that is kept for later would be as much memory as the compiled one.
        form = "int8-weights" if self.precision == "int8" else "float32"
        model = openvino.Core().read_model(serialised_graph(self, self._weights, form))
        model.reshape({"images": [1, self.size, self.size, 3]})  # for one image, which compiles to less than for any
        return openvino.Core().compile_model(model, "CPU", settings)

    def _run(self, pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:
        tokens = self._empty(len(pixels))
        with self._lock:
            run = self._in_streams if len(pixels) > 1 and self._for_throughput(len(pixels)) else self._one_by_one
            run(np.ascontiguousarray(pixels), tokens)
        return tokens.cls, tokens.patches

    def _one_by_one(self, pixels: NDArray[np.uint8], tokens: Tokens) -> None:
        for n in range(len(pixels)):
            found = self._single.infer({"images": pixels[n : n + 1]}, share_inputs=True, share_outputs=True)
            tokens.cls[n], tokens.patches[n] = found["cls"][0], found["patches"][0]

    def _in_streams(self, pixels: NDArray[np.uint8], tokens: Tokens) -> None:
        def keep(request: Any, n: int) -> None:
            tokens.cls[n] = request.get_tensor("cls").data[0]
            tokens.patches[n] = request.get_tensor("patches").data[0]

        self._queue.set_callback(keep)
        for n in range(len(pixels)):
            self._queue.start_async({"images": pixels[n : n + 1]}, n)
        self._queue.wait_all()

    def _for_throughput(self, images: int) -> bool:
        """Whether batches go through streams by now; a core alone has nothing to gain."""
        self._patience -= images
        if self._queue is None and self._patience < 0 and self.threads != 1:
            import openvino

            self._queue = openvino.AsyncInferQueue(self._compiled("THROUGHPUT"))
        return self._queue is not None
