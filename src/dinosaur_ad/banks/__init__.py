"""All the banks of a store: which are asked about an image, and what they answer (Eq. 6-9).

The detector asks them about what a camera sees; the benchmark asks the same ones about features it has kept, on a GPU
if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.banks.bank import Bank, BankCache, leave_there
from dinosaur_ad.core.arrays import Array, to_numpy
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.routing import prototype_distances, shortlist
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskStore

Floats = NDArray[np.float32]
Answers = dict[str, tuple[float, Floats]]
"""By task: the image's score, and its patch distances (H, W)."""


class Banks:
    """The tasks of one store, ready to be asked.

    ``put`` moves what products need to where the features are. ``threads`` limits the CPU threads of one answer.
    """

    def __init__(
        self,
        preset: Preset,
        cache_bytes: int,
        put: Callable[[NDArray[Any]], Array] = leave_there,
        threads: int | None = None,
    ) -> None:
        self._preset = preset
        self._threads = threads
        self.cache = BankCache(cache_bytes, put)
        self._prototypes: tuple[Any, list[str], Floats] | None = None

    def get(self, store: TaskStore, name: str) -> Bank:
        """The bank of one task as it is in the store now."""
        return self.cache.get(store, name)

    def route(self, store: TaskStore, descriptor_NC: Floats) -> list[list[str]]:
        """Per image, the names of the tasks worth asking, nearest first."""
        stamp = store.stamp()
        if self._prototypes is None or self._prototypes[0] != stamp:
            names = store.names()
            prototypes = [store.arrays(name, "prototype")["prototype"] for name in names]
            self._prototypes = (stamp, names, np.stack(prototypes))
        _, names, prototype_TC = self._prototypes
        distance_NT = prototype_distances(descriptor_NC, prototype_TC)
        return [
            [names[t] for t in chosen] for chosen in shortlist(distance_NT, self._preset.limit, self._preset.margin)
        ]

    def ask(self, store: TaskStore, patches_NHWC: Array, candidates: Sequence[Sequence[str]]) -> list[Answers]:
        """Per image, score and map under each of its candidate tasks; a bank is loaded once for all its images."""
        answers: list[Answers] = [{} for _ in candidates]
        for name in dict.fromkeys(chain.from_iterable(candidates)):
            rows = [n for n, names in enumerate(candidates) if name in names]
            bank = self.get(store, name)
            distance_NHW = bank.distances(patches_NHWC[rows], self._preset.radius, self._threads)
            score_N = to_numpy(pool(distance_NHW, self._preset.top))
            for n, score, distance_HW in zip(rows, score_N.tolist(), to_numpy(distance_NHW), strict=True):
                answers[n][name] = (score, distance_HW)
        return answers


def most_normal(answers: Answers) -> str:
    """The task whose bank finds the image most normal: it speaks for all."""
    return min(answers, key=lambda name: answers[name][0])
