"""Which pictures of no known product show the same thing: single linkage of descriptors.

Two pictures are linked if they lie close to each other compared with how far both lie from pictures that show no
product. How close was measured on five drawn products, the bottles of MVTec LOCO and magnetic tiles under two lights
(``benchmarks/grouping.py``, preset ``fast``): of 30 normal pictures, 20 are linked from .08 to .48 of that distance on,
and pictures of two products begin at .55. The limit is the middle.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.outliers import CLOSEST, pairwise_distances

Floats = NDArray[np.float32]

LINK = 0.51
"""Share of the distance to the nearest picture without a product within which two pictures are linked."""


def reach(descriptor_NC: Floats, control_KC: Floats) -> Floats:
    """How close another picture must be to show the same as each of these, ``(N,)``; never below ``CLOSEST``, so that
    copies of one picture are linked.

    >>> [round(each, 2) for each in reach(np.float32([[0, 0], [0, 6]]), np.float32([[0, 10]])).tolist()]
    [5.1, 2.04]
    """
    apart_NK = np.linalg.norm(descriptor_NC[:, None, :] - control_KC[None, :, :], axis=2)
    closest_N = CLOSEST * np.linalg.norm(descriptor_NC, axis=1)
    reach_N: Floats = np.maximum(LINK * apart_NK.min(axis=1), closest_N)
    return reach_N


def groups(descriptor_NC: Floats, control_KC: Floats) -> list[list[int]]:
    """The pictures that are linked, directly or over others, in the order of the first of each group.

    >>> near = np.float32([[0, 0], [9, 0], [0, 1], [9, 1], [0, 30]])
    >>> groups(near, np.float32([[0, 10], [9, 10]]))
    [[0, 2], [1, 3], [4]]
    """
    if not len(descriptor_NC):
        return []
    reach_N = reach(descriptor_NC, control_KC)
    linked_NN = pairwise_distances(descriptor_NC) <= np.minimum(reach_N[:, None], reach_N[None, :])
    left, found = list(range(len(descriptor_NC))), []
    while left:
        group_N = np.zeros(len(descriptor_NC), np.bool_)
        new_N = group_N.copy()
        new_N[left[0]] = True
        while new_N.any():
            group_N |= new_N
            new_N = linked_NN[new_N].any(axis=0) & ~group_N
        found.append(np.flatnonzero(group_N).tolist())
        left = [n for n in left if not group_N[n]]
    return found


def belongs(descriptor_C: Floats, group_NC: Floats, control_KC: Floats) -> bool:
    """Whether a picture is linked to one of a group.

    >>> belongs(np.float32([0, 1]), np.float32([[0, 0]]), np.float32([[0, 10]]))
    True
    """
    both_NC = np.concatenate([group_NC, descriptor_C[None]])
    reach_N = reach(both_NC, control_KC)
    apart_N = np.linalg.norm(group_NC - descriptor_C, axis=1)
    return bool((apart_N <= np.minimum(reach_N[:-1], reach_N[-1])).any())
