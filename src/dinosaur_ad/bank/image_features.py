"""Images as the banks of a store compare them: read, encoded, and combined as the preset says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.features import combine_blocks, describe
from dinosaur_ad.encoders import Encoder
from dinosaur_ad.images.batches import prepared_groups
from dinosaur_ad.images.digest import digest
from dinosaur_ad.images.foreign_pictures import foreign_pictures
from dinosaur_ad.images.printing import name_of
from dinosaur_ad.images.stream import Images, stream_images, timed
from dinosaur_ad.inspection import Rejected
from dinosaur_ad.presets import Preset

Floats = NDArray[np.float32]
Progress = Callable[[int, int | None], None]


class Features(NamedTuple):
    """A normal image as a task learns it: its name, patches (H, W, C), descriptor (C') and digest."""

    name: str
    patches_HWC: Floats
    descriptor_C: Floats
    digest: str


class ImageFeatures:
    """What turns images into features; ``load`` gives the encoder, when the first image needs it."""

    def __init__(self, preset: Preset, load: Callable[[], Encoder]) -> None:
        self._preset = preset
        self._load = load
        self._encoder: Encoder | None = None
        self._foreign: Floats | None = None

    @property
    def encoder(self) -> Encoder:
        """The frozen backbone; loaded when first needed."""
        if self._encoder is None:
            self._encoder = self._load()
        return self._encoder

    def encode(self, pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:
        """Patch features (N, H, W, C) and routing descriptors (N, C') of prepared images (N, S, S, 3)."""
        preset, tokens = self._preset, self.encoder.encode_prepared(pixels)
        cls_NC, patches_NHWC = (
            combine_blocks(token, len(preset.layers), normalise=preset.normalise, average=preset.average)
            for token in (tokens.cls, tokens.patches)
        )
        return patches_NHWC, describe(cls_NC, patches_NHWC, with_patches=preset.describe_patches)

    def read(
        self, images: Images, rejected: list[Rejected], seconds: dict[str, float], progress: Progress | None
    ) -> Iterator[Features]:
        """Every image that can be learned from; the others go to ``rejected``.

        The time goes to ``seconds["read"]`` and ``seconds["encode"]``.
        """
        done, (total, stream) = 0, stream_images(images)
        for group, waited in timed(prepared_groups(stream, total, 4 * self.encoder.batch_size, self._preset.size)):
            started = time.perf_counter()
            rejected += [Rejected(each.label, each.error) for each in group.images if each.error]
            seconds["read"] += waited / 1e3
            if len(group.pixels):
                patches_NHWC, descriptor_NC = self.encode(group.pixels)
                seconds["encode"] += time.perf_counter() - started
                for image, pixels, patches_HWC, descriptor_C in zip(
                    group.readable, group.pixels, patches_NHWC, descriptor_NC, strict=True
                ):
                    if np.isfinite(patches_HWC).all():
                        # Absolute, so that the file is found again from wherever somebody looks at the task.
                        name = image.label if image.path is None else name_of(image.path.absolute())
                        yield Features(name, patches_HWC, descriptor_C, digest(pixels))
                    else:
                        rejected.append(self.no_numbers(image.label))
            done += len(group.images)
            if progress:
                progress(done, total)

    def foreign(self) -> Floats:
        """Patch features (6, H, W, C) of pictures that show no product; encoded once."""
        if self._foreign is None:
            self._foreign, _ = self.encode(foreign_pictures(self._preset.size))
        return self._foreign

    def no_numbers(self, label: str) -> Rejected:
        """An image for which the encoder gave values that are no numbers."""
        encoder = self.encoder
        return Rejected(
            label,
            f"'{label}' cannot be judged: the encoder '{encoder.name}' gives values that are no numbers on "
            f"{encoder.provider} in {encoder.precision}; choose another provider or precision.",
        )


def new_ones(block: Iterable[Features], known: set[str], duplicates: list[str]) -> list[Features]:
    """Those of a block that are not known yet, each once; the names of the others go to ``duplicates``."""
    new = []
    for features in block:
        if features.digest in known:
            duplicates.append(features.name)
        else:
            known.add(features.digest)
            new.append(features)
    return new
