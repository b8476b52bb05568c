"""Build the part of an ONNX graph that is a residual network up to its third stage, from its weights.

Written like the graph of a vision transformer (:mod:`.vit_graph`): batch normalisation is folded into the convolution
before it, and what the pixels are divided by into the first one, in float64. The mean is subtracted before, because
what lies beyond the border counts as zero after it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD
from dinosaur_ad.encoders.graph.vit_graph import GraphBuilder
from dinosaur_ad.encoders.specs import ResNetSpec

EPS = 1e-5
"""Of batch normalisation; that of torch, with which the weights are run as a reference."""

Array = NDArray[np.float64]
Tensors = Mapping[str, NDArray[np.float32]]


def add_maps(graph: GraphBuilder, spec: ResNetSpec, tensors: Tensors) -> tuple[str, str]:
    """Add the network to a graph with the input ``images`` (N, S, S, 3) uint8.

    Returns the names of stage 2 (N, C2, S/8, S/8) and stage 3 (N, C3, S/16, S/16).
    """
    pixels = graph.op("Cast", "images", to=TensorProto.FLOAT)
    centred = graph.op("Sub", pixels, graph.constant(255.0 * np.array(IMAGE_MEAN)))
    value = graph.op("Transpose", centred, perm=[0, 3, 1, 2])
    scale = 1 / (255.0 * np.array(IMAGE_STD))
    value = graph.op("Relu", _convolution(graph, tensors, "embedder.embedder", value, stride=2, scale=scale))
    value = graph.op("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    stages = []
    for stage, depth in enumerate(spec.depths):
        for layer in range(depth):
            stride = 2 if stage > 0 and layer == 0 else 1
            value = _block(graph, spec, tensors, f"encoder.stages.{stage}.layers.{layer}", value, stride)
        stages.append(value)
    return stages[1], stages[2]


def _block(graph: GraphBuilder, spec: ResNetSpec, tensors: Tensors, name: str, value: str, stride: int) -> str:
    """One residual block; only the first of a stage has a shortcut of its own."""
    count = 3 if spec.block == "bottleneck" else 2
    strided = 1 if spec.block == "bottleneck" and not spec.strided_first else 0
    inner = value
    for index in range(count):
        step = stride if index == strided else 1
        inner = _convolution(graph, tensors, f"{name}.layer.{index}", inner, step)
        if index < count - 1:
            inner = graph.op("Relu", inner)
    if f"{name}.shortcut.convolution.weight" in tensors:
        value = _convolution(graph, tensors, f"{name}.shortcut", value, stride)
    return graph.op("Relu", graph.op("Add", inner, value))


def _convolution(
    graph: GraphBuilder, tensors: Tensors, name: str, value: str, stride: int, scale: Array | None = None
) -> str:
    """A convolution with its batch normalisation; ``scale`` multiplies its input channels."""
    weight, bias = folded(tensors, name)
    if scale is not None:
        weight = weight * scale[:, None, None]
    kernel = weight.shape[-1]
    pad = kernel // 2
    parts = graph.constant(weight), graph.constant(bias)
    return graph.op("Conv", value, *parts, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)


def folded(tensors: Tensors, name: str) -> tuple[Array, Array]:
    """Weight (O, I, k, k) and bias (O,) of a convolution and the batch normalisation behind it."""
    weight = tensors[f"{name}.convolution.weight"].astype(np.float64)
    gain, shift, mean, variance = (
        tensors[f"{name}.normalization.{part}"].astype(np.float64)
        for part in ("weight", "bias", "running_mean", "running_var")
    )
    factor = gain / np.sqrt(variance + EPS)
    return weight * factor[:, None, None, None], shift - mean * factor
