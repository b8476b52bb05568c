"""Static int8: the projections of an encoder as products of bytes, calibrated on normal images.

Weights get one scale an output channel, what meets them one scale and zero for all, from the least and the largest
value that the calibration images show. This is written in QDQ form: ``QuantizeLinear`` and ``DequantizeLinear`` around
float operators, which ONNX Runtime, OpenVINO and TensorRT fuse into int8 products. Clipping the rare large values
instead was measured and is worse: they carry what distinguishes patches.

Before that, large channels are made smaller where it costs nothing: a layer norm is followed by projections only, so
its weight and bias can be divided channel by channel by what the rows of these projections are multiplied by
(SmoothQuant; Xiao et al. 2023). Left in float: the patch projection, which reads pixels and costs little, and the two
products of attention, in which bytes lose most of all. docs/export.md has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dinosaur_ad.encoders.backends.onnx_backend import session_options
from dinosaur_ad.encoders.graph.forms import Rewriter, copied, projections, quantise_columns
from dinosaur_ad.errors import InputError

Floats = NDArray[np.float32]

FEWEST_IMAGES = 8
"""Fewer calibration images show too little of what a product can look like."""

SMOOTHING = 0.5
"""Which share of a large channel moves from the activations to the weights, in the exponent."""

BATCH = 4


class Range(NamedTuple):
    """The least and the largest value of each channel (C,) that the calibration images showed."""

    least_C: Floats
    largest_C: Floats


def quantise(
    model: onnx.ModelProto, images: NDArray[np.uint8], *, smoothing: float = SMOOTHING, symmetric: bool = False
) -> onnx.ModelProto:
    """The graph of an encoder in int8; ``images`` are prepared pixels (N, size, size, 3) of normal products.

    ``symmetric`` puts zero in the middle of what meets the weights: TensorRT takes nothing else, x86 is slower with it.
    """
    if len(images) < FEWEST_IMAGES:
        raise InputError(
            f"int8 is calibrated on normal images, at least {FEWEST_IMAGES} of them, but there are {len(images)}; give "
            "more with --images."
        )
    ranges = observe(model, images)
    smoothed, ranges = smooth(model, ranges, smoothing)
    return _quantised(smoothed, ranges, symmetric)


def observe(model: onnx.ModelProto, images: NDArray[np.uint8]) -> dict[str, Range]:
    """The range of every value that a projection multiplies, by its name."""
    import onnxruntime as ort

    watched = copied(model)
    names = sorted({node.input[0] for node in projections(watched)})
    del watched.graph.output[:]
    watched.graph.initializer.append(numpy_helper.from_array(np.array([0, 1]), "observed_axes"))
    for name in names:
        for kind in ("Min", "Max"):
            output = f"{name}_{kind}"
            watched.graph.node.append(helper.make_node(f"Reduce{kind}", [name, "observed_axes"], [output], keepdims=0))
            watched.graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))
    session = ort.InferenceSession(
        watched.SerializeToString(), session_options(None), providers=["CPUExecutionProvider"]
    )
    seen: dict[str, Range] = {}
    for start in range(0, len(images), BATCH):
        found = session.run(None, {"images": images[start : start + BATCH]})
        for name, least_C, largest_C in zip(names, found[::2], found[1::2], strict=True):
            before = seen.get(name, Range(least_C, largest_C))
            seen[name] = Range(np.minimum(before.least_C, least_C), np.maximum(before.largest_C, largest_C))
    return seen


def smooth(
    model: onnx.ModelProto, ranges: dict[str, Range], share: float = SMOOTHING
) -> tuple[onnx.ModelProto, dict[str, Range]]:
    """The same function with the large channels behind layer norms made smaller, and the ranges that go with it."""
    smoothed = copied(model)
    weights = {tensor.name: tensor for tensor in smoothed.graph.initializer}
    by_input: dict[str, list[onnx.NodeProto]] = {}
    for node in projections(smoothed):
        by_input.setdefault(node.input[0], []).append(node)
    ranges = dict(ranges)
    for norm in smoothed.graph.node:
        followers = by_input.get(norm.output[0], [])
        if norm.op_type != "LayerNormalization" or not followers:
            continue
        observed = ranges[norm.output[0]]
        factor_C = _smoothing_factor(observed, [_array(weights[node.input[1]]) for node in followers], share)
        for name in norm.input[1:]:
            _replace(weights[name], _array(weights[name]) / factor_C)
        for node in followers:
            _replace(weights[node.input[1]], _array(weights[node.input[1]]) * factor_C[:, None])
        ranges[norm.output[0]] = Range(observed.least_C / factor_C, observed.largest_C / factor_C)
    return smoothed, ranges


def _smoothing_factor(observed: Range, weights_IO: Sequence[Floats], share: float) -> Floats:
    """What to divide each channel by (C,): large where activations are large and weights small; 1 on average."""
    active_C = np.maximum(np.maximum(-observed.least_C, observed.largest_C), 1e-5)
    heavy_C = np.maximum(np.max([np.abs(weight_IO).max(axis=1) for weight_IO in weights_IO], axis=0), 1e-5)
    log_C = share * np.log(active_C.astype(np.float64)) - (1 - share) * np.log(heavy_C.astype(np.float64))
    factor_C: Floats = np.exp(log_C - log_C.mean()).astype(np.float32)
    return factor_C


def _quantised(model: onnx.ModelProto, ranges: dict[str, Range], symmetric: bool) -> onnx.ModelProto:
    rewriter = Rewriter(model)
    chosen = {node.output[0] for node in projections(model)}
    rounded: dict[str, str] = {}
    for node in model.graph.node:
        if node.output[0] in chosen:
            value, weight = node.input
            if value not in rounded:  # queries, keys and values come from the same tokens
                rounded[value] = _round_trip(rewriter, value, ranges[value], symmetric)
            node.input[0] = rounded[value]
            node.input[1] = _int8_weight(rewriter, weight)
        rewriter.nodes.append(node)
    return rewriter.finish()


def _round_trip(rewriter: Rewriter, value: str, observed: Range, symmetric: bool) -> str:
    """``value`` to bytes and back; zero is always among the values that they can hold exactly."""
    least, largest = min(0.0, float(observed.least_C.min())), max(0.0, float(observed.largest_C.max()))
    if symmetric:
        scale, zero = max(-least, largest, 1e-12) / 127, np.array(0, np.int8)
    else:
        scale = max(largest - least, 1e-12) / 255
        zero = np.array(np.clip(round(-least / scale), 0, 255), np.uint8)
    pair = [
        rewriter.constant(f"{value}_scale", np.array(scale, np.float32)),
        rewriter.constant(f"{value}_zero", zero),
    ]
    codes = rewriter.add("QuantizeLinear", [value, *pair], f"{value}_bytes")
    return rewriter.add("DequantizeLinear", [codes, *pair], f"{value}_rounded")


def _int8_weight(rewriter: Rewriter, name: str) -> str:
    whole_IO, scale_O = quantise_columns(_array(rewriter.constants[name]))
    parts = [rewriter.constant(f"{name}_int8", whole_IO), rewriter.constant(f"{name}_scale", scale_O)]
    # ONNX Runtime fuses the product only where the zeros are written out.
    zeros = rewriter.constant(f"{name}_zero", np.zeros(len(scale_O), np.int8))
    return rewriter.add("DequantizeLinear", [*parts, zeros], f"{name}_rounded", axis=1)


def _array(tensor: TensorProto) -> NDArray[Any]:
    return numpy_helper.to_array(tensor)


def _replace(tensor: TensorProto, value: NDArray[Any]) -> None:
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value, np.float32), tensor.name))
