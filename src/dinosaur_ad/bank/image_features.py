"""From images to features: read, encoded, and combined as the preset says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.features import combine_blocks, describe
from dinosaur_ad.core.outliers import black_and_white, grey_histogram, grey_range
from dinosaur_ad.encoders import Encoder
from dinosaur_ad.images.finding import name_of
from dinosaur_ad.images.loading import digest
from dinosaur_ad.images.stream import Images, prepared_batches, stream_images, timed
from dinosaur_ad.inspection import Rejected
from dinosaur_ad.presets import Preset

Floats = NDArray[np.float32]
Progress = Callable[[int, int | None], None]
"""Called with the images done and, where that is known, in all."""


class ImageFeatures(NamedTuple):
    """A normal image as a task learns it: its name, patches (H, W, C), descriptor (C') and digest.

    ``grey_range`` and ``black_and_white`` are those of :mod:`dinosaur_ad.core.outliers`.
    """

    name: str
    patches_HWC: Floats
    descriptor_C: Floats
    digest: str
    grey_range: int
    black_and_white: float


class FeatureExtractor:
    """Computes features of images; ``load`` returns the encoder and is called when the first image needs it."""

    def __init__(self, preset: Preset, load: Callable[[], Encoder]) -> None:
        self._preset = preset
        self._load = load
        self._encoder: Encoder | None = None
        self._controls: Floats | None = None

    @property
    def encoder(self) -> Encoder:
        """The frozen backbone; loaded when first needed."""
        if self._encoder is None:
            self._encoder = self._load()
        return self._encoder

    def features(self, pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:
        """CLS features (N, C) and patch features (N, H, W, C) of prepared images (N, S, S, 3)."""
        preset, tokens = self._preset, self.encoder.encode_prepared(pixels)
        cls_NC, patches_NHWC = (
            combine_blocks(token, len(preset.layers), normalise=preset.normalise, average=preset.average)
            for token in (tokens.cls, tokens.patches)
        )
        return cls_NC, patches_NHWC

    def descriptors(self, cls_NC: Floats, patches_NHWC: Floats) -> Floats:
        """What images are routed by (N, C')."""
        descriptor_NC: Floats = describe(cls_NC, patches_NHWC, with_patches=self._preset.describe_patches)
        return descriptor_NC

    def encode(self, pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:
        """Patch features (N, H, W, C) and descriptors (N, C') of prepared images (N, S, S, 3)."""
        cls_NC, patches_NHWC = self.features(pixels)
        return patches_NHWC, self.descriptors(cls_NC, patches_NHWC)

    def read(
        self, images: Images, rejected: list[Rejected], seconds: dict[str, float], progress: Progress | None
    ) -> Iterator[ImageFeatures]:
        """Every image that can be learned from; the others are appended to ``rejected``.

        The time is added to ``seconds["read"]`` and ``seconds["encode"]``.
        """
        done, (total, stream) = 0, stream_images(images)
        for batch, waited in timed(prepared_batches(stream, total, 4 * self.encoder.batch_size, self._preset.size)):
            started = time.perf_counter()
            rejected += [Rejected(each.label, each.error) for each in batch.images if each.error]
            seconds["read"] += waited / 1e3
            if len(batch.pixels):
                patches_NHWC, descriptor_NC = self.encode(batch.pixels)
                seconds["encode"] += time.perf_counter() - started
                for image, pixels, patches_HWC, descriptor_C in zip(
                    batch.readable, batch.pixels, patches_NHWC, descriptor_NC, strict=True
                ):
                    if np.isfinite(patches_HWC).all():
                        # Absolute, so that the file is found again from any working directory.
                        name = image.label if image.path is None else name_of(image.path.absolute())
                        grey = grey_histogram(pixels)
                        look = grey_range(grey), black_and_white(grey)
                        yield ImageFeatures(name, patches_HWC, descriptor_C, digest(pixels), *look)
                    else:
                        rejected.append(self.not_finite(image.label))
            done += len(batch.images)
            if progress:
                progress(done, total)

    def controls(self) -> Floats:
        """Patch features (6, H, W, C) of the control images; encoded once."""
        if self._controls is None:
            self._controls, _ = self.encode(control_images(self._preset.size))
        return self._controls

    def not_finite(self, label: str) -> Rejected:
        """An image for which the encoder returned NaN or infinity."""
        encoder = self.encoder
        return Rejected(
            label,
            f"'{label}' cannot be judged: the encoder '{encoder.name}' gives values that are no numbers on "
            f"{encoder.provider} in {encoder.precision}; choose another provider or precision.",
        )


def without_duplicates(block: Iterable[ImageFeatures], known: set[str], duplicates: list[str]) -> list[ImageFeatures]:
    """The images of a block whose digest is not known yet, each once; ``duplicates`` gets the names of the others."""
    new = []
    for features in block:
        if features.digest in known:
            duplicates.append(features.name)
        else:
            known.add(features.digest)
            new.append(features)
    return new


def control_images(size: int) -> NDArray[np.uint8]:
    """Six images (6, size, size, 3) that show no product: black, grey, white, noise, coarse colours, a chessboard.

    Every task must be able to call them anomalous. A covered lens, an empty belt, a wrong exposure and a broken camera
    look like the first four.

    >>> control_images(28).shape
    (6, 28, 28, 3)
    """
    random = np.random.default_rng(20)
    row, column = np.indices((size, size))
    cell = max(1, size // 8)
    coarse = random.integers(0, 256, (9, 9, 3), np.uint8)
    board = np.where((row // cell + column // cell) % 2, 255, 0).astype(np.uint8)
    flat = [np.full((size, size, 3), level, np.uint8) for level in (0, 128, 255)]
    noise = random.integers(0, 256, (size, size, 3), np.uint8)
    return np.stack([*flat, noise, coarse[row // cell % 9, column // cell % 9], np.repeat(board[..., None], 3, axis=2)])
