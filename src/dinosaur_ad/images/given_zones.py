"""Zones as they are given, a mask image or polygons, as patches that are inspected; what makes no sense is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._plain import read_plain
from dinosaur_ad._text import first_line, printable
from dinosaur_ad.core.zones import HALF, Mask, combined, patch_shares, polygon_mask
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import read_image

Zones = str | Path | NDArray[Any] | Sequence[Mapping[str, Sequence[Sequence[float]]]]
"""A file (a mask image, or polygons as JSON), a mask ``(H, W)``, or polygons: ``[{"inspect": [[x, y], ...]}]``."""

WHITE = 128
"""From this grey level on, a pixel of a mask is to be inspected."""
BLACK_UP_TO, WHITE_FROM, MOST_GREY = 31, 224, 0.1
"""Of a mask, at most that share of the pixels lies between these levels: soft edges. A photo has more."""
MOST_ZONES, MOST_POINTS, MOST_BYTES = 100, 1000, 4_000_000
_EXPECTED = 'a list such as [{"inspect": [[10, 10], [90, 10], [90, 60]]}, {"ignore": [[20, 20], [30, 20], [30, 30]]}]'


def read_zones(zones: Zones, size: tuple[int, int] | None, rows: int, columns: int) -> Mask:
    """The patches ``(rows, columns)`` that are inspected, of photos of the usual ``size`` (height, width).

    A mask has the proportions of the photos; where their size is not known, those of a mask are taken as right.

    >>> read_zones([{"ignore": [(0, 0), (40, 0), (40, 20), (0, 20)]}], (40, 40), 2, 2).astype(int).tolist()
    [[0, 0], [1, 1]]

    :raises InputError: it cannot be read, does not fit the photos, or leaves nothing to inspect.
    """
    if isinstance(zones, str | Path):
        path = Path(zones)
        zones = _read_json(path) if path.suffix.lower() == ".json" else read_image(path).max(axis=2)
        name = f"'{printable(path)}'"
    else:
        name = "The mask" if isinstance(zones, np.ndarray) else "The list of zones"
    if isinstance(zones, np.ndarray):
        mask_HW = _checked_mask(zones, size, name)
    else:
        mask_HW = _drawn(zones, size, rows, columns, name)
    inspected_HW = patch_shares(mask_HW, rows, columns) >= HALF
    if not inspected_HW.any():
        raise InputError(
            f"{name} leaves nothing to inspect: no patch of the {rows} x {columns} that an image is looked at in is "
            "inspected by half; make the zones larger, or ignore less."
        )
    return np.asarray(inspected_HW, np.bool_)


def _checked_mask(mask: NDArray[Any], size: tuple[int, int] | None, name: str) -> Mask:
    if mask.ndim != 2 or not mask.size or mask.dtype not in (np.bool_, np.uint8):
        raise InputError(f"{name} is {mask.dtype} of shape {mask.shape}; expected bool or uint8 of shape (H, W).")
    height, width = mask.shape
    if size is not None and not _same_proportions((height, width), size):
        raise InputError(
            f"{name} is {width} x {height} pixels, and the photos of the product are {size[1]} x {size[0]}; draw it on "
            "such a photo, or on one that was scaled evenly."
        )
    grey = 0.0 if mask.dtype == np.bool_ else float(((mask > BLACK_UP_TO) & (mask < WHITE_FROM)).mean())
    if grey > MOST_GREY:
        raise InputError(
            f"{name} is no mask: {grey:.0%} of its pixels are neither black nor white; white (255) means inspect, "
            "black (0) ignore."
        )
    white_HW: Mask = mask if mask.dtype == np.bool_ else mask >= WHITE
    if not white_HW.any():
        raise InputError(f"{name} has no white pixel, so that nothing would be inspected; white (255) means inspect.")
    return white_HW


def _same_proportions(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether one size is the other scaled evenly, up to a pixel of the smaller one."""
    if one[0] == other[0] or one[1] == other[1]:
        return one == other
    small, large = sorted((one, other))
    return abs(small[0] - small[1] * large[0] / large[1]) < 1


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_plain(path, MOST_BYTES))
    except FileNotFoundError:
        raise InputError(f"'{printable(path)}' does not exist; check the path.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"The zones '{printable(path)}' cannot be read ({first_line(error)}); expected {_EXPECTED}."
        ) from None


def _drawn(zones: Any, size: tuple[int, int] | None, rows: int, columns: int, name: str) -> Mask:
    """What polygons leave to inspect, on a grid finer than that of the patches."""
    if not isinstance(zones, Sequence) or isinstance(zones, str) or not 1 <= len(zones) <= MOST_ZONES:
        raise InputError(f"{name} has no zones, or more than {MOST_ZONES}; expected {_EXPECTED}.")
    if size is None:
        raise InputError(
            "How large the photos of the product are is not known, because an older version taught it; give the zones "
            "as a mask image, or learn the product anew."
        )
    drawn: dict[str, list[Mask]] = {"inspect": [], "ignore": []}
    for number, zone in enumerate(zones, start=1):
        kind, points = _polygon(zone, size, f"Zone {number} of {name}")
        mask = polygon_mask(points, size, rows, columns)
        if np.linalg.matrix_rank(np.asarray(points) - points[0]) < 2 or not mask.any():
            raise InputError(f"Zone {number} of {name} is empty: its corners lie on a line; give it an area.")
        drawn[kind].append(mask)
    return combined(drawn["inspect"], drawn["ignore"], mask.shape)


def _polygon(zone: Any, size: tuple[int, int], name: str) -> tuple[str, list[tuple[float, float]]]:
    """What a zone is for, and its corners."""
    kind = next(iter(zone)) if isinstance(zone, Mapping) and len(zone) == 1 else None
    if kind not in ("inspect", "ignore"):
        raise InputError(f"{name} is neither one to inspect nor one to ignore; expected {_EXPECTED}.")
    corners = zone[kind]
    if not isinstance(corners, Sequence) or isinstance(corners, str) or not 3 <= len(corners) <= MOST_POINTS:
        count = len(corners) if isinstance(corners, Sequence) and not isinstance(corners, str) else "no"
        raise InputError(f"{name} has {count} corners; a polygon has at least 3 and at most {MOST_POINTS}.")
    points = []
    for corner in corners:
        point = _point(corner)
        if point is None:
            raise InputError(f"{name} has a corner {printable(corner, 60)}; expected two numbers [x, y] in pixels.")
        x, y = point
        if not (0 <= x <= size[1] and 0 <= y <= size[0]):
            raise InputError(
                f"{name} reaches outside the image: its corner ({x:g}, {y:g}) does not lie on a photo of {size[1]} x "
                f"{size[0]} pixels; corners are [x, y] in pixels of the product's photos."
            )
        points.append(point)
    return kind, points


def _point(corner: Any) -> tuple[float, float] | None:
    if not isinstance(corner, Sequence) or isinstance(corner, str) or len(corner) != 2:
        return None
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in corner):
        return None
    x, y = corner
    try:
        point = float(x), float(y)
    except OverflowError:
        return None
    return point if all(map(math.isfinite, point)) else None
