"""The tasks of a store that can be used at one moment, as arrays to route with; and why others are left out."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank_files import Prototype, read_prototype, read_tiling
from dinosaur_ad.bank.position import Pose
from dinosaur_ad.core.exposure import Exposure
from dinosaur_ad.core.registration import Reference
from dinosaur_ad.core.tiles import Tiling
from dinosaur_ad.errors import StoreError, VersionGoneError
from dinosaur_ad.store import Snapshot, TaskRecord, TaskStore

Floats = NDArray[np.float32]


class TaskView(NamedTuple):
    """The tasks of a store at one moment: those that can be used, and why others are left out.

    What is computed from one view belongs to the same versions, even if the store is changed in the meantime. ``poses``
    is what is done to an image before it is compared with each task, and ``one_pose`` whether that is the same for all.
    """

    records: dict[str, TaskRecord]
    left_out: dict[str, str]
    prototype_TC: Floats
    thumbnail_TP: Floats
    exposures: list[Exposure | None]
    tilings: list[Tiling | None]
    references: list[Reference | None]
    poses: list[Pose]
    one_pose: bool

    @property
    def seen_as(self) -> dict[str, tuple[Pose, Tiling | None]]:
        """By task, what is done to an image before it is compared with it."""
        return dict(zip(self.names, zip(self.poses, self.tilings, strict=True), strict=True))

    @property
    def names(self) -> list[str]:
        """The tasks, in the order of the arrays."""
        return list(self.records)

    @property
    def versions(self) -> dict[str, str]:
        """By task, the id of its version."""
        return {name: record.id for name, record in self.records.items()}


class _Damage(NamedTuple):
    """A version that cannot be used, the reason, and the stamp of its files when that was found."""

    record: TaskRecord
    reason: str
    stamp: Hashable


class TaskViews:
    """The views of one store: the latest is kept until a task changes, is found to be damaged, or is repaired."""

    def __init__(self) -> None:
        # By the id of a version: its prototype, and what is wrong with it if it cannot be used.
        self._prototypes: dict[str, Prototype] = {}
        self._damaged: dict[str, _Damage] = {}
        self._latest: tuple[tuple[Snapshot, frozenset[str], int | None], TaskView] | None = None

    @property
    def latest(self) -> TaskView | None:
        """The last view that was taken."""
        return self._latest[1] if self._latest else None

    def is_damaged(self, record: TaskRecord) -> bool:
        """Whether that version of a task was found to be damaged when it was read."""
        return record.id in self._damaged

    def leave_out(self, store: TaskStore, record: TaskRecord, error: StoreError) -> None:
        """Note that a version cannot be used: the next view is without it until its files change."""
        self._damaged[record.id] = _Damage(record, str(error), store.files_stamp(record))

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
                view = self._latest[1]
                fitting = for_width == width or (for_width is None and view.prototype_TC.shape[1:] == (width,))
                if fitting and damaged == frozenset(self._damaged):
                    return view
            try:
                view = self._new_view(store, snapshot, width)
            except VersionGoneError:
                continue
            self._latest = (snapshot, frozenset(self._damaged), width), view
            return view

    def _new_view(self, store: TaskStore, snapshot: Snapshot, width: int | None) -> TaskView:
        prototypes: dict[str, Prototype] = {}
        left_out = dict(snapshot.damaged)
        for name, record in snapshot.records.items():
            if record.id not in self._damaged and record.id not in prototypes:
                try:
                    known = self._prototypes.get(record.id)
                    if known is None or width not in (None, known.descriptor_C.size):
                        known = read_prototype(store, record, width)
                        read_tiling(record)
                    prototypes[record.id] = known
                except VersionGoneError:
                    raise
                except StoreError as error:
                    self.leave_out(store, record, error)
            if record.id in self._damaged:
                left_out[name] = self._damaged[record.id].reason
        self._prototypes = prototypes
        usable = {name: record for name, record in snapshot.records.items() if name not in left_out}
        known_ones = [prototypes[record.id] for record in usable.values()]
        poses = [Pose(each.exposure, each.reference) for each in known_ones]
        alike = len({prototype.descriptor_C.size for prototype in known_ones}) == 1
        return TaskView(
            usable,
            left_out,
            np.stack([each.descriptor_C for each in known_ones]) if alike else np.empty((0, width or 0), np.float32),
            np.stack([each.thumbnail_P for each in known_ones]) if known_ones else np.empty((0, 0), np.float32),
            [each.exposure for each in known_ones],
            [read_tiling(record) for record in usable.values()],
            [each.reference for each in known_ones],
            poses,
            len(set(poses)) == 1,
        )


def tilings_of(view: TaskView, task: str | None) -> list[Tiling]:
    """The tilings of the tasks that images may be compared with: all, or one ``task``."""
    found = zip(view.names, view.tilings, strict=True)
    return list(dict.fromkeys(tiling for name, tiling in found if tiling and task in (None, name)))
