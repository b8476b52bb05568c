"""The form of a bank in a builder: what is kept of a task, and how the encoder's patches become its vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dinosaur_ad.bank.bank import PackedVectors
from dinosaur_ad.bank.budget import Form, Frame, choose, fewer_members
from dinosaur_ad.core.arrays import Array
from dinosaur_ad.core.memory import Coreset
from dinosaur_ad.core.projection import principal_axes, project
from dinosaur_ad.presets import Preset


@dataclass(frozen=True)
class Layout:
    """The form of a bank, and how the encoder's patches become its vectors.

    ``projected`` candidates lie along the basis already: those of a stored task do, and those of a preset with several
    readings, whose banks are large; those of other new tasks have all channels, because members that are picked by all
    of them cover a little better. Int8 scales do not fall below ``scale_HW`` and ``coarse_scale_hw``.
    """

    form: Form
    basis_CK: Array | None = None
    scale_HW: Array | None = None
    projected: bool = False
    coarse_scale_hw: Array | None = None

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

    def packed_coarse(self, vectors_hwMC: Array) -> PackedVectors:
        """Windows of candidates as they are stored."""
        vectors_hwMK = self.along_basis(vectors_hwMC)
        return PackedVectors.projected(vectors_hwMK, self.form.precision, self.basis_CK, self.coarse_scale_hw)

    def with_members(self, members: int) -> Layout:
        """With so many members a location."""
        return replace(self, form=replace(self.form, members=members))

    def with_channels(self, channels: int) -> Layout:
        """Without the least important channels."""
        basis_CK = None if self.basis_CK is None else self.basis_CK[:, :channels]
        return replace(self, form=replace(self.form, channels=channels), basis_CK=basis_CK)

    def narrowed(self, coreset: Coreset) -> Coreset:
        """Candidates of a layout that may have had more channels."""
        if not self.projected:
            return coreset
        return coreset._replace(vectors_HWMC=coreset.vectors_HWMC[..., : self.form.channels])


def first_layout(
    preset: Preset, precision: str | None, budget: int | None, frame: Frame, whole: int, patches_NHWC: Array
) -> Layout:
    """Without a budget, as the preset or the requested precision says; with one, int8 and what fits."""
    if not budget:
        return Layout(Form(whole, frame.width, precision or preset.precision))
    precision = precision or "int8"
    form = choose(frame, Form(whole, frame.width, precision, rotated=precision == "int8"), budget)
    basis_CK = principal_axes(patches_NHWC, form.channels) if form.rotated else None
    return Layout(form, basis_CK, projected=form.rotated and len(preset.readings) > 1)


def next_layout(layout: Layout, budget: int | None, frame: Frame, whole: int) -> Layout:
    """With as many members as more images allow; within a budget they may take the place of channels."""
    if budget and layout.form.rotated:
        channels = choose(frame, replace(layout.form, members=whole), budget).channels
        layout = layout.with_channels(min(channels, layout.form.channels))
    layout = layout.with_members(whole)
    return layout.with_members(fewer_members(frame, layout.form, budget).members) if budget else layout
