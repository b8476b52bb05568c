"""Eq. 8: one score for an image from the distances of its patches."""

from __future__ import annotations

from dinosaur_ad.core.arrays import Array, namespace


def pool(distance_NHW: Array, top: float = 0.0, inspected: int | None = None) -> Array:
    """Image scores ``(N,)``: the mean over the ``top`` share of patches with the largest distance.

    ``top=0`` is the paper's maximum. A small share (0.01) is steadier: one odd patch no longer decides alone. It is a
    share of the ``inspected`` patches, where the distances of all others are zero.

    >>> import numpy as np
    >>> grid = np.arange(200.0).reshape(1, 10, 20)
    >>> float(pool(grid)[0]), float(pool(grid, top=0.01)[0])
    (199.0, 198.5)
    """
    xp = namespace(distance_NHW)
    flat_NP = xp.reshape(distance_NHW, (distance_NHW.shape[0], -1))
    patches = flat_NP.shape[1]
    count = min(patches, max(1, round(top * (patches if inspected is None else inspected))))
    if count == 1:
        return xp.max(flat_NP, axis=1)
    return xp.mean(xp.sort(flat_NP, axis=1)[:, patches - count :], axis=1)
