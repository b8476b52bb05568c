"""Changes to graphs of :mod:`~dinosaur_ad.encoders.graph.vit_graph`, shared by the run time and the exports."""

from __future__ import annotations

from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper


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
