"""Checks of the images of a learn or an update, before anything is written.

An image of something else makes a task blind: what it shows counts as normal from then on, and the threshold rises. The
limits are in :mod:`dinosaur_ad.core.outliers`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._text import printable
from dinosaur_ad.bank.bank import Bank, alarm_threshold
from dinosaur_ad.bank.bank_set import BankSet, TaskScores
from dinosaur_ad.bank.building import BankBuilder
from dinosaur_ad.bank.encoded_images import EncodedImages
from dinosaur_ad.bank.image_features import FeatureExtractor, ImageFeatures
from dinosaur_ad.bank.task_view import TaskView
from dinosaur_ad.bank.verdict import why_not_ready
from dinosaur_ad.core import outliers
from dinosaur_ad.core.calibration import UsualScores
from dinosaur_ad.core.routing import prototype_distances
from dinosaur_ad.errors import DinosaurError, TeachingRefusedError
from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.inspection import Suspect
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore

Floats = NDArray[np.float32]

NAMED = 3
"""Images that a sentence names."""
SOMETHING_ELSE = "shows something else"
TWO_KINDS = "of another kind than most, or in another light"
"""Why images of two groups that lie apart are warned of; each by itself is not odd."""
COMPARED = 50
"""Images that are enough to see whether another task calls most of them normal."""


class _OwnTask(NamedTuple):
    """The task of an update as it was."""

    bank: Bank
    threshold: float


class TeachingGuard:
    """Compares new images of the task ``name`` with each other, with its bank and with the other tasks of a store.

    ``record`` is the version of the task that is updated; None for learn. ``store`` is None before the first learn.
    """

    def __init__(
        self,
        preset: Preset,
        features: FeatureExtractor,
        banks: BankSet,
        store: TaskStore | None,
        name: str,
        record: TaskRecord | None,
    ) -> None:
        self._preset = preset
        self._features = features
        self._banks = banks
        self._store = store
        self._name = name
        self._own: _OwnTask | None = None
        if store is not None and record is not None:
            bank = banks.bank(store, record)
            self._own = _OwnTask(bank, bank.threshold(preset, preset.false_alarms))
        self._images: list[str] = []
        self._foreign: dict[str, Suspect] = {}  # by name: reason enough to refuse
        self._doubtful: dict[str, Suspect] = {}  # worth a warning
        self._scores: dict[str, float] = {}  # of an update: relative to the threshold before
        self._learned: list[Floats] = []  # descriptors of the images of a learn
        self.near_duplicates: list[tuple[str, str]] = []
        """Images that show nearly the same picture as an earlier one, with the name of that."""

    @property
    def threshold_before(self) -> float | None:
        """The threshold of the task before the update, as it is set."""
        return self._own.bank.sensitivity(self._preset).threshold if self._own else None

    @property
    def threshold_ratio(self) -> float:
        """By which factor these images alone would raise the threshold of an update, on the scale of before."""
        return alarm_threshold(
            self._preset, np.asarray(list(self._scores.values()), np.float32), self._preset.false_alarms
        )

    # --- images, before they are added ---

    def look_at(self, images: ImageFeatures) -> None:
        """Check a block of new images."""
        names, patches_NHWC, descriptor_NC = images.names, images.patches_NHWC, images.descriptor_NC
        self._images += names
        self._find_near_duplicates(images)
        self._find_blank(images)
        if self._own:
            score_N = self._compare_with_own(self._own, names, patches_NHWC)
            self._compare_with_others(images, score_N)
        else:
            self._find_masks(images)
            self._compare_with_others(images, None)
            self._compare_with_each_other(names, descriptor_NC)
            self._learned.append(descriptor_NC[[name not in self._foreign for name in names]])

    def look_at_held_out(self, images: ImageFeatures) -> None:
        """Check images that are for the threshold alone; of a learn, also that they show what was learned."""
        self._images += images.names
        self._find_blank(images)
        learned_MC = np.concatenate(self._learned) if self._learned else np.empty((0, 0), np.float32)
        if len(learned_MC) >= outliers.FEWEST_IMAGES:
            self._find_masks(images)
            highest = outliers.highest_neighbour_ratio(len(learned_MC))
            ratio_N = outliers.ratios_to(images.descriptor_NC, learned_MC)
            # Of another camera all of them lie farther: one is odd if it lies farther than the others too.
            usual = float(np.median(ratio_N))
            limit = highest if usual > highest else max(highest, outliers.ODD_HELD_OUT * usual)
            for name, ratio in zip(images.names, ratio_N.tolist(), strict=True):
                if ratio > limit:
                    self._refuse(name, "unlike those that are learned", ratio)

    def _find_near_duplicates(self, images: ImageFeatures) -> None:
        """Images of one scene say what is normal once. Of photos in tiles the whole says too little."""
        if images.patches_NHWC.shape[1:3] == self._features.encoder.grid:
            first_N = outliers.twins(images.pixels)
            self.near_duplicates += [
                (images.names[n], images.names[first]) for n, first in enumerate(first_N.tolist()) if first >= 0
            ]

    def _find_blank(self, images: ImageFeatures) -> None:
        for name, grey_range in zip(images.names, images.grey_ranges, strict=True):
            if grey_range <= outliers.BLANK_RANGE:
                self._refuse(name, "blank or nearly so", 0.0)

    def _refuse(self, name: str, reason: str, score: float) -> None:
        self._foreign.setdefault(name, Suspect(name, reason, round(float(score), 3)))

    def _find_masks(self, images: ImageFeatures) -> None:
        """Black and white images among photos; where all are black and white, the product looks like that."""
        shares = dict(zip(images.names, images.black_and_white, strict=True))
        photos = [share for share in shares.values() if share < outliers.MASK_SHARE]
        if photos and float(np.median(photos)) <= outliers.PHOTO_SHARE:
            for name, share in shares.items():
                if share >= outliers.MASK_SHARE:
                    self._refuse(name, "black and white like a mask", share)

    def _compare_with_own(self, own: _OwnTask, names: list[str], patches_NHWC: Floats) -> Floats:
        """Scores (N,) of new images under the bank as it was; images that differ from it all over are refused."""
        radius, bank = self._preset.radius, own.bank
        distances = bank.distances(patches_NHWC, radius)
        score_N, level_N = bank.read(distances, self._preset).score_N, bank.levels_of(distances)
        control_N = bank.levels_of(bank.distances(self._features.controls(bank.exposure, bank.tiling), radius))
        far = outliers.CONTROL_SHARE * float(np.median(control_N))
        highest = outliers.highest_level_ratio(len(bank.images)) * bank.level
        for name, score, level in zip(names, score_N.tolist(), level_N.tolist(), strict=True):
            ratio = self._scores[name] = score / own.threshold if own.threshold > 0 else 0.0
            if level > far and level > highest:
                self._refuse(name, f"{SOMETHING_ELSE} than '{self._name}'", ratio)
            elif ratio > outliers.FLAGGED_RATIO:
                reason = f"scores {ratio:.1f} times the threshold"
                self._doubtful[name] = Suspect(name, reason, round(ratio, 3))
        return score_N

    def _compare_with_others(self, images: ImageFeatures, score_N: Floats | None) -> None:
        """Find images that another task calls normal; ``score_N`` are their scores under the task of an update."""
        if self._store is None:
            return
        names, descriptor_NC = images.names, images.descriptor_NC
        view = self._banks.view(self._store, descriptor_NC.shape[1])
        # What is learned here was not prepared for the tiles of other tasks.
        others = [
            task for task, tiling in zip(view.names, view.tilings, strict=True) if task != self._name and tiling is None
        ]
        if not others or not len(view.prototype_TC):
            return
        centre_C = self._centre(view, descriptor_NC)
        own_N = np.linalg.norm(descriptor_NC - centre_C, axis=1)
        known = list(view.records)
        prototype_TC = view.prototype_TC[[known.index(task) for task in others]]
        distance_NT = prototype_distances(descriptor_NC, prototype_TC)
        usual = max(float(np.median(own_N)), outliers.CLOSEST * float(np.linalg.norm(centre_C)))
        outside_N = own_N > outliers.OUTSIDE * usual
        if self._preset.exposure and outside_N.any():
            routed_NC = self._routed_descriptors(view, images.some(np.flatnonzero(outside_N)))
            distance_NT[outside_N] = prototype_distances(routed_NC, prototype_TC)
        nearest_N = np.argmin(distance_NT, axis=1)
        candidate_N = distance_NT.min(axis=1) < outliers.NEARER * own_N
        if not self._own:
            candidate_N &= outside_N
        for t in np.unique(nearest_N[candidate_N]).tolist():
            rows = np.flatnonzero(candidate_N & (nearest_N == t))
            rest = np.setdiff1d(np.arange(len(names)), rows)
            if not self._own and self._same_product(others[t], images.some(rest[:: 1 + len(rest) // COMPARED])):
                continue
            ratios = self._ratios_under(others[t], images.some(rows))
            for n, (ratio, score) in zip(rows.tolist(), ratios, strict=False):
                own = None if score_N is None else float(score_N[n])
                # Two conditions of one product may both call an image normal; that makes no task blind.
                if ratio <= 1 and (own is None or self._scores[names[n]] > 1 or 2 * score < own):
                    before = self._foreign.get(names[n])
                    if before and before.reason.startswith(SOMETHING_ELSE):  # this says more; that it is blank says all
                        del self._foreign[names[n]]
                    self._refuse(names[n], f"belongs to '{others[t]}'", ratio)

    def _routed_descriptors(self, view: TaskView, images: ImageFeatures) -> Floats:
        """Descriptors (N, C') of images that are matched to the exposure of the task that they look like."""
        at_once = 4 * self._features.encoder.batch_size
        parts = (np.stack(pixels) for pixels in batched(images.pixels, at_once))
        return np.concatenate([self._banks.encode(view, EncodedImages(self._features, pixels))[1] for pixels in parts])

    def _centre(self, view: TaskView, descriptor_NC: Floats) -> Floats:
        """Where the images of the task lie: its prototype, or the median of the images that are learned."""
        if self._own and self._name in view.records:
            centre_C: Floats = view.prototype_TC[list(view.records).index(self._name)]
            return centre_C
        return np.asarray(np.median(descriptor_NC, axis=0), np.float32)

    def _same_product(self, task: str, images: ImageFeatures) -> bool:
        """Whether another task calls most of the other images normal too: then it is a second task of one product."""
        ratios = self._ratios_under(task, images) if images.names else []
        return bool(ratios) and float(np.median([ratio for ratio, _ in ratios])) <= 1

    def _ratios_under(self, task: str, images: ImageFeatures) -> list[tuple[float, float]]:
        """Score over threshold, and score, of images under another task; none if it cannot be compared with.

        The threshold of a task that is not ready lies too high; the highest score of its normal images replaces it.
        """
        try:
            found = [scores[task] for scores in self._scores_under(task, images)]
        except DinosaurError:  # damaged, or forgotten by another process just now
            return []
        bank = found[0].bank
        threshold = bank.threshold(self._preset, self._preset.false_alarms)
        if why_not_ready(task, threshold, bank.control_scores, bank.headroom):
            threshold = float(np.max(bank.scores))
        if threshold <= 0:
            return []
        return [(each.score / threshold, each.score) for each in found]

    def _scores_under(self, task: str, images: ImageFeatures) -> list[TaskScores]:
        """Scores of images under another task, whose exposure they are matched to where the preset has one; of images
        in tiles the whole is compared."""
        assert self._store is not None
        whole = images.patches_NHWC.shape[1:3] == self._features.encoder.grid
        if not self._preset.exposure and whole:
            return self._banks.compare(self._store, images.patches_NHWC, images.descriptor_NC, task).scores
        scores: list[TaskScores] = []
        for pixels in batched(images.pixels, 4 * self._features.encoder.batch_size):
            scores += self._banks.inspect(self._store, self._features, np.stack(pixels), task).scores
        return scores

    def _compare_with_each_other(self, names: list[str], descriptor_NC: Floats) -> None:
        """Find images that lie far from the others, and two groups that lie far from each other."""
        rows = np.asarray([n for n, name in enumerate(names) if name not in self._foreign], int)
        if len(rows) < outliers.FEWEST_IMAGES:
            return
        ratio_N, highest = outliers.neighbour_ratios(descriptor_NC[rows]), outliers.highest_neighbour_ratio(len(rows))
        for n, ratio in zip(rows.tolist(), ratio_N.tolist(), strict=True):
            if ratio > highest:
                self._refuse(names[n], "unlike the others", ratio)
        rows = rows[ratio_N <= highest]
        if len(rows) < outliers.FEWEST_IMAGES:
            return
        ratio, smaller_N = outliers.split_in_two(descriptor_NC[rows])
        refused = len(rows) >= outliers.FEWEST_TO_SPLIT and ratio > outliers.SPLIT_RATIO
        if refused or ratio > outliers.highest_split_ratio(len(rows)):
            for n in rows[smaller_N].tolist():
                if refused:
                    self._refuse(names[n], "of another kind than most", ratio)
                else:
                    self._doubtful[names[n]] = Suspect(names[n], TWO_KINDS, round(ratio, 3))

    # --- the bank, before it is written ---

    def check(self, builder: BankBuilder, *, force: bool) -> tuple[Suspect, ...]:
        """The suspicious images; with ``force`` also those that would otherwise be refused.

        :raises TeachingRefusedError: the change would make the task blind.
        """
        self._find_high_scores(builder)
        if not force:
            self._refuse_foreign()
            self._refuse_threshold(builder)
        suspects = self._doubtful | self._foreign
        return tuple(suspects[name] for name in dict.fromkeys(self._images) if name in suspects)

    def _find_high_scores(self, builder: BankBuilder) -> None:
        """Find images of a learn that the bank of the others scores far higher than the rest."""
        scores = builder.calibration.measured_scores
        if self._own or len(scores) < outliers.FEWEST_IMAGES:
            return
        usual = float(np.median(scores))
        most = outliers.SCORE_RATIO * usual
        if builder.calibration.unlabelled or len(self._preset.readings) > 1:
            model = UsualScores.of(scores)
            far = outliers.DEVIATIONS if builder.calibration.unlabelled else outliers.highest_deviation(len(scores))
            most = min(most, math.exp(model.mean + far * model.spread))
        for image, score in zip(builder.calibration.scored_images, scores.tolist(), strict=True):
            if image >= 0 and score > most > 0:
                name, ratio = builder.images[image], score / usual
                reason = f"scores {ratio:.1f} times the median of the others"
                self._doubtful[name] = Suspect(name, reason, round(ratio, 3))

    def _refuse_foreign(self) -> None:
        if self._foreign:
            suspects = sorted(self._foreign.values(), key=lambda each: each.reason.startswith("of another kind"))
            count, total = len(suspects), len(self._images)
            of = f"{count} of {total} images do" if count > 1 else "an image does"
            raise _refusal(
                f"Nothing was learned for '{self._name}', because {of} not belong there: {_listed(suspects)}", suspects
            )

    def _refuse_threshold(self, builder: BankBuilder) -> None:
        """Refuse an update after which far fewer images would be called anomalous."""
        if not self._own or not self._images:
            return
        after = alarm_threshold(self._preset, builder.calibration.scores, self._preset.false_alarms)
        controls, before = builder.control_scores, self._own.bank.control_scores
        rescaled = len(self._preset.readings) > 1 and len(controls) and len(before)
        odd = max(self._scores.values(), default=0.0) > outliers.FLAGGED_RATIO
        if rescaled and odd and not builder.calibration.unlabelled:
            # What is usual is taken anew, of the new images too, and with it the unit of scores, which hides a rise: by
            # what pictures of something else score, both thresholds are on the scale of before. From few images that
            # was a guess, which good parts correct too: it counts where an image is far from normal.
            unit = float(np.median(before)) / max(float(np.median(controls)), 1e-9)
            after, controls = after * unit, controls * np.float32(unit)
        self._refuse_rise(self._own, after, controls)

    def check_recalibration(self, *, force: bool) -> tuple[Suspect, ...]:
        """The suspicious images among those that the threshold is taken from anew, as :meth:`check` gives them.

        With several readings what is usual for each is taken anew too, and the threshold becomes one of another scale;
        so it is compared as these images would give it on the scale of before.

        :raises TeachingRefusedError: the threshold would move far.
        """
        if self._own and not force:
            self._refuse_foreign()
            after = self._own.threshold * self.threshold_ratio
            self._refuse_rise(self._own, after, self._own.bank.control_scores)
            if self.threshold_ratio < 1 / outliers.highest_threshold_ratio(len(self._scores)):
                raise TeachingRefusedError(
                    f"Nothing was changed for '{self._name}', because its threshold would fall from "
                    f"{self._own.threshold:.3g} to {after:.3g}, and good parts that were normal would be flagged; give "
                    "images of all kinds of good parts, or take these all the same with --force (force=True)."
                )
        suspects = self._doubtful | self._foreign
        return tuple(suspects[name] for name in dict.fromkeys(self._images) if name in suspects)

    def _refuse_rise(self, own: _OwnTask, after: float, controls: Floats) -> None:
        before = own.threshold
        lost = why_not_ready(self._name, after, controls) and not why_not_ready(self._name, before, controls)
        lost = lost if after > outliers.LOST_RATIO * before else ""  # normal images may raise it a little
        if not lost and after <= outliers.highest_threshold_ratio(len(own.bank.images)) * before:
            return
        highest = sorted(self._scores.items(), key=lambda item: -item[1])[:NAMED]
        suspects = [Suspect(name, f"scores {ratio:.1f} times the threshold", ratio) for name, ratio in highest]
        beyond = ", which not even pictures of something else reach" if lost else ""
        raise _refusal(
            f"Nothing was learned for '{self._name}', because its threshold would rise from {before:.3g} to {after:.3g}"
            f"{beyond}, and defects would be missed; farthest from normal: {_listed(suspects)}",
            suspects,
        )


def _listed(suspects: list[Suspect]) -> str:
    named = ", ".join(f"{printable(each.path, 80)} ({each.reason})" for each in suspects[:NAMED])
    return named + (f" and {len(suspects) - NAMED} more" if len(suspects) > NAMED else "")


def _refusal(sentence: str, suspects: list[Suspect]) -> TeachingRefusedError:
    them = "them" if len(suspects) > 1 else "it"
    advice = f"leave {them} out, or learn {them} all the same with --force (force=True)."
    paths, reasons = zip(*((each.path, each.reason) for each in suspects), strict=True)
    return TeachingRefusedError(f"{sentence}; {advice}", paths, reasons)
