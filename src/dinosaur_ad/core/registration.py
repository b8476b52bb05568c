"""How a part lies in an image: shift, rotation and scale against a reference, or no estimate at all.

What is compared are edges of small grey images, because edges say where things are and light hardly changes them. The
reference is turned and scaled in steps; each step is correlated with the image at all shifts at once (a product of
spectra, whitened by half, so that a few strong edges do not decide alone). The highest correlation gives turn, scale
and shift, each made finer by a parabola through its neighbours.

A correlation is 1 for the same edges and about 0 for unrelated ones. It is also the confidence: an estimate counts only
where the edges agree well, and clearly better than they do without moving anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Spectrum = NDArray[np.complex64]

SIDE = 64
"""Pixels of the longer side of the small images."""
DEGREES_STEP, DEGREES_STEPS = 2.0, 10
SCALE_STEP, SCALE_STEPS = 0.03, 2
"""Turns are looked for up to 20 degrees either way, sizes up to 6 %."""
MOST_SHIFT = 0.25
"""The largest shift, as a share of each side: beyond it too little of the part is left to compare."""
BORDER = 0.15
"""Share of each side over which edges fade out towards the border, where movement brings new ones in."""
WHITENING = 0.5
"""Exponent of the whitening: 0 leaves spectra as they are, 1 keeps their phases alone."""
LEAST_CORRELATION = 0.35
"""Below it an estimate is no estimate."""
LEAST_GAIN = 0.02
"""By how much the correlation must be higher than without movement; otherwise the image stays as it is."""


class Movement(NamedTuple):
    """Where a part lies, against the reference: turned about the centre, scaled, then shifted.

    ``right`` and ``down`` are shares of the width and the height; ``degrees`` are clockwise as seen. ``correlation`` is
    that of the edges after the movement is taken back, ``unmoved`` that without.
    """

    right: float
    down: float
    degrees: float
    scale: float
    correlation: float
    unmoved: float

    @property
    def confident(self) -> bool:
        """Whether the edges agree well; written so that NaN is no confidence."""
        return self.correlation >= LEAST_CORRELATION

    @property
    def counts(self) -> bool:
        """Whether to take the movement back: it is confident, and brings the edges clearly nearer."""
        return self.confident and self.correlation >= self.unmoved + LEAST_GAIN

    def reach(self) -> float:
        """How far the part has moved at the most within the middle of the image, as a share of its side.

        >>> round(Movement(0.03, 0.04, 0.0, 1.0, 1.0, 0.0).reach(), 3)
        0.05
        """
        around = 2 * math.sin(math.radians(abs(self.degrees)) / 2) + abs(self.scale - 1)
        return math.hypot(self.right, self.down) + around * 0.35


class Transform(NamedTuple):
    """``x' = a x + b y + c``, ``y' = d x + e y + f``: from places in the reference to places in the image, both as
    shares of the width and the height."""

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float

    def inverse(self) -> Transform:
        """From places in the image to places in the reference.

        >>> Transform(2, 0, 1, 0, 4, 0).inverse()
        Transform(a=0.5, b=0.0, c=-0.5, d=0.0, e=0.25, f=0.0)
        """
        a, b, c, d, e, f = self
        area = a * e - b * d
        inverse = np.linalg.inv(np.asarray([[a, b, c], [d, e, f], [0, 0, 1]])) if area else np.full((3, 3), np.nan)
        return Transform(*(float(each) + 0.0 for each in inverse[:2].ravel()))

    def movement(self) -> dict[str, float]:
        """How the part lies: right and down as shares of the sides, degrees clockwise, scale.

        >>> transform_of(Movement(0.1, -0.05, 5.0, 1.02, 1.0, 0.0), 1.5).movement()
        {'right': 0.1, 'down': -0.05, 'degrees': 5.0, 'scale': 1.02}
        """
        x, y = self.at(np.asarray([0.5]), np.asarray([0.5]))
        turned = math.copysign(math.sqrt(max(0.0, -self.b * self.d)), self.d)
        found = {
            "right": float(x[0]) - 0.5,
            "down": float(y[0]) - 0.5,
            "degrees": math.degrees(math.atan2(turned, self.a)),
            "scale": math.hypot(turned, self.a),
        }
        return {name: round(value, 4) + 0.0 for name, value in found.items()}

    def at(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Where places lie."""
        return self.a * x + self.b * y + self.c, self.d * x + self.e * y + self.f


def transform_of(movement: Movement, aspect: float) -> Transform:
    """A movement as a transform; ``aspect`` is the width of the photos over their height, which images lose when they
    are made square.

    >>> moved = Movement(0.1, 0.0, 0.0, 1.0, 1.0, 0.0)
    >>> [round(each, 3) for each in transform_of(moved, 1.0)]
    [1.0, 0.0, 0.1, 0.0, 1.0, 0.0]
    """
    angle = math.radians(movement.degrees)
    cosine, sine = movement.scale * math.cos(angle), movement.scale * math.sin(angle)
    a, b, d, e = cosine, 0.0 - sine / aspect, sine * aspect, cosine
    return Transform(a, b, 0.5 * (1 - a - b) + movement.right, d, e, 0.5 * (1 - d - e) + movement.down)


def edge_images(pixels_NHWC: NDArray[np.uint8], aspect: float = 1.0) -> Floats:
    """Small images ``(N, h, w)`` of the strength of edges, with the sides of the photos: ``aspect`` is their width over
    their height.

    >>> edge_images(np.zeros((2, 70, 70, 3), np.uint8), aspect=2.0).shape
    (2, 32, 64)
    """
    height, width = small_size(aspect)
    grey_NHW = pixels_NHWC @ np.full(3, 1 / 3, np.float32)
    rows_hH, columns_wW = _overlaps(grey_NHW.shape[1], height), _overlaps(grey_NHW.shape[2], width)
    small_Nhw = rows_hH @ grey_NHW @ columns_wW.T
    down_Nhw, right_Nhw = np.gradient(small_Nhw, axis=(1, 2))
    edges: Floats = np.hypot(down_Nhw, right_Nhw).astype(np.float32)
    return edges


def small_size(aspect: float) -> tuple[int, int]:
    """Height and width of small images of photos with that aspect, both even and at least 16.

    >>> small_size(1.0), small_size(0.5), small_size(50.0)
    ((64, 64), (64, 32), (16, 64))
    """
    shorter = max(16, 2 * round(SIDE * min(aspect, 1 / aspect) / 2))
    return (shorter, SIDE) if aspect >= 1 else (SIDE, shorter)


def _overlaps(pixels: int, cells: int) -> Floats:
    """How much of each pixel goes into each cell along a side ``(cells, pixels)``; each row sums to 1."""
    edge = np.arange(cells + 1) * (pixels / cells)
    place = np.arange(pixels)
    covered = np.clip(np.minimum(edge[1:, None], place + 1) - np.maximum(edge[:-1, None], place), 0, 1)
    return np.asarray(covered * (cells / pixels), np.float32)


@dataclass(frozen=True, eq=False)
class Reference:
    """The edges ``(h, w)`` that images are registered to; two of them are the same only if they are one object."""

    edges_hw: Floats

    @property
    def aspect(self) -> float:
        """Width over height."""
        height, width = self.edges_hw.shape
        return float(width / height)

    @cached_property
    def _poses(self) -> tuple[NDArray[np.float64], NDArray[np.float64], Spectrum]:
        """Degrees (A,), scales (S,), and the spectrum of the reference turned and scaled by each, ``(A, S, h, w')``."""
        degrees = np.asarray(np.arange(-DEGREES_STEPS, DEGREES_STEPS + 1) * DEGREES_STEP, np.float64)
        scales = np.asarray(1 + np.arange(-SCALE_STEPS, SCALE_STEPS + 1) * SCALE_STEP, np.float64)
        turned = np.stack([[_turned(self.edges_hw, turn, scale) for scale in scales] for turn in degrees])
        return degrees, scales, _spectra(turned)

    def find(self, edges_Nhw: Floats) -> list[Movement]:
        """How each of some images lies; edges that are all alike have a correlation of 0."""
        return [self._find(spectrum) for spectrum in _spectra(edges_Nhw)]

    def _find(self, spectrum_hw: Spectrum) -> Movement:
        degrees, scales, poses_AShw = self._poses
        height, width = self.edges_hw.shape
        found_AShw = np.fft.irfft2(spectrum_hw * np.conj(poses_AShw), s=(height, width))
        middle = found_AShw[DEGREES_STEPS, SCALE_STEPS]
        unmoved = float(middle[0, 0])
        down, right = (int(MOST_SHIFT * side) for side in (height, width))
        rows, columns = np.arange(-down, down + 1), np.arange(-right, right + 1)
        near_ASyx = found_AShw[:, :, rows][:, :, :, columns]
        turn, scale, row, column = (int(each) for each in np.unravel_index(int(np.argmax(near_ASyx)), near_ASyx.shape))
        best = float(near_ASyx[turn, scale, row, column])
        return Movement(
            right=float(columns[column] + _summit(near_ASyx[turn, scale, row], column)) / width,
            down=float(rows[row] + _summit(near_ASyx[turn, scale, :, column], row)) / height,
            degrees=float(degrees[turn] + DEGREES_STEP * _summit(_around(near_ASyx, row, column)[:, scale], turn)),
            scale=float(scales[scale] + SCALE_STEP * _summit(_around(near_ASyx, row, column)[turn], scale)),
            correlation=best,
            unmoved=unmoved,
        )


def _around(near_ASyx: NDArray[np.float64], row: int, column: int) -> NDArray[np.float64]:
    """The highest correlation of each turn and scale within a pixel of a shift ``(A, S)``."""
    near = near_ASyx[:, :, max(0, row - 1) : row + 2, max(0, column - 1) : column + 2]
    highest: NDArray[np.float64] = near.max(axis=(2, 3))
    return highest


def _summit(values: NDArray[np.float64], at: int) -> float:
    """How far the summit of a parabola through a highest value and its neighbours lies from it, in steps."""
    if not 0 < at < len(values) - 1:
        return 0.0
    before, here, after = (float(values[at + step]) for step in (-1, 0, 1))
    curve = before - 2 * here + after
    return float(np.clip(0.5 * (before - after) / curve, -0.5, 0.5)) if curve < 0 else 0.0


def _spectra(edges: Floats) -> Spectrum:
    """Spectra of edge images ``(..., h, w)``, faded at the border, without their mean, whitened by half, such that the
    correlation of an image with itself is 1."""
    height, width = edges.shape[-2:]
    window = np.outer(_fading(height), _fading(width))
    mean = (edges * window).sum(axis=(-2, -1), keepdims=True) / window.sum()
    spectrum = np.fft.rfft2((edges - mean) * window)
    size = np.abs(spectrum)
    floor = 1e-3 * size.max(axis=(-2, -1), keepdims=True) + 1e-9
    spectrum = spectrum / np.maximum(size, floor) ** WHITENING
    # By Parseval: columns of a real image's spectrum count twice but for the first and the last.
    weight = np.full(spectrum.shape[-1], 2.0)
    weight[[0, -1]] = 1.0
    energy = (np.abs(spectrum) ** 2 * weight).sum(axis=(-2, -1), keepdims=True) / (height * width)
    blank = size.max(axis=(-2, -1), keepdims=True) < 1e-3
    result: Spectrum = np.where(blank, 0, spectrum / np.sqrt(np.maximum(energy, 1e-30))).astype(np.complex64)
    return result


def _fading(side: int) -> NDArray[np.float64]:
    """A window of ones that falls to zero at both ends."""
    distance = (np.minimum(np.arange(side), np.arange(side)[::-1]) + 0.5) / (BORDER * side)
    return np.asarray(0.5 - 0.5 * np.cos(np.pi * np.minimum(distance, 1)))


def _turned(edges_hw: Floats, degrees: float, scale: float) -> Floats:
    """Edges turned clockwise and scaled about the centre; the border is repeated."""
    height, width = edges_hw.shape
    angle = math.radians(degrees)
    y, x = np.indices((height, width)) - np.asarray([(height - 1) / 2, (width - 1) / 2])[:, None, None]
    cosine, sine = math.cos(angle) / scale, math.sin(angle) / scale
    return sampled(edges_hw, cosine * x + sine * y + (width - 1) / 2, -sine * x + cosine * y + (height - 1) / 2)


def sampled(values_hw: Floats, x: NDArray[np.float64], y: NDArray[np.float64]) -> Floats:
    """Values between pixels, by bilinear interpolation; the border is repeated.

    >>> sampled(np.float32([[0, 2]]), np.asarray([0.5, 9.0]), np.asarray([0.0, 0.0])).tolist()
    [1.0, 2.0]
    """
    height, width = values_hw.shape
    x, y = np.clip(x, 0, width - 1), np.clip(y, 0, height - 1)
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    right, bottom = np.minimum(left + 1, width - 1), np.minimum(top + 1, height - 1)
    across, along = x - left, y - top
    upper = values_hw[top, left] * (1 - across) + values_hw[top, right] * across
    lower = values_hw[bottom, left] * (1 - across) + values_hw[bottom, right] * across
    return np.asarray(upper * (1 - along) + lower * along, np.float32)


def make_reference(edges_Nhw: Floats) -> Reference:
    """The reference of some images: the one that most others are like, then the mean of those registered to it, which
    has no noise and nothing peculiar to one image. It lies in the middle of how they lie.
    """
    first = Reference(edges_Nhw[_medoid(edges_Nhw)])
    found = first.find(edges_Nhw)
    registered = [
        _moved(edges_hw, transform_of(movement, first.aspect))
        for edges_hw, movement in zip(edges_Nhw, found, strict=True)
        if movement.confident
    ]
    if not registered:
        return first
    usual = Movement(*np.median([each for each in found if each.confident], axis=0).tolist())
    mean_hw = np.asarray(np.mean(registered, axis=0), np.float32)
    return Reference(_moved(mean_hw, transform_of(usual, first.aspect).inverse()))


def _moved(edges_hw: Floats, transform: Transform) -> Floats:
    """Edges whose place ``p`` has what ``transform`` of ``p`` has here."""
    height, width = edges_hw.shape
    x, y = transform.at(*_centres(height, width))
    return sampled(edges_hw, x * width - 0.5, y * height - 0.5)


def _medoid(edges_Nhw: Floats) -> int:
    """The image whose edges agree best with those of the others, at whatever shift."""
    spectra_Nhw, size = _spectra(edges_Nhw), edges_Nhw.shape[-2:]
    alike = [
        float(np.median(np.fft.irfft2(each * np.conj(spectra_Nhw), s=size).max(axis=(1, 2)))) for each in spectra_Nhw
    ]
    return int(np.argmax(alike))


def carried_back(values_HW: Floats, moved: Transform) -> Floats:
    """A map of a registered image in the coordinates of the image as it was, on the same grid.

    A patch has the value of the place it was moved to; beyond the map it has 0. Every value of the map is found again
    at the patch nearest to where it belongs, so that none of the largest is lost between patches.

    >>> carried_back(np.float32([[1, 2, 3, 4]]), Transform(1, 0, 0.25, 0, 1, 0)).tolist()
    [[0.0, 1.0, 2.0, 4.0]]
    """
    height, width = values_HW.shape
    x, y = moved.inverse().at(*_centres(height, width))
    row, column = np.floor(y * height).astype(int), np.floor(x * width).astype(int)
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    back_HW = np.zeros_like(values_HW)
    back_HW[inside] = values_HW[row[inside], column[inside]]
    np.maximum.at(back_HW, patches_in_image(height, width, moved), values_HW)
    return back_HW


def patches_in_image(height: int, width: int, moved: Transform) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row and column ``(H, W)`` of the patch of the image as it was in which each patch of a registered one lies; the
    nearest one where it lies outside."""
    x, y = moved.at(*_centres(height, width))
    rows = np.clip(np.floor(y * height), 0, height - 1).astype(np.intp)
    return rows, np.clip(np.floor(x * width), 0, width - 1).astype(np.intp)


def seen_patches(inspected_HW: NDArray[np.bool_], moved: Transform) -> NDArray[np.bool_]:
    """Which patches of the image as it was lie in what is inspected of a registered one ``(H, W)``."""
    height, width = inspected_HW.shape
    x, y = moved.inverse().at(*_centres(height, width))
    row, column = np.floor(y * height).astype(int), np.floor(x * width).astype(int)
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    seen: NDArray[np.bool_] = inside & inspected_HW[np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
    return seen


def _centres(height: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """x and y ``(H, W)`` of the centres of the cells of a grid, as shares of the sides."""
    y, x = np.indices((height, width)) + 0.5
    return x / width, y / height
