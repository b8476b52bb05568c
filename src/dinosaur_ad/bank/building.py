"""How a task's bank is learned: blocks of images in, the arrays and the manifest of a store out."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank import Memory, headroom, levels, read_images
from dinosaur_ad.bank.bank_contents import BankContents, Comparison
from dinosaur_ad.bank.bank_files import (
    HELD_OUT,
    KEPT_OUT,
    Arrays,
    descriptor_width,
    learned_digests,
    learned_images,
    read_bank,
    read_calibration_maps,
    read_candidates,
    read_coarse,
    read_prototype,
    read_tiling,
    read_zone,
    usual_image_size,
)
from dinosaur_ad.bank.budget import Form, Frame, say_bytes
from dinosaur_ad.bank.calibrating import Calibration
from dinosaur_ad.bank.image_features import ImageFeatures, ImageSums
from dinosaur_ad.bank.layout import Layout, first_layout, next_layout
from dinosaur_ad.bank.learning_block import COARSE_SHARE, Copies, LearningBlock
from dinosaur_ad.bank.position import Position, is_free
from dinosaur_ad.bank.rescaling import Rescaling, UnseenImages, raised
from dinosaur_ad.bank.settings import Settings
from dinosaur_ad.core.arrays import Array, to_numpy
from dinosaur_ad.core.coreset import coreset_size
from dinosaur_ad.core.exposure import THUMBNAIL, Exposure, ExposureRange
from dinosaur_ad.core.memory import Coreset, unseen_parts
from dinosaur_ad.core.readings import windows
from dinosaur_ad.core.registration import Reference
from dinosaur_ad.core.tiles import Tiling
from dinosaur_ad.core.zones import Zone
from dinosaur_ad.errors import InputError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore

Floats = NDArray[np.float32]

# Calibration images of a block. With folds more of the first ones of a task: a threshold of 2.5 % lies between the few
# highest scores, and from 200 it scatters (docs/presets.md).
CALIBRATION_IMAGES, FIRST_CALIBRATION_IMAGES = 200, 400
LARGEST = 200
"""Images up to which the bank of a product grows that learns from pictures nobody has looked at; later ones take the
place of what others cover."""
FOLLOWED = 100
"""Scores that the threshold of a product comes from that learns from pictures nobody has looked at, the newest."""
LEAST_LEARNED = 20
"""Scores of others that count besides those of pictures that are scored anew whenever the memory changes, however many
there are of these: they say what is usual for each reading."""


class BankBuilder:
    """Builds the bank of a task from blocks of normal images, or adds images to a stored one.

    ``calibration`` has the scores of images that the memory had not seen; ``control_scores`` and ``control_levels`` are
    those of the control images. ``digests`` are hashes of ``images``, empty where they are not known. ``exposure`` is
    what the images were matched to, ``exposure_range`` the exposures that normal images have had (None where it is not
    known), ``image_size`` their usual (height, width). ``position`` is how the parts lie and
    ``reference`` what images were registered to, both None unless :meth:`lie` was told. ``settings`` are those of the
    task. ``seconds`` is how long each step took. ``tiling`` is how the images were cut into tiles, None if they were
    not.

    ``kind`` of calibration is "unseen" (each image is scored by a coreset of the others), "in-sample", or "held-out"
    (other images are given to :meth:`calibrate`). Without a ``precision`` the preset decides it. With a ``budget`` in
    bytes, the preset's unless given, the number of members and channels is chosen when the first images come, and no
    reserve is stored.
    """

    def __init__(
        self, preset: Preset, seed: int, kind: str, *, precision: str | None = None, budget: int | None = None
    ) -> None:
        self.preset = preset
        self.budget = budget or (preset.budget if precision is None else None)
        self.images: list[str] = []
        self.digests: list[str] = []
        self.exposure: Exposure | None = None
        self.exposure_range: ExposureRange | None = None
        self.image_size: tuple[int, int] | None = None
        self.position: Position | None = None
        self.reference: Reference | None = None
        self.settings = Settings()
        self.tiling: Tiling | None = None
        self.calibration = Calibration(preset)
        self.control_scores: Floats = np.empty(0, np.float32)
        self.control_levels: Floats = np.empty(0, np.float32)
        self.seconds = {"memory": 0.0, "calibrate": 0.0}
        self._seed = seed
        self._kind = kind
        self._budget_of_tile = budget is None
        self._precision = precision
        self._zone: Zone | None = None
        self._contents: BankContents | None = None

    @classmethod
    def reopened(
        cls, preset: Preset, seed: int, store: TaskStore, record: TaskRecord, budget: int | None = None
    ) -> BankBuilder:
        """A builder with the contents of a stored task; without a ``budget`` the task's own is kept.

        :raises InputError: the stored bank is larger than the budget.
        """
        bank, packed = read_bank(store, record)
        stored = record.manifest.get("bank", {})
        prototype = read_prototype(store, record, descriptor_width(preset, packed))
        builder = cls(preset, seed, preset.calibration)
        builder.budget = budget or stored.get("budget")
        builder.images, builder.digests = learned_images(record), learned_digests(record)
        builder.exposure, builder.image_size = prototype.exposure, usual_image_size(record)
        builder.exposure_range = prototype.exposure_range
        builder.settings, builder._zone = Settings.of(record), read_zone(record, packed)
        builder.position, builder.reference = Position.of(record), prototype.reference
        builder.tiling, builder._budget_of_tile = read_tiling(record), False
        maps, anywhere = read_calibration_maps(store, record, preset), is_free(builder.position)
        builder.calibration = Calibration.stored(preset, bank, maps, builder._zone, builder.tiles, anywhere=anywhere)
        builder.calibration.unlabelled = bool(record.manifest.get("calibration", {}).get("unlabelled"))
        builder.control_scores, builder.control_levels = bank["foreign"], bank["foreign_levels"]
        height, width = packed.values_HWMK.shape[:2]
        count, rotated = len(builder.images), packed.basis_CK is not None
        form = Form(packed.members, packed.channels, packed.precision, rotated)
        frame = builder._frame(
            height, width, packed.width, count, len(builder.calibration), prototype.descriptor_C.size
        )
        if builder.budget is not None and frame.bytes(form) > builder.budget:
            raise InputError(
                f"A bank of {say_bytes(frame.bytes(form))} cannot be cut to {say_bytes(builder.budget)}: a smaller one "
                "needs a threshold of its own, and so the images; learn the task anew with that budget."
            )
        coarse = read_coarse(record, bank, packed) if "coarse" in preset.readings else None
        builder._contents = BankContents(
            layout=Layout(
                form,
                packed.basis_CK,
                packed.scale_HW,
                projected=rotated,
                coarse_scale_hw=coarse.packed.scale_HW if coarse else None,
            ),
            frame=frame,
            whole=stored.get("whole", packed.members),
            copies=stored.get("copies", 0),
            candidates=read_candidates(store, record),
            coarse=Coreset(coarse.packed.vectors(), coarse.source_hwM.astype(np.int32)) if coarse else None,
            sums=ImageSums(prototype.descriptor_C * np.float64(count), prototype.thumbnail_P * np.float64(count)),
        )
        return builder

    def lie(self, position: Position | None, reference: Reference | None) -> None:
        """Say how the parts lie, before the first images are added."""
        self.position, self.reference = position, reference
        self.calibration.anywhere = is_free(position)

    @property
    def _built(self) -> BankContents:
        if self._contents is None:
            raise RuntimeError("a bank has no contents before images were added")
        return self._contents

    @property
    def tiles(self) -> int:
        """Of how many tiles an image consists."""
        return self.tiling.count if self.tiling else 1

    def cut_into(self, tiling: Tiling | None) -> None:
        """Say how the images are cut, before the first are added. A preset's budget is that of one tile, and one that
        was given that of the whole task."""
        if tiling is None or self.tiling is not None:
            return
        self.tiling, self.calibration = tiling, Calibration(self.preset, tiles=tiling.count)
        if self.budget and self._budget_of_tile:
            self.budget *= tiling.count

    @property
    def headroom(self) -> float:
        """By which factor half of the pictures without a product must exceed the threshold."""
        return 1.0 if self._kind == "in-sample" else headroom(len(self.calibration.scored_images))

    @property
    def copies(self) -> int:
        """How many moved copies were learned with the images."""
        return self._contents.copies if self._contents else 0

    @property
    def members(self) -> int:
        """The number of patches at each location."""
        return self._contents.layout.form.members if self._contents else 0

    def _frame(self, height: int, width: int, channels: int, images: int, scores: int, prototype: int) -> Frame:
        """What the size of the files depends on besides the form of the bank."""
        shape = windows(np.zeros((1, height, width, 1), np.float32)).shape if "coarse" in self.preset.readings else None
        coarse = shape[1] * shape[2] if shape else 0
        maps, beside = 0, 3 * THUMBNAIL**2 + 6 if self.preset.exposure else 0
        beside += self.reference.edges_hw.size if self.reference else 0
        if len(self.preset.readings) > 1:
            maps, beside = (
                2 * (height * width + coarse) + 5,
                beside + height * width + 2 * len(self.preset.readings) + 1,
            )
        return Frame(height * width + COARSE_SHARE * coarse, channels, images, scores, prototype, maps, beside)

    def follow(self) -> None:
        """Say that nobody has looked at the images: some may be defects, and how the product looks may change."""
        self.calibration.follow(FOLLOWED)

    # --- adding images ---

    def see_light(self, features: ImageFeatures) -> None:
        """Widen the range of exposures by more normal images; where that of earlier ones is not known, nothing is."""
        exposure_N2 = features.exposures()
        if self.exposure is None or not len(exposure_N2):
            return
        if self.exposure_range is not None:
            self.exposure_range = self.exposure_range.with_images(exposure_N2)
        elif not self.images:
            self.exposure_range = ExposureRange.of(exposure_N2)

    def add(self, features: ImageFeatures, copies: Copies | None = None) -> None:
        """Learn from one more block of normal images; if the patches are on a GPU, the coreset is computed there."""
        names, patches_NHWC, descriptor_NC = features.names, features.patches_NHWC, features.descriptor_NC
        started, first, total = time.perf_counter(), len(self.images), len(self.images) + len(names)
        self.see_light(features)
        count, height, width, channels = patches_NHWC.shape
        # Calibration scores no more of them than this; held-out ones are counted when they come.
        scores = len(self.calibration) + min(count, self._to_score + count // (self.preset.folds or 5) + 1)
        frame = self._frame(height, width, channels, total, scores, descriptor_NC.shape[1])
        old = self._contents
        all_copies = (old.copies if old else 0) + (len(copies.copy_of_P) if copies else 0)
        whole = coreset_size(total + all_copies, 0, self._wanted(total))
        if old is None:
            layout, known, known_coarse = (
                first_layout(self.preset, self._precision, self.budget, frame, whole, patches_NHWC),
                None,
                None,
            )
        else:
            layout = next_layout(old.layout, self.budget, frame, whole)
            known = layout.narrowed(old.candidates)
            known_coarse = layout.narrowed(old.coarse) if old.coarse else None
        block = LearningBlock.of(layout, patches_NHWC, copies, first, with_windows="coarse" in self.preset.readings)
        # More candidates than members are picked only where they will be stored.
        keep = layout.form.members if self.budget else round(layout.form.members * (1 + self.preset.reserve))
        candidates, coarse = block.remembered(keep, known, known_coarse, self._seed)
        # Without a reserve there may be fewer candidates than the number of images would allow.
        layout = layout.with_members(min(layout.form.members, candidates.members))
        summed = features.sums() if old is None else old.sums.plus(features.sums())
        self._contents = BankContents(layout, frame, whole, all_copies, candidates, coarse, summed)
        self.images += names
        self.digests += features.digests
        self.seconds["memory"] += time.perf_counter() - started

        started = time.perf_counter()
        unseen = self._unseen_scores(block, known, known_coarse)
        if old is not None:
            self._rescale_earlier(old, first, block, unseen)
        for scored in unseen:
            self.calibration.take(scored.distances, (scored.rows + first).tolist(), counts=scored.counts)
        self.seconds["calibrate"] += time.perf_counter() - started

    def _wanted(self, images: int) -> int:
        """The members a location of a task of so many images should have; few where all locations share them."""
        if is_free(self.position):
            return self.preset.minimum
        if self.calibration.unlabelled:  # what follows a stream may not grow for ever
            return max(self.members, self.members_for(min(images, LARGEST)))
        return self.members_for(images)

    def members_for(self, images: int) -> int:
        """The members that a location of a task of so many images should have, as the preset says."""
        return max(self.preset.minimum, int(self.preset.ratio * images + 1e-9))

    @property
    def _to_score(self) -> int:
        """How many images of a block are scored by a memory without them, at the least; all, where there are fewer."""
        missing = FIRST_CALIBRATION_IMAGES - len(self.calibration) if self.preset.folds else 0
        return max(CALIBRATION_IMAGES, missing)

    def calibrate(self, patches_NHWC: Array) -> None:
        """Score held-out normal images with the bank as it is, for the threshold."""
        self._score_held_out(patches_NHWC, HELD_OUT)

    def keep_out(self, patches_NHWC: Array) -> None:
        """Score images that are never learned with the bank as it is, in the place of those given before; they are what
        the threshold comes from, and scores of others where they are too few.

        Scores of other images are only guessed after the memory has grown, because the images are gone; these are not.
        """
        self.calibration.drop_kept_out()
        self._score_held_out(patches_NHWC, KEPT_OUT)
        count = patches_NHWC.shape[0]
        self.calibration.follow(max(LEAST_LEARNED, FOLLOWED - count))

    def _score_held_out(self, patches_NHWC: Array, image: int) -> None:
        self._fit(len(self.calibration) + patches_NHWC.shape[0])
        contents = self._built
        own = contents.layout.own(patches_NHWC)
        coarse = windows(own) if contents.coarse else None
        distances = self._comparison.distances(contents.layout, own, coarse, contents.members, contents.coarse)
        self.calibration.take(distances, [image] * patches_NHWC.shape[0])

    def recalibrate(self, patches_NHWC: Array) -> None:
        """Take the threshold, and what is usual for each reading, from other normal images; the memory stays."""
        self.calibration = Calibration(self.preset, self._zone, self.tiles, anywhere=is_free(self.position))
        self._kind = "held-out"
        self.calibrate(patches_NHWC)

    def score_controls(self, patches_NHWC: Array) -> None:
        """Score the control images with the bank as it is."""
        contents = self._built
        patches = contents.layout.packed(contents.members.vectors_HWMC)
        coarse = contents.layout.packed_coarse(contents.coarse.vectors_HWMC) if contents.coarse else None
        memory = Memory(patches, coarse=coarse, anywhere=is_free(self.position))
        distances = memory.distances(patches_NHWC, self.preset.radius)
        scale = self.calibration.scale
        self.control_scores = read_images(distances, self.preset, scale, self._zone, self.tiles).score_N
        self.control_levels = levels(distances, self._zone if scale else None)

    def _unseen_scores(
        self, block: LearningBlock, known: Coreset | None, known_coarse: Coreset | None
    ) -> list[UnseenImages]:
        """The distances of images of a block that was just added to a memory that has not seen them."""
        total, count = len(self.images), block.images
        if self._kind == "in-sample":
            self._fit(len(self.calibration) + count)
            contents = self._built
            distances = self._comparison.distances(contents.layout, *block.own(), contents.members, contents.coarse)
            return [UnseenImages(np.arange(count), distances)]
        scored = []
        if total > 1 and (self._kind == "unseen" or len(self.preset.readings) > 1):
            # Without folds: a fifth less hardly thins a large memory; a small one needs nearly all its images.
            parts = self.preset.folds or min(20, max(5, 2000 // total))
            split = list(unseen_parts(count, at_least=self._to_score, parts=parts, seed=self._seed))
            rests = [rest for _, rest in split]
            memories = block.remembered_parts(self.members, known, known_coarse, self._seed, rests)
            for (held_out, _), (members, coarse) in zip(split, memories, strict=True):
                distances = self._comparison.distances(self._built.layout, *block.own(held_out), members, coarse)
                # Where other images give the threshold, these still say what is usual for each reading.
                scored.append(UnseenImages(held_out, distances, counts=self._kind == "unseen"))
        return scored

    def _rescale_earlier(
        self, old: BankContents, images: int, block: LearningBlock, unseen: list[UnseenImages]
    ) -> None:
        """Scale the scores of earlier images to what they would be with the bank of now.

        After many small updates the shares that are estimated for them are too low by a lot. So where nobody looks at
        the images, they are raised to what images gain on average: by how much those that were just added, which are
        all there, score lower than with the bank of before.
        """
        share = self.preset.top / self.tiles
        rescaling = Rescaling(old, self._built, self._comparison, images, share, self.calibration.scored)
        if self._kind == "in-sample" and not rescaling.narrower:
            return
        shares, coarse = rescaling.shares()
        if unseen and not rescaling.narrower and self.calibration.unlabelled:
            gains = rescaling.gain(block, unseen)
            shares, coarse = (raised(each, gain) for each, gain in zip((shares, coarse), gains, strict=True))
        self.calibration.rescale(shares, coarse)

    @property
    def _comparison(self) -> Comparison:
        return Comparison(self.preset.radius, is_free(self.position))

    # --- the form of the bank ---

    def _fit(self, scores: int) -> None:
        """Stay within the budget with so many scores in the file."""
        self._contents = self._built.within(self.budget, scores)

    # --- what is stored ---

    def files(self) -> dict[str, Arrays]:
        """The arrays to store, by file: for inspecting, for routing, and for later changes."""
        contents, members, limited = self._built, self.members, self.budget is not None
        candidates = contents.members if limited else contents.candidates
        packed, source_HWK = contents.layout.packed(candidates.vectors_HWMC), to_numpy(candidates.source_HWM)
        source_type = contents.frame.source_type if limited else np.int32
        bank: Arrays = packed.first(members).arrays() | self.calibration.arrays()
        bank["source"] = np.ascontiguousarray(source_HWK[:, :, :members], source_type)
        bank |= {"foreign": self.control_scores, "foreign_levels": self.control_levels}
        if contents.coarse is not None:
            coarse = contents.layout.packed_coarse(contents.coarse.vectors_HWMC)._replace(basis_CK=None).arrays()
            bank |= {f"coarse_{name}": values for name, values in coarse.items()}
            bank["coarse_source"] = np.ascontiguousarray(to_numpy(contents.coarse.source_HWM), source_type)
        count = len(self.images)
        prototype: Arrays = {"prototype": (contents.sums.descriptor_C / count).astype(np.float32)}
        if self.exposure is not None:
            prototype["exposure"] = np.asarray(self.exposure, np.float32)
            prototype["thumbnail"] = (contents.sums.thumbnail_P / count).astype(np.float32)
        if self.exposure_range is not None:
            prototype["exposure_range"] = np.asarray(self.exposure_range, np.float32)
        if self.reference is not None:
            prototype["reference"] = self.reference.edges_hw
        files = {"bank": bank, "prototype": prototype}
        if maps := self.calibration.maps():
            files["calibration"] = maps
        if limited:
            return files
        values = "vectors" if packed.scale_HW is None else "codes"
        rest = np.ascontiguousarray(to_numpy(packed.values_HWMK)[:, :, members:])
        source = np.ascontiguousarray(source_HWK[:, :, members:], np.int32)
        return files | {"reserve": {values: rest, "source": source}}

    def manifest(self) -> dict[str, Any]:
        """What is stored beside the arrays."""
        contents = self._built
        return {
            "images": self.images,
            "digests": self.digests,
            "members": self.members,
            "bank": {
                "precision": contents.layout.form.precision,
                "channels": contents.layout.form.channels,
                "width": contents.frame.width,
                "whole": contents.whole,
                "budget": self.budget,
                "copies": contents.copies,
            },
            "calibration": {
                "kind": self._kind,
                "scores": len(self.calibration.scored_images),
                "cautious": self._kind != "in-sample",
            }
            | ({"unlabelled": True} if self.calibration.unlabelled else {}),
            "preset": self.preset.name,
        } | self._known()

    def _known(self) -> dict[str, Any]:
        """What of the manifest only some tasks have."""
        known: dict[str, Any] = {"settings": self.settings.to_json(), "image_size": list(self.image_size or ())}
        known["position"] = self.position.to_json() if self.position else None
        known["tiles"] = self.tiling.to_json() if self.tiling else None
        return {key: value for key, value in known.items() if value}
