"""Eq. 9 and beyond: which tasks' banks an image is compared with.

The paper takes the one task with the nearest prototype. When prototypes are close (the same product under drifting
light) that choice is little better than a guess, and a wrong bank raises false alarms. So the prototypes only make
a shortlist, and the scores decide: the task with the lowest image score is taken.
"""

from __future__ import annotations

import math

import numpy as np

from dinosaur_ad.core.arrays import Array, namespace, squared_norms


def prototype_distances(descriptor_NC: Array, prototype_TC: Array) -> Array:
    """Euclidean distance ``(N, T)`` of every image's descriptor to every task's prototype.

    >>> prototype_distances(np.asarray([[3.0, 4.0]]), np.asarray([[0.0, 0.0], [3.0, 0.0]])).tolist()
    [[5.0, 4.0]]
    """
    xp = namespace(descriptor_NC, prototype_TC)
    # A broadcast difference, not a product: there are few prototypes, and close ones must be told apart exactly.
    return xp.stack([xp.sqrt(squared_norms(descriptor_NC - prototype_C)) for prototype_C in prototype_TC], axis=1)


def shortlist(distance_NT: np.ndarray, limit: int, margin: float = float("inf")) -> list[list[int]]:
    """Per image, the nearest tasks, nearest first: at most ``limit``, none farther than ``margin`` × the nearest.

    ``limit=1`` is the paper's hard routing; ``limit=T`` with an infinite margin takes every bank.

    >>> shortlist(np.asarray([[5.0, 4.0, 9.0]]), limit=2)
    [[1, 0]]
    >>> shortlist(np.asarray([[5.0, 4.0, 9.0]]), limit=3, margin=1.3)
    [[1, 0]]
    """
    chosen = []
    for distance_T in np.asarray(distance_NT):
        order = np.argsort(distance_T, kind="stable")[:limit]
        # Infinity times a distance of zero is NaN, which would leave out all other tasks.
        reach = margin if math.isinf(margin) else margin * distance_T[order[0]]
        chosen.append([int(t) for k, t in enumerate(order) if k == 0 or distance_T[t] <= reach])
    return chosen
