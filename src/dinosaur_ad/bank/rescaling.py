"""The scores of images that are gone, after the memory has grown: what they would be with the bank of now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank_contents import BankContents, Comparison
from dinosaur_ad.bank.learning_block import LearningBlock
from dinosaur_ad.core.arrays import to_numpy
from dinosaur_ad.core.calibration import TINY
from dinosaur_ad.core.memory import Coreset, distances_to_others
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.readings import Distances


class UnseenImages(NamedTuple):
    """Images of a block by their rows, their distances to a memory without them, and whether their scores count."""

    rows: NDArray[np.intp]
    distances: Distances
    counts: bool = True


@dataclass(frozen=True)
class Rescaling:
    """From the bank of before (``old``) to that of now (``new``).

    The images are gone. What is left of them are patches that were members; their distances to the members of other
    images say which images fall by more than others, but by a little too much, because what was picked is what lay far
    from the rest. ``images`` is how many of them there are, ``share`` the part of the patches that a score is the mean
    of, ``scored`` the image of each score.
    """

    old: BankContents
    new: BankContents
    comparison: Comparison
    images: int
    share: float
    scored: Sequence[int]

    @property
    def narrower(self) -> bool:
        """Whether the bank has fewer channels than before."""
        return self.new.layout.form.channels < self.old.layout.form.channels

    def shares(self) -> tuple[list[float], list[float]]:
        """By which share the distances of each scored image fall, of patches and of windows."""
        shares = self._shares(self.old.members, self.new.members)
        if self.old.coarse is None or self.new.coarse is None:
            return shares, shares
        return shares, self._shares(self.old.coarse, self.new.coarse)

    def gain(self, block: LearningBlock, unseen: Sequence[UnseenImages]) -> tuple[float, float]:
        """The mean share, of patches and of windows, to which the scores of images of a block fall: what they are with
        the bank of now, without themselves, over what they were with that of before."""
        ratios: tuple[list[float], list[float]] = [], []
        layout, old = self.new.layout, self.old
        known, known_coarse = layout.narrowed(old.members), layout.narrowed(old.coarse) if old.coarse else None
        for scored in unseen:
            before = self.comparison.distances(layout, *block.own(scored.rows), known, known_coarse)
            pairs = ((scored.distances.point_NHW, before.point_NHW), (scored.distances.coarse_Nhw, before.coarse_Nhw))
            for found, (is_NHW, was_NHW) in zip(ratios, pairs, strict=True):
                if is_NHW is not None and was_NHW is not None:
                    is_N, was_N = (to_numpy(pool(each, self.share)) for each in (is_NHW, was_NHW))
                    positive_N = (is_N > 0) & (was_N > 0)  # an image that is there twice says nothing
                    found += (is_N[positive_N] / was_N[positive_N]).tolist()
        # Most images gain nothing from few others, and some much, so that the median would say that there is no gain.
        point, coarse = (min(1.0, float(np.exp(np.mean(np.log(found))))) if found else 0.0 for found in ratios)
        return point, coarse

    def _shares(self, before: Coreset, after: Coreset) -> list[float]:
        old, new = self.old, self.new
        patches = new.layout.narrowed(before)
        if self.narrower:  # compared by the channels that are stored now
            before, patches, after = (
                coreset._replace(vectors_HWMC=layout.along_basis(coreset.vectors_HWMC))
                for layout, coreset in ((old.layout, before), (new.layout, patches), (new.layout, after))
            )
        was_N, is_N = (
            to_numpy(pool(distances_to_others(own, members, self.comparison.radius, self.images), self.share))
            for own, members in ((before, before), (patches, after))
        )
        share_N = np.minimum(1.0, np.divide(is_N, was_N, out=np.ones_like(is_N), where=was_N > 0))
        known_N = was_N > 0
        usual = float(np.median(share_N[known_N])) if known_N.any() else 1.0
        return [float(share_N[n]) if n >= 0 and known_N[n] else usual for n in self.scored]


def raised(shares: list[float], mean: float) -> list[float]:
    """Shares that are at least ``mean`` on average (geometric), in proportion, and at most 1."""
    if not shares:
        return shares
    factor = max(1.0, mean / float(np.exp(np.mean(np.log(np.maximum(shares, TINY))))))
    return [min(1.0, factor * share) for share in shares]
