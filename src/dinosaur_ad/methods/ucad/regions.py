"""The segmentation of an image, as one label for each cell of a grid; used in UCAD's training only.

A :class:`RegionMaker` returns labels ``(N, H, W)``: equal numbers are the same region, 0 is none. There are two:

* ``SamRegions`` (in ``regions_sam.py``): the automatic masks of a Segment-Anything model, larger ones painted first, so
  that parts lie over the whole. Needs the model's files: those of ``facebook/sam-vit-base``, as published, or
  ``mobile_sam.pt``, MobileSAM's, which has the same decoder behind a smaller image encoder.
* :class:`Superpixels`, a substitute without files: SLIC, of scikit-image where that is installed, otherwise a small
  one of our own (k-means on colour and position, without forcing regions to be connected). Superpixels are of
  about equal size and cut a plain background into several regions, which SAM does not.

A cell gets the label that most of its pixels have. The original resizes an image of labels bilinearly instead, which
makes labels that belong to no region where two of them meet.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.encoders.weights.weight_folder import cache_home
from dinosaur_ad.errors import EncoderError
from dinosaur_ad.images.loading import Pixels
from dinosaur_ad.methods.shared.torch_tools import import_torch

Labels = NDArray[np.int64]
RegionKind = Literal["auto", "sam", "mobile-sam", "superpixels"]

POINTS = 32  # a side, at which a Segment-Anything model is asked for masks, as published
MOBILE_SAM = "mobile_sam.pt"

COMPACTNESS = 10.0  # how many units of Lab colour count as much as the distance between two neighbouring superpixels
WORKING_CELLS = 4  # pixels a cell and side at which our own superpixels are computed
ROUNDS = 10


class RegionMaker(Protocol):
    """A segmentation method."""

    @property
    def recipe(self) -> str:
        """The cache key: everything besides the pixels that decides the labels."""
        ...

    @property
    def description(self) -> str:
        """The origin of the labels, in words."""
        ...

    def __call__(self, pixels: NDArray[np.uint8], grid: tuple[int, int]) -> Labels:
        """Labels (N, H, W) on ``grid`` of prepared images (N, S, S, 3), S a multiple of the grid."""
        ...


def make_regions(kind: RegionKind, *, segments: int, sam: str, device: str, points: int = POINTS) -> RegionMaker:
    """The maker of this kind; ``auto`` is SAM or else MobileSAM where its files are, and superpixels otherwise.

    ``sam`` names the folder or MobileSAM's file; without it they are looked for in the usual place.
    """
    models = {} if kind == "superpixels" else _models(Path(sam).expanduser() if sam else None)
    wanted = [each for each in ("sam", "mobile-sam") if each in models and kind in ("auto", each)]
    if wanted:
        import_torch()  # or raise an error that says what to install
        from dinosaur_ad.methods.ucad.regions_sam import SamRegions

        return SamRegions(models[wanted[0]], device, points=points)
    if kind in ("sam", "mobile-sam") or (kind == "auto" and sam):
        place = sam or cache_home() / "regions"
        what = {"sam": "Segment-Anything model", "mobile-sam": f"{MOBILE_SAM} (MobileSAM)"}.get(
            kind, "Segment-Anything model"
        )
        raise EncoderError(
            f"There is no {what} in {place}; put {MOBILE_SAM} or config.json and model.safetensors of "
            "facebook/sam-vit-base there, name another place with the setting 'sam', or use "
            "regions=superpixels instead."
        )
    return Superpixels(segments)


def _models(named: Path | None) -> dict[str, Path]:
    """The Segment-Anything models at a place, by kind; without a place, in the folder of cached weights."""
    usual = cache_home() / "regions"
    folder = named or usual / "sam-vit-base"
    mobile = usual / MOBILE_SAM if named is None else named if named.suffix == ".pt" else named / MOBILE_SAM
    found = {"sam": (folder, folder / "config.json"), "mobile-sam": (mobile, mobile)}
    return {kind: model for kind, (model, file) in found.items() if file.is_file()}


# --- superpixels ---


class Superpixels:
    """About ``segments`` regions of similar colour an image, by SLIC."""

    def __init__(self, segments: int, *, own: bool | None = None) -> None:
        self.segments = segments
        self._is_own = find_spec("skimage") is None if own is None else own

    @property
    def recipe(self) -> str:
        """Which implementation, and how many regions."""
        return f"regions-{'own-slic-v1' if self._is_own else 'skimage-slic'}-{self.segments}"

    @property
    def description(self) -> str:
        """The origin of the labels, named as a substitute."""
        whose = "our own SLIC" if self._is_own else "scikit-image's SLIC"
        return f"{self.segments} superpixels an image ({whose}) in the place of Segment-Anything's masks"

    def __call__(self, pixels: NDArray[np.uint8], grid: tuple[int, int]) -> Labels:
        """Labels (N, H, W)."""
        return np.stack([most_frequent(self._segment(image, grid), grid) for image in pixels])

    def _segment(self, image: Pixels, grid: tuple[int, int]) -> Labels:
        if self._is_own:
            return own_slic(shrink(image, (WORKING_CELLS * grid[0], WORKING_CELLS * grid[1])), self.segments)
        from skimage.segmentation import slic  # type: ignore[import-not-found,unused-ignore]

        labels: Labels = slic(image, n_segments=self.segments, compactness=COMPACTNESS, start_label=1)
        return labels


def own_slic(image_HWC: NDArray[np.float64], segments: int) -> Labels:
    """Labels 1.. (H, W) by k-means on Lab colour and position, the centres starting on a regular grid.

    ``image_HWC`` has values 0..1. Every pixel is compared with every centre: images are small here.
    """
    height, width = image_HWC.shape[:2]
    rows = max(1, min(height, round((segments * height / width) ** 0.5)))
    columns = max(1, min(width, round(segments / rows)))
    spacing = (height * width / (rows * columns)) ** 0.5
    y_HW, x_HW = np.mgrid[:height, :width]
    position_HW2 = np.stack([y_HW, x_HW], axis=-1) * (COMPACTNESS / spacing)
    points_PF = np.concatenate([to_lab(image_HWC), position_HW2], axis=-1).reshape(height * width, 5)
    # Centres of equal rectangles may lie between pixels; the colour is that of the next pixel.
    start_y = (np.arange(rows) + 0.5) * height / rows - 0.5
    start_x = (np.arange(columns) + 0.5) * width / columns - 0.5
    centres_KF = points_PF.reshape(height, width, 5)[
        np.ix_(*(np.ceil(each).astype(int) for each in (start_y, start_x)))
    ]
    centres_KF[..., 3:] = np.stack(np.meshgrid(start_y, start_x, indexing="ij"), axis=-1) * (COMPACTNESS / spacing)
    centres_KF = centres_KF.reshape(-1, 5)
    nearest_P = np.zeros(len(points_PF), np.int64)
    for _ in range(ROUNDS):
        nearest_P = ((centres_KF**2).sum(1) - 2 * points_PF @ centres_KF.T).argmin(1)
        count_K = np.bincount(nearest_P, minlength=len(centres_KF))
        sums_KF = np.stack([np.bincount(nearest_P, column, len(centres_KF)) for column in points_PF.T], axis=1)
        # An empty cluster keeps its centre.
        centres_KF = np.where(count_K[:, None] > 0, sums_KF / np.maximum(count_K, 1)[:, None], centres_KF)
    return nearest_P.reshape(height, width) + 1


def to_lab(rgb_HWC: NDArray[np.float64]) -> NDArray[np.float64]:
    """sRGB of 0..1 as CIE Lab (D65), where distances are about proportional to perceived differences.

    >>> to_lab(np.ones((1, 1, 3))).round(1).tolist()
    [[[100.0, 0.0, 0.0]]]
    """
    linear = np.where(rgb_HWC <= 0.04045, rgb_HWC / 12.92, ((rgb_HWC + 0.055) / 1.055) ** 2.4)
    to_xyz = np.asarray(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
    )
    xyz = linear @ (to_xyz / to_xyz.sum(axis=1, keepdims=True)).T
    root = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    x, y, z = np.moveaxis(root, -1, 0)
    lab: NDArray[np.float64] = np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1) + 0.0
    return lab


def shrink(image: Pixels, size: tuple[int, int]) -> NDArray[np.float64]:
    """The image (H, W, 3) as values 0..1 of another size, area-averaged."""
    from PIL import Image

    resized = Image.fromarray(image).resize((size[1], size[0]), Image.Resampling.BOX)
    values: NDArray[np.float64] = np.asarray(resized, np.float64) / 255
    return values


def most_frequent(labels_SS: Labels, grid: tuple[int, int]) -> Labels:
    """The label that most pixels of each cell have, (H, W); of equally frequent ones the smallest.

    >>> most_frequent(np.asarray([[1, 1, 2, 3], [1, 2, 3, 3]]), (1, 2)).tolist()
    [[1, 3]]
    """
    height, width = labels_SS.shape
    cells = labels_SS.reshape(grid[0], height // grid[0], grid[1], width // grid[1]).swapaxes(1, 2)
    points_CP = cells.reshape(grid[0] * grid[1], -1)
    names, index = np.unique(points_CP, return_inverse=True)
    votes_CL = np.zeros((len(points_CP), len(names)), np.int64)
    np.add.at(votes_CL, (np.arange(len(points_CP))[:, None], index.reshape(points_CP.shape)), 1)
    found: Labels = names[votes_CL.argmax(1)].reshape(grid).astype(np.int64)
    return found
