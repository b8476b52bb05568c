"""Scoring inside the graph: one file from pixels to score and map, for a run time that has none of this package.

What :meth:`Dinosaur.inspect` computes for one task is added to the graph of an encoder, in float32 and in standard
operators. Before it, brightness is matched (:mod:`.exposure_graph`). Behind its tokens, blocks are combined (Eq. 4),
every patch is compared with the coresets around its place (Eq. 6-7), and the distances are pooled (Eq. 8); with several
readings, windows are compared too, and the readings are fused (:mod:`dinosaur_ad.core.readings`). As in
:mod:`dinosaur_ad.core.scoring`, the coreset of a location meets the patches around it, so that the bank is read once;
here two constant tables of indices do the gathering.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from dinosaur_ad.bank.bank import Memory, PackedVectors
from dinosaur_ad.core.exposure import Exposure
from dinosaur_ad.core.map_shape import RECTANGLES, place_of_rest
from dinosaur_ad.core.quantise import scaled_norms
from dinosaur_ad.core.readings import COARSE_RADIUS, LEAST, SPREAD, TOP, ReadingScale, spread_out, windows
from dinosaur_ad.core.zones import Zone
from dinosaur_ad.encoders.graph.forms import copied
from dinosaur_ad.encoders.graph.vit_graph import GraphBuilder
from dinosaur_ad.export.exposure_graph import add_exposure
from dinosaur_ad.presets import Preset

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

TINY = np.finfo(np.float32).tiny
END = 2**31 - 1
"""As the end of a slice: that of the axis."""


class GraphBank(NamedTuple):
    """What of a task goes into a graph: what images are compared with, what is usual for each reading where there are
    several, the exposure that images are matched to, where verdicts change, and what of an image is inspected."""

    memory: Memory
    threshold: float
    unknown_level: float = math.inf
    scale: ReadingScale | None = None
    exposure: Exposure | None = None
    zone: Zone | None = None


def add_bank(model: onnx.ModelProto, bank: GraphBank, preset: Preset, tail: int = 0) -> onnx.ModelProto:
    """The graph of an encoder with four more outputs; ``model`` itself stays as it is.

    Of a pair, the last ``tail`` channels of its tokens are those of the second network.

    ``score`` (N,) and ``map`` (N, H, W) are float32 and those of the detector. ``anomalous`` (N,) is whether the score
    exceeds the threshold, and ``unknown`` (N,) whether the image shows none of the learned products: where both are
    true, the detector's verdict is "unknown".
    """
    fused = copied(model) if bank.exposure is None else add_exposure(model, bank.exposure)
    packed = bank.memory.patches
    height, width = packed.values_HWMK.shape[:2]
    maker = GraphBuilder("score_")
    features = _combine(maker, preset, height * width, tail)
    if packed.basis_CK is not None:
        features = maker.op("MatMul", features, maker.constant(packed.basis_CK.astype(np.float32)))
    point = _distances(maker, features, packed, preset.radius, "bank")
    if bank.scale is None:
        inside = _inside(maker, point, bank.zone)
        maker.op("Reshape", inside, maker.constant(np.array([-1, height, width])), output="map")
        _pool(maker, inside, _inspected(height * width, bank.zone), preset.top, output="score")
        looked_at = point
    else:
        _add_readings(maker, features, point, bank, bank.scale, preset)
        looked_at = _only(maker, point, bank.zone)
    # Not "greater": a score that is no number must alarm.
    within = maker.op("LessOrEqual", "score", maker.constant(np.array(bank.threshold, np.float32)))
    maker.op("Not", within, output="anomalous")
    limit = maker.constant(np.array(bank.unknown_level, np.float32))
    patches = _inspected(height * width, bank.zone if bank.scale else None)
    maker.op("Greater", _median(maker, looked_at, patches), limit, output="unknown")
    fused.graph.node.extend(maker.nodes)
    fused.graph.initializer.extend(maker.constants)
    value = helper.make_tensor_value_info
    fused.graph.output.extend(
        [
            value("score", TensorProto.FLOAT, ["N"]),
            value("map", TensorProto.FLOAT, ["N", height, width]),
            value("anomalous", TensorProto.BOOL, ["N"]),
            value("unknown", TensorProto.BOOL, ["N"]),
        ]
    )
    return fused


def _combine(maker: GraphBuilder, preset: Preset, places: int, tail: int) -> str:
    """Tokens (N, H, W, K*C) to features (N, H*W, C), as :func:`~dinosaur_ad.core.features.combine_blocks` does it."""
    count, features, beside = len(preset.layers), "patches", ""
    if tail:
        flat = maker.reshape(features, 0, places, -1)
        features, beside = maker.slice(flat, 0, -tail, axis=2), maker.slice(flat, -tail, END, axis=2)
    averaged = preset.average and count > 1
    if preset.normalise or averaged:
        shape = maker.constant(np.array([0, places, count, -1]))
        features = maker.op("Reshape", features, shape)
    if preset.normalise:
        length = maker.op("ReduceL2", features, maker.axes(-1), keepdims=1)
        # A zero vector stays zero.
        features = maker.op("Div", features, maker.op("Max", length, maker.constant(np.array(TINY, np.float32))))
    if averaged:
        features = maker.op("ReduceMean", features, maker.axes(2), keepdims=0)
    features = maker.op("Reshape", features, maker.constant(np.array([0, places, -1])))
    return maker.op("Concat", features, beside, axis=-1) if tail else features


def _distances(maker: GraphBuilder, features: str, bank: PackedVectors, radius: int, name: str) -> str:
    """Features (N, L, C) to distances (N, L), for all L = H*W locations; the vectors are stored under ``name``."""
    height, width, members, channels = bank.values_HWMK.shape
    places, window = height * width, (2 * radius + 1) ** 2
    around_LS, back_LS = neighbourhoods(height, width, radius)
    by_place = maker.op("Transpose", features, perm=[1, 0, 2])
    gathered = maker.op("Gather", by_place, maker.constant(around_LS), axis=0)  # (L, S, N, C)
    patches = maker.op("Reshape", gathered, maker.constant(np.array([places, -1, channels])))
    # |x - c|² = |x|² - 2 (x·c - |c|²/2): the nearest member is the one with the largest bracket.
    products = maker.op("MatMul", patches, _bank_constant(maker, bank, name))
    half_norm_HWM = (scaled_norms(bank.values_HWMK, bank.scale_HW) / 2).astype(np.float32)
    bracket = maker.op("Sub", products, maker.constant(half_norm_HWM.reshape(places, 1, members)))
    found = maker.op("ReduceMax", bracket, maker.axes(-1), keepdims=0)  # (L, S*N)
    flat = maker.op("Reshape", found, maker.constant(np.array([places * window, -1])))
    returned = maker.op("Gather", flat, maker.constant(back_LS), axis=0)  # (L, S, N)
    best = maker.op("Transpose", maker.op("ReduceMax", returned, maker.axes(1), keepdims=0), perm=[1, 0])
    norms = maker.op("ReduceSumSquare", features, maker.axes(-1), keepdims=0)
    squared = maker.op("Sub", norms, maker.op("Add", best, best))
    return maker.op("Sqrt", maker.op("Relu", squared))


def _bank_constant(maker: GraphBuilder, bank: PackedVectors, name: str) -> str:
    """The bank (L, C, M) in float32, stored in its own precision; run times widen it once, when they load the file."""
    height, width, members, channels = bank.values_HWMK.shape
    values_LCM = bank.values_HWMK.reshape(height * width, members, channels).swapaxes(1, 2)
    stored = maker.constant(values_LCM, name)
    if bank.values_HWMK.dtype != np.float32:
        stored = maker.op("Cast", stored, to=TensorProto.FLOAT)
    if bank.scale_HW is None:
        return stored
    scale = maker.constant(bank.scale_HW.astype(np.float32).reshape(-1, 1, 1), f"{name}_scale")
    return maker.op("Mul", stored, scale)


def _pool(maker: GraphBuilder, distances: str, patches: int, top: float, output: str | None = None) -> str:
    """Distances (N, L) to image scores (N,), as :func:`~dinosaur_ad.core.pooling.pool` does it."""
    count = max(1, min(patches, round(top * patches)))
    if count == 1:
        return maker.op("ReduceMax", distances, maker.axes(1), keepdims=0, output=output)
    largest = maker.op("TopK", distances, maker.constant(np.array([count])), unused="where", axis=1)
    return maker.op("ReduceMean", largest, maker.axes(1), keepdims=0, output=output)


def _median(maker: GraphBuilder, distances: str, patches: int) -> str:
    """The median (N,) of distances (N, L)."""
    middle = 2 - patches % 2  # the mean of two, where their number is even
    count = patches // 2 + 1
    largest = maker.op("TopK", distances, maker.constant(np.array([count])), unused="where", axis=1)
    return maker.op("ReduceMean", maker.slice(largest, count - middle, count, axis=1), maker.axes(1), keepdims=0)


# --- several readings ---


def _add_readings(
    maker: GraphBuilder, features: str, point: str, bank: GraphBank, scale: ReadingScale, preset: Preset
) -> None:
    """The outputs ``score`` and ``map``, as :func:`~dinosaur_ad.core.readings.fuse` makes them."""
    height, width = scale.usual_HW.shape
    coarse = bank.memory.coarse
    scores, maps = [], []
    for name in preset.readings:
        distances, places = point, height * width
        if name == "located":
            share_L = np.sqrt(np.float32(scale.usual_HW.mean()) / scale.usual_HW).reshape(1, -1)
            distances = maker.op("Mul", point, maker.constant(share_L))
        elif name == "coarse":
            assert coarse is not None
            places = int(np.prod(coarse.values_HWMK.shape[:2]))
            averaged = _windows(maker, features, height, width)
            distances = _distances(maker, averaged, coarse, COARSE_RADIUS, "bank_coarse")
        distances = _inside(maker, distances, bank.zone, windows=name == "coarse")
        places = _inspected(places, bank.zone, windows=name == "coarse")
        scores.append(_pool(maker, distances, places, TOP[name]))
        maps.append(_spread_out(maker, distances, height, width) if name == "coarse" else distances)
    _fuse(maker, scores, scale, output="score")
    fused = _inside(maker, _fuse(maker, maps, scale, preset.map_softness), bank.zone)
    _shape(maker, fused, scale, preset, bank.zone)


# --- what is inspected ---


def _mask(zone: Zone, *, windows: bool) -> NDArray[np.bool_]:
    return zone.windows_hw if windows else zone.patches_HW


def _inside(maker: GraphBuilder, distances: str, zone: Zone | None, *, windows: bool = False) -> str:
    """Distances (N, L), zero outside a zone. Multiplied: what is no number stays none."""
    if zone is None:
        return distances
    return maker.op("Mul", distances, maker.constant(_mask(zone, windows=windows).reshape(1, -1).astype(np.float32)))


def _only(maker: GraphBuilder, distances: str, zone: Zone | None) -> str:
    """Distances (N, L) of the patches in a zone alone, (N, l)."""
    if zone is None:
        return distances
    return maker.op("Gather", distances, maker.constant(np.flatnonzero(zone.patches_HW)), axis=1)


def _inspected(places: int, zone: Zone | None, *, windows: bool = False) -> int:
    """How many of so many places are inspected."""
    return places if zone is None else int(_mask(zone, windows=windows).sum())


def _windows(maker: GraphBuilder, features: str, height: int, width: int) -> str:
    """Features (N, H*W, C) averaged over windows, (N, h*w, C): one product for the rows, one for the columns."""
    down_hH, right_wW = averaging(height), averaging(width)
    rows = maker.op("MatMul", maker.constant(down_hH), maker.reshape(features, 0, height, -1))
    grid = maker.reshape(rows, 0, len(down_hH), width, -1)
    return maker.reshape(maker.op("MatMul", maker.constant(right_wW), grid), 0, len(down_hH) * len(right_wW), -1)


def _spread_out(maker: GraphBuilder, distances: str, height: int, width: int) -> str:
    """Distances of windows (N, h*w) as those of patches (N, H*W)."""
    down_Hh, right_Ww = spreading(height), spreading(width)
    grid = maker.reshape(distances, -1, down_Hh.shape[1], right_Ww.shape[1])
    rows = maker.op("MatMul", maker.constant(down_Hh), grid)
    return maker.reshape(maker.op("MatMul", rows, maker.constant(right_Ww.T)), -1, height * width)


def averaging(side: int) -> Floats:
    """What :func:`~dinosaur_ad.core.readings.windows` does along one axis of ``side`` patches, as a matrix (h, H).

    >>> averaging(5).astype(float).round(2).tolist()
    [[0.33, 0.33, 0.33, 0.0, 0.0], [0.0, 0.0, 0.33, 0.33, 0.33]]
    """
    matrix_hH: Floats = windows(np.eye(side, dtype=np.float32)[None, :, None, :])[0, :, 0, :]
    return matrix_hH


def spreading(side: int) -> Floats:
    """What :func:`~dinosaur_ad.core.readings.spread_out` does along one axis of ``side`` patches, as a matrix (H, h).

    >>> spreading(5)[1:4].tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    """
    return spread_out(np.eye(len(averaging(side)), dtype=np.float32)[:, :, None], side, 1)[:, :, 0].T


def _fuse(
    maker: GraphBuilder, values: list[str], scale: ReadingScale, softness: float = 1.0, output: str | None = None
) -> str:
    """Readings of one shape as one, as :func:`~dinosaur_ad.core.readings.fuse_readings` does it."""
    deviations = []
    for value, mean, spread in zip(values, scale.mean_R, scale.spread_R, strict=True):
        logs = maker.op("Log", maker.op("Max", value, maker.constant(np.array(LEAST, np.float32))))
        above = maker.op("Sub", logs, maker.constant(np.array(mean, np.float32)))
        deviations.append(maker.op("Div", above, maker.constant(np.array(spread * np.float32(softness), np.float32))))
    highest = maker.op("Max", *deviations)
    mean_exp = maker.op("Mean", *(maker.op("Exp", maker.op("Sub", each, highest)) for each in deviations))
    fused = maker.op("Add", highest, maker.op("Log", mean_exp))
    unit = maker.constant(np.array(SPREAD * softness, np.float32))
    return maker.op("Exp", maker.op("Mul", fused, unit), output=output)


def _shape(maker: GraphBuilder, fused: str, scale: ReadingScale, preset: Preset, zone: Zone | None) -> None:
    """The output ``map`` of fused values (N, H*W), as :func:`~dinosaur_ad.core.map_shape.shaped` makes it."""
    height, width = scale.usual_HW.shape
    if preset.map_closing:
        gaps = maker.op("Neg", _highest(maker, maker.reshape(fused, -1, 1, height, width)))
        closed = maker.reshape(maker.op("Neg", _highest(maker, gaps)), -1, height * width)
        fused = maker.op("Mul", _power(maker, fused, 1 - preset.map_closing), _power(maker, closed, preset.map_closing))
        fused = _inside(maker, fused, zone)
    if preset.map_relative and scale.map_rest > 0:
        places = _inspected(height * width, zone)
        count = places - place_of_rest(places)
        largest = maker.op("TopK", _only(maker, fused, zone), maker.constant(np.array([count])), unused="where", axis=1)
        own = maker.slice(largest, count - 1, count, axis=1)
        share = maker.op("Div", own, maker.constant(np.array(scale.map_rest, np.float32)))
        fused = maker.op("Mul", fused, _power(maker, share, -preset.map_relative))
    maker.reshape(fused, -1, height, width, output="map")


def _highest(maker: GraphBuilder, maps: str) -> str:
    """At each place of maps (N, 1, H, W) the highest value in the disc around it."""
    found = [
        maker.op("MaxPool", maps, kernel_shape=[2 * down + 1, 2 * right + 1], pads=[down, right, down, right])
        for down, right in RECTANGLES
    ]
    return maker.op("Max", *found)


def _power(maker: GraphBuilder, values: str, exponent: float) -> str:
    return maker.op("Pow", values, maker.constant(np.array(exponent, np.float32)))


# --- places ---


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
