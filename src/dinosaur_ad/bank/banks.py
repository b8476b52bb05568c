"""All the banks of a store: which are asked about an image, and what they answer (Eq. 6-9).

The detector asks them about what a camera sees; the benchmark asks the same ones about features it has kept, on a GPU
if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank import Bank, BankCache, leave_there
from dinosaur_ad.bank.bank_files import read_prototype
from dinosaur_ad.core.arrays import Array, to_numpy
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.routing import prototype_distances, shortlist
from dinosaur_ad.errors import StoreError, VersionGoneError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import Snapshot, TaskRecord, TaskStore

Floats = NDArray[np.float32]


class Answer(NamedTuple):
    """What one bank says about an image: its score, its patch distances (H, W), and the bank that was asked."""

    score: float
    map_HW: Floats
    bank: Bank


Answers = dict[str, Answer]
"""By task."""


class View(NamedTuple):
    """The tasks of a store at one moment: those that can be asked, and why others are left out.

    Whatever is computed from one view belongs to the same versions, whoever changes the store meanwhile.
    """

    records: dict[str, TaskRecord]
    left_out: dict[str, str]
    prototype_TC: Floats


class _Damage(NamedTuple):
    """A version that cannot be used, why, and what its files looked like then."""

    record: TaskRecord
    reason: str
    stamp: Hashable


class AskAgainError(Exception):
    """A task of the view turned out to be damaged, or its version is gone: take a new view."""


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
        # By the id of a version: its prototype, and what is wrong with it if it cannot be used.
        self._prototypes: dict[str, Floats] = {}
        self._damaged: dict[str, _Damage] = {}
        self._latest: tuple[tuple[Snapshot, frozenset[str], int | None], View] | None = None

    def found_damaged(self, record: TaskRecord) -> bool:
        """Whether what was read of that version of a task so far cannot be used."""
        return record.id in self._damaged

    def view(self, store: TaskStore, width: int | None = None) -> View:
        """The tasks as they are now, cheap while nothing has changed.

        With ``width``, a task whose prototype is not of so many numbers counts as damaged; without it, and where
        prototypes differ in size, the view is for looking and cannot route.
        """
        while True:
            snapshot = store.snapshot()
            for version, damage in list(self._damaged.items()):
                if store.files_stamp(damage.record) != damage.stamp:  # perhaps restored from a backup
                    del self._damaged[version]
            if self._latest and self._latest[0][0] is snapshot:
                _, damaged, for_width = self._latest[0]
                if for_width == width and damaged == frozenset(self._damaged):
                    return self._latest[1]
            try:
                view = self._viewed(store, snapshot, width)
            except VersionGoneError:
                continue
            self._latest = (snapshot, frozenset(self._damaged), width), view
            return view

    def _viewed(self, store: TaskStore, snapshot: Snapshot, width: int | None) -> View:
        prototypes: dict[str, Floats] = {}
        left_out = dict(snapshot.damaged)
        for name, record in snapshot.records.items():
            if record.id not in self._damaged and record.id not in prototypes:
                try:
                    known = self._prototypes.get(record.id)
                    if known is None or width not in (None, known.size):
                        known = read_prototype(store, record, width)
                    prototypes[record.id] = known
                except VersionGoneError:
                    raise
                except StoreError as error:
                    self._damaged[record.id] = _Damage(record, str(error), store.files_stamp(record))
            if record.id in self._damaged:
                left_out[name] = self._damaged[record.id].reason
        self._prototypes = prototypes
        usable = {name: record for name, record in snapshot.records.items() if name not in left_out}
        stacked = [prototypes[record.id] for record in usable.values()]
        alike = len({prototype.size for prototype in stacked}) == 1
        return View(usable, left_out, np.stack(stacked) if alike else np.empty((0, width or 0), np.float32))

    def route(self, view: View, descriptor_NC: Floats) -> list[list[str]]:
        """Per image, the names of the tasks worth asking, nearest first."""
        names = list(view.records)
        distance_NT = prototype_distances(descriptor_NC, view.prototype_TC)
        return [
            [names[t] for t in chosen] for chosen in shortlist(distance_NT, self._preset.limit, self._preset.margin)
        ]

    def ask(
        self, store: TaskStore, view: View, patches_NHWC: Array, candidates: Sequence[Sequence[str]]
    ) -> list[Answers]:
        """Per image, what each of its candidate tasks answers; a bank is loaded once for all its images.

        :raises AskAgainError: a bank cannot be read; the next view leaves it out, or has its next version.
        """
        answers: list[Answers] = [{} for _ in candidates]
        for name in dict.fromkeys(chain.from_iterable(candidates)):
            rows = [n for n, names in enumerate(candidates) if name in names]
            record = view.records[name]
            try:
                bank = self.cache.get(store, record)
                distance_NHW = bank.distances(patches_NHWC[rows], self._preset.radius, self._threads)
            except VersionGoneError as error:
                raise AskAgainError from error
            except StoreError as error:
                self._damaged[record.id] = _Damage(record, str(error), store.files_stamp(record))
                raise AskAgainError from error
            score_N = to_numpy(pool(distance_NHW, self._preset.top))
            for n, score, distance_HW in zip(rows, score_N.tolist(), to_numpy(distance_NHW), strict=True):
                answers[n][name] = Answer(score, distance_HW, bank)
        return answers


def most_normal(answers: Answers) -> str:
    """The task whose bank finds the image most normal; a score that is no number never wins over one that is."""
    return min(answers, key=lambda name: score if math.isfinite(score := answers[name].score) else math.inf)
