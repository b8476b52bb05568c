"""A task while it is taught: its memory, the form its bank will have, and what its threshold comes from."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank_files import (
    Arrays,
    Ladder,
    descriptor_width,
    ladder_arrays,
    learned_digests,
    learned_images,
    read_bank,
    read_candidates,
    read_ladder,
    read_prototype,
)
from dinosaur_ad.bank.budget import RUNGS, Form, Frame, choose, fewer_members, ladder, say_bytes
from dinosaur_ad.bank.kept import Kept
from dinosaur_ad.core.arrays import Array, like, namespace, to_numpy
from dinosaur_ad.core.coreset import coreset_size
from dinosaur_ad.core.memory import Memory, distances_to_others, remember, unseen_memories
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.projection import principal_axes, project
from dinosaur_ad.errors import InputError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore

Floats = NDArray[np.float32]

# Normals scored unseen for a threshold; more would not move it noticeably, fewer would.
CALIBRATION_IMAGES = 200


@dataclass
class Draft:
    """A task while it is taught: everything that will be stored, growing block by block of images.

    ``candidates`` are the bank's members and, after them, the reserve for later updates. ``scores`` and ``levels``
    are the image scores and the usual patch distances of the normals that calibrate the threshold, ``scored`` says
    which image each belongs to (-1: held out, or unknown). ``foreign`` are the scores of pictures that show no product.
    ``digests`` tell images apart, so that none is taught twice; they are empty where nobody gave them.

    A ``precision`` of its own goes before the preset's. With a ``budget`` in bytes the ``form`` of the bank is chosen
    when the first images come and before anything is calibrated, and no reserve is stored. ``ladder`` then holds the
    scores under the smaller forms that the bank can be cut to: when other tasks need room, or when more images ask for
    more members and the channels have to give way. ``asked`` is stored as it is.
    """

    preset: Preset
    seed: int
    calibration: str
    precision: str | None = None
    budget: int | None = None
    asked: dict[str, int | None] = field(default_factory=dict)
    form: Form | None = None
    whole: int = 0
    frame: Frame | None = None
    candidates: Memory | None = None
    basis_CK: Array | None = None
    scale_HW: Array | None = None
    # Whether the candidates lie along the basis already: those of a stored task do, those of a new one have all
    # channels, because members that are picked by all of them cover better.
    projected: bool = False
    images: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    descriptor_sum: NDArray[np.float64] | None = None
    scores: list[float] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)
    scored: list[int] = field(default_factory=list)
    foreign: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    ladder: Ladder = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"memory": 0.0, "calibrate": 0.0})

    @classmethod
    def reopened(
        cls,
        preset: Preset,
        seed: int,
        store: TaskStore,
        record: TaskRecord,
        budget: int | None = None,
        asked: dict[str, int | None] | None = None,
    ) -> Draft:
        """A stored task, ready to see more images; with a budget, cut to it."""
        bank, kept = read_bank(store, record)
        images, stored = learned_images(record), record.manifest.get("bank", {})
        prototype = read_prototype(store, record, descriptor_width(preset, kept))
        form = Form(kept.members, kept.channels, kept.precision, kept.basis_CK is not None)
        rungs, (height, width) = read_ladder(store, record, form), kept.values_HWMK.shape[:2]
        draft = cls(
            preset,
            seed,
            preset.calibration,
            precision=kept.precision,
            asked=asked or {},
            form=form,
            whole=stored.get("whole", kept.members),
            frame=Frame(height * width, kept.width, len(images), bank["scores"].size, prototype.size, len(rungs)),
            candidates=read_candidates(store, record),
            basis_CK=kept.basis_CK,
            scale_HW=kept.scale_HW,
            projected=kept.basis_CK is not None,
            images=images,
            digests=learned_digests(record),
            descriptor_sum=prototype.astype(np.float64) * len(images),
            scores=bank["scores"].tolist(),
            levels=bank["levels"].tolist(),
            scored=bank["scored"].tolist(),
            foreign=bank["foreign"],
            ladder=rungs,
        )
        if budget is not None:
            draft.cut(budget)
        return draft

    @property
    def bytes(self) -> int:
        """What its files will take, as far as a budget counts them."""
        assert self.form is not None
        assert self.frame is not None
        return self.frame.bytes(self.form)

    @property
    def members(self) -> int:
        """How many patches a location remembers."""
        return self.form.members if self.form else 0

    # --- seeing images ---

    def grow(
        self, names: list[str], patches_NHWC: Array, descriptor_NC: Floats, digests: list[str] | None = None
    ) -> None:
        """See one more block of normal images; the patches may lie on a GPU, and the memory is then made there."""
        started, first, total = time.perf_counter(), len(self.images), len(self.images) + len(names)
        members = self.members
        form = self._decide(patches_NHWC, total, descriptor_NC.shape[1])
        own_NHWC, known = self._own(patches_NHWC), self.candidates
        before = None if known is None else known.first(members)
        source_N = like(np.arange(first, total), own_NHWC, namespace(own_NHWC).int32)
        # More candidates than members are picked only where they will be stored.
        keep = form.members if self.budget else round(form.members * (1 + self.preset.reserve))
        self.candidates = remember(own_NHWC, source_N, keep, known=known, seed=self.seed)
        # Without a reserve a memory may know fewer patches than the images it has seen would allow.
        self.form = replace(form, members=min(form.members, self.candidates.members))
        self.images += names
        self.digests += digests or [""] * len(names)
        summed = descriptor_NC.sum(axis=0, dtype=np.float64)
        self.descriptor_sum = summed if self.descriptor_sum is None else self.descriptor_sum + summed
        self.seconds["memory"] += time.perf_counter() - started

        started = time.perf_counter()
        if before is not None and self.calibration != "in-sample":
            self._recalibrate(before, first)
        if self.calibration == "in-sample":
            self._fit(len(self.scores) + len(names))
            self._take(own_NHWC, self._bank_vectors(), range(first, total))
        elif self.calibration == "unseen" and total > 1:
            unseen = unseen_memories(
                own_NHWC,
                self.members,
                at_least=CALIBRATION_IMAGES,
                # A fifth less hardly thins a large memory; a small one needs nearly all its images to be itself.
                parts=min(20, max(5, 2000 // total)),
                known=known,
                seed=self.seed,
            )
            for held_out, memory in unseen:
                self._take(own_NHWC[held_out], memory.vectors_HWMC, (held_out + first).tolist())
        self.seconds["calibrate"] += time.perf_counter() - started

    def calibrate(self, patches_NHWC: Array) -> None:
        """Take normal images that were held out into the threshold, scored against the bank as it is."""
        self._fit(len(self.scores) + patches_NHWC.shape[0])
        self._take(self._own(patches_NHWC), self._bank_vectors(), [-1] * patches_NHWC.shape[0])

    def show_foreign(self, patches_NHWC: Array) -> None:
        """Remember what pictures that show no product score against the bank as it is."""
        assert self.form is not None
        kept = self._kept(self._bank_vectors())
        distance_NHW = kept.distances(patches_NHWC, self.preset.radius)
        self.foreign = np.asarray(to_numpy(pool(distance_NHW, self.preset.top)), np.float32)

    def _recalibrate(self, before: Memory, images: int) -> None:
        """Bring the scores of images seen earlier to what they would be against the memory of now.

        Those images are gone, but their patches that were members are not: by the share by which these came closer to
        the members of other images, the image's score falls. Where no patch of an image is left, or nobody knows which
        image a score belongs to, the usual share holds.
        """
        assert self.candidates is not None
        after = self.candidates.first(self.members)
        was_N, is_N = (
            to_numpy(pool(distances_to_others(before, members, self.preset.radius, images), self.preset.top))
            for members in (before, after)
        )
        share_N = np.minimum(1.0, np.divide(is_N, was_N, out=np.ones_like(is_N), where=was_N > 0))
        known_N = was_N > 0
        usual = float(np.median(share_N[known_N])) if known_N.any() else 1.0
        shares = [float(share_N[n]) if n >= 0 and known_N[n] else usual for n in self.scored]
        for scores, levels in [(self.scores, self.levels), *self.ladder.values()]:
            scores[:] = [score * share for score, share in zip(scores, shares, strict=True)]
            levels[:] = [level * share for level, share in zip(levels, shares, strict=True)]

    def _own(self, patches_NHWC: Array) -> Array:
        """Patches as the candidates are."""
        return project(patches_NHWC, self.basis_CK) if self.projected else patches_NHWC

    def _bank_vectors(self) -> Array:
        """The members as they are held while the task is taught."""
        assert self.candidates is not None
        return self.candidates.first(self.members).vectors_HWMC

    def _take(self, own_NHWC: Array, vectors_HWMC: Array, images: Iterable[int]) -> None:
        """Score normal images with members that have not seen them, under the form of the bank and all smaller ones."""
        assert self.form is not None
        # Not rounded to float16, which moves no score by more than a part in ten thousand.
        kept = self._kept(vectors_HWMC) if self.form.precision == "int8" else Kept(vectors_HWMC)
        patches_NHWK = own_NHWC if self.projected else kept.tokens(own_NHWC)
        for form, (scores, levels) in [(self.form, (self.scores, self.levels)), *self.ladder.items()]:
            along = kept.cut(form.members, form.channels)._replace(basis_CK=None)
            distance_NHW = along.distances(patches_NHWK[..., : form.channels], self.preset.radius)
            scores += pool(distance_NHW, self.preset.top).tolist()
            levels += np.median(to_numpy(distance_NHW), axis=(1, 2)).tolist()
        self.scored += images

    # --- the form of the bank ---

    def _decide(self, patches_NHWC: Array, total: int, prototype: int) -> Form:
        """Choose the form of the bank; one that was chosen before grows with the images as far as its budget allows."""
        count, height, width, channels = patches_NHWC.shape
        # Calibrating scores no more of them; held-out ones are counted when they come.
        scores = len(self.scores) + min(count, CALIBRATION_IMAGES + count // 5 + 1)
        rungs = len(self.ladder) if self.form else RUNGS
        self.frame = Frame(height * width, channels, total, scores, prototype, rungs)
        self.whole = coreset_size(total, self.preset.ratio, self.preset.minimum)
        if self.form is None:
            self.form = self._first_form(channels)
            if self.form.rotated:
                self.basis_CK = principal_axes(patches_NHWC, self.form.channels)
        else:
            self._make_way()
            self.form = replace(self.form, members=self.whole)
            self._fit(scores)
        return self.form

    def _first_form(self, channels: int) -> Form:
        """Without a budget, what the preset or the precision asked for says; with one, int8 and what fits."""
        assert self.frame is not None
        if not self.budget:
            return Form(self.whole, channels, self.precision or self.preset.precision)
        precision = self.precision or "int8"
        form = choose(self.frame, Form(self.whole, channels, precision, rotated=precision == "int8"), self.budget)
        self.ladder = {rung: ([], []) for rung in ladder(self.frame, form)}
        self.frame = replace(self.frame, rungs=len(self.ladder))
        return form

    def _make_way(self) -> None:
        """Give up channels for the members that more images ask for, down to a form that was calibrated."""
        assert self.form is not None
        assert self.frame is not None
        if self.budget and self.form.rotated:
            wanted = choose(self.frame, replace(self.form, members=self.whole), self.budget).channels
            rung = next((rung for rung in self.ladder if rung.channels <= wanted), None)
            if rung and wanted < self.form.channels:
                self._step_down(rung)

    def _fit(self, scores: int) -> None:
        """Keep a bank of chosen channels within its budget, with so many scores beside it."""
        assert self.form is not None
        assert self.frame is not None
        self.frame = replace(self.frame, scores=scores)
        if self.budget:
            self.form = fewer_members(self.frame, self.form, self.budget)

    def cut(self, budget: int) -> None:
        """Keep a stored task within a budget: drop channels and members, down to a form that was calibrated."""
        assert self.form is not None
        assert self.frame is not None
        self.budget = budget
        if self.frame.bytes(self.form) <= budget:
            return
        rung = next((rung for rung in self.ladder if self.frame.bytes(rung) <= budget), None)
        if rung is None:
            raise InputError(
                f"A bank of {say_bytes(self.frame.bytes(self.form))} cannot be cut to {say_bytes(budget)}: a smaller "
                "one needs a threshold of its own, and it was calibrated for none so small; learn the task anew with "
                "that budget."
            )
        self._step_down(rung)

    def _step_down(self, rung: Form) -> None:
        """Become one of the smaller forms, with the scores that were taken under it."""
        assert self.candidates is not None
        assert self.frame is not None
        self.scores, self.levels = self.ladder[rung]
        smaller = list(self.ladder)[list(self.ladder).index(rung) + 1 :]
        self.ladder = {each: self.ladder[each] for each in smaller}
        self.frame = replace(self.frame, rungs=len(smaller))
        self.candidates = self.candidates.first(rung.members)
        if self.projected:
            vectors_HWMK = self.candidates.vectors_HWMC[..., : rung.channels]
            self.candidates = self.candidates._replace(vectors_HWMC=vectors_HWMK)
        self.basis_CK = None if self.basis_CK is None else self.basis_CK[:, : rung.channels]
        self.form = rung

    def _kept(self, vectors_HWMC: Array) -> Kept:
        """Members in the form in which they will be stored."""
        assert self.form is not None
        vectors_HWMK = vectors_HWMC if self.projected or self.basis_CK is None else project(vectors_HWMC, self.basis_CK)
        return Kept.along(vectors_HWMK, self.form.precision, self.basis_CK, self.scale_HW)

    # --- what is stored ---

    def files(self) -> dict[str, Arrays]:
        """The arrays to store, by file: what inspecting needs, what routing needs, what updating or cutting needs."""
        assert self.candidates is not None
        assert self.descriptor_sum is not None
        assert self.frame is not None
        members, limited = self.members, self.budget is not None
        memory = self.candidates.first(members) if limited else self.candidates
        kept, source_HWK = self._kept(memory.vectors_HWMC), to_numpy(memory.source_HWM)
        source_type = self.frame.source_type if limited else np.int32
        files: dict[str, Arrays] = {
            "bank": kept.cut(members, kept.channels).arrays()
            | {
                "source": np.ascontiguousarray(source_HWK[:, :, :members], source_type),
                "scores": np.asarray(self.scores, np.float32),
                "levels": np.asarray(self.levels, np.float32),
                "scored": np.asarray(self.scored, np.int32),
                "foreign": self.foreign,
            },
            "prototype": {"prototype": (self.descriptor_sum / len(self.images)).astype(np.float32)},
        }
        if limited:
            return files | ({"ladder": ladder_arrays(self.ladder)} if self.ladder else {})
        values = "vectors" if kept.scale_HW is None else "codes"
        rest = np.ascontiguousarray(to_numpy(kept.values_HWMK)[:, :, members:])
        source = np.ascontiguousarray(source_HWK[:, :, members:], np.int32)
        return files | {"reserve": {values: rest, "source": source}}

    def manifest(self) -> dict[str, Any]:
        """What is stored beside the arrays."""
        assert self.form is not None
        assert self.frame is not None
        return {
            "images": self.images,
            "digests": self.digests,
            "members": self.members,
            "bank": {
                "precision": self.form.precision,
                "channels": self.form.channels,
                "width": self.frame.width,
                "whole": self.whole,
                "budget": self.budget,
            },
            "budgets": self.asked,
            "calibration": {"kind": self.calibration, "scores": len(self.scores)},
            "preset": self.preset.name,
        }
