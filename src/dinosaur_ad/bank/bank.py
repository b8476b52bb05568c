"""A task's bank as it is used, and the banks that are held in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank_files import (
    descriptor_width,
    learned_digests,
    learned_images,
    read_bank,
    read_candidates,
    read_ladder,
    read_prototype,
)
from dinosaur_ad.bank.budget import Form
from dinosaur_ad.bank.draft import Draft
from dinosaur_ad.bank.kept import LONGEST_HALF_NORM, Kept
from dinosaur_ad.bank.verdict import alarm_threshold, why_not_ready
from dinosaur_ad.core.arrays import Array
from dinosaur_ad.core.quantise import scaled_norms, widen
from dinosaur_ad.core.scoring import NearestPatch
from dinosaur_ad.errors import StoreError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore

__all__ = ["Bank", "BankCache", "Draft", "check_task", "leave_there", "members_last"]

Floats = NDArray[np.float32]


def leave_there(array: NDArray[Any]) -> Array:
    """The array as it is: where a bank lies unless it is told to lie elsewhere."""
    return array


@dataclass(frozen=True)
class Bank:
    """A task as it is used, with what its products need computed once.

    Int8 banks are held as they are stored. Float16 ones are held as float32, because widening halves whenever an image
    comes takes as long as the products; where that would not fit ``room`` bytes, they too are held as they are.
    ``scores`` are those of the calibration normals, ``foreign`` those of pictures that show no product (empty where the
    task was taught by an older version).
    """

    record: TaskRecord
    kept: Kept
    source_HWM: NDArray[Any]
    half_norm_HWM: Array
    scores: Floats
    level: float
    foreign: Floats
    images: list[str]
    digests: list[str]

    @classmethod
    def opened(
        cls,
        store: TaskStore,
        record: TaskRecord,
        put: Callable[[NDArray[Any]], Array] = leave_there,
        room: float = float("inf"),
    ) -> Bank:
        """A stored task, ready to be asked; ``put`` moves its vectors to where images will come from (a GPU)."""
        arrays, kept = read_bank(store, record)
        values_HWMK = kept.values_HWMK
        if values_HWMK.dtype == np.float16 and 2 * values_HWMK.nbytes <= room:
            values_HWMK = widen(values_HWMK)
        kept = kept._replace(values_HWMK=_members_last(values_HWMK)).moved(put)
        half_norm_HWM = scaled_norms(kept.values_HWMK, kept.scale_HW) / 2
        if not bool((half_norm_HWM < LONGEST_HALF_NORM).all()):
            raise StoreError(
                f"The bank of the task '{record.name}' cannot be used (it holds values that are no numbers): restore "
                "it from a backup, or undo or forget the task; the other tasks are not affected."
            )
        return cls(
            record=record,
            kept=kept,
            source_HWM=arrays["source"],
            half_norm_HWM=half_norm_HWM,
            scores=arrays["scores"],
            level=float(np.median(arrays["levels"])),
            foreign=arrays["foreign"],
            images=learned_images(record),
            digests=learned_digests(record),
        )

    @property
    def nbytes(self) -> int:
        """What it holds in memory."""
        return self.kept.nbytes + int(self.half_norm_HWM.nbytes)

    def distances(self, patches_NHWC: Array, radius: int, threads: int | None = None) -> Array:
        """Patch distances (N, H, W) of images to this bank."""
        if patches_NHWC.shape[1:3] != self.kept.values_HWMK.shape[:2] or patches_NHWC.shape[3] != self.kept.width:
            raise StoreError(
                f"The bank of the task '{self.record.name}' is for patches of {self.kept.width} channels on a grid of "
                f"{tuple(self.kept.values_HWMK.shape[:2])}, and the encoder gives {tuple(patches_NHWC.shape[1:])}: "
                "restore it from a backup, or undo or forget the task."
            )
        return self.kept.distances(patches_NHWC, radius, self.half_norm_HWM, threads)

    def nearest(self, token_C: Array, row: int, column: int, radius: int) -> NearestPatch:
        """The remembered patch that decided the score of the patch at a place."""
        return self.kept.nearest(token_C, row, column, radius)


def check_task(preset: Preset, store: TaskStore, record: TaskRecord) -> None:
    """Read all that inspecting and updating a task need; a StoreError says what is wrong, or why it cannot judge."""
    bank = Bank.opened(store, record)
    read_prototype(store, record, descriptor_width(preset, bank.kept))
    read_candidates(store, record)
    form = Form(bank.kept.members, bank.kept.channels, bank.kept.precision, bank.kept.basis_CK is not None)
    read_ladder(store, record, form)
    threshold = alarm_threshold(preset, bank.scores, preset.false_alarms)
    if reason := why_not_ready(record.name, threshold, bank.foreign):
        raise StoreError(reason)


def members_last(vectors_HWMC: NDArray[Any]) -> Floats:
    """The same bank as float32, lying in memory as (H, W, C, M): products read it a third faster that way."""
    return _members_last(widen(vectors_HWMC))


def _members_last(values_HWMC: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(values_HWMC.swapaxes(2, 3)).swapaxes(2, 3)


class BankCache:
    """Banks in memory, within a budget of bytes: the least recently asked ones make room."""

    def __init__(self, budget: int, put: Callable[[NDArray[Any]], Array] = leave_there) -> None:
        self._budget = budget
        self._put = put
        self._banks: OrderedDict[str, Bank] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._banks)

    @property
    def nbytes(self) -> int:
        """What all of them hold."""
        return sum(bank.nbytes for bank in self._banks.values())

    def get(self, store: TaskStore, record: TaskRecord) -> Bank:
        """The bank of just this version of a task."""
        with self._lock:
            bank = self._banks.pop(record.name, None)
            if bank is None or bank.record.id != record.id:
                bank = Bank.opened(store, record, self._put, self._budget)
            self._banks[record.name] = bank
            while len(self._banks) > 1 and self.nbytes > self._budget:
                self._banks.popitem(last=False)
            return bank
