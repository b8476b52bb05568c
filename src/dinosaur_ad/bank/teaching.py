"""The images of one learn or update on their way into a bank."""

from __future__ import annotations

import time
from itertools import chain

import numpy as np

from dinosaur_ad.bank.building import BankBuilder
from dinosaur_ad.bank.guard import TeachingGuard
from dinosaur_ad.bank.image_features import FeatureExtractor, ImageFeatures, Progress, without_duplicates
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.stream import Images, batched
from dinosaur_ad.inspection import Rejected

# Images whose features are in memory at a time while learning.
LEARN_AT_ONCE = 1024


class TrainingImages:
    """Normal images for the task ``name``; the first block, usually the only one, is encoded at once.

    ``rejected`` are those that could not be read, ``duplicates`` the names of those that were known already, and
    ``seconds`` is how long reading and encoding took.

    :raises InputError: none of the images could be used.
    """

    def __init__(self, name: str, features: FeatureExtractor, images: Images, progress: Progress | None) -> None:
        self.rejected: list[Rejected] = []
        self.duplicates: list[str] = []
        self.seconds: dict[str, float] = {"read": 0.0, "encode": 0.0}
        self._name = name
        self._features = features
        self._blocks = batched(features.read(images, self.rejected, self.seconds, progress), LEARN_AT_ONCE)
        first = next(self._blocks, None)
        if first is None:
            raise InputError(
                f"None of the images for '{name}' could be used"
                + (f" (first: {self.rejected[0].reason})" if self.rejected else "")
                + "; give at least 2 readable images of normal products."
            )
        self._first: list[ImageFeatures] = first

    def add_to(self, builder: BankBuilder, held_out: Images | None, guard: TeachingGuard | None = None) -> int:
        """Build the bank and its threshold, which comes from ``held_out`` if given; returns how many images were new.

        The ``guard`` sees every block of new images before it is added.

        :raises InputError: there are too few images for a threshold.
        """
        before = len(builder.images)
        for block in chain([self._first], self._blocks):
            new = without_duplicates(block, set(builder.digests), self.duplicates)
            if new:
                names, digests = [each.name for each in new], [each.digest for each in new]
                patches_NHWC = np.stack([each.patches_HWC for each in new])
                descriptor_NC = np.stack([each.descriptor_C for each in new])
                if guard:
                    guard.look_at(new, patches_NHWC, descriptor_NC)
                builder.add(names, patches_NHWC, descriptor_NC, digests)
        if held_out is not None:
            self._calibrate(builder, held_out, guard)
        elif len(builder.images) < 2:
            raise InputError(
                f"Learning '{self._name}' needs at least 2 normal images that differ, because the threshold comes from "
                f"normals that the memory has not seen, but there is {len(builder.images)}; 20 or more are recommended."
            )
        started, added = time.perf_counter(), len(builder.images) - before
        if added:
            builder.score_controls(self._features.controls())
        builder.seconds["calibrate"] += time.perf_counter() - started
        return added

    def _calibrate(self, builder: BankBuilder, held_out: Images, guard: TeachingGuard | None) -> None:
        """Take the threshold from held-out images that are not among those learned."""
        read = self._features.read(held_out, self.rejected, self.seconds, None)
        unseen = without_duplicates(read, set(builder.digests), self.duplicates)
        if not unseen:
            raise InputError(
                f"None of the held-out images for '{self._name}' could be used; give readable normals that are not "
                "among the images to learn from."
            )
        if guard:
            guard.look_at_held_out(unseen)
        builder.calibrate(np.stack([each.patches_HWC for each in unseen]))
