"""The ONNX graph of a pair: both networks on the same pixels, and the second's maps laid beside the first's tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray

from dinosaur_ad.encoders.base import Layer
from dinosaur_ad.encoders.graph.resnet_graph import add_maps
from dinosaur_ad.encoders.graph.vit_graph import GraphBuilder, add_tokens, as_model, build_graph
from dinosaur_ad.encoders.pair import STAGE_STRIDES, PairSpec, kept_channels, onto_grid, reduction
from dinosaur_ad.encoders.specs import EncoderSpec

TINY = np.finfo(np.float32).tiny

Tensors = Mapping[str, NDArray[np.float32]]


def encoder_graph(spec: EncoderSpec, tensors: Tensors, layers: Sequence[Layer], size: int) -> onnx.ModelProto:
    """The ONNX model of one encoder or of a pair, tapped at ``layers`` for ``size`` x ``size`` pixels.

    Inputs and outputs are those of :func:`~dinosaur_ad.encoders.graph.vit_graph.build_graph`; a pair has its tail
    behind the taps, and its mean over all places behind those of the CLS token.
    """
    if not isinstance(spec, PairSpec):
        return build_graph(spec, tensors, layers, size)
    graph = GraphBuilder()
    # The first network first: forms of less precision know the patch projection by its place.
    cls, patches = add_tokens(graph, spec.first, tensors_of(tensors, "first"), layers, size)
    tail = _tail(graph, spec, tensors_of(tensors, "second"), layers, size)
    mean = graph.op("ReduceMean", tail, graph.axes(1, 2), keepdims=0)
    graph.op("Concat", cls, mean, axis=-1, output="cls")
    graph.op("Concat", patches, tail, axis=-1, output="patches")
    return as_model(graph, spec, size, len(layers) * spec.width + spec.tail)


def tensors_of(tensors: Tensors, part: str) -> dict[str, NDArray[np.float32]]:
    """The tensors of one network of a pair, under its own names."""
    prefix = f"{part}."
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _tail(graph: GraphBuilder, spec: PairSpec, tensors: Tensors, layers: Sequence[Layer], size: int) -> str:
    """The tail (N, H, W, T): each map reduced, brought onto the grid and scaled to its share of the length."""
    side = size // spec.patch
    maps = _maps(graph, spec, tensors, layers, size)
    length = spec.weight / np.sqrt(len(maps))
    parts = []
    for value, channels, cells in maps:
        kept = kept_channels(channels, spec.width, len(maps))
        signs = reduction(channels, kept)
        if signs is not None:
            flat = graph.reshape(value, 0, channels, cells * cells)
            value = graph.reshape(graph.op("MatMul", graph.constant(signs), flat), 0, kept, cells, cells)
        if cells != side:
            value = graph.op("MatMul", graph.constant(onto_grid(cells, side)), value)  # (N, C, H, w)
            value = graph.op("Transpose", value, perm=[0, 1, 3, 2])
            value = graph.op("MatMul", graph.constant(onto_grid(cells, side)), value)  # (N, C, W, H)
            value = graph.op("Transpose", value, perm=[0, 3, 2, 1])
        else:
            value = graph.op("Transpose", value, perm=[0, 2, 3, 1])
        parts.append(graph.op("Mul", unit(graph, value), graph.constant(np.array(length, np.float32))))
    return parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=-1)


def unit(graph: GraphBuilder, value: str) -> str:
    """``value`` with every vector along the last axis at length one; a zero vector stays zero."""
    length = graph.op("ReduceL2", value, graph.axes(-1), keepdims=1)
    return graph.op("Div", value, graph.op("Max", length, graph.constant(np.array(TINY, np.float32))))


def _maps(
    graph: GraphBuilder, spec: PairSpec, tensors: Tensors, layers: Sequence[Layer], size: int
) -> list[tuple[str, int, int]]:
    """The second network's maps (N, C, h, h): the name of each, its channels and its cells a side."""
    second = spec.second
    if not isinstance(second, EncoderSpec):
        names = add_maps(graph, second, tensors)
        return [
            (name, channels, size // stride)
            for name, channels, stride in zip(names, spec.map_channels, STAGE_STRIDES, strict=True)
        ]
    side, width = size // second.patch, second.width
    blocks = graph.reshape(add_tokens(graph, second, tensors, layers, size)[1], 0, side, side, len(layers), width)
    mean = graph.op("ReduceMean", unit(graph, blocks), graph.axes(3), keepdims=0)
    return [(graph.op("Transpose", mean, perm=[0, 3, 1, 2]), width, side)]
