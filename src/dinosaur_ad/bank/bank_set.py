"""All the banks of a store: which of them an image is compared with, and its scores (Eq. 6-9).

The detector uses it for images, the benchmark for features that it has cached, on a GPU if there is one.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank import Bank
from dinosaur_ad.bank.bank_files import as_it_is, open_bank, read_prototype
from dinosaur_ad.core.arrays import Array, to_numpy
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.routing import prototype_distances, shortlist
from dinosaur_ad.errors import InputError, StoreError, VersionGoneError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import Snapshot, TaskRecord, TaskStore

Floats = NDArray[np.float32]


class TaskScore(NamedTuple):
    """An image compared with one bank: its score and its patch distances (H, W)."""

    score: float
    map_HW: Floats
    bank: Bank


TaskScores = dict[str, TaskScore]
"""By task."""


class ComparedImages(NamedTuple):
    """Images compared with the banks of a store: the scores of each, the damaged tasks that were left out, and the
    milliseconds an image that routing and scoring took."""

    scores: list[TaskScores]
    left_out: tuple[str, ...]
    ms: dict[str, float]


class TaskView(NamedTuple):
    """The tasks of a store at one moment: those that can be used, and why others are left out.

    What is computed from one view belongs to the same versions, even if the store is changed in the meantime.
    """

    records: dict[str, TaskRecord]
    left_out: dict[str, str]
    prototype_TC: Floats


class _Damage(NamedTuple):
    """A version that cannot be used, the reason, and the stamp of its files when that was found."""

    record: TaskRecord
    reason: str
    stamp: Hashable


class OutdatedViewError(Exception):
    """A task of the view turned out to be damaged, or its version is gone: take a new view."""


class BankSet:
    """The banks of one store.

    At most ``cache_bytes`` of them are kept in memory. ``to_device`` moves the vectors to where the features are.
    ``threads`` limits the CPU threads of scoring.
    """

    def __init__(
        self,
        preset: Preset,
        cache_bytes: int,
        to_device: Callable[[NDArray[Any]], Array] = as_it_is,
        threads: int | None = None,
    ) -> None:
        self._preset = preset
        self._threads = threads
        self._cache = _BankCache(cache_bytes, to_device)
        # By the id of a version: its prototype, and what is wrong with it if it cannot be used.
        self._prototypes: dict[str, Floats] = {}
        self._damaged: dict[str, _Damage] = {}
        self._latest: tuple[tuple[Snapshot, frozenset[str], int | None], TaskView] | None = None

    def compare(
        self, store: TaskStore, patches_NHWC: Floats, descriptor_NC: Floats, task: str | None = None
    ) -> ComparedImages:
        """Compare images with the banks that routing chooses, or with that of one ``task``.

        All scores come from one view of the store. If a bank turns out to be damaged, or its version is gone, it is
        done again with a new view.
        """
        while True:
            clock = [time.perf_counter()]
            view = self.view(store, descriptor_NC.shape[1])
            _refuse_missing(view, task)
            candidates = [[task]] * len(patches_NHWC) if task else self.route(view, descriptor_NC)
            clock.append(time.perf_counter())
            try:
                scores = self.score(store, view, patches_NHWC, candidates)
            except OutdatedViewError:
                continue
            clock.append(time.perf_counter())
            ms = dict(zip(("route", "score"), (np.diff(clock) * 1e3 / len(patches_NHWC)).tolist(), strict=True))
            return ComparedImages(scores, tuple(view.left_out), ms)

    def found_damaged(self, record: TaskRecord) -> bool:
        """Whether that version of a task was found to be damaged when it was read."""
        return record.id in self._damaged

    def bank(self, store: TaskStore, record: TaskRecord) -> Bank:
        """The bank of one version of a task, from the cache if it is there."""
        return self._cache.get(store, record)

    def view(self, store: TaskStore, width: int | None = None) -> TaskView:
        """The tasks as they are now; fast while nothing has changed.

        With ``width``, a task whose prototype has another size counts as damaged; without it, and where prototypes
        differ in size, the view cannot be used for routing.
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
                view = self._new_view(store, snapshot, width)
            except VersionGoneError:
                continue
            self._latest = (snapshot, frozenset(self._damaged), width), view
            return view

    def _new_view(self, store: TaskStore, snapshot: Snapshot, width: int | None) -> TaskView:
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
        return TaskView(usable, left_out, np.stack(stacked) if alike else np.empty((0, width or 0), np.float32))

    def route(self, view: TaskView, descriptor_NC: Floats) -> list[list[str]]:
        """Per image, the names of the tasks to compare it with, nearest first."""
        names = list(view.records)
        distance_NT = prototype_distances(descriptor_NC, view.prototype_TC)
        return [
            [names[t] for t in chosen] for chosen in shortlist(distance_NT, self._preset.limit, self._preset.margin)
        ]

    def score(
        self, store: TaskStore, view: TaskView, patches_NHWC: Array, candidates: Sequence[Sequence[str]]
    ) -> list[TaskScores]:
        """Per image, its score under each of its candidate tasks; a bank is loaded once for all its images.

        :raises OutdatedViewError: a bank cannot be read; the next view leaves it out, or has its next version.
        """
        scores: list[TaskScores] = [{} for _ in candidates]
        for name in dict.fromkeys(chain.from_iterable(candidates)):
            rows = [n for n, names in enumerate(candidates) if name in names]
            record = view.records[name]
            try:
                bank = self._cache.get(store, record)
                distance_NHW = bank.distances(patches_NHWC[rows], self._preset.radius, self._threads)
            except VersionGoneError as error:
                raise OutdatedViewError from error
            except StoreError as error:
                self._damaged[record.id] = _Damage(record, str(error), store.files_stamp(record))
                raise OutdatedViewError from error
            score_N = to_numpy(pool(distance_NHW, self._preset.top))
            for n, score, distance_HW in zip(rows, score_N.tolist(), to_numpy(distance_NHW), strict=True):
                scores[n][name] = TaskScore(score, distance_HW, bank)
        return scores


def most_normal(scores: TaskScores) -> str:
    """The task with the lowest score; one that is no number never wins over one that is."""
    return min(scores, key=lambda name: score if math.isfinite(score := scores[name].score) else math.inf)


def _refuse_missing(view: TaskView, task: str | None) -> None:
    """Raise if there is nothing to compare with: the task, or all tasks, were forgotten or are damaged."""
    if task is not None and task not in view.records:
        if task in view.left_out:
            raise StoreError(view.left_out[task])
        raise InputError(f"There is no task '{task}' any more; it was forgotten while its images were inspected.")
    if not view.records:
        raise StoreError(next(iter(view.left_out.values()))) if view.left_out else nothing_learned()


def nothing_learned() -> InputError:
    """The error for inspecting without any task."""
    return InputError("There is nothing to compare with: no task has been taught yet; start with learn.")


class _BankCache:
    """An LRU cache of banks, limited in bytes; at least one stays."""

    def __init__(self, budget: int, to_device: Callable[[NDArray[Any]], Array]) -> None:
        self._budget = budget
        self._to_device = to_device
        self._banks: OrderedDict[str, Bank] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._banks)

    @property
    def nbytes(self) -> int:
        return sum(bank.nbytes for bank in self._banks.values())

    def get(self, store: TaskStore, record: TaskRecord) -> Bank:
        """The bank of just this version of a task."""
        with self._lock:
            bank = self._banks.pop(record.name, None)
            if bank is None or bank.record.id != record.id:
                bank = open_bank(store, record, self._to_device, self._budget)
            self._banks[record.name] = bank
            while len(self._banks) > 1 and self.nbytes > self._budget:
                self._banks.popitem(last=False)
            return bank
