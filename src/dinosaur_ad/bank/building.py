"""How a task's bank is learned: blocks of images in, the arrays and the manifest of a store out."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank import PackedVectors
from dinosaur_ad.bank.bank_files import (
    Arrays,
    descriptor_width,
    learned_digests,
    learned_images,
    read_bank,
    read_candidates,
    read_prototype,
)
from dinosaur_ad.bank.budget import Form, Frame, choose, fewer_members, say_bytes
from dinosaur_ad.core.arrays import Array, like, namespace, to_numpy
from dinosaur_ad.core.coreset import coreset_size
from dinosaur_ad.core.memory import Coreset, distances_to_others, remember, unseen_memories
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.projection import principal_axes, project
from dinosaur_ad.errors import InputError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore

Floats = NDArray[np.float32]

# Calibration images; more would not change the threshold noticeably, fewer would.
CALIBRATION_IMAGES = 200


@dataclass(frozen=True)
class _Layout:
    """The form of a bank, and how the encoder's patches become its vectors.

    ``projected`` candidates lie along the basis already: those of a stored task do; those of a new one have all
    channels, because members that are picked by all of them cover better. Int8 scales do not fall below ``scale_HW``.
    """

    form: Form
    basis_CK: Array | None = None
    scale_HW: Array | None = None
    projected: bool = False

    def own(self, patches_NHWC: Array) -> Array:
        """Patches of the encoder with the channels of the candidates."""
        return project(patches_NHWC, self.basis_CK) if self.projected else patches_NHWC

    def along_basis(self, vectors: Array) -> Array:
        """Vectors of candidates with the channels that are stored."""
        return vectors if self.projected or self.basis_CK is None else project(vectors, self.basis_CK)

    def packed(self, vectors_HWMC: Array) -> PackedVectors:
        """Vectors of candidates as they are stored."""
        vectors_HWMK = self.along_basis(vectors_HWMC)
        return PackedVectors.projected(vectors_HWMK, self.form.precision, self.basis_CK, self.scale_HW)

    def with_members(self, members: int) -> _Layout:
        return replace(self, form=replace(self.form, members=members))

    def with_channels(self, channels: int) -> _Layout:
        """Without the least important channels."""
        basis_CK = None if self.basis_CK is None else self.basis_CK[:, :channels]
        return replace(self, form=replace(self.form, channels=channels), basis_CK=basis_CK)

    def narrowed(self, coreset: Coreset) -> Coreset:
        """Candidates of a layout that may have had more channels."""
        if not self.projected:
            return coreset
        return coreset._replace(vectors_HWMC=coreset.vectors_HWMC[..., : self.form.channels])


@dataclass(frozen=True)
class _Contents:
    """What a builder has once it was given images.

    ``candidates`` are the bank's members and, after them, the reserve for later updates; ``whole`` is how many members
    there would be without a budget.
    """

    layout: _Layout
    frame: Frame
    whole: int
    candidates: Coreset
    descriptor_sum: NDArray[np.float64]

    @property
    def members(self) -> Coreset:
        return self.candidates.first(self.layout.form.members)


class BankBuilder:
    """Builds the bank of a task from blocks of normal images, or adds images to a stored one.

    ``scores`` and ``levels`` are the image scores and the median patch distances of the calibration images, ``scored``
    is the image each belongs to (-1: held out, or unknown). ``control_scores`` are those of the control images.
    ``digests`` are hashes of ``images``, empty where they are not known. ``seconds`` is how long each step took.

    ``calibration`` is "unseen" (each image is scored by a coreset of the others), "in-sample", or "held-out" (other
    images are given to :meth:`calibrate`). Without a ``precision`` the preset decides it. With a ``budget`` in bytes
    the number of members and channels is chosen when the first images come, and no reserve is stored.
    """

    def __init__(
        self, preset: Preset, seed: int, calibration: str, *, precision: str | None = None, budget: int | None = None
    ) -> None:
        self.preset = preset
        self.budget = budget
        self.images: list[str] = []
        self.digests: list[str] = []
        self.scores: list[float] = []
        self.levels: list[float] = []
        self.scored: list[int] = []
        self.control_scores: Floats = np.empty(0, np.float32)
        self.seconds = {"memory": 0.0, "calibrate": 0.0}
        self._seed = seed
        self._calibration = calibration
        self._precision = precision
        self._contents: _Contents | None = None

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
        builder = cls(preset, seed, preset.calibration, budget=budget or stored.get("budget"))
        builder.images, builder.digests = learned_images(record), learned_digests(record)
        builder.scores, builder.levels, builder.scored = (bank[key].tolist() for key in ("scores", "levels", "scored"))
        builder.control_scores = bank["foreign"]
        height, width = packed.values_HWMK.shape[:2]
        count, rotated = len(builder.images), packed.basis_CK is not None
        form = Form(packed.members, packed.channels, packed.precision, rotated)
        frame = Frame(height * width, packed.width, count, len(builder.scores), prototype.size)
        if builder.budget is not None and frame.bytes(form) > builder.budget:
            raise InputError(
                f"A bank of {say_bytes(frame.bytes(form))} cannot be cut to {say_bytes(builder.budget)}: a smaller one "
                "needs a threshold of its own, and so the images; learn the task anew with that budget."
            )
        builder._contents = _Contents(
            layout=_Layout(form, packed.basis_CK, packed.scale_HW, projected=rotated),
            frame=frame,
            whole=stored.get("whole", packed.members),
            candidates=read_candidates(store, record),
            descriptor_sum=prototype.astype(np.float64) * count,
        )
        return builder

    @property
    def _built(self) -> _Contents:
        if self._contents is None:
            raise RuntimeError("a bank has no contents before images were added")
        return self._contents

    @property
    def members(self) -> int:
        """The number of patches at each location."""
        return self._contents.layout.form.members if self._contents else 0

    # --- adding images ---

    def add(
        self, names: list[str], patches_NHWC: Array, descriptor_NC: Floats, digests: list[str] | None = None
    ) -> None:
        """Learn from one more block of normal images; if the patches are on a GPU, the coreset is computed there."""
        started, first, total = time.perf_counter(), len(self.images), len(self.images) + len(names)
        count, height, width, channels = patches_NHWC.shape
        # Calibration scores no more of them than this; held-out ones are counted when they come.
        scores = len(self.scores) + min(count, CALIBRATION_IMAGES + count // 5 + 1)
        frame = Frame(height * width, channels, total, scores, descriptor_NC.shape[1])
        whole = coreset_size(total, self.preset.ratio, self.preset.minimum)
        old = self._contents
        if old is None:
            layout, known = self._first_layout(patches_NHWC, frame, whole), None
        else:
            layout = self._next_layout(old.layout, frame, whole)
            known = layout.narrowed(old.candidates)
        own_NHWC = layout.own(patches_NHWC)
        source_N = like(np.arange(first, total), own_NHWC, namespace(own_NHWC).int32)
        # More candidates than members are picked only where they will be stored.
        keep = layout.form.members if self.budget else round(layout.form.members * (1 + self.preset.reserve))
        candidates = remember(own_NHWC, source_N, keep, known=known, seed=self._seed)
        # Without a reserve there may be fewer candidates than the number of images would allow.
        layout = layout.with_members(min(layout.form.members, candidates.members))
        summed = descriptor_NC.sum(axis=0, dtype=np.float64)
        summed = summed if old is None else old.descriptor_sum + summed
        self._contents = _Contents(layout, frame, whole, candidates, summed)
        self.images += names
        self.digests += digests or [""] * len(names)
        self.seconds["memory"] += time.perf_counter() - started

        started = time.perf_counter()
        if old is not None:
            self._recalibrate(old, self._contents, first)
        self._calibrate_block(own_NHWC, known, first)
        self.seconds["calibrate"] += time.perf_counter() - started

    def calibrate(self, patches_NHWC: Array) -> None:
        """Score held-out normal images with the bank as it is, for the threshold."""
        self._fit(len(self.scores) + patches_NHWC.shape[0])
        contents = self._built
        vectors_HWMC = contents.members.vectors_HWMC
        self._take(contents.layout.own(patches_NHWC), vectors_HWMC, [-1] * patches_NHWC.shape[0])

    def score_controls(self, patches_NHWC: Array) -> None:
        """Score the control images with the bank as it is."""
        contents = self._built
        packed = contents.layout.packed(contents.members.vectors_HWMC)
        distance_NHW = packed.distances(patches_NHWC, self.preset.radius)
        self.control_scores = np.asarray(to_numpy(pool(distance_NHW, self.preset.top)), np.float32)

    def _calibrate_block(self, own_NHWC: Array, known: Coreset | None, first: int) -> None:
        """Score the images of a block that was just added, the first of which has the index ``first``."""
        total = len(self.images)
        if self._calibration == "in-sample":
            self._fit(len(self.scores) + total - first)
            self._take(own_NHWC, self._built.members.vectors_HWMC, range(first, total))
        elif self._calibration == "unseen" and total > 1:
            unseen = unseen_memories(
                own_NHWC,
                self.members,
                at_least=CALIBRATION_IMAGES,
                # A fifth less hardly thins a large memory; a small one needs nearly all its images to be itself.
                parts=min(20, max(5, 2000 // total)),
                known=known,
                seed=self._seed,
            )
            for held_out, coreset in unseen:
                self._take(own_NHWC[held_out], coreset.vectors_HWMC, (held_out + first).tolist())

    def _recalibrate(self, old: _Contents, new: _Contents, images: int) -> None:
        """Scale the scores of earlier images to what they would be with the bank of now.

        Those images are gone, but their patches that were members are not: the score of an image falls by the same
        share as the distances of its patches to the members of other images. Where no patch of an image is left, or it
        is unknown which image a score belongs to, the median share is taken.
        """
        narrower = new.layout.form.channels < old.layout.form.channels
        if self._calibration == "in-sample" and not narrower:
            return
        before, patches, after = old.members, new.layout.narrowed(old.members), new.members
        if narrower:  # compared by the channels that are stored, of which there are fewer now
            before, patches, after = (
                coreset._replace(vectors_HWMC=layout.along_basis(coreset.vectors_HWMC))
                for layout, coreset in ((old.layout, before), (new.layout, patches), (new.layout, after))
            )
        was_N, is_N = (
            to_numpy(pool(distances_to_others(own, members, self.preset.radius, images), self.preset.top))
            for own, members in ((before, before), (patches, after))
        )
        share_N = np.minimum(1.0, np.divide(is_N, was_N, out=np.ones_like(is_N), where=was_N > 0))
        known_N = was_N > 0
        usual = float(np.median(share_N[known_N])) if known_N.any() else 1.0
        shares = [float(share_N[n]) if n >= 0 and known_N[n] else usual for n in self.scored]
        self.scores = [score * share for score, share in zip(self.scores, shares, strict=True)]
        self.levels = [level * share for level, share in zip(self.levels, shares, strict=True)]

    def _take(self, own_NHWC: Array, vectors_HWMC: Array, images: Iterable[int]) -> None:
        """Score normal images with vectors of candidates."""
        layout = self._built.layout
        # Not rounded to float16, which changes no score by more than a part in ten thousand.
        packed = layout.packed(vectors_HWMC) if layout.form.precision == "int8" else PackedVectors(vectors_HWMC)
        patches_NHWK = own_NHWC if layout.projected else packed.tokens(own_NHWC)
        distance_NHW = packed._replace(basis_CK=None).distances(patches_NHWK, self.preset.radius)
        self.scores += pool(distance_NHW, self.preset.top).tolist()
        self.levels += np.median(to_numpy(distance_NHW), axis=(1, 2)).tolist()
        self.scored += images

    # --- the form of the bank ---

    def _first_layout(self, patches_NHWC: Array, frame: Frame, whole: int) -> _Layout:
        """Without a budget, as the preset or the requested precision says; with one, int8 and what fits."""
        if not self.budget:
            return _Layout(Form(whole, frame.width, self._precision or self.preset.precision))
        precision = self._precision or "int8"
        form = choose(frame, Form(whole, frame.width, precision, rotated=precision == "int8"), self.budget)
        return _Layout(form, principal_axes(patches_NHWC, form.channels) if form.rotated else None)

    def _next_layout(self, layout: _Layout, frame: Frame, whole: int) -> _Layout:
        """With as many members as more images allow; within a budget they may take the place of channels."""
        if self.budget and layout.form.rotated:
            channels = choose(frame, replace(layout.form, members=whole), self.budget).channels
            layout = layout.with_channels(min(channels, layout.form.channels))
        layout = layout.with_members(whole)
        return layout.with_members(fewer_members(frame, layout.form, self.budget).members) if self.budget else layout

    def _fit(self, scores: int) -> None:
        """Stay within the budget with so many scores in the file."""
        contents = self._built
        layout, frame = contents.layout, replace(contents.frame, scores=scores)
        if self.budget:
            layout = layout.with_members(fewer_members(frame, layout.form, self.budget).members)
        self._contents = replace(contents, layout=layout, frame=frame)

    # --- what is stored ---

    def files(self) -> dict[str, Arrays]:
        """The arrays to store, by file: for inspecting, for routing and, without a budget, for updating."""
        contents, members, limited = self._built, self.members, self.budget is not None
        candidates = contents.members if limited else contents.candidates
        packed, source_HWK = contents.layout.packed(candidates.vectors_HWMC), to_numpy(candidates.source_HWM)
        source_type = contents.frame.source_type if limited else np.int32
        files: dict[str, Arrays] = {
            "bank": packed.first(members).arrays()
            | {
                "source": np.ascontiguousarray(source_HWK[:, :, :members], source_type),
                "scores": np.asarray(self.scores, np.float32),
                "levels": np.asarray(self.levels, np.float32),
                "scored": np.asarray(self.scored, np.int32),
                "foreign": self.control_scores,
            },
            "prototype": {"prototype": (contents.descriptor_sum / len(self.images)).astype(np.float32)},
        }
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
            },
            "calibration": {"kind": self._calibration, "scores": len(self.scores)},
            "preset": self.preset.name,
        }
