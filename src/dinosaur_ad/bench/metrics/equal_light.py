"""The image AUROC among images of equal brightness: what is left of a score once brightness is no help.

Every anomalous image is compared only with the normal ones that are exactly as bright, or, where there are none, with
those next to it in brightness: as many darker as brighter ones, up to :data:`NEAR` each. One that is darker or brighter
than all normal images has no equals and is left out. The result is the share of these pairs in which the anomalous
image scores higher (ties count half), each anomalous image counting the same. A score that only rises, or only falls,
with brightness wins exactly as many pairs as it loses: 0.5.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dinosaur_ad.bench.metrics.ranks import checked, places

NEAR = 3
FEWEST = 10
"""With fewer anomalous images that have equals, the figure would rest on too little, and there is none."""


class EqualLight(NamedTuple):
    """``auroc`` is NaN where fewer than :data:`FEWEST` of the ``anomalous`` images could be ``compared``."""

    auroc: float
    compared: int
    anomalous: int


def equal_light_auroc(scores: ArrayLike, labels: ArrayLike, light: ArrayLike) -> EqualLight:
    """The AUROC of N ``scores`` among images of equal ``light`` (N,), labels 0 for normal and 1 for anomalous.

    >>> light = [0, 1, 2, 3, 4, 5] * 2 + [1.5, 2.5, 3.5] * 4
    >>> labels = [0] * 12 + [1] * 12
    >>> equal_light_auroc(light, labels, light)
    EqualLight(auroc=0.5, compared=12, anomalous=12)
    >>> equal_light_auroc(labels, labels, light).auroc
    1.0
    """
    _, is_anomalous_N = checked(scores, labels)
    place_N, light_N = places(scores), np.asarray(light, np.float64)
    if light_N.shape != place_N.shape:
        raise ValueError(f"there must be one brightness a score, got {light_N.shape} and {place_N.shape}")
    order = np.argsort(light_N[~is_anomalous_N], kind="stable")
    normal_light_M, normal_place_M = light_N[~is_anomalous_N][order], place_N[~is_anomalous_N][order]
    won = []
    for own, place in zip(light_N[is_anomalous_N].tolist(), place_N[is_anomalous_N].tolist(), strict=True):
        first, last = (int(np.searchsorted(normal_light_M, own, side)) for side in ("left", "right"))
        equal = normal_place_M[first:last]
        count = min(NEAR, first, len(normal_light_M) - last)
        if len(equal):
            near = equal
        elif count:
            near = normal_place_M[first - count : last + count]
        else:
            continue
        won.append(float(np.mean((place > near) + 0.5 * (place == near))))
    compared, anomalous = len(won), int(is_anomalous_N.sum())
    return EqualLight(float(np.mean(won)) if compared >= FEWEST else math.nan, compared, anomalous)
