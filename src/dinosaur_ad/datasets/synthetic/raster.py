"""Shapes, noise and windows: the drawing kit every synthetic product is made with.

Products are laid out on a table of 256 × 256 units whatever the number of pixels, shapes are signed distances
(negative inside), and small parts are drawn in a :class:`Window`, so that an image takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from PIL import Image

Field = npt.NDArray[np.floating]  # float32 throughout; NumPy's stubs lose that at the first Python scalar
Mask = npt.NDArray[np.bool_]
Point = tuple[float, float]
Rng = np.random.Generator

UNITS = 256.0


@dataclass(frozen=True)
class Window:
    """A rectangle of the image: its slices, and the table coordinates x (1, w) and y (h, 1) of its pixels."""

    rows: slice
    cols: slice
    x: Field
    y: Field
    step: float  # table units per pixel

    def frame(self, centre: Point, angle: float = 0.0) -> tuple[Field, Field]:
        """Coordinates (h, w) of the pixels as seen from ``centre``, turned by ``angle`` radians."""
        dx, dy = self.x - np.float32(centre[0]), self.y - np.float32(centre[1])
        c, s = np.float32(np.cos(angle)), np.float32(np.sin(angle))
        return c * dx + s * dy, c * dy - s * dx


@lru_cache(maxsize=8)
def whole(size: int) -> Window:
    """The window that is the whole image of ``size`` × ``size`` pixels."""
    step = UNITS / size
    axis = ((np.arange(size) + 0.5) * step).astype(np.float32)
    axis.setflags(write=False)
    return Window(slice(0, size), slice(0, size), axis[None, :], axis[:, None], step)


def window(size: int, centre: Point, reach: float) -> Window:
    """The pixels within ``reach`` units of ``centre`` along either axis, cut at the image border."""
    step = UNITS / size
    full = whole(size)

    def span(middle: float) -> slice:
        first = int(np.clip(np.floor((middle - reach) / step), 0, size - 1))
        last = int(np.clip(np.ceil((middle + reach) / step), first + 1, size))
        return slice(first, last)

    cols, rows = span(centre[0]), span(centre[1])
    return Window(rows, cols, full.x[:, cols], full.y[rows], step)


def coverage(distance: Field, width: float) -> Field:
    """How much of each pixel a shape covers, 0..1, with an edge ``width`` units wide."""
    covered: Field = np.clip(np.float32(0.5) - distance * np.float32(1.0 / width), 0, 1)
    return covered


def smooth(distance: Field, width: float) -> Field:
    """Like :func:`coverage` but with a rounded ramp: for shadows, bevels and anything without a hard edge."""
    t = coverage(distance, width)
    return t * t * (np.float32(3.0) - np.float32(2.0) * t)


def bell(distance: Field, width: float) -> Field:
    """A Gaussian of the distance, 1 at 0."""
    value: Field = np.exp(distance * distance * np.float32(-0.5 / width**2))
    return value


def circle(u: Field, v: Field, radius: float) -> Field:
    """Signed distance to a circle."""
    return np.sqrt(u * u + v * v) - np.float32(radius)


def box(u: Field, v: Field, half_width: float, half_height: float, corner: float = 0.0) -> Field:
    """Signed distance to a rectangle with rounded corners."""
    a = np.abs(u) - np.float32(half_width - corner)
    b = np.abs(v) - np.float32(half_height - corner)
    outside = np.sqrt(np.maximum(a, 0) ** 2 + np.maximum(b, 0) ** 2)
    distance: Field = outside + np.minimum(np.maximum(a, b), 0) - np.float32(corner)
    return distance


def blob(u: Field, v: Field, radius: float, rng: Rng, roughness: float = 0.25) -> Field:
    """Signed distance (approximate) to an irregular patch of about ``radius``."""
    theta = np.arctan2(v, u)
    edge = np.full_like(theta, radius)
    for order in range(2, 7):
        amplitude = radius * roughness * rng.uniform(0.3, 1.0) / order
        edge += np.float32(amplitude) * np.cos(order * theta + np.float32(rng.uniform(0, 2 * np.pi)))
    return np.sqrt(u * u + v * v) - edge


def polyline(area: Window, points: Sequence[Point]) -> Field:
    """Distance to a chain of straight segments."""
    nearest = np.full((area.y.shape[0], area.x.shape[1]), 1e9, dtype=np.float32)
    for (ax, ay), (bx, by) in pairwise(points):
        ex, ey = bx - ax, by - ay
        px, py = area.x - np.float32(ax), area.y - np.float32(ay)
        t = np.clip((px * np.float32(ex) + py * np.float32(ey)) / np.float32(ex * ex + ey * ey + 1e-9), 0, 1)
        np.minimum(nearest, (px - t * np.float32(ex)) ** 2 + (py - t * np.float32(ey)) ** 2, out=nearest)
    return np.sqrt(nearest)


def path(start: Point, angle: float, length: float, rng: Rng, *, bend: float, steps: int = 8) -> list[Point]:
    """A wandering line centred on ``start``; ``bend`` is how far its heading strays a step, in radians."""
    headings = angle + np.cumsum(rng.normal(0.0, bend, steps))
    headings -= headings.mean() - angle
    stride = length / steps
    xs = np.concatenate([[0.0], np.cumsum(np.cos(headings) * stride)])
    ys = np.concatenate([[0.0], np.cumsum(np.sin(headings) * stride)])
    xs += start[0] - xs.mean()
    ys += start[1] - ys.mean()
    return list(zip(xs.tolist(), ys.tolist(), strict=True))


def middle(points: Sequence[Point]) -> tuple[Point, float]:
    """Centre and half extent of the square around ``points``."""
    xs, ys = np.array(points).T
    centre = (float(xs.min() + xs.max()) / 2, float(ys.min() + ys.max()) / 2)
    return centre, float(max(np.ptp(xs), np.ptp(ys))) / 2


def noise(rng: Rng, shape: tuple[int, int], cells: tuple[float, float]) -> Field:
    """Smooth noise (h, w) of about unit variance from ``cells`` = (down, across) random values."""
    coarse = rng.standard_normal((max(2, round(cells[0])), max(2, round(cells[1]))), dtype=np.float32)
    if coarse.shape == shape:
        return coarse
    return resized(coarse * np.float32(1.25), shape)


def resized(field: Field, shape: tuple[int, int]) -> Field:
    """``field`` interpolated bicubically to ``shape`` = (h, w)."""
    return np.asarray(Image.fromarray(field).resize((shape[1], shape[0]), Image.Resampling.BICUBIC))


def full_mask(size: int, area: Window, inside: Mask) -> Mask:
    """``inside``, known in one window, as a mask of the whole image."""
    mask = np.zeros((size, size), dtype=bool)
    mask[area.rows, area.cols] = inside
    return mask
