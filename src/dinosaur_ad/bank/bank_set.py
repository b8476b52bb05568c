"""All the banks of a store: which of them an image is compared with, and its scores (Eq. 6-9).

The detector uses it for images, the benchmark for features that it has cached, on a GPU if there is one.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank import Bank
from dinosaur_ad.bank.bank_files import as_it_is, open_bank
from dinosaur_ad.bank.encoded_images import EncodedImages
from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.bank.position import Pose
from dinosaur_ad.bank.task_view import TaskView, TaskViews
from dinosaur_ad.core.arrays import Array
from dinosaur_ad.core.exposure import Exposure, thumbnails
from dinosaur_ad.core.readings import Distances
from dinosaur_ad.core.registration import Transform
from dinosaur_ad.core.routing import prototype_distances, shortlist, undecided
from dinosaur_ad.core.tiles import LargeImage, Tiling
from dinosaur_ad.errors import InputError, StoreError, VersionGoneError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore

Floats = NDArray[np.float32]


class TaskScore(NamedTuple):
    """An image compared with one bank: its score, its map (H, W), its readings (R,), its median patch distance, and
    its distances where the task has a smallest area, without which it may have to be scored again. ``moved`` is where
    the places of the map lie in the image, None where it was not registered."""

    score: float
    map_HW: Floats
    bank: Bank
    reading_R: Floats
    level: float
    distances: Distances | None = None
    moved: Transform | None = None


TaskScores = dict[str, TaskScore]
"""By task."""


class ComparedImages(NamedTuple):
    """Images compared with the banks of a store: the scores of each, the damaged tasks that were left out, the
    milliseconds an image that each step took, and the patches (H, W, C) of each that were compared.

    An image without scores fits the tiles of none of the tasks.
    """

    scores: list[TaskScores]
    left_out: tuple[str, ...]
    ms: dict[str, float]
    patches_NHWC: Sequence[Floats]


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
        self._cache = _BankCache(preset, cache_bytes, to_device)
        self._views = TaskViews()

    def inspect(
        self,
        store: TaskStore,
        features: FeatureExtractor,
        pixels: NDArray[np.uint8],
        task: str | None = None,
        large: Sequence[tuple[LargeImage, ...]] | None = None,
    ) -> ComparedImages:
        """Encode prepared images (N, S, S, 3) and compare them with the banks that routing chooses, or with one.

        ``large`` are the same images for the tilings of tasks; an image is not compared with a task whose tiles it does
        not fit.

        An image is matched to the exposure of the product that its thumbnail is most like, and registered to that
        product's reference if it has one. Where its descriptor says that it is another product, which is lit or lies
        otherwise, it is encoded once more.

        All scores come from one view of the store. If a bank turns out to be damaged, or its version is gone, they are
        computed again with a new view.
        """
        _ = features.encoder  # loaded before the time is taken
        encoded, width, encode_ms = EncodedImages(features, pixels, large), None, 0.0
        while True:
            started = time.perf_counter()
            # That of before, because looking whether it changed takes time with many tasks, and is done below anyway.
            view = self._views.latest if self._views.latest and width is None else self.view(store, width)
            if task is not None and task not in view.records:
                view = self.view(store, width)
            _refuse_missing(view, task)
            patches_NHWC, descriptor_NC = self.encode(view, encoded, task)
            encode_ms += (time.perf_counter() - started) * 1e3 / len(pixels)
            width = descriptor_NC.shape[1]
            current = self.view(store, width)
            if current.versions != view.versions:  # the exposures that images were encoded for are those of before
                continue
            try:
                compared = self._compare(store, current, patches_NHWC, descriptor_NC, task, encoded)
            except OutdatedViewError:
                continue
            return compared._replace(ms={"encode": encode_ms} | compared.ms)

    def encode(self, view: TaskView, images: EncodedImages, task: str | None = None) -> tuple[Floats, Floats]:
        """Patches (N, H, W, C) and descriptors (N, C') of images, each in the pose of the task it seems to be of."""
        if not self._preset.exposure and not any(view.references):
            return images.posed([Pose()] * len(images.pixels))
        poses = view.poses
        used = [poses[t] for t in self._first_tasks(view, thumbnails(images.pixels), task)]
        patches_NHWC, descriptor_NC = images.posed(used)
        if task is not None or view.one_pose or not len(view.prototype_TC):
            return patches_NHWC, descriptor_NC
        better = [poses[t] for t in self._nearest_tasks(view, descriptor_NC)]
        return (patches_NHWC, descriptor_NC) if better == used else images.posed(better)

    def compare(
        self, store: TaskStore, patches_NHWC: Floats, descriptor_NC: Floats, task: str | None = None
    ) -> ComparedImages:
        """Compare encoded images with the banks that routing chooses, or with that of one ``task``."""
        while True:
            view = self.view(store, descriptor_NC.shape[1])
            _refuse_missing(view, task)
            try:
                return self._compare(store, view, patches_NHWC, descriptor_NC, task)
            except OutdatedViewError:
                continue

    def _compare(
        self,
        store: TaskStore,
        view: TaskView,
        patches_NHWC: Floats,
        descriptor_NC: Floats,
        task: str | None,
        images: EncodedImages | None = None,
    ) -> ComparedImages:
        """The same with the tasks of one view; ``images`` are put in the pose of each task they meet."""
        _refuse_missing(view, task)
        clock = [time.perf_counter()]
        candidates = [[task]] * len(patches_NHWC) if task else self.route(view, descriptor_NC)
        clock.append(time.perf_counter())
        if images is None or (view.one_pose and not any(view.tilings)):
            moved = images.moved(range(len(patches_NHWC)), view.references[0]) if images else None
            scores, compared = self.score(store, view, patches_NHWC, candidates, moved), list(patches_NHWC)
        else:
            scores, compared = self._score_posed(store, view, images, candidates)
        clock.append(time.perf_counter())
        ms = dict(zip(("route", "score"), (np.diff(clock) * 1e3 / len(patches_NHWC)).tolist(), strict=True))
        return ComparedImages(scores, tuple(view.left_out), ms, compared)

    def _score_posed(
        self, store: TaskStore, view: TaskView, images: EncodedImages, candidates: Sequence[Sequence[str]]
    ) -> tuple[list[TaskScores], list[Floats]]:
        """Scores of images under their candidate tasks, and their patches as the task with the lowest score saw them.

        An image is first compared as it was described, at the brightness of one of the tasks; with those that may
        change the verdict then at their own, which is an encoding each. So the score that decides does not depend on
        which other tasks there are.
        """
        seen_as = view.seen_as
        scores: list[TaskScores] = [{} for _ in candidates]
        exact: list[set[str]] = [set() for _ in candidates]

        def compare(wanted: Sequence[Sequence[str]], *, rough: bool) -> None:
            """Score each image under some tasks; roughly, without another encoding for another brightness."""
            groups: dict[tuple[Pose, Tiling | None], dict[int, list[str]]] = {}
            for n, name in ((n, name) for n, names in enumerate(wanted) for name in names):
                (own, tiling), described = seen_as[name], images.described[n]
                at_hand = rough and tiling is None and own.reference == described.reference
                pose = described if at_hand else own
                groups.setdefault((pose, tiling), {}).setdefault(n, []).append(name)
                exact[n] |= {name} if pose == own else set()
            for (pose, tiling), names in groups.items():
                rows = list(names)
                moved = images.moved(rows, None if tiling else pose.reference)
                found = self.score(store, view, images.patches(rows, pose, tiling), list(names.values()), moved)
                for n, each in zip(rows, found, strict=True):
                    scores[n] |= each

        candidates = [
            [name for name in names if images.fits(n, seen_as[name][1])] for n, names in enumerate(candidates)
        ]
        compare(candidates, rough=True)
        while any(open_ones := [to_compare_exactly(*each, self._preset) for each in zip(scores, exact, strict=True)]):
            compare(open_ones, rough=False)
        ordered = [{name: each[name] for name in names} for each, names in zip(scores, candidates, strict=True)]
        unseen = np.empty((0, 0, 0), np.float32)
        patches = [
            images.patches([n], *seen_as[most_normal(each)])[0] if each else unseen for n, each in enumerate(ordered)
        ]
        return ordered, patches

    def found_damaged(self, record: TaskRecord) -> bool:
        """Whether that version of a task was found to be damaged when it was read."""
        return self._views.is_damaged(record)

    def view(self, store: TaskStore, width: int | None = None) -> TaskView:
        """The tasks as they are now (:meth:`TaskViews.view`)."""
        return self._views.view(store, width)

    def bank(self, store: TaskStore, record: TaskRecord) -> Bank:
        """The bank of one version of a task, from the cache if it is there."""
        return self._cache.get(store, record)

    def exposures(self, view: TaskView, thumbnail_NP: Floats, task: str | None = None) -> list[Exposure | None]:
        """Per image, the exposure to encode it with first: that of the task that its thumbnail is most like."""
        return [view.exposures[t] for t in self._first_tasks(view, thumbnail_NP, task)]

    def _first_tasks(self, view: TaskView, thumbnail_NP: Floats, task: str | None = None) -> list[int]:
        """Per image, the task whose thumbnail is most like its own; the first where all tasks want the same pose."""
        count = len(thumbnail_NP)
        if task is not None:
            return [view.names.index(task)] * count
        if view.one_pose:
            return [0] * count
        nearest: list[int] = np.argmin(prototype_distances(thumbnail_NP, view.thumbnail_TP), axis=1).tolist()
        return nearest

    def nearest_exposures(self, view: TaskView, descriptor_NC: Floats) -> list[Exposure | None]:
        """Per image, the exposure of the task that its descriptor is nearest to."""
        return [view.exposures[t] for t in self._nearest_tasks(view, descriptor_NC)]

    def _nearest_tasks(self, view: TaskView, descriptor_NC: Floats) -> list[int]:
        nearest: list[int] = np.argmin(prototype_distances(descriptor_NC, view.prototype_TC), axis=1).tolist()
        return nearest

    def route(self, view: TaskView, descriptor_NC: Floats) -> list[list[str]]:
        """Per image, the names of the tasks to compare it with, nearest first."""
        names = view.names
        distance_NT = prototype_distances(descriptor_NC, view.prototype_TC)
        return [
            [names[t] for t in chosen] for chosen in shortlist(distance_NT, self._preset.limit, self._preset.margin)
        ]

    def score(
        self,
        store: TaskStore,
        view: TaskView,
        patches_NHWC: Array,
        candidates: Sequence[Sequence[str]],
        moved: Sequence[Transform | None] | None = None,
    ) -> list[TaskScores]:
        """Per image, its score under each of its candidate tasks; a bank is loaded once for all its images.

        ``moved`` is how each image was moved before it was encoded.

        :raises OutdatedViewError: a bank cannot be read; the next view leaves it out, or has its next version.
        """
        scores: list[TaskScores] = [{} for _ in candidates]
        for name in dict.fromkeys(chain.from_iterable(candidates)):
            rows = [n for n, names in enumerate(candidates) if name in names]
            record = view.records[name]
            try:
                bank = self._cache.get(store, record)
                distances = bank.distances(patches_NHWC[rows], self._preset.radius, self._threads)
            except VersionGoneError as error:
                raise OutdatedViewError from error
            except StoreError as error:
                self._views.leave_out(store, record, error)
                raise OutdatedViewError from error
            fused, level_N = bank.read(distances, self._preset), bank.levels_of(distances)
            for k, n in enumerate(rows):
                scores[n][name] = TaskScore(
                    float(fused.score_N[k]),
                    fused.map_NHW[k],
                    bank,
                    fused.reading_NR[k],
                    float(level_N[k]),
                    distances.one(k) if bank.settings.smallest_area else None,
                    moved[n] if moved else None,
                )
        return scores


def most_normal(scores: TaskScores) -> str:
    """The task with the lowest score; one that is no number never wins over one that is."""
    return min(scores, key=lambda name: score if math.isfinite(score := scores[name].score) else math.inf)


def to_compare_exactly(scores: TaskScores, exact: Container[str], preset: Preset) -> list[str]:
    """The tasks that an image has yet to be compared with at their own brightness (:func:`undecided`)."""
    limits = {name: each.bank.sensitivity(preset).threshold for name, each in scores.items()}
    return undecided({name: each.score for name, each in scores.items()}, exact, limits)


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

    def __init__(self, preset: Preset, budget: int, to_device: Callable[[NDArray[Any]], Array]) -> None:
        self._preset = preset
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
                bank = open_bank(store, record, self._preset, self._to_device, self._budget)
            self._banks[record.name] = bank
            while len(self._banks) > 1 and self.nbytes > self._budget:
                self._banks.popitem(last=False)
            return bank
