"""Eq. 6-7: how far each patch is from everything normal that was seen near its place.

Patch ``(i, j)`` is compared with the coresets of all locations within ``radius`` rows and columns. Turned around,
the coreset of a location is compared with the patches around it: small matrix products per location, which read
the bank once and compute no distance that is not needed. Each patch then keeps the best of what its neighbours
found.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dinosaur_ad.core.arrays import Array, device_of, is_numpy, namespace, squared_norms
from dinosaur_ad.core.quantise import scaled_norms, widen
from dinosaur_ad.core.threads import MOST_THREADS, in_threads, usable_threads

# Patches gathered and products held at a time, by all threads; a thread's share is about what a CPU's cache holds for
# it. A GPU wants long products instead.
WORK_BYTES, GPU_WORK_BYTES = MOST_THREADS * 8 * 2**20, 2**30
ANYWHERE = 1024
"""The radius of a memory whose places do not count: every patch is compared with the patches of all of them."""
# Blocks of rows that NumPy's threads take one by one: enough for a slow thread to take fewer.
BLOCKS = 8
# Multiplications for each thread below which sharing them takes longer than doing them.
WORTH_A_THREAD = 2**23
# Multiplications that BLAS does on the calling thread: OpenBLAS divides a product by 2**18 to see how many threads it
# is worth, and rounds down.
QUIET_PRODUCT = 2**19 - 1


def patch_distances(
    tokens_NHWC: Array,
    bank_HWMC: Array,
    radius: int,
    *,
    scale_HW: Array | None = None,
    half_norm_HWM: Array | None = None,
    work_bytes: int | None = None,
    threads: int | None = None,
) -> Array:
    """Distance ``(N, H, W)`` of every patch to its nearest remembered patch within ``radius`` of its location.

    The bank may hold float16 vectors, or int8 codes with the ``scale_HW`` that :func:`~dinosaur_ad.core.quantise`
    gave them; it is widened to float32 a few rows at a time, and never as a whole unless it is small.
    ``half_norm_HWM`` is ``|c|²/2`` of the bank, computed here unless the caller keeps it. ``work_bytes`` bounds what
    is gathered and multiplied at a time, however many images there are (unless given, by what suits the device).
    ``threads`` bounds the threads NumPy's work is shared by (unless given, by the cores of this process); the distances
    are the same whatever their number.

    >>> tokens, bank = np.zeros((1, 2, 2, 3)), np.ones((2, 2, 5, 3))
    >>> patch_distances(tokens, bank, radius=1).round(3).tolist()
    [[[1.732, 1.732], [1.732, 1.732]]]
    """
    xp = namespace(tokens_NHWC, bank_HWMC)
    if half_norm_HWM is None:
        half_norm_HWM = scaled_norms(bank_HWMC, scale_HW) / 2
    if radius >= ANYWHERE:
        return _distances_anywhere(tokens_NHWC, bank_HWMC, scale_HW, half_norm_HWM, threads)
    images, rows = _at_once(tokens_NHWC, bank_HWMC, radius, work_bytes)
    parts = [
        _patch_distances(part_NHWC, bank_HWMC, scale_HW, half_norm_HWM, radius, rows, threads)
        for part_NHWC in (tokens_NHWC[start : start + images] for start in range(0, tokens_NHWC.shape[0], images))
    ]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def _at_once(tokens_NHWC: Array, bank_HWMC: Array, radius: int, work_bytes: int | None) -> tuple[int, int]:
    """How many images, and how many rows of the bank, one thread takes at a time.

    The number of threads decides neither, so that one thread and four compute, and round, the same products.
    """
    on_cpu = is_numpy(tokens_NHWC)
    if work_bytes is None:
        work_bytes = WORK_BYTES if on_cpu else GPU_WORK_BYTES
    share = work_bytes // MOST_THREADS if on_cpu else work_bytes
    count, height, width, channels = tokens_NHWC.shape
    row_bytes = width * (2 * radius + 1) ** 2 * (channels + bank_HWMC.shape[2]) * tokens_NHWC.itemsize
    # Many images before many rows: the more images share a location's product, the less often the bank is read.
    images = min(count, max(1, share // row_bytes))
    widened = 0 if bank_HWMC.dtype == tokens_NHWC.dtype else math.prod(bank_HWMC.shape[1:]) * tokens_NHWC.itemsize
    rows = share // (images * row_bytes + widened)
    return images, max(1, min(rows, math.ceil(height / BLOCKS)) if on_cpu else rows)


def _patch_distances(
    tokens_NHWC: Array,
    bank_HWMC: Array,
    scale_HW: Array | None,
    half_norm_HWM: Array,
    radius: int,
    step: int,
    threads: int | None,
) -> Array:
    """The distances of all the images at once, ``step`` rows of the bank at a time."""
    xp = namespace(tokens_NHWC, bank_HWMC)
    images, height, width, channels = tokens_NHWC.shape
    side = 2 * radius + 1
    padded_HWNC = xp.zeros(
        (height + 2 * radius, width + 2 * radius, images, channels),
        dtype=tokens_NHWC.dtype,
        device=device_of(tokens_NHWC),
    )
    padded_HWNC[radius : radius + height, radius : radius + width] = xp.permute_dims(tokens_NHWC, (1, 2, 0, 3))
    found_HWSN = xp.empty((height, width, side**2, images), dtype=tokens_NHWC.dtype, device=device_of(tokens_NHWC))

    def find(top: int) -> None:
        bottom = min(height, top + step)
        around_hWSNC = xp.stack(
            [padded_HWNC[top + i : bottom + i, j : j + width] for i in range(side) for j in range(side)],
            axis=2,
        )
        patches_hWPC = xp.reshape(around_hWSNC, (bottom - top, width, side**2 * images, channels))
        # |x - c|² = |x|² - 2 (x·c - |c|²/2): the nearest member is the one with the largest bracket.
        products_hWPM = products(patches_hWPC, widen(bank_HWMC[top:bottom]))
        if scale_HW is not None:
            products_hWPM *= scale_HW[top:bottom, :, None, None]
        products_hWPM -= half_norm_HWM[top:bottom, :, None, :]
        found_HWSN[top:bottom] = xp.reshape(xp.max(products_hWPM, axis=-1), (bottom - top, width, side**2, images))

    multiplications = math.prod(bank_HWMC.shape) * side**2 * images
    in_threads(find, range(0, height, step), _threads(threads, multiplications) if is_numpy(tokens_NHWC) else 1)
    squared_NHW = squared_norms(tokens_NHWC) - 2 * xp.permute_dims(_best(found_HWSN, radius), (2, 0, 1))
    return xp.sqrt(xp.maximum(squared_NHW, xp.zeros_like(squared_NHW)))


def _distances_anywhere(
    tokens_NHWC: Array, bank_HWMC: Array, scale_HW: Array | None, half_norm_HWM: Array, threads: int | None
) -> Array:
    """The distances of all patches to their nearest remembered patch, wherever that is."""
    xp = namespace(tokens_NHWC, bank_HWMC)
    images, height, width, channels = tokens_NHWC.shape
    patches_11PC = xp.reshape(tokens_NHWC, (1, 1, images * height * width, channels))
    rows, columns = bank_HWMC.shape[:2]
    found_HP = xp.full(
        (rows, images * height * width), -float("inf"), dtype=tokens_NHWC.dtype, device=device_of(tokens_NHWC)
    )

    def find(row: int) -> None:
        bank_WMC = widen(bank_HWMC[row])
        for column in range(columns):
            products_PM = products(patches_11PC, bank_WMC[None, column : column + 1])[0, 0]
            if scale_HW is not None:
                products_PM *= scale_HW[row, column]
            products_PM -= half_norm_HWM[row, column]
            found_HP[row] = xp.maximum(found_HP[row], xp.max(products_PM, axis=-1))

    multiplications = math.prod(bank_HWMC.shape) * images * height * width
    in_threads(find, range(rows), _threads(threads, multiplications) if is_numpy(tokens_NHWC) else 1)
    best_NHW = xp.reshape(xp.max(found_HP, axis=0), (images, height, width))
    squared_NHW = squared_norms(tokens_NHWC) - 2 * best_NHW
    return xp.sqrt(xp.maximum(squared_NHW, xp.zeros_like(squared_NHW)))


def _threads(requested: int | None, multiplications: int) -> int:
    """The requested number, or one for each core; fewer where the work is too little to share."""
    return max(1, min(requested or usable_threads(), multiplications // WORTH_A_THREAD))


def _best(found_HWSN: Array, radius: int) -> Array:
    """Per patch ``(H, W, N)`` the largest of what the locations around it found for it, each at its own shift."""
    xp = namespace(found_HWSN)
    height, width, shifts, _ = found_HWSN.shape
    side = 2 * radius + 1
    best_HWN = xp.full_like(found_HWSN[:, :, 0], -float("inf"))
    for shift in range(shifts):
        down, right = shift // side - radius, shift % side - radius
        rows = slice(max(0, down), min(height, height + down))
        columns = slice(max(0, right), min(width, width + right))
        if rows.start < rows.stop and columns.start < columns.stop:
            found_rows = slice(rows.start - down, rows.stop - down)
            found_columns = slice(columns.start - right, columns.stop - right)
            best_HWN[rows, columns] = xp.maximum(best_HWN[rows, columns], found_HWSN[found_rows, found_columns, shift])
    return best_HWN


def products(patches_hWPC: Array, bank_hWMC: Array) -> Array:
    """Products ``(h, W, P, M)`` of each location's patches with its coreset.

    NumPy's BLAS wakes its threads for every product above a certain size, however short, and waits for them: on a busy
    machine that takes ten times as long as the product. So NumPy gets the patches in groups that stay below it.
    """
    xp = namespace(patches_hWPC)
    bank_hWCM = xp.matrix_transpose(bank_hWMC)
    if not is_numpy(patches_hWPC):
        return patches_hWPC @ bank_hWCM
    rows, width, patches, channels = patches_hWPC.shape
    members = bank_hWMC.shape[2]
    most = max(1, QUIET_PRODUCT // (members * channels))
    group = max(size for size in range(1, min(most, patches) + 1) if patches % size == 0)
    grouped = xp.reshape(patches_hWPC, (rows, width, patches // group, group, channels))
    return xp.reshape(grouped @ bank_hWCM[:, :, None], (rows, width, patches, members))


class NearestPatch(NamedTuple):
    """Which remembered patch a test patch was compared with: its location, its place in that coreset, the distance."""

    row: int
    column: int
    member: int
    distance: float


def nearest_patch(
    token_C: Array, bank_HWMC: Array, row: int, column: int, radius: int, *, scale_HW: Array | None = None
) -> NearestPatch:
    """The remembered patch that decided the score of the patch at ``(row, column)``.

    >>> bank = np.zeros((3, 3, 2, 1)); bank[2, 1, 1] = 5.0
    >>> nearest_patch(np.asarray([6.0]), bank, 1, 1, radius=1)
    NearestPatch(row=2, column=1, member=1, distance=1.0)
    """
    xp = namespace(token_C, bank_HWMC)
    top, left = max(0, row - radius), max(0, column - radius)
    window = slice(top, row + radius + 1), slice(left, column + radius + 1)
    window_hwMC = widen(bank_HWMC[window])
    if scale_HW is not None:
        window_hwMC = window_hwMC * scale_HW[window][:, :, None, None]
    squared_hwM = squared_norms(window_hwMC - token_C)
    flat = int(xp.argmin(xp.reshape(squared_hwM, (-1,))))
    i, j, member = (int(k) for k in np.unravel_index(flat, tuple(squared_hwM.shape)))
    return NearestPatch(top + i, left + j, member, float(squared_hwM[i, j, member]) ** 0.5)
