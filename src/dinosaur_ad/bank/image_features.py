"""From images to features: read, encoded, and combined as the preset says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.arrays import Array
from dinosaur_ad.core.exposure import Exposure, match_exposure, measure_exposure, thumbnails
from dinosaur_ad.core.features import combine_blocks, describe
from dinosaur_ad.core.outliers import black_and_white, grey_histogram, grey_range
from dinosaur_ad.core.registration import Reference
from dinosaur_ad.core.tiles import LargeImage, Tiling
from dinosaur_ad.encoders import Encoder
from dinosaur_ad.errors import EncoderError
from dinosaur_ad.images.alignment import registered
from dinosaur_ad.images.finding import name_of
from dinosaur_ad.images.image_stream import Images, ImageStream, batched, prepared_batches, stream_images, timed
from dinosaur_ad.images.loading import digest
from dinosaur_ad.inspection import Rejected
from dinosaur_ad.presets import Preset

Floats = NDArray[np.float32]
Progress = Callable[[int, int | None], None]
"""Called with the images done and, where that is known, in all."""


class OpenedImages(NamedTuple):
    """Images that are about to be read: how many, if that is known."""

    total: int | None
    stream: ImageStream


class PreparedImage(NamedTuple):
    """An image that is ready to be encoded: its name, pixels (S, S, 3), digest and (height, width) before resizing.

    ``large`` is the image for the tiling of its task, if that has one.
    """

    name: str
    pixels: NDArray[np.uint8]
    digest: str
    size: tuple[int, int]
    large: LargeImage | None = None


class ImageFeatures(NamedTuple):
    """Normal images as a task learns them: names, digests, patches (N, H, W, C) and descriptors (N, C').

    ``thumbnail_NP`` are those of :mod:`dinosaur_ad.core.exposure`; ``grey_ranges`` and ``black_and_white`` are those of
    :mod:`dinosaur_ad.core.outliers`. ``pixels`` are the images as they were prepared.
    """

    names: list[str]
    digests: list[str]
    patches_NHWC: Floats
    descriptor_NC: Floats
    thumbnail_NP: Floats
    grey_ranges: list[int]
    black_and_white: list[float]
    pixels: list[NDArray[np.uint8]]

    def some(self, rows: NDArray[np.intp]) -> ImageFeatures:
        """Those of some of the images."""
        chosen = rows.tolist()
        return ImageFeatures(
            [self.names[n] for n in chosen],
            [self.digests[n] for n in chosen],
            self.patches_NHWC[rows],
            self.descriptor_NC[rows],
            self.thumbnail_NP[rows],
            [self.grey_ranges[n] for n in chosen],
            [self.black_and_white[n] for n in chosen],
            [self.pixels[n] for n in chosen],
        )

    def exposures(self) -> Floats:
        """Mean and spread of the brightness of each image ``(N, 2)``; none where pixels are not kept."""
        each = [measure_exposure(pixels[None]) for pixels in self.pixels]
        return np.concatenate([np.empty((0, 2), np.float32), *each])

    def sums(self) -> ImageSums:
        """What the prototype is the mean of, summed over the images."""
        summed = (each.sum(axis=0, dtype=np.float64) for each in (self.descriptor_NC, self.thumbnail_NP))
        return ImageSums(*summed)


class ImageSums(NamedTuple):
    """Sums of descriptors (C') and thumbnails over images."""

    descriptor_C: NDArray[np.float64]
    thumbnail_P: NDArray[np.float64]

    def plus(self, more: ImageSums) -> ImageSums:
        """With more images."""
        return ImageSums(*(mine + theirs for mine, theirs in zip(self, more, strict=True)))


class FeatureExtractor:
    """Computes features of images; ``load`` returns the encoder and is called when the first image needs it."""

    def __init__(self, preset: Preset, load: Callable[[], Encoder]) -> None:
        self._preset = preset
        self._load = load
        self._encoder: Encoder | None = None
        self._controls: dict[tuple[Exposure | None, Tiling | None], Floats] = {}

    @property
    def encoder(self) -> Encoder:
        """The frozen backbone; loaded when first needed."""
        if self._encoder is None:
            self._encoder = self._load()
        return self._encoder

    def features(self, pixels: NDArray[np.uint8], exposure: Exposure | None = None) -> tuple[Floats, Floats]:
        """CLS (N, C) and patch features (N, H, W, C) of prepared images (N, S, S, 3), matched to an exposure."""
        if self.encoder.matches not in (None, exposure):
            raise EncoderError(
                "The export matches the brightness of images itself, to that of the task whose bank is in its graph, "
                "and so can inspect no other; export the encoder without --with-bank."
            )
        if exposure is not None and self.encoder.matches is None:
            pixels = match_exposure(pixels, measure_exposure(pixels), exposure)
        tokens = self.encoder.encode_prepared(pixels, self._combine)
        return tokens.cls, tokens.patches

    def _combine(self, token_C: Array) -> Array:
        """The features that the preset makes of the blocks' tokens."""
        preset = self._preset
        return combine_blocks(
            token_C,
            len(preset.layers),
            normalise=preset.normalise,
            average=preset.average,
            tail=self.encoder.tail,
        )

    def descriptors(self, cls_NC: Floats, patches_NHWC: Floats) -> Floats:
        """What images are routed by (N, C')."""
        descriptor_NC: Floats = describe(cls_NC, patches_NHWC, with_patches=self._preset.describe_patches)
        return descriptor_NC

    def encode(self, pixels: NDArray[np.uint8], exposure: Exposure | None = None) -> tuple[Floats, Floats]:
        """Patch features (N, H, W, C) and descriptors (N, C') of prepared images (N, S, S, 3)."""
        cls_NC, patches_NHWC = self.features(pixels, exposure)
        return patches_NHWC, self.descriptors(cls_NC, patches_NHWC)

    def tile_patches(self, image: LargeImage, exposure: Exposure | None = None) -> Floats:
        """Patch features (H, W, C) of a large image, matched to an exposure as a whole; a few tiles at a time."""
        tiling, pixels_HWC = image
        if self.encoder.matches is not None:
            raise EncoderError("The export cannot inspect tiles; export the encoder without --with-bank.")
        if exposure is not None:
            (pixels_HWC,) = match_exposure(pixels_HWC[None], measure_exposure(pixels_HWC[None]), exposure)
        grid_HWC: Floats | None = None
        for tiles in batched(tiling.cut(pixels_HWC), self.encoder.batch_size):
            _, patches_NHWC = self.features(np.stack([each for _, each in tiles]))
            if grid_HWC is None:
                grid_HWC = np.empty((*tiling.grid, patches_NHWC.shape[3]), np.float32)
            for (number, _), patches_hwC in zip(tiles, patches_NHWC, strict=True):
                tiling.put(grid_HWC, number, patches_hwC)
        assert grid_HWC is not None
        return grid_HWC

    def prepare(
        self,
        images: Images | OpenedImages,
        rejected: list[Rejected],
        seconds: dict[str, float],
        tiling: Tiling | None = None,
    ) -> tuple[int | None, Iterator[PreparedImage]]:
        """How many images there are, if that is known, and each that could be read; the others go to ``rejected``.

        So do those that do not fit the ``tiling`` of a task. The time is added to ``seconds["read"]``.
        """
        opened = images if isinstance(images, OpenedImages) else OpenedImages(*stream_images(images))
        total, stream, tilings = opened.total, opened.stream, (tiling,) if tiling else ()
        at_once = 4 * self.encoder.batch_size

        def prepared() -> Iterator[PreparedImage]:
            for batch, waited in timed(prepared_batches(stream, total, at_once, self._preset.size, tilings)):
                rejected.extend(Rejected(each.label, each.error) for each in batch.images if each.error)
                seconds["read"] += waited / 1e3
                for image, pixels in zip(batch.readable, batch.pixels, strict=True):
                    # Absolute, so that the file is found again from any working directory.
                    name = image.label if image.path is None else name_of(image.path.absolute())
                    height, width = image.shape[0], image.shape[1]
                    if tiling and not image.large:
                        rejected.append(Rejected(image.label, other_size(image.label, (height, width), tiling)))
                        continue
                    large = image.large[0] if image.large else None
                    yield PreparedImage(name, pixels, digest(pixels), (height, width), large)

        return total, prepared()

    def learnable(
        self,
        images: list[PreparedImage],
        exposure: Exposure | None,
        rejected: list[Rejected],
        seconds: dict[str, float],
        progress: Callable[[int], None],
    ) -> ImageFeatures:
        """Features of images that are to be learned; those without are added to ``rejected``.

        The time is added to ``seconds["encode"]``; ``progress`` is called with the number of images done.
        """
        kept: list[PreparedImage] = []
        patches, descriptors = [], []
        started = time.perf_counter()
        for done, batch in _counted(images, 4 * self.encoder.batch_size):
            patches_NHWC, descriptor_NC = self.encode(np.stack([each.pixels for each in batch]), exposure)
            if all(each.large for each in batch):
                patches_NHWC = np.stack([self.tile_patches(each.large, exposure) for each in batch if each.large])
            for image, patches_HWC, descriptor_C in zip(batch, patches_NHWC, descriptor_NC, strict=True):
                if np.isfinite(patches_HWC).all():
                    kept.append(image)
                    patches.append(patches_HWC)
                    descriptors.append(descriptor_C)
                else:
                    rejected.append(self.not_finite(image.name))
            progress(done)
        seconds["encode"] += time.perf_counter() - started
        greys = [grey_histogram(image.pixels) for image in kept]
        return ImageFeatures(
            [image.name for image in kept],
            [image.digest for image in kept],
            np.stack(patches) if patches else np.empty((0, *self.encoder.grid, 0), np.float32),
            np.stack(descriptors) if descriptors else np.empty((0, 0), np.float32),
            thumbnails(np.stack([image.pixels for image in kept])) if kept else np.empty((0, 0), np.float32),
            [grey_range(grey) for grey in greys],
            [black_and_white(grey) for grey in greys],
            [image.pixels for image in kept],
        )

    def controls(self, exposure: Exposure | None = None, tiling: Tiling | None = None) -> Floats:
        """Patch features (6, H, W, C) of the control images, matched to an exposure; encoded once for each.

        With a tiling every tile shows the whole picture.
        """
        if (exposure, tiling) not in self._controls:
            if tiling is None:
                self._controls[exposure, None], _ = self.encode(control_images(self._preset.size), exposure)
            else:
                whole_NHWC = self.controls(exposure)
                tiled = [tiling.stitch(np.broadcast_to(each, (tiling.count, *each.shape))) for each in whole_NHWC]
                self._controls[exposure, tiling] = np.stack(tiled)
        return self._controls[exposure, tiling]

    def not_finite(self, label: str) -> Rejected:
        """An image for which the encoder returned NaN or infinity."""
        encoder = self.encoder
        return Rejected(
            label,
            f"'{label}' cannot be judged: the encoder '{encoder.name}' gives values that are no numbers on "
            f"{encoder.provider} in {encoder.precision}; choose another provider or precision.",
        )


def other_size(label: str, size: tuple[int, int], tiling: Tiling) -> str:
    """Why an image of that (height, width) is not cut into the tiles of a task."""
    return (
        f"'{label}' is {size[1]} x {size[0]} pixels, and the product was learned in {tiling.columns}x{tiling.rows} "
        f"tiles from photos of {tiling.width} x {tiling.height}; give photos of that size, or learn it anew from these."
    )


def _counted(images: list[PreparedImage], size: int) -> Iterator[tuple[int, list[PreparedImage]]]:
    """Batches of images, each with the number of images up to its end."""
    done = 0
    for batch in batched(images, size):
        done += len(batch)
        yield done, batch


def registered_images(images: list[PreparedImage], reference: Reference | None) -> list[PreparedImage]:
    """The images registered to a reference, those without a confident estimate as they are; digests stay."""
    if reference is None or not images:
        return images
    pixels_NHWC, _ = registered(np.stack([image.pixels for image in images]), reference)
    return [image._replace(pixels=pixels) for image, pixels in zip(images, pixels_NHWC, strict=True)]


def without_duplicates(
    images: Iterable[PreparedImage], known: set[str], duplicates: list[str]
) -> Iterator[PreparedImage]:
    """The images whose digest is not known yet, each once; ``duplicates`` gets the names of the others."""
    for image in images:
        if image.digest in known:
            duplicates.append(image.name)
        else:
            known.add(image.digest)
            yield image


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
