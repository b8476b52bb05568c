"""The same graph in other arithmetic: float16, and int8 that needs no calibration images.

Only the projections are quantised (products with a constant matrix), all but the first: the patch projection reads
raw pixels, costs little, and what it rounds away no later layer brings back. Weights get one scale an output channel.
What stands on the other side of the product is measured while it runs: by the graph itself (``int8-dynamic``), or by a
run time that does so group by group when it meets int8 weights (``int8-weights``).
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dinosaur_ad.encoders.graph.half import to_half
from dinosaur_ad.encoders.graph.rewrite import Rewriter, projections
from dinosaur_ad.errors import EncoderError


def in_form(model: onnx.ModelProto, form: str) -> onnx.ModelProto:
    """Another arithmetic for a graph of :func:`~dinosaur_ad.encoders.graph.vit_graph.build_graph`, perhaps in place.

    ``int8-dynamic-7bit`` leaves a bit unused, for CPUs that would overflow.
    """
    if form == "float16":
        return to_half(model)
    if form == "int8-weights":
        return _int8_weights(model)
    if form in ("int8-dynamic", "int8-dynamic-7bit"):
        return _int8_dynamic(model, 127 if form == "int8-dynamic" else 63)
    raise EncoderError(f"There is no form '{form}' of a graph; choose float16, int8-weights or int8-dynamic.")


def quantise_columns(
    weight_IO: NDArray[np.float32], largest: int = 127
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Whole numbers from ``-largest`` to ``largest`` and one scale an output channel, (in, out) and (out,).

    >>> quantise_columns(np.array([[2.0, 0.0], [-1.0, 0.0]], np.float32))[0].tolist()
    [[127, 0], [-64, 0]]
    """
    scale_O = np.abs(weight_IO).max(axis=0) / largest
    scale_O[scale_O == 0] = 1.0
    return np.round(weight_IO / scale_O).astype(np.int8), scale_O.astype(np.float32)


def _int8_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    rewriter = Rewriter(model)
    chosen = {node.output[0] for node in projections(model)}
    for node in model.graph.node:
        if node.output[0] in chosen:
            name = node.input[1]
            whole_IO, scale_O = quantise_columns(numpy_helper.to_array(rewriter.constants[name]))
            parts = [rewriter.constant(f"{name}_int8", whole_IO), rewriter.constant(f"{name}_scale", scale_O)]
            rewriter.add("DequantizeLinear", parts, f"{name}_float", axis=1)
            node.input[1] = f"{name}_float"
        rewriter.nodes.append(node)
    return rewriter.finish()


def _int8_dynamic(model: onnx.ModelProto, largest: int) -> onnx.ModelProto:
    """Written so that ONNX Runtime fuses each chain into one product of its own."""
    rewriter = Rewriter(model)
    chosen, quantised = {node.output[0] for node in projections(model)}, set[str]()
    for node in model.graph.node:
        if node.output[0] not in chosen:
            rewriter.nodes.append(node)
            continue
        value, name, output = node.input[0], node.input[1], node.output[0]
        whole_IO, scale_O = quantise_columns(numpy_helper.to_array(rewriter.constants[name]), largest)
        if value not in quantised:  # queries, keys and values come from the same tokens
            quantised.add(value)
            outputs = [f"{value}_uint8", f"{value}_scale", f"{value}_zero"]
            rewriter.nodes.append(helper.make_node("DynamicQuantizeLinear", [value], outputs))
        weight, scale = rewriter.constant(f"{name}_int8", whole_IO), rewriter.constant(f"{name}_scale", scale_O)
        zero = rewriter.constant(f"{name}_zero", np.zeros(len(scale_O), np.int8))
        whole = rewriter.add("MatMulInteger", [f"{value}_uint8", weight, f"{value}_zero", zero], f"{output}_int32")
        scales = rewriter.add("Mul", [f"{value}_scale", scale], f"{output}_scale")
        rewriter.add("Mul", [rewriter.add("Cast", [whole], f"{output}_float", to=TensorProto.FLOAT), scales], output)
    return rewriter.finish()
