"""A task's bank: as it is taught, as it is stored, and as it is used."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.arrays import Array, like, namespace, squared_norms, to_numpy
from dinosaur_ad.core.calibration import conformal_threshold, quantile_threshold
from dinosaur_ad.core.coreset import coreset_size
from dinosaur_ad.core.memory import Memory, remember, unseen_distances
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.scoring import patch_distances
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore

Floats = NDArray[np.float32]

# Normals scored unseen for a threshold; more would not move it noticeably, fewer would.
CALIBRATION_IMAGES = 200


@dataclass
class Draft:
    """A task while it is taught: everything that will be stored, growing block by block of images.

    ``candidates`` are the bank's members and, after them, the reserve for later updates. ``scores`` and ``levels``
    are the image scores and the usual patch distances of the normals that calibrate the threshold.
    """

    preset: Preset
    seed: int
    calibration: str
    candidates: Memory | None = None
    members: int = 0
    images: list[str] = field(default_factory=list)
    descriptor_sum: NDArray[np.float64] | None = None
    scores: list[float] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"memory": 0.0, "calibrate": 0.0})

    @classmethod
    def reopened(cls, preset: Preset, seed: int, store: TaskStore, record: TaskRecord) -> Draft:
        """A stored task, ready to see more images."""
        bank, reserve = (store.arrays(record, file) for file in ("bank", "reserve"))
        images = list(record.manifest["images"])
        vectors_HWKC = np.concatenate([bank["vectors"], reserve["vectors"]], axis=2).astype(np.float32)
        source_HWK = np.concatenate([bank["source"], reserve["source"]], axis=2)
        return cls(
            preset,
            seed,
            preset.calibration,
            candidates=Memory(vectors_HWKC, source_HWK),
            members=bank["vectors"].shape[2],
            images=images,
            descriptor_sum=store.arrays(record, "prototype")["prototype"].astype(np.float64) * len(images),
            scores=bank["scores"].tolist(),
            levels=bank["levels"].tolist(),
        )

    def grow(self, names: list[str], patches_NHWC: Array, descriptor_NC: Floats) -> None:
        """See one more block of normal images; the patches may lie on a GPU, and the memory is then made there."""
        preset, known, started = self.preset, self.candidates, time.perf_counter()
        total = len(self.images) + len(names)
        members = coreset_size(total, preset.ratio, preset.minimum)
        source_N = like(np.arange(len(self.images), total), patches_NHWC, namespace(patches_NHWC).int32)
        keep = round(members * (1 + preset.reserve))
        self.candidates = remember(patches_NHWC, source_N, keep, known=known, seed=self.seed)
        # Without a reserve a memory may know fewer patches than the images it has seen would allow.
        self.members = min(members, self.candidates.members)
        self.images += names
        summed = descriptor_NC.sum(axis=0, dtype=np.float64)
        self.descriptor_sum = summed if self.descriptor_sum is None else self.descriptor_sum + summed
        self.seconds["memory"] += time.perf_counter() - started

        started = time.perf_counter()
        if self.calibration == "in-sample":
            self.calibrate(patches_NHWC)
        elif self.calibration == "unseen" and total > 1:
            self._take(
                unseen_distances(
                    patches_NHWC,
                    self.members,
                    preset.radius,
                    at_least=CALIBRATION_IMAGES,
                    # A fifth less hardly thins a large memory; a small one needs nearly all its images to be itself.
                    parts=min(20, max(5, 2000 // total)),
                    known=known,
                    seed=self.seed,
                )
            )
        self.seconds["calibrate"] += time.perf_counter() - started

    def calibrate(self, patches_NHWC: Array) -> None:
        """Take normal images into the threshold, scored against the bank as it is."""
        assert self.candidates is not None
        bank_HWMC = self.candidates.first(self.members).vectors_HWMC
        self._take(patch_distances(patches_NHWC, bank_HWMC, self.preset.radius))

    def _take(self, distance_NHW: Array) -> None:
        self.scores += pool(distance_NHW, self.preset.top).tolist()
        self.levels += np.median(to_numpy(distance_NHW), axis=(1, 2)).tolist()

    def files(self) -> dict[str, dict[str, NDArray[Any]]]:
        """The arrays to store, by file: what inspecting needs, what routing needs, what updating needs."""
        assert self.candidates is not None
        assert self.descriptor_sum is not None
        vectors_HWKC = to_numpy(self.candidates.vectors_HWMC).astype(self.preset.precision)
        source_HWK = to_numpy(self.candidates.source_HWM).astype(np.int32)
        return {
            "bank": {
                "vectors": np.ascontiguousarray(vectors_HWKC[:, :, : self.members]),
                "source": np.ascontiguousarray(source_HWK[:, :, : self.members]),
                "scores": np.asarray(self.scores, np.float32),
                "levels": np.asarray(self.levels, np.float32),
            },
            "prototype": {"prototype": (self.descriptor_sum / len(self.images)).astype(np.float32)},
            "reserve": {
                "vectors": np.ascontiguousarray(vectors_HWKC[:, :, self.members :]),
                "source": np.ascontiguousarray(source_HWK[:, :, self.members :]),
            },
        }

    def manifest(self) -> dict[str, Any]:
        """What is stored beside the arrays."""
        return {
            "images": self.images,
            "members": self.members,
            "calibration": {"kind": self.calibration, "scores": len(self.scores)},
            "preset": self.preset.name,
        }


def alarm_threshold(preset: Preset, scores: Floats, false_alarms: float) -> float:
    """The score above which an image is anomalous, from the ``scores`` a task's normals got when it was taught."""
    rule = quantile_threshold if preset.calibration == "in-sample" else conformal_threshold
    return rule(scores, false_alarms)


def leave_there(array: NDArray[Any]) -> Array:
    """The array as it is: where a bank lies unless it is told to lie elsewhere."""
    return array


@dataclass(frozen=True)
class Bank:
    """A task as it is used: float32, with what its products need computed once."""

    record: TaskRecord
    memory: Memory
    half_norm_HWM: Array
    scores: Floats
    level: float

    @classmethod
    def opened(cls, store: TaskStore, record: TaskRecord, put: Callable[[NDArray[Any]], Array] = leave_there) -> Bank:
        """A stored task, ready to be asked; ``put`` moves its vectors to where images will come from (a GPU)."""
        arrays = store.arrays(record, "bank")
        vectors_HWMC = put(members_last(arrays["vectors"]))
        level = float(np.median(arrays["levels"]))
        half_norm_HWM = squared_norms(vectors_HWMC) / 2
        return cls(record, Memory(vectors_HWMC, arrays["source"]), half_norm_HWM, np.asarray(arrays["scores"]), level)

    @property
    def nbytes(self) -> int:
        """What it holds in memory."""
        return int(self.memory.vectors_HWMC.nbytes + self.half_norm_HWM.nbytes)

    def distances(self, patches_NHWC: Array, radius: int) -> Array:
        """Patch distances (N, H, W) of images to this bank."""
        return patch_distances(patches_NHWC, self.memory.vectors_HWMC, radius, half_norm_HWM=self.half_norm_HWM)


def members_last(vectors_HWMC: NDArray[Any]) -> Floats:
    """The same bank as float32, lying in memory as (H, W, C, M): products read it a third faster that way."""
    return np.ascontiguousarray(vectors_HWMC.swapaxes(2, 3), np.float32).swapaxes(2, 3)


class BankCache:
    """Banks in memory, within a budget of bytes: the least recently asked ones make room."""

    def __init__(self, budget: int, put: Callable[[NDArray[Any]], Array] = leave_there) -> None:
        self._budget = budget
        self._put = put
        self._banks: OrderedDict[str, Bank] = OrderedDict()

    def __len__(self) -> int:
        return len(self._banks)

    @property
    def nbytes(self) -> int:
        """What all of them hold."""
        return sum(bank.nbytes for bank in self._banks.values())

    def get(self, store: TaskStore, name: str) -> Bank:
        """The bank of a task as it is in the store now."""
        record = store.record(name)
        bank = self._banks.pop(name, None)
        if bank is None or bank.record.id != record.id:
            bank = Bank.opened(store, record, self._put)
        self._banks[name] = bank
        while len(self._banks) > 1 and self.nbytes > self._budget:
            self._banks.popitem(last=False)
        return bank
