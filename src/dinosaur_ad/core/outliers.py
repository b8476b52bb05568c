"""Signs that an image does not belong among the normal images of a product.

All limits were measured on seven sets of normal images (five products of MVTec AD, juice_bottle of MVTec LOCO, magnetic
tiles) with the default encoder, in 50 to 700 random draws of each size: docs/start/teaching.md has the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

FEWEST_IMAGES = 6
"""Fewer images are not compared with each other: too few to estimate what is usual."""
BLANK_RANGE = 8
"""Grey levels that 99 % of the pixels of a blank image lie within; photos have 48 or more."""
MASK_SHARE = 0.95
"""Share of black and white pixels from which on an image may be a mask (masks .97 or more, photos at most .57)."""
PHOTO_SHARE = 0.75
"""Share of black and white pixels up to which an image is certainly a photo."""
SCORE_RATIO = 2.0
"""A calibration score that many times the median is suspicious; clean sets reach 1.7."""
DEVIATIONS = 3.0
"""Among pictures that nobody has looked at, a score so many deviations of the others above their mean is suspicious."""
FLAGGED_RATIO = 1.5
"""A score that many times the threshold is suspicious; normal images reach 1.3."""

CONTROL_SHARE = 0.75
"""Share of the median patch distance of pictures without a product from which on an image may show something else.
Images of other products begin at .79, normal images reach .45 and for textures .76."""
LOST_RATIO = 1.15
"""By which factor an update may raise the threshold above what pictures without a product score."""
FEWEST_TO_SPLIT = 20
"""Of fewer images two groups are no reason to refuse them: by chance there often are."""
SPLIT_RATIO = 5.5
"""Two groups whose means lie that many times farther apart than images from the mean of their group are two products.
Clean sets reach 2.3, and images that differ in nothing but brightness 5.3."""
GAP = 1.25
"""Two groups lie that many times farther apart than any image from its nearest neighbour."""
NEARER = 0.7
"""An image belongs to another task only if its descriptor lies that much nearer to it than to its own."""
OUTSIDE = 2.0
"""An image of a set belongs to another task only if it lies that many times farther from the middle of the set than the
median image: two conditions of one product overlap."""
ODD_HELD_OUT = 2.0
"""A held-out image must lie that many times farther from those that are learned than the median one, unless that lies
too far itself: images of another camera all lie farther."""
TWIN_CELLS, TWIN_SMOOTH = 64, 5
"""Cells a side of the grey images that are compared to find the same picture twice, and cells a side of their mean."""
TWIN_DIFFERENCE = 1.5
"""Grey levels that two pictures of the same scene differ by at the most; different parts differ by 2.1 or more. A
picture saved anew as a JPEG reaches 1.5 (of quality 40), one with noise of 5 levels 1.5."""
TWIN_LIKENESS = 0.9
"""How alike the details of two pictures of the same scene are at the least, as a correlation; saved anew as a JPEG of
quality 40, they have 0.93 or more. Plain surfaces differ little between parts, but their details are not alike."""
CLOSEST = 0.05
"""Distances of descriptors below that share of their length count as that, so that twins do not set the scale."""


def grey_histogram(pixels_HWC: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The number of pixels of each of the 256 grey levels of an RGB image.

    >>> grey_histogram(np.full((2, 3, 3), 128, np.uint8))[127:130].tolist()
    [0, 6, 0]
    """
    red_HW, green_HW, blue_HW = (pixels_HWC[:, :, channel].astype(np.uint16) for channel in range(3))
    histogram: NDArray[np.int64] = np.bincount(((red_HW + green_HW + blue_HW) // 3).ravel(), minlength=256)
    return histogram


def grey_range(histogram: NDArray[np.int64]) -> int:
    """The number of grey levels that the middle 99 % of the pixels span.

    >>> grey_range(grey_histogram(np.full((20, 20, 3), 128, np.uint8)))
    0
    """
    low, high = np.searchsorted(np.cumsum(histogram) / histogram.sum(), (0.005, 0.995))
    return int(high - low)


def black_and_white(histogram: NDArray[np.int64]) -> float:
    """The share of pixels within 8 grey levels of black or white.

    >>> black_and_white(grey_histogram(np.asarray([[[0, 0, 0], [255, 255, 255], [3, 3, 3], [90, 90, 90]]], np.uint8)))
    0.75
    """
    return float((histogram[:9].sum() + histogram[-9:].sum()) / histogram.sum())


def twins(pixels: Sequence[NDArray[np.uint8]]) -> NDArray[np.intp]:
    """For each image (H, W, 3) the first one before it that shows nearly the same picture, ``(N,)``; -1 without any.

    >>> random = np.random.default_rng(0)
    >>> one, other = random.integers(0, 256, (2, 70, 70, 3), np.uint8)
    >>> twins([one, other, one // 2 * 2]).tolist()
    [-1, -1, 0]
    """
    if not len(pixels):
        return np.empty(0, np.intp)
    cells = [_grey_cells(each) for each in pixels]
    cells_NP = np.stack([each.ravel() for each in cells])
    detail_NP = np.stack([_without_mean(each).ravel() for each in cells])
    detail_NP /= np.maximum(np.linalg.norm(detail_NP, axis=1, keepdims=True), 1e-6)
    near_NN = pairwise_distances(cells_NP) <= TWIN_DIFFERENCE * math.sqrt(cells_NP.shape[1])
    near_NN &= detail_NP @ detail_NP.T >= TWIN_LIKENESS
    before_NN = np.tril(near_NN, -1)
    return np.where(before_NN.any(axis=1), before_NN.argmax(axis=1), -1)


def _grey_cells(pixels_HWC: NDArray[np.uint8]) -> Floats:
    """The mean grey of each of 64 x 64 cells of an image, or of each pixel of a smaller one."""
    rows, columns = (np.arange(cells := min(TWIN_CELLS, side)) * side // cells for side in pixels_HWC.shape[:2])
    grey_HW = pixels_HWC.mean(axis=2, dtype=np.float32)
    sums_HW = np.add.reduceat(np.add.reduceat(grey_HW, rows, axis=0), columns, axis=1)
    heights, widths = np.diff(np.append(rows, grey_HW.shape[0])), np.diff(np.append(columns, grey_HW.shape[1]))
    cells_HW: Floats = (sums_HW / (heights[:, None] * widths[None, :])).astype(np.float32)
    return cells_HW


def _without_mean(cells_HW: Floats) -> Floats:
    """Cells without the mean of those around each: what is left is detail."""
    height, width = cells_HW.shape
    padded_HW = np.pad(cells_HW, TWIN_SMOOTH // 2, mode="edge")
    windows_HWkk = np.lib.stride_tricks.sliding_window_view(padded_HW, (TWIN_SMOOTH, TWIN_SMOOTH))
    detail_HW: Floats = cells_HW - windows_HWkk.mean(axis=(2, 3)).reshape(height, width)
    return detail_HW


def neighbour_ratios(descriptor_NC: Floats) -> Floats:
    """How far each image lies from a quarter of the others, relative to the median image, ``(N,)``.

    The distance to the nearest quarter is large for an image of something else, even if there are a few of that kind.
    """
    distance_NN = pairwise_distances(descriptor_NC)
    np.fill_diagonal(distance_NN, np.inf)
    count = max(1, int(np.ceil((len(distance_NN) - 1) / 4)))
    reach_N = np.partition(distance_NN, count - 1, axis=1)[:, count - 1]
    usual = max(float(np.median(reach_N)), CLOSEST * float(np.linalg.norm(descriptor_NC.mean(axis=0))))
    ratio_N: Floats = reach_N / usual if usual > 0 else np.ones_like(reach_N)
    return ratio_N


def ratios_to(descriptor_NC: Floats, learned_MC: Floats) -> Floats:
    """As :func:`neighbour_ratios`, how far other images lie from a quarter of those that are learned, ``(N,)``."""
    among_MM = pairwise_distances(learned_MC)
    np.fill_diagonal(among_MM, np.inf)
    count = max(1, int(np.ceil((len(learned_MC) - 1) / 4)))
    usual = float(np.median(np.partition(among_MM, count - 1, axis=1)[:, count - 1]))
    usual = max(usual, CLOSEST * float(np.linalg.norm(learned_MC.mean(axis=0))))
    across_NM = pairwise_distances(np.concatenate([descriptor_NC, learned_MC]))[
        : len(descriptor_NC), len(descriptor_NC) :
    ]
    reach_N = np.partition(across_NM, count - 1, axis=1)[:, count - 1]
    ratio_N: Floats = reach_N / usual if usual > 0 else np.ones_like(reach_N)
    return ratio_N


def highest_neighbour_ratio(images: int) -> float:
    """The neighbour ratio above which an image is an outlier; clean sets of 6, 10, 20, 100 reach 2.8, 2.1, 2.1, 2.0.

    Images that differ in one respect only, such as brightness, reach 3.1, 3.1, 2.6, 2.2.

    >>> highest_neighbour_ratio(20)
    3.0
    """
    return 2.6 + 8 / images


def highest_split_ratio(images: int) -> float:
    """The ratio of :func:`split_in_two` above which there may be two products in a set.

    300 random sets each of seven products reach 4.6, 3.4, 2.7, 2.5, 2.3 with 6, 8, 10, 20, 40 images; of sets of two of
    these products, 4 in 5 lie above the limit.

    >>> highest_split_ratio(10), highest_split_ratio(20)
    (4.0, 3.5)
    """
    return 3 + 10 / images


def pairwise_distances(descriptor_NC: Floats) -> Floats:
    """Euclidean distances ``(N, N)``."""
    centred_NC = np.asarray(descriptor_NC - descriptor_NC.mean(axis=0), np.float32)
    norm_N = np.einsum("nc,nc->n", centred_NC, centred_NC)
    squared_NN = norm_N[:, None] + norm_N[None, :] - 2 * centred_NC @ centred_NC.T
    distance_NN: Floats = np.sqrt(np.maximum(squared_NN, 0))
    return distance_NN


def split_in_two(descriptor_NC: Floats) -> tuple[float, NDArray[np.bool_]]:
    """Two groups by 2-means: the distance of their means over that within them, and which images are the smaller one.

    The ratio is 0 where one group has a single image, and where there is no gap between the groups: images that differ
    gradually, for instance in brightness, are one group.

    >>> ratio, smaller = split_in_two(np.float32([[0.0], [0.1], [0.2], [9.0], [9.1]]))
    >>> ratio > 10, smaller.tolist()
    (True, [False, False, False, True, True])
    """
    none = 0.0, np.zeros(len(descriptor_NC), np.bool_)
    centred_NC = descriptor_NC - descriptor_NC.mean(axis=0)
    _, _, axes = np.linalg.svd(centred_NC, full_matrices=False)
    second_N: NDArray[np.bool_] = centred_NC @ axes[0] > 0
    for _ in range(10):
        if not 2 <= second_N.sum() <= len(second_N) - 2:
            return none
        apart_N2 = _distances_to_means(descriptor_NC, second_N)
        moved_N = apart_N2[:, 1] < apart_N2[:, 0]
        if (moved_N == second_N).all():
            break
        second_N = moved_N
    distance_NN = pairwise_distances(descriptor_NC)
    np.fill_diagonal(distance_NN, np.inf)
    across_NN = second_N[:, None] != second_N[None, :]
    nearest_N = np.where(across_NN, np.inf, distance_NN).min(axis=1)
    if not np.isfinite(nearest_N).all() or distance_NN[across_NN].min() <= GAP * nearest_N.max():
        return none
    within = float(np.mean(_distances_to_means(descriptor_NC, second_N).min(axis=1)))
    within = max(within, CLOSEST * float(np.linalg.norm(descriptor_NC.mean(axis=0))))
    between = float(np.linalg.norm(descriptor_NC[second_N].mean(axis=0) - descriptor_NC[~second_N].mean(axis=0)))
    return between / within if within > 0 else 0.0, second_N if second_N.mean() <= 0.5 else ~second_N


def _distances_to_means(descriptor_NC: Floats, second_N: NDArray[np.bool_]) -> Floats:
    means = (descriptor_NC[~second_N].mean(axis=0), descriptor_NC[second_N].mean(axis=0))
    apart_N2: Floats = np.stack([np.linalg.norm(descriptor_NC - mean_C, axis=1) for mean_C in means], axis=1)
    return apart_N2


def highest_level_ratio(images: int) -> float:
    """How many times the usual median patch distance a normal image may have, for a task of so many images.

    Normal images reach 1.9, 1.6, 1.8, 1.2 for tasks of 5, 10, 20, 100; images of other products begin at 1.5. Only
    images that lie as far as ``CONTROL_SHARE`` says are compared with it.

    >>> round(highest_level_ratio(100), 2)
    1.49
    """
    return 1.45 + 4 / images


def highest_threshold_ratio(images: int) -> float:
    """By which factor an update may raise the threshold of a task of so many images.

    Updates with more normals reach 1.35 for tasks of 5 images and 1.1 from 10 on; one image of another product gives
    1.25 to 2.8.

    >>> round(highest_threshold_ratio(20), 3)
    1.375
    """
    return 1.3 + 1.5 / images


def highest_deviation(images: int) -> float:
    """How many deviations above the mean the calibration score of a normal image may lie, with several readings.

    Such scores are in units of their own spread, which an odd image widens, so that it hardly reaches twice the median.
    Clean sets of 10, 20, 40, 80, 160 reach 4.1, 3.8, 4.1, 4.3, 4.3 (one odd cable 5.7); an image with a defect that is
    seen 4 to 5, 7, 10 in sets of 10, 20, 40.

    >>> highest_deviation(20), highest_deviation(160)
    (4.0, 4.8)
    """
    return 4 + max(0.0, 0.4 * math.log2(images / 40))
