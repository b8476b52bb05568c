"""Eq. 6-7: how far each patch is from everything normal that was seen near its place.

Patch ``(i, j)`` is compared with the coresets of all locations within ``radius`` rows and columns. Neighbouring patches
share most of that neighbourhood, so the grid is cut in tiles: one matrix product compares all patches of a tile with the
union of their neighbourhoods, and a mask keeps each patch to its own window.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dinosaur_ad.core.arrays import Array, like, namespace, squared_norms

# Products held at a time; about a CPU's last-level cache, which is where the reduction over them should find them.
PRODUCT_BYTES = 16 * 2**20


def patch_distances(
    tokens_NHWC: Array,
    bank_HWMC: Array,
    radius: int,
    *,
    half_norm_HWM: Array | None = None,
    tile: int | None = None,
    product_bytes: int = PRODUCT_BYTES,
) -> Array:
    """Distance ``(N, H, W)`` of every patch to its nearest remembered patch within ``radius`` of its location.

    ``half_norm_HWM`` is ``|c|²/2`` of the bank, computed here unless the caller keeps it; an infinite entry hides that
    member. ``tile`` (side of the square of patches compared at once) and ``product_bytes`` change speed and memory, never
    the result.

    >>> tokens, bank = np.zeros((1, 2, 2, 3)), np.ones((2, 2, 5, 3))
    >>> patch_distances(tokens, bank, radius=1).round(3).tolist()
    [[[1.732, 1.732], [1.732, 1.732]]]
    """
    xp = namespace(tokens_NHWC, bank_HWMC)
    images, height, width, _ = tokens_NHWC.shape
    memory = bank_HWMC.shape[2]
    if half_norm_HWM is None:
        half_norm_HWM = squared_norms(bank_HWMC) / 2
    # Small tiles waste least, but a product needs enough rows to be fast: many images give them, one image does not.
    tile = tile or max(1, min(8, round((64 / images) ** 0.5)))
    window = min(height, tile + 2 * radius) * min(width, tile + 2 * radius)
    step = max(1, product_bytes // (tile * tile * window * memory * tokens_NHWC.itemsize))
    batches = []
    for start in range(0, images, step):
        batch_NHWC = tokens_NHWC[start : start + step]
        rows = [
            xp.concat(
                [
                    _tile_products(batch_NHWC, bank_HWMC, half_norm_HWM, radius, top, left, tile)
                    for left in range(0, width, tile)
                ],
                axis=2,
            )
            for top in range(0, height, tile)
        ]
        squared_NHW = squared_norms(batch_NHWC) - 2 * xp.concat(rows, axis=1)
        batches.append(xp.sqrt(xp.maximum(squared_NHW, xp.zeros_like(squared_NHW))))
    return xp.concat(batches, axis=0)


def _tile_products(
    tokens_NHWC: Array, bank_HWMC: Array, half_norm_HWM: Array, radius: int, top: int, left: int, tile: int
) -> Array:
    """``max over the neighbourhood of (x·c - |c|²/2)``, from which ``|x - c|² = |x|² - 2 max``; one tile, ``(N, h, w)``."""
    xp = namespace(tokens_NHWC, bank_HWMC)
    height, width, memory, channels = bank_HWMC.shape
    bottom, right = min(height, top + tile), min(width, left + tile)
    rows = slice(max(0, top - radius), min(height, bottom + radius))
    columns = slice(max(0, left - radius), min(width, right + radius))

    tile_NhwC = tokens_NHWC[:, top:bottom, left:right]
    patches_PC = xp.reshape(tile_NhwC, (-1, channels))
    # A slice over columns keeps (column, vector) mergeable, so this is a view and the bank is never copied.
    window_RKC = xp.reshape(bank_HWMC[rows, columns], (rows.stop - rows.start, -1, channels))
    half_RK = xp.reshape(half_norm_HWM[rows, columns], (rows.stop - rows.start, -1))
    products_RPK = patches_PC[None] @ xp.matrix_transpose(window_RKC) - half_RK[:, None, :]
    products_RPWM = xp.reshape(products_RPK, (*products_RPK.shape[:2], -1, memory))
    best_RPW = xp.max(products_RPWM, axis=-1)

    near_row_Rh = np.abs(np.arange(rows.start, rows.stop)[:, None] - np.arange(top, bottom)[None]) <= radius
    near_column_wW = np.abs(np.arange(left, right)[:, None] - np.arange(columns.start, columns.stop)[None]) <= radius
    near_RhwW = like(near_row_Rh[:, :, None, None] & near_column_wW[None, None], bank_HWMC)
    shape = (best_RPW.shape[0], tokens_NHWC.shape[0], bottom - top, right - left, best_RPW.shape[2])
    best_RNhwW = xp.where(near_RhwW[:, None], xp.reshape(best_RPW, shape), -float("inf"))
    return xp.max(xp.max(best_RNhwW, axis=-1), axis=0)


class NearestPatch(NamedTuple):
    """Which remembered patch a test patch was compared with: its location, its place in that coreset, the distance."""

    row: int
    column: int
    member: int
    distance: float


def nearest_patch(token_C: Array, bank_HWMC: Array, row: int, column: int, radius: int) -> NearestPatch:
    """The remembered patch that decided the score of the patch at ``(row, column)``.

    >>> bank = np.zeros((3, 3, 2, 1)); bank[2, 1, 1] = 5.0
    >>> nearest_patch(np.asarray([6.0]), bank, 1, 1, radius=1)
    NearestPatch(row=2, column=1, member=1, distance=1.0)
    """
    xp = namespace(token_C, bank_HWMC)
    top, left = max(0, row - radius), max(0, column - radius)
    window_hwMC = bank_HWMC[top : row + radius + 1, left : column + radius + 1]
    squared_hwM = squared_norms(window_hwMC - token_C)
    flat = int(xp.argmin(xp.reshape(squared_hwM, (-1,))))
    i, j, member = (int(k) for k in np.unravel_index(flat, tuple(squared_hwM.shape)))
    return NearestPatch(top + i, left + j, member, float(squared_hwM[i, j, member]) ** 0.5)
