"""The features of photos as the method asks for them: cached or computed, matched to an exposure, held on a GPU.

The detector encodes each image when it is inspected. A benchmark scores the same photos again after every task, so what
is computed once is kept: tokens in the cache of the run, descriptors and brightness here, blocks of patches on the GPU.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank_files import as_it_is
from dinosaur_ad.bank.image_features import FeatureExtractor, ImageFeatures
from dinosaur_ad.bank.teaching import moved_pixels
from dinosaur_ad.core.arrays import Array
from dinosaur_ad.core.exposure import THUMBNAIL, Exposure, measure_exposure, thumbnails
from dinosaur_ad.encoders import Encoder
from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.methods.contract import Floats, Photo, Workbench
from dinosaur_ad.presets import Preset

ENCODE_AT_ONCE_GPU = 512
# Features that may stay on a GPU: those of a drift scenario at one exposure, so that several cells can share it.
GPU_FEATURES = 12 * 2**30


class _PhotoLight(NamedTuple):
    """Thumbnail and exposure of a photo before it is encoded."""

    thumbnail_P: Floats
    exposure_2: Floats


class PhotoFeatures:
    """The features of photos through one encoder and preset; ``put`` brings an array to where products are computed."""

    def __init__(self, preset: Preset, encoder: Encoder, workbench: Workbench) -> None:
        self._preset = preset
        self._encoder = encoder
        self._workbench = workbench
        self.put = array_mover(workbench.device)
        self._extractor = FeatureExtractor(preset, lambda: encoder)
        self._resident = _Resident(_gpu_room(workbench.device))
        self._brightness: dict[str, _PhotoLight] = {}
        self._descriptors: dict[tuple[str, Exposure | None], Floats] = {}

    # --- before encoding ---

    def _measured(self, photo: Photo) -> _PhotoLight:
        """Thumbnail and exposure of a photo; computed once."""
        if photo.key not in self._brightness:
            pixels = self._workbench.cache.prepared([photo], self._encoder.size)
            self._brightness[photo.key] = _PhotoLight(thumbnails(pixels)[0], measure_exposure(pixels)[0])
        return self._brightness[photo.key]

    def thumbnails(self, photos: Sequence[Photo]) -> Floats:
        """Small copies of photos (N, P), by which the product is guessed that they show."""
        return np.stack([self._measured(photo).thumbnail_P for photo in photos])

    def exposures(self, photos: Sequence[Photo]) -> Floats:
        """The measured exposure of each photo (N, 2)."""
        return np.stack([self._measured(photo).exposure_2 for photo in photos])

    # --- encoding ---

    def of_each(self, photos: Sequence[Photo], exposures: Sequence[Exposure | None]) -> tuple[Floats, Floats]:
        """The features of photos, each matched to its exposure."""
        if len(set(exposures)) == 1:
            return self.of(photos, exposures[0])
        found: dict[int, tuple[Floats, Floats]] = {}
        for exposure in dict.fromkeys(exposures):
            rows = [n for n, each in enumerate(exposures) if each == exposure]
            found |= dict(zip(rows, zip(*self.of([photos[n] for n in rows], exposure), strict=True), strict=True))
        cls, patches = zip(*(found[n] for n in range(len(photos))), strict=True)
        return np.stack(cls), np.stack(patches)

    def of(
        self, photos: Sequence[Photo], exposure: Exposure | None = None, turn: int | None = None
    ) -> tuple[Floats, Floats]:
        """CLS (N, C) and patch features (N, H, W, C), from the cache where it has them; ``turn`` numbers a copy."""
        recipe = f"{self._encoder.fingerprint}-{self._preset.normalise:d}{self._preset.average:d}"
        if exposure is not None or turn is not None:
            recipe += f"-{exposure}-{turn}-{self._encoder.provider}-{self._encoder.precision}"

        def encode(group: Sequence[Photo]) -> Floats:
            return self._encode(group, exposure, turn)

        if self._workbench.device == "cpu":
            tokens_NTC = self._workbench.cache.features(recipe, photos, encode)
        else:  # a GPU encodes faster than a disk reads
            tokens_NTC = np.concatenate([encode(group) for group in batched(photos, ENCODE_AT_ONCE_GPU)])
        patches_NPC = np.ascontiguousarray(tokens_NTC[:, 1:])
        return tokens_NTC[:, 0], patches_NPC.reshape(len(photos), *self._encoder.grid, -1)

    def _encode(self, photos: Sequence[Photo], exposure: Exposure | None, turn: int | None) -> Floats:
        """The features of an image as one array (N, 1 + H * W, C): CLS, then the patches."""
        pixels = self._workbench.cache.prepared(photos, self._encoder.size)
        if turn is not None:
            pixels = np.stack([moved_pixels(image, turn) for image in pixels])
        # A batch at a time: the tokens of several blocks are several times what is kept of them.
        batches = np.split(pixels, range(self._encoder.batch_size, len(pixels), self._encoder.batch_size))
        return np.concatenate([self._encode_batch(batch, exposure) for batch in batches])

    def _encode_batch(self, pixels: NDArray[np.uint8], exposure: Exposure | None) -> Floats:
        cls_NC, patches_NHWC = self._extractor.features(pixels, exposure)
        return np.concatenate([cls_NC[:, None], patches_NHWC.reshape(len(pixels), -1, cls_NC.shape[-1])], axis=1)

    def describe(self, cls_NC: Floats, patches_NHWC: Floats) -> Floats:
        """Descriptors (N, C') of encoded photos, by which they are routed."""
        return self._extractor.descriptors(cls_NC, patches_NHWC)

    def described(self, photos: Sequence[Photo], exposures: Sequence[Exposure | None]) -> tuple[Floats | None, Floats]:
        """Descriptors (N, C'), and the patch features if those of all photos were needed for that."""
        keys = [(photo.key, exposure) for photo, exposure in zip(photos, exposures, strict=True)]
        unknown = [n for n, key in enumerate(keys) if key not in self._descriptors]
        patches_NHWC = None
        if unknown:
            some = [photos[n] for n in unknown]
            cls_NC, patches_NHWC = self.of_each(some, [exposures[n] for n in unknown])
            rows = self.describe(cls_NC, patches_NHWC)
            self._descriptors |= {keys[n]: row for n, row in zip(unknown, rows, strict=True)}
        whole = patches_NHWC if len(unknown) == len(photos) else None
        return whole, np.stack([self._descriptors[key] for key in keys])

    def for_builder(self, photos: Sequence[Photo], cls_NC: Floats, patches_NHWC: Floats) -> ImageFeatures:
        """Features as the product's banks are built from; a benchmark has no guard, greys and pixels are left out."""
        return ImageFeatures(
            [photo.key for photo in photos],
            [""] * len(photos),
            patches_NHWC,
            self.describe(cls_NC, patches_NHWC),
            self.thumbnails(photos) if self._preset.exposure else np.zeros((len(photos), 3 * THUMBNAIL**2), np.float32),
            [],
            [],
            [],
        )

    def on_device(self, exposure: Exposure | None, photos: Sequence[Photo], known: Mapping[int, Floats]) -> Array:
        """Patch features of photos at one exposure, where products are computed; on a GPU they stay there.

        ``known`` are patches (H, W, C) of some of the photos, by their place, that were computed at this exposure.
        """
        keys = tuple(f"{photo.key} {exposure}" for photo in photos)
        resident_NHWC = self._resident.get(keys)
        if resident_NHWC is not None:
            return resident_NHWC
        others = [n for n in range(len(photos)) if n not in known]
        whole = dict(known)
        if others:
            whole |= dict(zip(others, self.of([photos[n] for n in others], exposure)[1], strict=True))
        patches_NHWC = self.put(np.stack([whole[n] for n in range(len(photos))]))
        self._resident.keep(keys, patches_NHWC)
        return patches_NHWC


class _Resident:
    """Blocks of features that stay on the GPU within a budget; the least recently used make room."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._blocks: OrderedDict[tuple[str, ...], Array] = OrderedDict()

    def get(self, keys: tuple[str, ...]) -> Array | None:
        """The block of these photos, if it is still there."""
        if keys in self._blocks:
            self._blocks.move_to_end(keys)
        return self._blocks.get(keys)

    def keep(self, keys: tuple[str, ...], block: Array) -> None:
        """Keep a block, at the cost of others."""
        self._blocks[keys] = block
        while sum(each.nbytes for each in self._blocks.values()) > self._budget:
            self._blocks.popitem(last=False)


def _gpu_room(device: str) -> int:
    """Half of what the GPU has free, up to what a scenario needs."""
    if device == "cpu":
        return 0
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    return min(int(free) // 2, GPU_FEATURES)


def array_mover(device: str) -> Callable[[NDArray[Any]], Array]:
    """What brings a NumPy array to where products are computed."""
    if device == "cpu":
        return as_it_is
    import torch

    # One copy, straight to the device. Unlike from_numpy it may read what is not writable, as banks are, and not warn.
    return lambda array: torch.tensor(array, device=device)
