"""float16 where it is safe, for GPUs and for exports: products and what lies between them.

Layer norms, softmax and the residual stream stay in float32: sums over many channels, exponentials, and a stream whose
few huge channels leave half precision no digits for the others. So does the patch projection, whose folded weights are
too small for float16. Pixels go in as before and tokens come out as float32.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from dinosaur_ad.encoders.graph.rewrite import Rewriter, copied, projections

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
