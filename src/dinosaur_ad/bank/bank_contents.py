"""What a builder has of a task once it was given images: candidates for the memory, and distances to them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dinosaur_ad.bank.bank import PackedVectors
from dinosaur_ad.bank.budget import Frame, fewer_members
from dinosaur_ad.bank.image_features import ImageSums
from dinosaur_ad.bank.layout import Layout
from dinosaur_ad.bank.learning_block import COARSE_SHARE
from dinosaur_ad.core.arrays import Array
from dinosaur_ad.core.memory import Coreset
from dinosaur_ad.core.readings import COARSE_RADIUS, Distances
from dinosaur_ad.core.scoring import ANYWHERE


@dataclass(frozen=True)
class BankContents:
    """What a builder has once it was given images.

    ``candidates`` are the bank's members and, after them, the reserve for later updates; ``coarse`` are windows, where
    the preset has a coarse reading. ``whole`` is how many members there would be without a budget, ``copies`` how many
    moved copies were given with the images.
    """

    layout: Layout
    frame: Frame
    whole: int
    copies: int
    candidates: Coreset
    coarse: Coreset | None
    sums: ImageSums

    @property
    def members(self) -> Coreset:
        """The candidates that are the memory."""
        return self.candidates.first(self.layout.form.members)

    def within(self, budget: int | None, scores: int) -> BankContents:
        """What stays of it within the budget, with so many scores in the file."""
        layout, frame, coarse = self.layout, replace(self.frame, scores=scores), self.coarse
        if budget:
            layout = layout.with_members(fewer_members(frame, layout.form, budget).members)
            coarse = coarse.first(COARSE_SHARE * layout.form.members) if coarse else None
        return replace(self, layout=layout, frame=frame, coarse=coarse)


@dataclass(frozen=True)
class Comparison:
    """How images are compared with candidates: within ``radius`` places, or anywhere where the parts lie ``free``."""

    radius: int
    free: bool

    def distances(
        self, layout: Layout, own_NHWC: Array, windows_NhwC: Array | None, members: Coreset, coarse: Coreset | None
    ) -> Distances:
        """Distances of normal images, with the channels of the candidates, to candidates of a layout."""
        # Not rounded to float16, which changes no score by more than a part in ten thousand.
        exact = layout.form.precision != "int8"
        patches = PackedVectors(members.vectors_HWMC) if exact else layout.packed(members.vectors_HWMC)
        patches_NHWK = own_NHWC if layout.projected or exact else layout.along_basis(own_NHWC)
        point_NHW = patches.projected_distances(patches_NHWK, ANYWHERE if self.free else self.radius)
        coarse_Nhw = None
        if coarse is not None and windows_NhwC is not None:
            packed = PackedVectors(coarse.vectors_HWMC) if exact else layout.packed_coarse(coarse.vectors_HWMC)
            windows_NhwK = windows_NhwC if layout.projected or exact else layout.along_basis(windows_NhwC)
            coarse_Nhw = packed.projected_distances(windows_NhwK, ANYWHERE if self.free else COARSE_RADIUS)
        return Distances(point_NHW, coarse_Nhw)
