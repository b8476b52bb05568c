"""Scoring inside the graph: one file from pixels to score and map, for a run time that has none of this package.

What :meth:`Dinosaur.inspect` computes for one task is added behind the tokens, in float32 and in standard operators:
blocks are combined (Eq. 4), every patch is compared with the coresets around its place (Eq. 6-7), and the distances
are pooled (Eq. 8). As in :mod:`dinosaur_ad.core.scoring`, the coreset of a location meets the patches around it, so
that the bank is read once; here two constant tables of indices do the gathering.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from dinosaur_ad.bank.bank import PackedVectors
from dinosaur_ad.core.quantise import scaled_norms
from dinosaur_ad.encoders.graph.forms import copied
from dinosaur_ad.encoders.graph.vit_graph import GraphBuilder
from dinosaur_ad.presets import Preset

Indices = NDArray[np.int64]

TINY = np.finfo(np.float32).tiny


def add_bank(model: onnx.ModelProto, bank: PackedVectors, preset: Preset, threshold: float) -> onnx.ModelProto:
    """The graph of an encoder with three more outputs; ``model`` itself stays as it is.

    ``score`` (N,) and ``map`` (N, H, W) are float32 and those of the detector; ``anomalous`` (N,) is whether the score
    exceeds ``threshold``.
    """
    fused = copied(model)
    side = bank.values_HWMK.shape[0]
    maker = GraphBuilder("score_")
    features = _combine(maker, preset, side)
    if bank.basis_CK is not None:
        features = maker.op("MatMul", features, maker.constant(bank.basis_CK.astype(np.float32)))
    distances = _distances(maker, features, bank, preset.radius)
    maker.op("Reshape", distances, maker.constant(np.array([-1, side, side])), output="map")
    _pool(maker, distances, side * side, preset.top)
    # Not "greater": a score that is no number must alarm.
    within = maker.op("LessOrEqual", "score", maker.constant(np.array(threshold, np.float32)))
    maker.op("Not", within, output="anomalous")
    fused.graph.node.extend(maker.nodes)
    fused.graph.initializer.extend(maker.constants)
    value = helper.make_tensor_value_info
    fused.graph.output.extend(
        [
            value("score", TensorProto.FLOAT, ["N"]),
            value("map", TensorProto.FLOAT, ["N", side, side]),
            value("anomalous", TensorProto.BOOL, ["N"]),
        ]
    )
    return fused


def _combine(maker: GraphBuilder, preset: Preset, side: int) -> str:
    """Tokens (N, H, W, K*C) to features (N, H*W, C), as :func:`~dinosaur_ad.core.features.combine_blocks` does it."""
    count, features = len(preset.layers), "patches"
    averaged = preset.average and count > 1
    if preset.normalise or averaged:
        shape = maker.constant(np.array([0, side * side, count, -1]))
        features = maker.op("Reshape", features, shape)
    if preset.normalise:
        length = maker.op("ReduceL2", features, maker.axes(-1), keepdims=1)
        # A zero vector stays zero.
        features = maker.op("Div", features, maker.op("Max", length, maker.constant(np.array(TINY, np.float32))))
    if averaged:
        features = maker.op("ReduceMean", features, maker.axes(2), keepdims=0)
    return maker.op("Reshape", features, maker.constant(np.array([0, side * side, -1])))


def _distances(maker: GraphBuilder, features: str, bank: PackedVectors, radius: int) -> str:
    """Features (N, L, C) to distances (N, L), for all L = H*W locations."""
    height, width, members, channels = bank.values_HWMK.shape
    places, window = height * width, (2 * radius + 1) ** 2
    around_LS, back_LS = neighbourhoods(height, width, radius)
    by_place = maker.op("Transpose", features, perm=[1, 0, 2])
    gathered = maker.op("Gather", by_place, maker.constant(around_LS), axis=0)  # (L, S, N, C)
    patches = maker.op("Reshape", gathered, maker.constant(np.array([places, -1, channels])))
    # |x - c|² = |x|² - 2 (x·c - |c|²/2): the nearest member is the one with the largest bracket.
    products = maker.op("MatMul", patches, _bank_constant(maker, bank))
    half_norm_HWM = (scaled_norms(bank.values_HWMK, bank.scale_HW) / 2).astype(np.float32)
    bracket = maker.op("Sub", products, maker.constant(half_norm_HWM.reshape(places, 1, members)))
    found = maker.op("ReduceMax", bracket, maker.axes(-1), keepdims=0)  # (L, S*N)
    flat = maker.op("Reshape", found, maker.constant(np.array([places * window, -1])))
    returned = maker.op("Gather", flat, maker.constant(back_LS), axis=0)  # (L, S, N)
    best = maker.op("Transpose", maker.op("ReduceMax", returned, maker.axes(1), keepdims=0), perm=[1, 0])
    norms = maker.op("ReduceSumSquare", features, maker.axes(-1), keepdims=0)
    squared = maker.op("Sub", norms, maker.op("Add", best, best))
    return maker.op("Sqrt", maker.op("Relu", squared))


def _bank_constant(maker: GraphBuilder, bank: PackedVectors) -> str:
    """The bank (L, C, M) in float32, stored in its own precision; run times widen it once, when they load the file."""
    height, width, members, channels = bank.values_HWMK.shape
    values_LCM = bank.values_HWMK.reshape(height * width, members, channels).swapaxes(1, 2)
    stored = maker.constant(values_LCM, "bank")
    if bank.values_HWMK.dtype != np.float32:
        stored = maker.op("Cast", stored, to=TensorProto.FLOAT)
    if bank.scale_HW is None:
        return stored
    scale = maker.constant(bank.scale_HW.astype(np.float32).reshape(-1, 1, 1), "bank_scale")
    return maker.op("Mul", stored, scale)


def _pool(maker: GraphBuilder, distances: str, patches: int, top: float) -> None:
    """Distances (N, L) to the output ``score``, as :func:`~dinosaur_ad.core.pooling.pool` does it."""
    count = min(patches, max(1, round(top * patches)))
    if count == 1:
        maker.op("ReduceMax", distances, maker.axes(1), keepdims=0, output="score")
        return
    largest = maker.op("TopK", distances, maker.constant(np.array([count])), unused="where", axis=1)
    maker.op("ReduceMean", largest, maker.axes(1), keepdims=0, output="score")


def neighbourhoods(height: int, width: int, radius: int) -> tuple[Indices, Indices]:
    """Which patches a location's coreset meets, and where each patch finds what was found for it, both (L, S).

    The first table names, for every location and each of the S shifts, the patch there. The second names, for every
    patch and shift, the row ``location * S + shift`` of what the coreset at the other end of that shift found. Beyond
    the border the first repeats an edge patch, which the second never refers to: it refers to the patch's
    own location again, which does not change the maximum.

    >>> around, back = neighbourhoods(1, 2, 1)
    >>> around.shape, back[0].tolist()
    ((2, 9), [4, 4, 4, 12, 4, 4, 4, 4, 4])
    """
    steps = np.arange(-radius, radius + 1)
    down_S, right_S = (each.ravel() for each in np.meshgrid(steps, steps, indexing="ij"))
    row_L, column_L = (each.ravel() for each in np.indices((height, width)))
    row_LS, column_LS = row_L[:, None] + down_S, column_L[:, None] + right_S
    around_LS = row_LS.clip(0, height - 1) * width + column_LS.clip(0, width - 1)
    row_LS, column_LS = row_L[:, None] - down_S, column_L[:, None] - right_S
    inside_LS = (row_LS >= 0) & (row_LS < height) & (column_LS >= 0) & (column_LS < width)
    shifts = len(down_S)
    own_L1 = (np.arange(height * width) * shifts + shifts // 2)[:, None]
    back_LS = np.where(inside_LS, (row_LS * width + column_LS) * shifts + np.arange(shifts), own_L1)
    return around_LS.astype(np.int64), back_LS.astype(np.int64)
