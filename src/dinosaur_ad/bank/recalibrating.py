"""The threshold of a task from other normal images, for instance of today's light and camera; the memory stays."""

from __future__ import annotations

from itertools import islice

from dinosaur_ad.bank.building import BankBuilder
from dinosaur_ad.bank.guard import TeachingGuard
from dinosaur_ad.bank.image_features import FeatureExtractor, Progress, registered_images, without_duplicates
from dinosaur_ad.bank.teaching import usual_size
from dinosaur_ad.core.tiles import Tiling
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.image_stream import Images
from dinosaur_ad.inspection import Rejected

FEWEST, MOST = 5, 400
"""Images to recalibrate from: fewer say too little of what is usual; more would not change the threshold noticeably."""


class CalibrationImages:
    """Normal images that the threshold of the task ``name`` is taken from anew; nobody has looked at ``doubtful`` ones.

    ``rejected``, ``duplicates`` (which the task has learned: it would find them too normal), ``photo_size`` and
    ``seconds`` are as those of :class:`~dinosaur_ad.bank.teaching.TrainingImages`.
    """

    def __init__(
        self,
        name: str,
        features: FeatureExtractor,
        images: Images,
        progress: Progress | None,
        tiling: Tiling | None = None,
        *,
        doubtful: bool = False,
    ) -> None:
        self.rejected: list[Rejected] = []
        self.duplicates: list[str] = []
        self.photo_size: tuple[int, int] | None = None
        self.seconds: dict[str, float] = {"read": 0.0, "encode": 0.0}
        self._name = name
        self._features = features
        self._progress = progress
        self._doubtful = doubtful
        self._total, self._prepared = features.prepare(images, self.rejected, self.seconds, tiling)

    def give_to(self, builder: BankBuilder, guard: TeachingGuard | None) -> int:
        """Calibrate the bank of ``builder`` anew; returns with how many images. The ``guard`` sees them before.

        :raises InputError: there are too few images, or too many.
        """
        unseen = list(islice(without_duplicates(self._prepared, set(builder.digests), self.duplicates), MOST + 1))
        if len(unseen) > MOST:
            raise InputError(
                f"Recalibrating '{self._name}' takes at most {MOST} images, and there are more; give some of all."
            )
        self.photo_size = usual_size(unseen)
        unseen = registered_images(unseen, builder.reference)
        features = self._features.learnable(unseen, builder.exposure, self.rejected, self.seconds, self._report)
        count = len(features.names)
        if count < FEWEST:
            more = len(self.duplicates)
            known = f" ({more} more {'is' if more == 1 else 'are'} among those learned)" if more else ""
            raise InputError(
                f"Recalibrating '{self._name}' needs at least {FEWEST} normal images that it has not learned, but "
                f"there {'is' if count == 1 else 'are'} {count}{known}; 20 or more are recommended."
            )
        if self._doubtful:
            if guard:
                guard.look_at_held_out(features)
            builder.keep_out(features.patches_NHWC)
        else:
            if guard:
                guard.look_at(features)
            builder.see_light(features)
            builder.recalibrate(features.patches_NHWC)
        builder.score_controls(self._features.controls(builder.exposure, builder.tiling))
        return count

    def _report(self, done: int) -> None:
        if self._progress:
            self._progress(done, self._total)
