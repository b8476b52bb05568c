"""Brightness matched inside the graph, before the encoder: :mod:`dinosaur_ad.core.exposure` in standard operators."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from dinosaur_ad.core.exposure import LEAST_GAIN, LEAST_SPREAD, MOST_GAIN, Exposure
from dinosaur_ad.encoders.graph.forms import copied
from dinosaur_ad.encoders.graph.vit_graph import GraphBuilder


def add_exposure(model: onnx.ModelProto, target: Exposure) -> onnx.ModelProto:
    """The graph of an encoder that sees its ``images`` with the brightness of ``target``.

    Input and outputs are as before; ``model`` itself stays as it is.
    """
    matched = copied(model)
    maker = GraphBuilder("exposure_")
    pixels = _matched(maker, target)
    for node in matched.graph.node:
        node.input[:] = [pixels if name == "images" else name for name in node.input]
    nodes = [*maker.nodes, *matched.graph.node]
    del matched.graph.node[:]
    matched.graph.node.extend(nodes)
    matched.graph.initializer.extend(maker.constants)
    return matched


def _matched(maker: GraphBuilder, target: Exposure) -> str:
    """Pixels (N, S, S, 3) as whole numbers in float32, as :func:`~dinosaur_ad.core.exposure.match_exposure` has them.

    What is measured is averaged along rows first, and the spread around the mean: sums of all pixels, or of their
    squares, would need more digits than float32 has.
    """

    def number(value: float) -> str:
        return maker.constant(np.array(value, np.float32))

    def averaged(value: str) -> str:
        rows = maker.op("ReduceMean", value, maker.axes(2), keepdims=1)
        return maker.op("ReduceMean", rows, maker.axes(1), keepdims=1)

    pixels = maker.op("Cast", "images", to=TensorProto.FLOAT)
    total = maker.op("ReduceSum", pixels, maker.axes(3), keepdims=1)
    # A third of a whole number, rounded down; the half keeps it clear of the next, however a run time divides.
    grey = maker.op("Floor", maker.op("Div", maker.op("Add", total, number(0.5)), number(3)))
    mean = averaged(grey)
    apart = maker.op("Sub", grey, mean)
    spread = maker.op("Sqrt", averaged(maker.op("Mul", apart, apart)))
    gain = maker.op("Div", number(target.spread), maker.op("Max", spread, number(LEAST_SPREAD)))
    gain = maker.op("Clip", gain, number(LEAST_GAIN), number(MOST_GAIN))
    shift = maker.op("Sub", number(target.mean), maker.op("Mul", gain, mean))
    stretched = maker.op("Round", maker.op("Add", maker.op("Mul", pixels, gain), shift))  # half to even, as rint
    return maker.op("Clip", stretched, number(0), number(255))
