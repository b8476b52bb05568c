"""Images to be compared with several tasks, each encoded once for every brightness and place that a task wants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.bank.position import Pose
from dinosaur_ad.core.exposure import Exposure
from dinosaur_ad.core.registration import Reference, Transform
from dinosaur_ad.core.tiles import LargeImage, Tiling
from dinosaur_ad.images.alignment import registered

Floats = NDArray[np.float32]


class EncodedImages:
    """Prepared images (N, S, S, 3), each encoded once for every pose that it is asked for with.

    An image that has no confident place in a reference is encoded as it lies, once for all of them.

    ``large`` are the same images for the tilings that each fits, ``described`` the poses that they were described in.
    """

    def __init__(
        self,
        features: FeatureExtractor,
        pixels: NDArray[np.uint8],
        large: Sequence[tuple[LargeImage, ...]] | None = None,
    ) -> None:
        self.pixels = pixels
        self.described = [Pose()] * len(pixels)
        self._features = features
        self._large = [{each.tiling: each for each in some} for some in large or [()] * len(pixels)]
        self._known_large: dict[tuple[int, Exposure | None, Tiling], Floats] = {}
        self._known: dict[tuple[int, Pose], tuple[Floats, Floats]] = {}
        self._registered: dict[tuple[int, Reference], tuple[NDArray[np.uint8], Transform | None]] = {}

    def posed(self, poses: Sequence[Pose]) -> tuple[Floats, Floats]:
        """Patches (N, H, W, C) and descriptors (N, C'), each image in its pose."""
        self.described = list(poses)
        for pose in dict.fromkeys(poses):
            self._encode([n for n, each in enumerate(poses) if each == pose], pose)
        found = (self._known[n, self._pose(n, each)] for n, each in enumerate(poses))
        patches, descriptors = zip(*found, strict=True)
        return np.stack(patches), np.stack(descriptors)

    def patches(self, rows: Sequence[int], pose: Pose, tiling: Tiling | None = None) -> Floats:
        """Patches of some of the images in one pose; with a tiling those of their tiles, which are not registered."""
        if tiling is None:
            self._encode(rows, pose)
            return np.stack([self._known[n, self._pose(n, pose)][0] for n in rows])
        for n in rows:
            if (n, pose.exposure, tiling) not in self._known_large:
                patches_HWC = self._features.tile_patches(self._large[n][tiling], pose.exposure)
                self._known_large[n, pose.exposure, tiling] = patches_HWC
        return np.stack([self._known_large[n, pose.exposure, tiling] for n in rows])

    def fits(self, n: int, tiling: Tiling | None) -> bool:
        """Whether an image can be compared with the tasks of a tiling."""
        return tiling is None or tiling in self._large[n]

    def moved(self, rows: Sequence[int], reference: Reference | None) -> list[Transform | None]:
        """How some of the images were moved to be where a reference has them."""
        self._register(rows, reference)
        return [None if reference is None else self._registered[n, reference][1] for n in rows]

    def _pose(self, n: int, pose: Pose) -> Pose:
        """The pose that an image is in: without the reference where it was not moved."""
        moved = pose.reference is not None and self._registered[n, pose.reference][1] is not None
        return pose if moved else pose._replace(reference=None)

    def _register(self, rows: Sequence[int], reference: Reference | None) -> None:
        if reference is None:
            return
        new = [n for n in rows if (n, reference) not in self._registered]
        if new:
            pixels_NHWC, moved = registered(self.pixels[new], reference)
            self._registered |= {(n, reference): (pixels_NHWC[k], moved[k]) for k, n in enumerate(new)}

    def _encode(self, rows: Sequence[int], pose: Pose) -> None:
        self._register(rows, pose.reference)
        for own in dict.fromkeys(self._pose(n, pose) for n in rows):
            new = [n for n in rows if self._pose(n, pose) == own and (n, own) not in self._known]
            if new:
                pixels = self.pixels[new]
                if own.reference is not None:
                    pixels = np.stack([self._registered[n, own.reference][0] for n in new])
                patches_NHWC, descriptor_NC = self._features.encode(pixels, own.exposure)
                self._known |= {(n, own): (patches_NHWC[k], descriptor_NC[k]) for k, n in enumerate(new)}
