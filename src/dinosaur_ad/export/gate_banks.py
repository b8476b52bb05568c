"""The banks that score the images of the parity check: that of a store, or one taught for the occasion."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank import Bank, Memory, PackedVectors, levels, read_images
from dinosaur_ad.bank.bank_files import coarse_vectors, read_scale
from dinosaur_ad.bank.building import BankBuilder
from dinosaur_ad.bank.image_features import FeatureExtractor, PreparedImage
from dinosaur_ad.core.exposure import Exposure, match_exposure, measure_exposure, usual_exposure
from dinosaur_ad.core.features import combine_blocks
from dinosaur_ad.core.readings import Distances, ReadingScale
from dinosaur_ad.core.zones import Zone
from dinosaur_ad.encoders import Encoder, Tokens
from dinosaur_ad.presets import Preset

Floats = NDArray[np.float32]
Pixels = NDArray[np.uint8]


class Reading(NamedTuple):
    """Scores and median patch distances of images, both (N,)."""

    score_N: Floats
    level_N: Floats


class Scorer(NamedTuple):
    """A bank as the parity check uses it: distances to it, what is usual for its readings where there are several, and
    the exposure that images are matched to. Of a pair, the last ``tail`` channels are the second network's. Only a
    ``zone`` is inspected, if there is one."""

    preset: Preset
    distances: Callable[[Floats], Distances]
    scale: ReadingScale | None
    exposure: Exposure | None
    tail: int = 0
    zone: Zone | None = None

    @classmethod
    def of(cls, bank: Bank, preset: Preset, tail: int = 0) -> Scorer:
        """The bank of a store."""
        distances = partial(bank.distances, radius=preset.radius)
        return cls(preset, distances, bank.scale, bank.exposure, tail, bank.zone)

    @classmethod
    def taught(cls, reference: Encoder, preset: Preset, normals: Pixels, exposure: Exposure | None) -> Scorer:
        """A bank of the reference's own features of the normals, as the preset would keep it without moved copies."""
        features = FeatureExtractor(preset, lambda: reference)
        size = (preset.size, preset.size)
        images = [PreparedImage(str(number), pixels, str(number), size) for number, pixels in enumerate(normals)]
        # Only the readings need calibration images; there is no threshold.
        several = len(preset.readings) > 1
        builder = BankBuilder(preset, seed=0, kind="unseen" if several else "held-out")
        builder.add(features.learnable(images, exposure, [], {"encode": 0.0}, lambda done: None))
        arrays = builder.files()["bank"]
        packed = PackedVectors.read(arrays)
        coarse = coarse_vectors(arrays, packed) if "coarse" in preset.readings else None
        memory = Memory(packed, coarse=coarse)
        scale = read_scale(arrays, packed, len(preset.readings)) if several else None
        distances = partial(memory.distances, radius=preset.radius)
        return cls(preset, distances, scale, exposure, reference.tail)

    def read(self, tokens: Tokens) -> Reading:
        """Scores and levels of images by their tokens."""
        preset = self.preset
        patches_NHWC: Floats = combine_blocks(
            tokens.patches,
            len(preset.layers),
            normalise=preset.normalise,
            average=preset.average,
            tail=self.tail,
        )
        distances = self.distances(patches_NHWC)
        score_N = read_images(distances, preset, self.scale, self.zone).score_N
        return Reading(score_N, levels(distances, self.zone if self.scale else None))


def exposure_of(preset: Preset, normals: Pixels) -> Exposure | None:
    """What images would be matched to if those normals were learned; None with a preset that matches nothing."""
    return usual_exposure(measure_exposure(normals)) if preset.exposure and len(normals) else None


def matched(pixels: Pixels, exposure: Exposure | None) -> Pixels:
    """Images (N, S, S, 3) as the encoder shall see them."""
    return pixels if exposure is None else match_exposure(pixels, measure_exposure(pixels), exposure)
