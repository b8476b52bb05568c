"""The graph of an encoder in other arithmetic: float16, and int8 that needs no calibration images.

Only the projections are quantised (products with a constant matrix), all but the first: the patch projection reads raw
pixels and costs little, and no later layer can undo what it rounds away. Weights get one scale per output channel. The
scale of the activations is computed at run time: by the graph itself (``int8-dynamic``), or by a run time that does so
group by group when it meets int8 weights (``int8-weights``).

In float16, layer norms, softmax and the residual stream stay in float32: sums over many channels, exponentials, and a
stream whose few huge channels leave half precision no digits for the others. So does the patch projection, whose folded
weights are too small for float16. Pixels go in as before and tokens come out as float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dinosaur_ad.errors import EncoderError

# --- rewriting ---


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, to be changed."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    return other


def projections(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The products with a constant matrix, all but the first, which projects pixels."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [node for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in constants][1:]


class Rewriter:
    """Writes the nodes of a graph anew, one by one, and keeps the constants that are still used."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.nodes: list[onnx.NodeProto] = []

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node and return the name of what it gives."""
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Add or replace a constant."""
        self.constants[name] = numpy_helper.from_array(value, name)
        return name

    def finish(self) -> onnx.ModelProto:
        """The model with the new nodes."""
        graph = self.model.graph
        used = {name for node in self.nodes for name in node.input}
        del graph.node[:], graph.initializer[:]
        graph.node.extend(self.nodes)
        graph.initializer.extend(tensor for name, tensor in self.constants.items() if name in used)
        return self.model


# --- float16 ---


# What leaves values alone or acts on each by itself: done in half when all it is given is half.
_FOLLOWS = {"Reshape", "Transpose", "Slice", "Concat", "Gelu", "Add", "Mul"}


def to_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph of an encoder with float16 weights and products; ``model`` itself stays as it is."""
    return _Halver(copied(model)).run()


class _Halver:
    """Goes through the nodes in order and knows of every value whether it is half by now."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._rewriter = Rewriter(model)
        self._nodes = list(model.graph.node)
        weights = {node.output[0] for node in projections(model)}
        constants = self._rewriter.constants
        # Products of two values are attention's; the only other product with a constant is the patch projection.
        self._products = {
            node.output[0]
            for node in self._nodes
            if node.op_type == "MatMul" and (node.output[0] in weights or node.input[1] not in constants)
        }
        self._outputs = {value.name for value in model.graph.output}
        self._half: set[str] = set()
        self._casts: dict[str, str] = {}

    def run(self) -> onnx.ModelProto:
        for node in self._nodes:
            output = node.output[0]
            # An output is float32 already where it is made of float32 taps; otherwise it is made so here.
            narrow = output in self._products or self._all_half(node)
            if narrow and output not in self._outputs:
                node.input[:] = [self._as_half(name) for name in node.input]
                self._half.add(output)
            else:
                node.input[:] = [self._as_float(name) for name in node.input]
            self._rewriter.nodes.append(node)
        return self._rewriter.finish()

    def _all_half(self, node: onnx.NodeProto) -> bool:
        values = [name for name in node.input if name not in self._rewriter.constants]
        return node.op_type in _FOLLOWS and all(name in self._half for name in values)

    def _as_half(self, name: str) -> str:
        constant = self._rewriter.constants.get(name)
        if constant is not None:
            if constant.data_type != TensorProto.FLOAT:  # shapes and axes
                return name
            return self._rewriter.constant(f"{name}_half", numpy_helper.to_array(constant).astype(np.float16))
        return name if name in self._half else self._cast(name, TensorProto.FLOAT16)

    def _as_float(self, name: str) -> str:
        return self._cast(name, TensorProto.FLOAT) if name in self._half else name

    def _cast(self, name: str, to: int) -> str:
        if name not in self._casts:
            self._casts[name] = self._rewriter.add("Cast", [name], f"{name}_cast", to=to)
        return self._casts[name]


# --- int8 ---


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
