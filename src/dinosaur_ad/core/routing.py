"""Eq. 9 and beyond: which tasks' banks an image is compared with.

The paper takes the one task with the nearest prototype. When prototypes are close (the same product under drifting
light) that choice is little better than a guess, and a wrong bank raises false alarms. So the prototypes only make
a shortlist, and the scores decide: the task with the lowest image score is taken.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping

import numpy as np

from dinosaur_ad.core.arrays import Array, namespace, squared_norms

AT_ONCE = 2**20
"""Numbers that are compared at a time: what a CPU's cache holds."""
CLOSE = 1.05
"""A task decides only with the score that it gives an image at its own brightness. One that, at the brightness of
another task, scores more than this share above the lowest score has lost without it (docs/presets.md)."""


def prototype_distances(descriptor_NC: Array, prototype_TC: Array) -> Array:
    """Euclidean distance ``(N, T)`` of every image's descriptor to every task's prototype.

    >>> prototype_distances(np.asarray([[3.0, 4.0]]), np.asarray([[0.0, 0.0], [3.0, 0.0]])).tolist()
    [[5.0, 4.0]]
    """
    xp = namespace(descriptor_NC, prototype_TC)
    # A broadcast difference, not a product: close prototypes must be told apart exactly.
    step = max(1, AT_ONCE // max(1, math.prod(descriptor_NC.shape)))
    parts = [
        xp.sqrt(squared_norms(descriptor_NC[:, None] - prototype_TC[None, start : start + step]))
        for start in range(0, prototype_TC.shape[0], step)
    ]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)


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


def undecided(scores: Mapping[str, float], exact: Container[str], thresholds: Mapping[str, float]) -> list[str]:
    """The tasks of which only a rough score is known, and of which the exact one may change the verdict.

    Those that are close to the lowest score may have it. Where the lowest is an alarm, all may: before a part is called
    anomalous, every task has seen it at its own brightness.

    >>> undecided({"a": 1.0, "b": 1.04, "c": 1.5}, {"a"}, dict.fromkeys("abc", 1.2))
    ['b']
    >>> undecided({"a": 1.3, "b": 2.0}, {"a"}, dict.fromkeys("ab", 1.2))
    ['b']
    """
    rough = {name: score for name, score in scores.items() if name not in exact}
    lowest = min(scores, key=lambda name: score if math.isfinite(score := scores[name]) else math.inf, default=None)
    if not rough or lowest is None:
        return []
    # Written so that what is no number has neither lost nor passed.
    close = [name for name, score in rough.items() if not score > CLOSE * scores[lowest]]
    return close or ([] if scores[lowest] <= thresholds[lowest] else list(rough))
