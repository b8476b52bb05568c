"""Localisation metrics of one task, in memory that does not grow with the number of pixels.

A task of 901 images at 224 x 224 has 45 million pixels. They are never held together: each goes into one of 65,536 bins
of its value, and all the curves are read off the histograms. Order between bins is exact, order inside a bin is lost;
:class:`PixelAuroc` says how much that can matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bench.metrics.ranks import Ints, Numbers, pairs_won
from dinosaur_ad.bench.metrics.resize import mask_at, upsample
from dinosaur_ad.datasets.samples import Regions, Sample
from dinosaur_ad.errors import InputError, install_advice
from dinosaur_ad.images.loading import Mask

_SUMS = (
    *("normal_B", "anomalous_B", "overlap_B", "saturated_B", "images", "unmarked"),
    *("regions", "vanished", "saturated_regions", "saturated_vanished"),
)


@dataclass(frozen=True)
class PixelAuroc:
    """The AUROC over pixels; the exact value lies within ``bound`` of ``value``."""

    value: float
    bound: float


class PixelTally:
    """Pixels of one task counted by value; add images one at a time, then ask for the areas under the curves.

    ``low`` to ``high`` is the range of the task's maps; what lies outside counts as its nearest end. A NaN pixel stands
    below every number, in a bin of its own, and :attr:`nan` counts them.

    Beside the histograms it counts ``images`` added, ``regions`` (connected marks) and those ``vanished`` because no
    pixel of them could be measured, the same for the regions of AU-sPRO, and images left out as ``unmarked``.

    >>> tally = PixelTally(low=0.0, high=1.0)
    >>> map_HW = np.array([[0.1, 0.2], [0.3, 0.9]])
    >>> tally.add(map_HW, np.array([[False, False], [False, True]]))
    >>> tally.auroc().value, tally.aupro()
    (1.0, 1.0)
    """

    def __init__(self, low: float, high: float, bins: int = 2**16) -> None:
        if not (np.isfinite([low, high]).all() and low <= high and bins >= 1):
            raise ValueError(f"low must not exceed high, both finite, with a bin at least; got {low}, {high}, {bins}")
        self.low, self.high, self.bins = float(low), float(high), bins
        # Counts by bin; bin 0 is for NaN, the numbers begin with bin 1.
        self.normal_B = np.zeros(bins + 1, dtype=np.int64)
        self.anomalous_B = np.zeros(bins + 1, dtype=np.int64)
        # Regions found by bin: every region spreads a weight of 1 over its pixels, or over those that saturate it.
        self.overlap_B = np.zeros(bins + 1)
        self.saturated_B = np.zeros(bins + 1)
        self.images = self.unmarked = 0
        self.regions = self.vanished = 0
        self.saturated_regions = self.saturated_vanished = 0

    def add(
        self, map_HW: NDArray[Any], mask_HW: Mask, valid_HW: Mask | None = None, regions: Regions | None = None
    ) -> None:
        """Count one image: its map, its defects (all False for a normal one), and the pixels that count at all.

        All (H, W). ``regions`` are for AU-sPRO alone; AUPRO's are what touches in ``mask_HW``, corners included.
        """
        shapes = {array_HW.shape for array_HW in (map_HW, mask_HW, valid_HW) if array_HW is not None}
        if len(shapes) > 1:
            raise ValueError(f"map, mask and valid must have one shape, got {sorted(shapes)}")
        bin_HW = self._bins_of(map_HW)
        normal_HW = ~mask_HW if valid_HW is None else ~mask_HW & valid_HW
        self.normal_B += self._count(bin_HW[normal_HW])
        self.images += 1
        if mask_HW.any():
            marked_HW = mask_HW if valid_HW is None else mask_HW & valid_HW
            self.anomalous_B += self._count(bin_HW[marked_HW])
            self._add_overlap(bin_HW, mask_HW, marked_HW)
        for region_HW, area in regions or ():
            self._add_saturated(bin_HW[region_HW if valid_HW is None else region_HW & valid_HW], area)

    def __add__(self, other: PixelTally) -> PixelTally:
        if (self.low, self.high, self.bins) != (other.low, other.high, other.bins):
            raise ValueError("tallies can be merged only when they have the same range and the same bins")
        merged = PixelTally(self.low, self.high, self.bins)
        for name in _SUMS:
            setattr(merged, name, getattr(self, name) + getattr(other, name))
        return merged

    @property
    def nan(self) -> int:
        """How many of the pixels counted were not a number."""
        return int(self.normal_B[0] + self.anomalous_B[0])

    def auroc(self) -> PixelAuroc:
        """The chance that a random defect pixel stands above a random normal one, over all images of the task.

        ``bound`` is half the share of pairs that fell into one bin. NaN when one of the two is missing.
        """
        value = float(pairs_won(self.normal_B, self.anomalous_B))
        # Equal NaN, and equal pixels of a constant map, are true ties; nothing is lost by counting them as such.
        first = 1 if self.high > self.low else self.bins + 1
        unsure = float((self.normal_B[first:].astype(np.float64) * self.anomalous_B[first:]).sum())
        pairs = float(self.normal_B.sum()) * float(self.anomalous_B.sum())
        return PixelAuroc(value, unsure / pairs / 2 if pairs else float("nan"))

    def aupro(self, limit: float = 0.3) -> float:
        """The mean share of a region that is found, over false-alarm rates from 0 to ``limit``, divided by ``limit``.

        NaN when there is no region or no normal pixel.
        """
        return self._area(self.overlap_B, self.regions, limit)

    def au_spro(self, limit: float = 0.05) -> float:
        """As :meth:`aupro`, but a region is found whole once its saturation area is. NaN without such regions."""
        return self._area(self.saturated_B, self.saturated_regions, limit)

    def _bins_of(self, map_HW: NDArray[Any]) -> Ints:
        """The bin of each pixel (H, W). It never falls when the value rises, whatever is rounded."""
        span = self.high - self.low
        place_HW = np.asarray(map_HW, dtype=np.float32) - np.float32(self.low)
        place_HW *= np.float32(min(self.bins / span, 1e30) if span > 0 else 0)  # 1e30: float32 must hold it
        place_HW += 1
        np.clip(place_HW, 1, self.bins, out=place_HW)
        place_HW[np.isnan(place_HW)] = 0
        return place_HW.astype(np.intp)

    def _count(self, bin_P: Ints, weight_P: Numbers | None = None) -> NDArray[Any]:
        return np.bincount(bin_P, weight_P, minlength=self.bins + 1)

    def _add_overlap(self, bin_HW: Ints, mask_HW: Mask, marked_HW: Mask) -> None:
        """Let every region share a weight of 1 among those of its pixels that count."""
        region_HW, regions = _label(mask_HW)
        region_P = region_HW[marked_HW] - 1
        size_R = np.bincount(region_P, minlength=regions)
        self.overlap_B += self._count(bin_HW[marked_HW], 1 / size_R[region_P])
        self.regions += int((size_R > 0).sum())
        self.vanished += int((size_R == 0).sum())

    def _add_saturated(self, bin_P: Ints, area: int) -> None:
        """Let the ``area`` highest pixels of a region share a weight of 1; the others have none.

        The definition is min(found / area, 1), ``found`` being the pixels at or above a threshold. Of the highest
        ``area`` pixels, min(found, area) are at or above it, whichever of several equal ones were picked: the same
        number, for every threshold at once. A region smaller than its area is saturated by all of it.
        """
        if area < 1:
            raise ValueError(f"a saturation area must be at least one pixel, got {area}")
        if not bin_P.size:
            self.saturated_vanished += 1
            return
        area = min(area, bin_P.size)
        highest_A = np.partition(bin_P, bin_P.size - area)[bin_P.size - area :]
        self.saturated_B += self._count(highest_A) / area
        self.saturated_regions += 1

    def _area(self, found_B: Numbers, regions: int, limit: float) -> float:
        if not 0 < limit <= 1:
            raise ValueError(f"limit must be a false-alarm rate above 0 and up to 1, got {limit}")
        normals = int(self.normal_B.sum())
        if not regions or not normals:
            return float("nan")
        rate_K = np.concatenate([[0.0], self.normal_B[::-1].cumsum() / normals])
        found_K = np.concatenate([[0.0], found_B[::-1].cumsum() / regions])
        return _area_below(rate_K, found_K, limit) / limit


def task_tally(maps_Nhw: NDArray[Any], samples: Sequence[Sample], size: int | None = 224) -> PixelTally:
    """The tally of one task: maps (N, h, w) on any grid against the marks of its N samples, one image at a time.

    Maps and marks meet at (``size``, ``size``), or with None at the native size of each sample's mask, where samples
    that know their defects one by one (``regions()``) also count for AU-sPRO. Samples that nobody marked are left out
    and counted in ``unmarked``; marks that shrinking has lost altogether are counted in ``vanished``.
    """
    if len(maps_Nhw) != len(samples):
        raise ValueError(f"there must be one map a sample, got {len(maps_Nhw)} maps for {len(samples)} samples")
    low, high = _range(maps_Nhw)
    tally = PixelTally(low, high)
    for map_hw, sample in zip(maps_Nhw, samples, strict=True):
        mask_HW, valid_HW = sample.mask(), sample.valid()
        if mask_HW is None:
            tally.unmarked += 1
            continue
        regions = sample.regions() if size is None else None
        if size is not None:
            marked = mask_HW.any()
            mask_HW = mask_at(mask_HW, size)
            valid_HW = None if valid_HW is None else mask_at(valid_HW, size)
            tally.vanished += int(marked and not mask_HW.any())
        tally.add(upsample(np.clip(map_hw, low, high), *mask_HW.shape), mask_HW, valid_HW, regions)
    return tally


def _range(maps_Nhw: NDArray[Any]) -> tuple[float, float]:
    """The least and the greatest finite value; bilinear maps never leave it."""
    low, high = np.inf, -np.inf
    for map_hw in maps_Nhw:
        finite = map_hw[np.isfinite(map_hw)]
        low, high = finite.min(initial=low), finite.max(initial=high)
    return (float(low), float(high)) if low <= high else (0.0, 0.0)


def _label(mask_HW: Mask) -> tuple[NDArray[np.int32], int]:
    """The number of the region each pixel belongs to, 0 for none, and how many there are; corners touch."""
    try:
        from scipy import ndimage
    except ImportError as error:
        raise InputError(
            f"Measuring how regions are found needs scipy, which is not installed; {install_advice('bench')}."
        ) from error
    region_HW, regions = ndimage.label(mask_HW, structure=np.ones((3, 3), dtype=np.bool_))
    return region_HW, int(regions)


def _area_below(x_K: Numbers, y_K: Numbers, limit: float) -> float:
    """The area under the curve of straight pieces from x = 0 to ``limit``; x never falls and ends at 1."""
    inside = int(np.searchsorted(x_K, limit, side="right"))
    x, y = x_K[:inside], y_K[:inside]
    if inside < len(x_K):
        step = (limit - x[-1]) / (x_K[inside] - x[-1])
        x, y = np.append(x, limit), np.append(y, y[-1] + step * (y_K[inside] - y[-1]))
    return float(((x[1:] - x[:-1]) * (y[1:] + y[:-1]) / 2).sum())
