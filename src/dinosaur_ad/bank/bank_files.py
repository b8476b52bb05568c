"""A task's files, checked as they are read: for a damaged bank a StoreError says what is wrong.

``bank`` holds what inspecting needs, ``prototype`` what routing needs, ``reserve`` more candidates for later updates.
Banks taught by earlier versions under a budget have a fourth file, ``ladder``, which is no longer used; the next update
leaves it out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank import Bank, PackedVectors, half_norms, members_last
from dinosaur_ad.core.arrays import Array
from dinosaur_ad.core.memory import Coreset
from dinosaur_ad.core.quantise import widen
from dinosaur_ad.errors import StoreError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float32]
_DIGEST = re.compile(r"[1-9]\d{0,4}:[0-9a-f]{32}")


def as_it_is(array: NDArray[Any]) -> Array:
    """The array itself: for CPUs, where nothing has to be moved."""
    return array


def read_bank(store: TaskStore, record: TaskRecord) -> tuple[Arrays, PackedVectors]:
    """The arrays of a task's bank, and its members; a StoreError says what is wrong with them.

    ``scored`` (which image each score belongs to, -1 if it was held out) and ``foreign`` (the scores of the control
    images) are not in banks of older versions; they are then unknown and empty.
    """
    with _checking(record):
        images = learned_images(record)
        arrays = dict(store.arrays(record, "bank"))
        packed = PackedVectors.read(arrays)
        source_HWM = _whole_numbers(arrays, "source")
        if source_HWM.shape != packed.values_HWMK.shape[:3]:
            raise ValueError("it does not say where each member came from")
        if int(source_HWM.min()) < 0 or int(source_HWM.max()) >= len(images):
            raise ValueError("its members come from images that it does not name")
        scores = _measured(arrays, "scores")
        if not scores.size or _measured(arrays, "levels").shape != scores.shape:
            raise ValueError("it has no scores to take a threshold from")
        arrays.setdefault("scored", np.full(scores.shape, -1, np.int32))
        arrays.setdefault("foreign", np.empty(0, np.float32))
        scored = _whole_numbers(arrays, "scored")
        if scored.shape != scores.shape or int(scored.min()) < -1 or int(scored.max()) >= len(images):
            raise ValueError("its scores belong to images that it does not name")
        _measured(arrays, "foreign")
        return arrays, packed


def read_prototype(store: TaskStore, record: TaskRecord, width: int | None = None) -> Floats:
    """The mean descriptor of a task's images; with ``width``, a StoreError if it is not of so many numbers."""
    with _checking(record):
        prototype = _named(store.arrays(record, "prototype"), "prototype")
        if prototype.ndim != 1 or prototype.dtype != np.float32 or not np.isfinite(prototype).all():
            raise ValueError("its prototype is not a list of numbers")
        if width not in (None, prototype.size):
            raise ValueError(f"its prototype has {prototype.size} numbers, and the encoder gives {width}")
        return prototype


def descriptor_width(preset: Preset, packed: PackedVectors) -> int:
    """How many numbers describe an image for routing: the CLS feature and perhaps the mean patch feature."""
    return packed.width * (2 if preset.describe_patches else 1)


def learned_images(record: TaskRecord) -> list[str]:
    """The names of the images a task was taught with; a StoreError if it does not say."""
    images = record.manifest.get("images")
    with _checking(record):
        if not isinstance(images, list) or not images or not all(isinstance(name, str) for name in images):
            raise ValueError("it does not name its images")
    return list(images)


def learned_digests(record: TaskRecord) -> list[str]:
    """A digest of each of those images; tasks of older versions have none, given as empty text."""
    images, digests = learned_images(record), record.manifest.get("digests")
    if not isinstance(digests, list) or len(digests) != len(images):
        return [""] * len(images)
    return [each if isinstance(each, str) and _DIGEST.fullmatch(each) else "" for each in digests]


def read_candidates(store: TaskStore, record: TaskRecord) -> Coreset:
    """A task's members as float32, and after them its reserve, if it has one."""
    arrays, packed = read_bank(store, record)
    members = Coreset(packed.vectors(), arrays["source"].astype(np.int32))
    if "reserve" not in record.files:
        return members
    with _checking(record):
        reserve = store.arrays(record, "reserve")
        values = _named(reserve, "vectors" if packed.scale_HW is None else "codes")
        source_HWM = _whole_numbers(reserve, "source")
        if values.dtype != packed.values_HWMK.dtype or source_HWM.shape != values.shape[:3]:
            raise ValueError("its reserve does not fit its bank")
        if source_HWM.size and not 0 <= int(source_HWM.min()) <= int(source_HWM.max()) < len(learned_images(record)):
            raise ValueError("its reserve comes from images that it does not name")
        more = packed._replace(values_HWMK=values).vectors()
        if not np.isfinite(more).all():
            raise ValueError("its reserve holds values that are no numbers")
        return Coreset(
            np.concatenate([members.vectors_HWMC, more], axis=2),
            np.concatenate([members.source_HWM, source_HWM], axis=2).astype(np.int32),
        )


def open_bank(
    store: TaskStore,
    record: TaskRecord,
    to_device: Callable[[NDArray[Any]], Array] = as_it_is,
    room: float = float("inf"),
) -> Bank:
    """A task's bank, ready for inspecting; ``to_device`` moves its vectors to where the images will be (a GPU).

    Int8 banks stay as they are stored. Float16 ones are widened to float32, because widening them for every image takes
    as long as the products; where that would need more than ``room`` bytes, they too stay as they are.
    """
    arrays, packed = read_bank(store, record)
    values_HWMK = packed.values_HWMK
    if values_HWMK.dtype == np.float16 and 2 * values_HWMK.nbytes <= room:
        values_HWMK = widen(values_HWMK)
    packed = packed._replace(values_HWMK=members_last(values_HWMK)).moved(to_device)
    with _checking(record):
        half_norm_HWM = half_norms(packed)
    return Bank(
        record=record,
        packed=packed,
        half_norm_HWM=half_norm_HWM,
        source_HWM=arrays["source"],
        scores=arrays["scores"],
        level=float(np.median(arrays["levels"])),
        control_scores=arrays["foreign"],
        images=learned_images(record),
        digests=learned_digests(record),
    )


@contextmanager
def _checking(record: TaskRecord) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise StoreError(
            f"The bank of the task '{record.name}' cannot be used ({error}): restore it from a backup, or undo or "
            "forget the task; the other tasks are not affected."
        ) from error


def _named(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    if name not in arrays:
        raise ValueError(f"it has no {name}")
    return arrays[name]


def _whole_numbers(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    array = _named(arrays, name)
    if array.dtype.kind not in "iu":
        raise ValueError(f"its {name} are not whole numbers")
    return array


def _measured(arrays: Mapping[str, NDArray[Any]], name: str) -> Floats:
    """A list of distances: numbers from 0 on. Written so that what is no number is refused."""
    array = _named(arrays, name)
    if array.ndim != 1 or array.dtype != np.float32 or not bool(np.all((array >= 0) & np.isfinite(array))):
        raise ValueError(f"its {name} are not distances")
    return array
