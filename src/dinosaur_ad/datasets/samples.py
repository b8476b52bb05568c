"""One image of a dataset: what it shows, where its defect is, and a name for its pixels.

Samples are lazy: having ten thousand of them reads no pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from dinosaur_ad.datasets.keys import file_sha256, make_key
from dinosaur_ad.datasets.transforms import Drift
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import Mask, Pixels, image_size, read_image, read_mask, read_mask_values

Regions: TypeAlias = list[tuple[Mask, int]]
"""Marked regions, each bool (H, W), and how many of its pixels have to be found for it to count as found."""


@runtime_checkable
class Sample(Protocol):
    """One labelled image that is produced when asked for, the same every time.

    Anything with these eight members is one; no base class is needed.
    """

    @property
    def name(self) -> str:
        """Unique within the task."""
        ...

    @property
    def label(self) -> int:
        """0: normal, 1: anomalous."""
        ...

    @property
    def kind(self) -> str:
        """``"good"``, or the defect's name."""
        ...

    def image(self) -> Pixels:
        """The pixels: uint8 (H, W, 3)."""
        ...

    def mask(self) -> Mask | None:
        """Where the defect is: bool (H, W), all False for a normal image, None when nobody marked it."""
        ...

    def valid(self) -> Mask | None:
        """Which pixels count in pixel metrics: bool (H, W), None when all do."""
        ...

    def regions(self) -> Regions | None:
        """What AU-sPRO needs, region by region; None when the dataset does not say how much must be found."""
        ...

    def key(self) -> str:
        """A name for the pixels: samples with equal keys have equal pixels; reads no more than the file's bytes."""
        ...


@dataclass(frozen=True)
class Saturation:
    """How much of a marked region has to be found: a share of it, or so many pixels.

    >>> Saturation(0.5, relative=True).pixels(9), Saturation(400, relative=False).pixels(900)
    (4, 400)
    """

    threshold: float
    relative: bool

    def pixels(self, area: int) -> int:
        """Out of ``area`` pixels, rounded down as the official evaluator does; at least 1, at most all of them."""
        return max(1, int(self.threshold * area) if self.relative else int(min(self.threshold, area)))


@dataclass(frozen=True)
class FileSample:
    """A :class:`Sample` that lives in a file, with or without drift.

    Several ``mask_paths`` are united; an anomalous sample without any has an unknown mask. ``saturations`` says, for
    the grey value of a mask file, how much of that region has to be found (MVTec-LOCO).

    >>> FileSample("crack/007.png", Path("tiles/test/crack/007.png"), label=1, kind="crack").mask() is None
    True
    """

    name: str
    path: Path
    label: int = 0
    kind: str = "good"
    mask_paths: tuple[Path, ...] = ()
    drift: Drift | None = None
    saturations: tuple[tuple[int, Saturation], ...] = ()

    def image(self) -> Pixels:
        """The pixels after drift: uint8 (H, W, 3)."""
        pixels = read_image(self.path)
        return pixels if self.drift is None else self.drift.image(pixels)

    def mask(self) -> Mask | None:
        """Where the defect is after drift: bool (H, W), or None when unknown."""
        if self.label == 0:
            return np.zeros(image_size(self.path), dtype=np.bool_)
        if not self.mask_paths:
            return None
        mask = read_mask(self.mask_paths)
        self._check_size(mask, self.mask_paths[0])
        return mask if self.drift is None else self.drift.mask(mask)

    def valid(self) -> Mask | None:
        """Pixels that show the product and not what drift left empty: bool (H, W), or None when all do."""
        return None if self.drift is None else self.drift.valid(image_size(self.path))

    def regions(self) -> Regions | None:
        """One region for each mask file, moved by the drift; none for a normal image."""
        if not self.saturations or (self.label == 1 and not self.mask_paths):
            return None
        regions = [self._region(path) for path in self.mask_paths]
        return regions if self.drift is None else move_regions(regions, self.drift)

    def key(self) -> str:
        """From the file's bytes and the drift, not from where the file lies or what it is called."""
        return make_key("file", file_sha256(self.path), None if self.drift is None else self.drift.params())

    def _region(self, path: Path) -> tuple[Mask, int]:
        values = read_mask_values(path)
        self._check_size(values, path)
        found = np.unique(values[values > 0]).tolist()
        if len(found) != 1:
            raise InputError(
                f"The mask '{path}' has {len(found)} grey values above 0; the mask of one defect has one: give one "
                "file for each defect."
            )
        saturations = dict(self.saturations)
        if found[0] not in saturations:
            raise InputError(
                f"The mask '{path}' has the grey value {found[0]}, which the dataset's configuration does not name; "
                "extract the dataset again."
            )
        mask: Mask = values > 0
        return mask, saturations[found[0]].pixels(int(mask.sum()))

    def _check_size(self, mask: npt.NDArray[Any], path: Path) -> None:
        expected = image_size(self.path)
        if mask.shape != expected:
            raise InputError(
                f"The mask '{path}' is {_size(mask.shape)} but its image '{self.path}' is {_size(expected)}; "
                "give a mask of the image's size."
            )


@dataclass(frozen=True)
class DriftedSample:
    """Any other sample under drift, itself a :class:`Sample` of the same name and label."""

    sample: Sample
    drift: Drift

    @property
    def name(self) -> str:
        """The name of the sample."""
        return self.sample.name

    @property
    def label(self) -> int:
        """0: normal, 1: anomalous."""
        return self.sample.label

    @property
    def kind(self) -> str:
        """``"good"``, or the defect's name."""
        return self.sample.kind

    def image(self) -> Pixels:
        """The pixels after drift: uint8 (H, W, 3)."""
        return self.drift.image(self.sample.image())

    def mask(self) -> Mask | None:
        """Where the defect is after drift: bool (H, W), or None when unknown."""
        mask = self.sample.mask()
        return None if mask is None else self.drift.mask(mask)

    def valid(self) -> Mask | None:
        """The pixels that counted before and are still in the picture: bool (H, W), or None when all do."""
        before, mask = self.sample.valid(), self.sample.mask()
        height, width = self.sample.image().shape[:2] if mask is None else mask.shape  # a mask is cheaper to have
        kept = self.drift.valid((height, width))
        if before is None:
            return kept
        moved = self.drift.mask(before)
        return moved if kept is None else moved & kept

    def regions(self) -> Regions | None:
        """The sample's regions, moved by the drift."""
        regions = self.sample.regions()
        return None if regions is None else move_regions(regions, self.drift)

    def key(self) -> str:
        """From the sample's key and the drift."""
        return make_key("drifted", self.sample.key(), self.drift.params())


def move_regions(regions: Regions, drift: Drift) -> Regions:
    """Regions after drift; the share of each that has to be found stays the same, one out of the picture is empty."""
    moved = [(drift.mask(mask), needed, int(mask.sum())) for mask, needed in regions]
    return [(mask, max(1, needed * int(mask.sum()) // max(area, 1))) for mask, needed, area in moved]


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]} pixels"
