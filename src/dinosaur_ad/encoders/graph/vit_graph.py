"""Build the ONNX graph of a vision transformer from its weights, for one input size and one set of taps.

The graph is written, not converted: uint8 pixels in, tokens out, standard operators only, and nothing that
inference does not need. What can be computed beforehand is folded into the weights in float64: the
normalisation of the pixels into the patch projection, 1/sqrt(d) into the queries, LayerScale into the output
projections, and the position encoding for the grid of this size into a constant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD, Layer, blocks_needed
from dinosaur_ad.encoders.specs import EncoderSpec

GRAPH_VERSION = 2  # part of the name of a cached graph: raise it when the graph changes
OPSET = 20
IR_VERSION = 9  # the oldest that knows opset 20, so that older runtimes still load the file
ROPE_BASE = 100.0

Array = NDArray[np.float64]
Tensors = Mapping[str, NDArray[np.float32]]


class GraphBuilder:
    """Nodes and constants of a graph that is being built; every method returns the name of the value it adds."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, value: NDArray[Any], name: str | None = None) -> str:
        """Add a constant; float64 becomes float32."""
        name = name or f"{self._prefix}c{len(self.constants)}"
        # float64 is for folding only; shapes and axes stay int64.
        kept = value.astype(np.float32) if value.dtype == np.float64 else value
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(kept).reshape(value.shape), name))
        return name

    def op(
        self, kind: str, *inputs: str, output: str | None = None, unused: str | None = None, **attributes: Any
    ) -> str:
        """Add a node; ``unused`` names a second output that is not used."""
        name = output or f"{self._prefix}v{len(self.nodes)}"
        outputs = [name] if unused is None else [name, f"{name}_{unused}"]
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))
        return name

    def axes(self, *axes: int) -> str:
        """Add a constant list of axes."""
        return self.constant(np.array(axes, np.int64))

    def reshape(self, value: str, *shape: int, output: str | None = None) -> str:
        """Add a ``Reshape`` to a fixed shape."""
        return self.op("Reshape", value, self.constant(np.array(shape, np.int64)), output=output)

    def slice(self, value: str, start: int, stop: int, axis: int) -> str:
        """Add a ``Slice`` along one axis."""
        bounds = (self.constant(np.array([bound], np.int64)) for bound in (start, stop, axis))
        return self.op("Slice", value, *bounds)

    def linear(self, value: str, weight: Array, bias: Array) -> str:
        """``value @ weight.T + bias`` for a torch-style (out, in) weight."""
        return self.op("Add", self.op("MatMul", value, self.constant(weight.T)), self.constant(bias))


def build_graph(spec: EncoderSpec, tensors: Tensors, layers: Sequence[Layer], size: int) -> onnx.ModelProto:
    """Return the ONNX model of ``spec`` tapped at ``layers`` for ``size`` x ``size`` pixels.

    Input ``images`` uint8 (N, size, size, 3); outputs ``cls`` (N, K*C) and ``patches`` (N, H, W, K*C)
    float32, the K taps side by side in the order of ``layers``. N is free.
    """
    graph = GraphBuilder()
    add_tokens(graph, spec, tensors, layers, size, outputs=("cls", "patches"))
    return as_model(graph, spec, size, len(layers) * spec.width)


def add_tokens(
    graph: GraphBuilder,
    spec: EncoderSpec,
    tensors: Tensors,
    layers: Sequence[Layer],
    size: int,
    outputs: tuple[str | None, str | None] = (None, None),
) -> tuple[str, str]:
    """Add a vision transformer to a graph with the input ``images``; the names of its CLS (N, K*C) and patch tokens
    (N, H, W, K*C), which are ``outputs`` where they are given."""
    side, channels = size // spec.patch, len(layers) * spec.width
    tokens = _tapped(graph, spec, tensors, layers, side)
    cls = graph.reshape(graph.slice(tokens, 0, 1, axis=1), -1, channels, output=outputs[0])
    patches = graph.slice(tokens, spec.prefix, spec.prefix + side * side, axis=1)
    return cls, graph.reshape(patches, -1, side, side, channels, output=outputs[1])


def _tapped(graph: GraphBuilder, spec: EncoderSpec, tensors: Tensors, layers: Sequence[Layer], side: int) -> str:
    """All tokens (N, T, K*C), the taps side by side."""
    stream = _embed(graph, spec, tensors, side)
    rope = _rope_constants(graph, spec, side) if spec.family == "dinov3" else None
    taps: dict[Layer, str] = {}
    for index in range(blocks_needed(layers, spec.depth)):
        stream = _block(graph, spec, tensors, index, stream, rope)
        taps[index] = stream
    if "final" in layers:
        taps["final"] = _layer_norm(graph, tensors, "norm", stream, spec.eps)
    if len(layers) == 1:
        return taps[layers[0]]
    return graph.op("Concat", *(taps[layer] for layer in layers), axis=-1)


def as_model(graph: GraphBuilder, spec: EncoderSpec, size: int, channels: int) -> onnx.ModelProto:
    """The model of a graph that has the values ``cls`` (N, C) and ``patches`` (N, H, W, C)."""
    side, value = size // spec.patch, helper.make_tensor_value_info
    inputs = [value("images", TensorProto.UINT8, ["N", size, size, 3])]
    outputs = [
        value("cls", TensorProto.FLOAT, ["N", channels]),
        value("patches", TensorProto.FLOAT, ["N", side, side, channels]),
    ]
    onnx_graph = helper.make_graph(graph.nodes, spec.name, inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(onnx_graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="dinosaur-ad")


def _f64(tensors: Tensors, name: str) -> Array:
    return tensors[name].astype(np.float64)


def _embed(graph: GraphBuilder, spec: EncoderSpec, tensors: Tensors, side: int) -> str:
    """Pixels (N,S,S,3) -> tokens (N,T,C): CLS, registers, patches."""
    patch, count = spec.patch, side * side
    blocks = graph.reshape("images", -1, side, patch, side, patch, 3)
    blocks = graph.op("Transpose", blocks, perm=[0, 1, 3, 2, 4, 5])
    blocks = graph.reshape(blocks, -1, count, patch * patch * 3)
    pixels = graph.op("Cast", blocks, to=TensorProto.FLOAT)
    weight, bias = fold_normalisation(
        _f64(tensors, "embeddings.patch_embeddings.weight"), _f64(tensors, "embeddings.patch_embeddings.bias")
    )
    projected = graph.op("MatMul", pixels, graph.constant(weight))
    # Zero rows in front, then one addition: bias and position for the patches, the token itself for CLS
    # and registers.
    pads = graph.constant(np.array([0, spec.prefix, 0, 0, 0, 0], np.int64))
    constant = np.concatenate([_prefix_tokens(spec, tensors), np.tile(bias, (count, 1))])
    if spec.family == "dinov2":
        position = interpolate_positions(_f64(tensors, "embeddings.position_embeddings")[0], side)
        constant[0] += position[0]
        constant[spec.prefix :] += position[1:]
    return graph.op("Add", graph.op("Pad", projected, pads), graph.constant(constant[None]))


def fold_normalisation(weight: Array, bias: Array) -> tuple[Array, Array]:
    """Turn the projection of normalised pixels into a (P*P*3, C) matrix and a (C,) bias for raw pixels."""
    mean, std = np.array(IMAGE_MEAN), np.array(IMAGE_STD)
    folded = weight / (255.0 * std)[:, None, None]
    shifted = bias - np.einsum("ochw,c->o", weight, mean / std)
    return folded.transpose(2, 3, 1, 0).reshape(-1, weight.shape[0]), shifted


def _prefix_tokens(spec: EncoderSpec, tensors: Tensors) -> Array:
    tokens = [_f64(tensors, "embeddings.cls_token")[0]]
    if spec.registers:
        tokens.append(_f64(tensors, "embeddings.register_tokens")[0])
    return np.concatenate(tokens)


def interpolate_positions(position: Array, side: int) -> Array:
    """Resize a learned position embedding (1+G*G, C) to (1+side*side, C).

    Bicubic with a = -0.75 and half-pixel centres, without antialiasing, as
    ``torch.nn.functional.interpolate`` does it.
    """
    native = math.isqrt(len(position) - 1)
    if native == side:
        return position
    resize = _cubic_matrix(native, side)
    grid = position[1:].reshape(native, native, -1)
    resized = np.einsum("yh,xw,hwc->yxc", resize, resize, grid, optimize=True)
    return np.concatenate([position[:1], resized.reshape(side * side, -1)])


def _cubic_matrix(old: int, new: int, a: float = -0.75) -> Array:
    """(new, old) matrix of bicubic weights along one axis; samples beyond the border repeat it."""
    centre = (np.arange(new) + 0.5) * (old / new) - 0.5
    first = np.floor(centre).astype(int) - 1
    matrix = np.zeros((new, old))
    for tap in range(4):
        distance = np.abs(centre - (first + tap))
        near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
        far = a * (distance**3 - 5 * distance**2 + 8 * distance - 4)
        index = np.clip(first + tap, 0, old - 1)
        np.add.at(matrix, (np.arange(new), index), np.where(distance <= 1, near, far))
    return matrix


def rope_tables(side: int, head_dim: int) -> tuple[Array, Array]:
    """Cosine and sine (side*side, head_dim) of DINOv3's rotary position encoding, row by row."""
    centres = 2 * (np.arange(side) + 0.5) / side - 1
    coordinates = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1).reshape(-1, 2)
    frequencies = ROPE_BASE ** -(np.arange(0, 1, 4 / head_dim))
    angles = (2 * np.pi * coordinates[:, :, None] * frequencies).reshape(len(coordinates), -1)
    angles = np.tile(angles, 2)
    return np.cos(angles), np.sin(angles)


def _rope_constants(graph: GraphBuilder, spec: EncoderSpec, side: int) -> tuple[str, str]:
    """Tables for all tokens: CLS and registers are not rotated; the sine carries the half-rotation's sign."""
    head_dim = spec.width // spec.heads
    cos, sin = rope_tables(side, head_dim)
    sin[:, : head_dim // 2] *= -1
    cos = np.concatenate([np.ones((spec.prefix, head_dim)), cos])
    sin = np.concatenate([np.zeros((spec.prefix, head_dim)), sin])
    return graph.constant(cos), graph.constant(sin)


def _rotate(graph: GraphBuilder, value: str, rope: tuple[str, str], head_dim: int) -> str:
    left = graph.slice(value, 0, head_dim // 2, axis=3)
    right = graph.slice(value, head_dim // 2, head_dim, axis=3)
    swapped = graph.op("Concat", right, left, axis=-1)
    return graph.op("Add", graph.op("Mul", value, rope[0]), graph.op("Mul", swapped, rope[1]))


def _layer_norm(graph: GraphBuilder, tensors: Tensors, name: str, value: str, eps: float) -> str:
    weight, bias = (graph.constant(_f64(tensors, f"{name}.{part}")) for part in ("weight", "bias"))
    return graph.op("LayerNormalization", value, weight, bias, axis=-1, epsilon=eps)


def _block(
    graph: GraphBuilder, spec: EncoderSpec, tensors: Tensors, index: int, stream: str, rope: tuple[str, str] | None
) -> str:
    """One pre-norm transformer block on (N,T,C)."""
    name = f"layer.{index}"
    normed = _layer_norm(graph, tensors, f"{name}.norm1", stream, spec.eps)
    stream = graph.op("Add", stream, _attention(graph, spec, tensors, name, normed, rope))
    normed = _layer_norm(graph, tensors, f"{name}.norm2", stream, spec.eps)
    hidden = graph.op("Gelu", graph.linear(normed, *_linear(tensors, f"{name}.mlp.up_proj")))
    scale = _f64(tensors, f"{name}.layer_scale2.lambda1")
    return graph.op("Add", stream, graph.linear(hidden, *_linear(tensors, f"{name}.mlp.down_proj", scale)))


def _linear(tensors: Tensors, name: str, scale: Array | float = 1.0) -> tuple[Array, Array]:
    """Weight and bias of a projection with its output multiplied by ``scale``."""
    weight, bias = _f64(tensors, f"{name}.weight"), _f64(tensors, f"{name}.bias")
    return weight * np.reshape(scale, (-1, 1)), bias * scale


def _attention(
    graph: GraphBuilder, spec: EncoderSpec, tensors: Tensors, name: str, normed: str, rope: tuple[str, str] | None
) -> str:
    heads, head_dim = spec.heads, spec.width // spec.heads

    def project(letter: str, scale: float = 1.0) -> str:
        flat = graph.linear(normed, *_linear(tensors, f"{name}.attention.{letter}_proj", scale))
        return graph.op("Transpose", graph.reshape(flat, 0, -1, heads, head_dim), perm=[0, 2, 1, 3])

    query, key, value = project("q", head_dim**-0.5), project("k"), project("v")
    if rope is not None:
        query, key = _rotate(graph, query, rope, head_dim), _rotate(graph, key, rope, head_dim)
    scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
    mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    merged = graph.reshape(graph.op("Transpose", mixed, perm=[0, 2, 1, 3]), 0, -1, spec.width)
    scale = _f64(tensors, f"{name}.layer_scale1.lambda1")
    return graph.linear(merged, *_linear(tensors, f"{name}.attention.o_proj", scale))
