"""The images of one learn or update on their way into a bank."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.building import BankBuilder
from dinosaur_ad.bank.guard import TeachingGuard
from dinosaur_ad.bank.image_features import (
    FeatureExtractor,
    ImageFeatures,
    OpenedImages,
    PreparedImage,
    Progress,
    registered_images,
    without_duplicates,
)
from dinosaur_ad.bank.learning_block import Copies
from dinosaur_ad.bank.position import AUTO, find_position
from dinosaur_ad.bank.tile_choice import WantedTiles, choose_tiling, estimate, parse_tiles
from dinosaur_ad.core.exposure import measure_exposure, usual_exposure
from dinosaur_ad.core.tiles import Tiling
from dinosaur_ad.encoders import Encoder
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.alignment import moved_copy
from dinosaur_ad.images.image_stream import Images, batched, stream_images
from dinosaur_ad.images.loading import digest
from dinosaur_ad.inspection import Rejected
from dinosaur_ad.presets import Preset

# Bytes of features in memory at a time while learning, and images at the least and at the most.
LEARN_BYTES, LEAST_AT_ONCE, LEARN_AT_ONCE = 400 * 2**20, 64, 1024
LEAST_TILED_AT_ONCE = 16
"""Images in tiles at the least: what is usual is first estimated from so many."""
TILED_COPIES = 1
"""Moved copies of each image in tiles at the most: a copy takes as long and as much memory as all its tiles."""
EARLY_COPIES = 100
"""With so many copies or more, a task is stored before they are encoded, so that it can be used at once."""
MOST_COPIES = 600
"""Moved copies that a task remembers at the most: with hundreds of images most positions have been seen."""


class _Block(NamedTuple):
    """Some images of a learn or update, and their features."""

    images: list[PreparedImage]
    features: ImageFeatures


class TrainingImages:
    """Normal images for the task ``name``; the first block, usually the only one, is encoded at once.

    ``base`` is a builder of the task as it is: of an update, images that it knows are not encoded again, and its
    exposure and position are used; of a learn, ``position`` is what is asked for. ``rejected`` are the images that
    could not be read, ``duplicates`` the names of those that were known, ``photo_size`` is the (height, width) that
    most of the first block have (None if all are known), and ``seconds`` is how long reading and encoding took. With
    ``tiles`` the photos of a new task are cut into tiles, as many as the size of the first one allows; ``announce`` is
    called with what that will cost. Such photos are aligned, and never registered.

    :raises InputError: none of the images could be used.
    """

    def __init__(
        self,
        name: str,
        preset: Preset,
        features: FeatureExtractor,
        base: BankBuilder,
        images: Images,
        progress: Progress | None,
        position: str = AUTO,
        tiles: WantedTiles | None = None,
        announce: Callable[[str], None] | None = None,
    ) -> None:
        self.rejected: list[Rejected] = []
        self.duplicates: list[str] = []
        self.seconds: dict[str, float] = {"read": 0.0, "encode": 0.0}
        self._name = name
        wanted = None if tiles is None else parse_tiles(tiles)
        opened = OpenedImages(*stream_images(images))
        self.tiling = base.tiling
        if tiles is not None and (photo := opened.stream.first_size()):
            self.tiling = choose_tiling(wanted, photo, features)
        if self.tiling:
            preset = replace(preset, copies=min(preset.copies, TILED_COPIES))
        self._preset = preset
        self._features = features
        self._progress = progress
        self._copied = base.copies
        self._done = 0
        at_once = learn_at_once(features.encoder, preset, self.tiling)
        if self.tiling and announce and tiles is not None:
            base.cut_into(self.tiling)
            members = base.members_for(opened.total or at_once)
            announce(estimate(self.tiling, features, opened.total, preset.copies, base.budget, at_once, members))
        total, prepared = features.prepare(opened, self.rejected, self.seconds, self.tiling)
        seen = set(base.digests)
        self._blocks = batched(without_duplicates(prepared, seen, self.duplicates), at_once)
        first = next(self._blocks, [])
        if not first and not self.duplicates:
            raise InputError(
                f"None of the images for '{name}' could be used"
                + (f" (first: {self.rejected[0].reason.rstrip('.')})" if self.rejected else "")
                + "; give at least 2 readable images of normal products."
            )
        self.photo_size = usual_size(first)
        self.image_size = base.image_size or self.photo_size
        self.exposure = base.exposure
        if preset.exposure and self.exposure is None and first:
            self.exposure = usual_exposure(measure_exposure(np.stack([image.pixels for image in first])))
        self.position, self.reference = base.position, base.reference
        if not base.images:
            # Of photos in tiles the movement is not measured.
            pixels = [] if self.tiling else [image.pixels for image in first]
            self.position, self.reference = find_position(position, preset, pixels, self.photo_size)
        if self.position is not None:
            self._preset = replace(preset, copies=max(preset.copies, self.position.copies))
        self._total = None if total is None else total + len(copy_plan(total, self._preset, self._copied))
        self._first = self._encoded(first)
        self._second = next(self._blocks, None)

    @property
    def copies(self) -> int:
        """How many moved copies there are to encode, if all images are in the first block; 0 if there are more."""
        if self._second is not None:
            return 0
        return len(copy_plan(len(self._first.images), self._preset, self._copied))

    def add_to(
        self,
        builder: BankBuilder,
        held_out: Images | None,
        guard: TeachingGuard | None = None,
        *,
        with_copies: bool = True,
        doubtful: Sequence[str | Path] | None = None,
        kept_out: Sequence[str | Path] = (),
    ) -> int:
        """Build the bank and its threshold, which comes from ``held_out`` if given; returns how many images were new.

        The ``guard`` sees every block of new images before it is added. ``with_copies`` also learns moved copies of
        them. With ``doubtful``, nobody has looked at the images, and these others count for the threshold alone.
        So do images that are ``kept_out``, which are scored anew by each update in the place of earlier ones.

        :raises InputError: there are too few images for a threshold.
        """
        before = len(builder.images)
        builder.exposure, builder.image_size = self.exposure, self.image_size
        builder.cut_into(self.tiling)
        builder.lie(self.position, self.reference)
        if doubtful is not None:
            builder.follow()
        more = chain([] if self._second is None else [self._second], self._blocks)
        for block in chain([self._first], map(self._encoded, more)):
            rows = self._new_rows(block, set(builder.digests))
            if len(rows):
                features = block.features.some(rows)
                if guard:
                    guard.look_at(features)
                builder.add(features, self._copies([block.images[n] for n in rows]) if with_copies else None)
        if doubtful is not None:
            self._count_doubtful(builder, doubtful, kept_out)
        if held_out is not None:
            self._calibrate(builder, held_out, guard)
        elif len(builder.images) < 2:
            raise InputError(
                f"Learning '{self._name}' needs at least 2 normal images that differ, because the threshold comes from "
                f"normals that the memory has not seen, but there is {len(builder.images)}; 20 or more are recommended."
            )
        added = len(builder.images) - before
        if added:
            started = time.perf_counter()
            controls_NHWC = self._features.controls(self.exposure, self.tiling)
            encoded = time.perf_counter()
            builder.score_controls(controls_NHWC)
            self.seconds["encode"] += encoded - started
            builder.seconds["calibrate"] += time.perf_counter() - encoded
        return added

    def _report(self, done: int) -> None:
        if self._progress:
            self._progress(self._done + done, self._total)

    def _encoded(self, images: list[PreparedImage]) -> _Block:
        """A block of images, registered where that is done, and their features."""
        images = registered_images(images, self.reference)
        features = self._features.learnable(images, self.exposure, self.rejected, self.seconds, self._report)
        self._done += len(images)
        kept = set(features.digests)
        return _Block([image for image in images if image.digest in kept], features)

    def _copies(self, images: list[PreparedImage]) -> Copies | None:
        """Features of moved copies of images; None where the encoder gives no numbers for one of them."""
        plan = copy_plan(len(images), self._preset, self._copied)
        if not plan:
            return None
        moved = [_moved(images[n], turn) for turn, n in plan]
        # An image that was learned is not rejected because a copy of it has no features.
        copies = self._features.learnable(moved, self.exposure, [], self.seconds, self._report)
        self._copied += len(moved)
        self._done += len(moved)
        if len(copies.names) != len(moved):
            return None
        return Copies(copies.patches_NHWC, np.asarray([n for _, n in plan]))

    def _new_rows(self, block: _Block, known: set[str]) -> NDArray[np.intp]:
        """Which images of a block the task does not know: another process may have taught it in the meantime."""
        digests = block.features.digests
        self.duplicates += [image.name for image in block.images if image.digest in known]
        return np.asarray([n for n, each in enumerate(digests) if each not in known], np.intp)

    def _count_doubtful(
        self, builder: BankBuilder, doubtful: Sequence[str | Path], kept_out: Sequence[str | Path]
    ) -> None:
        """Let images that are not learned count among the scores that the threshold comes from: without them, these
        would be scores of the most normal images alone."""
        features = self._not_learned(builder, doubtful)
        if features:
            builder.calibrate(features.patches_NHWC)
        builder.follow()
        features = self._not_learned(builder, kept_out)
        if features:
            builder.keep_out(features.patches_NHWC)

    def _not_learned(self, builder: BankBuilder, images: Sequence[str | Path]) -> ImageFeatures | None:
        """The features of images that the task has not learned; None without any."""
        if not images:
            return None
        _, prepared = self._features.prepare(images, self.rejected, self.seconds, self.tiling)
        unseen = registered_images(list(without_duplicates(prepared, set(builder.digests), [])), self.reference)
        features = self._features.learnable(unseen, self.exposure, self.rejected, self.seconds, lambda done: None)
        return features if features.names else None

    def _calibrate(self, builder: BankBuilder, held_out: Images, guard: TeachingGuard | None) -> None:
        """Take the threshold from held-out images that are not among those learned."""
        _, prepared = self._features.prepare(held_out, self.rejected, self.seconds, self.tiling)
        unseen = list(without_duplicates(prepared, set(builder.digests), self.duplicates))
        unseen = registered_images(unseen, self.reference)
        features = self._features.learnable(unseen, self.exposure, self.rejected, self.seconds, lambda done: None)
        if not features.names:
            raise InputError(
                f"None of the held-out images for '{self._name}' could be used; give readable normals that are not "
                "among the images to learn from."
            )
        if guard:
            guard.look_at_held_out(features)
        builder.see_light(features)
        builder.calibrate(features.patches_NHWC)


def learn_at_once(encoder: Encoder, preset: Preset, tiling: Tiling | None = None) -> int:
    """How many images are encoded before they are learned; of images in tiles fewer, with their copies."""
    channels = encoder.channels // len(preset.layers) if preset.average else encoder.channels
    if tiling:
        each = math.prod(tiling.grid) * channels * 4 * (1 + preset.copies)
        return min(LEARN_AT_ONCE, max(LEAST_TILED_AT_ONCE, LEARN_BYTES // each))
    return min(LEARN_AT_ONCE, max(LEAST_AT_ONCE, LEARN_BYTES // (encoder.grid[0] * encoder.grid[1] * channels * 4)))


def usual_size(images: Sequence[PreparedImage]) -> tuple[int, int] | None:
    """The (height, width) that most of the images have; None without images."""
    sizes = Counter(image.size for image in images)
    return sizes.most_common(1)[0][0] if sizes else None


def copy_plan(images: int, preset: Preset, already: int = 0) -> list[tuple[int, int]]:
    """Which moved copies are made of so many images: (turn, image), the first copy of every image before the second.

    >>> from dinosaur_ad.presets import DEFAULT
    >>> len(copy_plan(20, DEFAULT)), len(copy_plan(443, DEFAULT)), copy_plan(2, DEFAULT)[:3]
    (60, 600, [(0, 0), (0, 1), (1, 0)])
    """
    count = min(preset.copies * images, max(0, MOST_COPIES - already))
    return [divmod(k, images) for k in range(count)]


def _moved(image: PreparedImage, turn: int) -> PreparedImage:
    large = image.large
    if large:
        reach = large.tiling.size / max(large.tiling.scaled)
        large = large._replace(pixels=moved_copy(large.pixels, _generator(image.pixels, turn), reach))
    return image._replace(pixels=moved_pixels(image.pixels, turn), digest="", large=large)


def moved_pixels(pixels: NDArray[np.uint8], turn: int) -> NDArray[np.uint8]:
    """The copy of an image of that number; how it is moved depends on its pixels alone."""
    return moved_copy(pixels, _generator(pixels, turn))


def _generator(pixels: NDArray[np.uint8], turn: int) -> np.random.Generator:
    seed = int(digest(pixels).rpartition(":")[2][:16], 16)
    return np.random.default_rng((seed, turn))
