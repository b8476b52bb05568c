"""A block of new images as a bank is built from it: patches and windows of the images and of their moved copies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.layout import Layout
from dinosaur_ad.core.arrays import Array, like, namespace
from dinosaur_ad.core.memory import Coreset, remember
from dinosaur_ad.core.readings import windows

COARSE_SHARE = 2
"""Windows that a location remembers for each patch: there are few of them, and more of them cover more arrangements."""


class Copies(NamedTuple):
    """Patches ``(P, H, W, C)`` of moved copies of images, and which image of the block each is a copy of ``(P,)``."""

    patches_PHWC: Array
    copy_of_P: NDArray[np.intp]


class LearningBlock(NamedTuple):
    """New images in the channels of the candidates: their patches and windows, and those of their moved copies.

    ``first`` is the index of the first image among all of the task; ``source`` arrays name images from it on.
    """

    first: int
    own_NHWC: Array
    windows_NhwC: Array | None
    source_N: NDArray[np.intp]
    copies_PHWC: Array | None
    copy_windows_PhwC: Array | None
    copy_source_P: NDArray[np.intp]

    @classmethod
    def of(
        cls, layout: Layout, patches_NHWC: Array, copies: Copies | None, first: int, *, with_windows: bool
    ) -> LearningBlock:
        """New images, the first of which has the index ``first``, and their copies, in the channels of a layout."""
        own_NHWC = layout.own(patches_NHWC)
        copies_PHWC = layout.own(copies.patches_PHWC) if copies and len(copies.copy_of_P) else None
        return cls(
            first,
            own_NHWC,
            windows(own_NHWC) if with_windows else None,
            np.arange(first, first + len(own_NHWC)),
            copies_PHWC,
            windows(copies_PHWC) if with_windows and copies_PHWC is not None else None,
            copies.copy_of_P + first if copies and copies_PHWC is not None else np.empty(0, np.intp),
        )

    def some(self, places: NDArray[np.intp]) -> LearningBlock:
        """Some of the images, and their copies."""
        xp = namespace(self.own_NHWC)
        rows = like(places, self.own_NHWC, xp.int64)
        kept_P = np.flatnonzero(np.isin(self.copy_source_P, places + self.first))
        copy_rows = like(kept_P, self.own_NHWC, xp.int64)
        return self._replace(
            own_NHWC=self.own_NHWC[rows],
            windows_NhwC=None if self.windows_NhwC is None else self.windows_NhwC[rows],
            source_N=self.source_N[places],
            copies_PHWC=None if self.copies_PHWC is None else self.copies_PHWC[copy_rows],
            copy_windows_PhwC=None if self.copy_windows_PhwC is None else self.copy_windows_PhwC[copy_rows],
            copy_source_P=self.copy_source_P[kept_P],
        )

    def remembered(
        self, size: int, known: Coreset | None, known_coarse: Coreset | None, seed: int
    ) -> tuple[Coreset, Coreset | None]:
        """Coresets of patches and of windows, out of the images, their copies and what was known before them."""
        candidates = _remember(self.own_NHWC, self.copies_PHWC, self._sources(), size, known, seed)
        if self.windows_NhwC is None:
            return candidates, None
        windows_kept = COARSE_SHARE * size
        coarse = _remember(self.windows_NhwC, self.copy_windows_PhwC, self._sources(), windows_kept, known_coarse, seed)
        return candidates, coarse

    def _sources(self) -> NDArray[np.intp]:
        return self.source_N if self.copies_PHWC is None else np.concatenate([self.source_N, self.copy_source_P])


def _remember(
    own: Array, copies: Array | None, sources: NDArray[np.intp], size: int, known: Coreset | None, seed: int
) -> Coreset:
    xp = namespace(own)
    patches = own if copies is None else xp.concat([own, copies], axis=0)
    return remember(patches, like(sources, own, xp.int32), size, known=known, seed=seed)
