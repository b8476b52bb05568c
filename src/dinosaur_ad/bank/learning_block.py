"""A block of new images as a bank is built from it: patches and windows of the images and of their moved copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.layout import Layout
from dinosaur_ad.core.arrays import Array, like, namespace
from dinosaur_ad.core.memory import Coreset, remember, remember_parts
from dinosaur_ad.core.readings import windows

COARSE_SHARE = 2
"""Windows that a location remembers for each patch: there are few of them, and more of them cover more arrangements."""


class Copies(NamedTuple):
    """Patches ``(P, H, W, C)`` of moved copies of images, and which image of the block each is a copy of ``(P,)``."""

    patches_PHWC: Array
    copy_of_P: NDArray[np.intp]


class LearningBlock(NamedTuple):
    """New images in the channels of the candidates: their patches and windows, and after them those of their moved
    copies.

    ``images`` is how many there are without copies, ``first`` the index of the first one among all of the task;
    ``source_N`` names images from it on.
    """

    first: int
    images: int
    patches_NHWC: Array
    windows_NhwC: Array | None
    source_N: NDArray[np.intp]

    @classmethod
    def of(
        cls, layout: Layout, patches_NHWC: Array, copies: Copies | None, first: int, *, with_windows: bool
    ) -> LearningBlock:
        """New images, the first of which has the index ``first``, and their copies, in the channels of a layout."""
        images, source_N = len(patches_NHWC), np.arange(len(patches_NHWC))
        own_NHWC = layout.own(patches_NHWC)
        if copies and len(copies.copy_of_P):
            own_NHWC = namespace(own_NHWC).concat([own_NHWC, layout.own(copies.patches_PHWC)], axis=0)
            source_N = np.concatenate([source_N, copies.copy_of_P])
        return cls(first, images, own_NHWC, windows(own_NHWC) if with_windows else None, source_N + first)

    def own(self, places: NDArray[np.intp] | None = None) -> tuple[Array, Array | None]:
        """Patches and windows of some of the images, or of all, without copies."""
        xp = namespace(self.patches_NHWC)
        rows = slice(self.images) if places is None else like(places, self.patches_NHWC, xp.int64)
        return self.patches_NHWC[rows], None if self.windows_NhwC is None else self.windows_NhwC[rows]

    def remembered(
        self, size: int, known: Coreset | None, known_coarse: Coreset | None, seed: int
    ) -> tuple[Coreset, Coreset | None]:
        """Coresets of patches and of windows, out of the images, their copies and what was known before them."""
        source_N = self._sources()
        candidates = remember(self.patches_NHWC, source_N, size, known=known, seed=seed)
        if self.windows_NhwC is None:
            return candidates, None
        return candidates, remember(self.windows_NhwC, source_N, COARSE_SHARE * size, known=known_coarse, seed=seed)

    def remembered_parts(
        self,
        size: int,
        known: Coreset | None,
        known_coarse: Coreset | None,
        seed: int,
        parts: Sequence[NDArray[np.intp]],
    ) -> Iterator[tuple[Coreset, Coreset | None]]:
        """The same out of each of some parts of the images, given by index, and the copies of those."""
        source_N = self._sources()
        rows = [np.flatnonzero(np.isin(self.source_N - self.first, part)) for part in parts]
        candidates = remember_parts(self.patches_NHWC, source_N, size, rows, known=known, seed=seed)
        if self.windows_NhwC is None:
            yield from ((each, None) for each in candidates)
            return
        windows_kept = COARSE_SHARE * size
        coarse = remember_parts(self.windows_NhwC, source_N, windows_kept, rows, known=known_coarse, seed=seed)
        yield from zip(candidates, coarse, strict=True)

    def _sources(self) -> Array:
        return like(self.source_N, self.patches_NHWC, namespace(self.patches_NHWC).int32)
