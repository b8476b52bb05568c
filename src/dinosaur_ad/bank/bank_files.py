"""What a task's files hold, checked as it is read: a damaged bank is refused in one sentence.

``bank`` holds what inspecting needs, ``prototype`` what routing needs, ``reserve`` more candidates for later updates,
and ``ladder``, where there is a budget, what the calibration normals scored under smaller forms of the bank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.budget import Form
from dinosaur_ad.bank.kept import Kept
from dinosaur_ad.core.memory import Memory
from dinosaur_ad.errors import StoreError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float32]
_DIGEST = re.compile(r"[1-9]\d{0,4}:[0-9a-f]{32}")
Ladder = dict[Form, tuple[list[float], list[float]]]
"""By smaller form of a bank: the scores and the usual patch distances of the calibration normals."""


def read_bank(store: TaskStore, record: TaskRecord) -> tuple[Arrays, Kept]:
    """The arrays of a task's bank, and its members; a StoreError says what is wrong with them.

    ``scored`` (which image each score belongs to, -1 if it was held out) and ``foreign`` (the scores of pictures that
    show no product) are not in banks of older versions; they are then unknown and empty.
    """
    with _checking(record):
        images = learned_images(record)
        arrays = dict(store.arrays(record, "bank"))
        kept = Kept.read(arrays)
        source_HWM = _whole_numbers(arrays, "source")
        if source_HWM.shape != kept.values_HWMK.shape[:3]:
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
        return arrays, kept


def read_prototype(store: TaskStore, record: TaskRecord, width: int | None = None) -> Floats:
    """The mean descriptor of a task's images; with ``width``, a StoreError if it is not of so many numbers."""
    with _checking(record):
        prototype = _named(store.arrays(record, "prototype"), "prototype")
        if prototype.ndim != 1 or prototype.dtype != np.float32 or not np.isfinite(prototype).all():
            raise ValueError("its prototype is not a list of numbers")
        if width not in (None, prototype.size):
            raise ValueError(f"its prototype has {prototype.size} numbers, and the encoder gives {width}")
        return prototype


def descriptor_width(preset: Preset, kept: Kept) -> int:
    """How many numbers describe an image for routing: the CLS feature and, if asked for, the mean patch feature."""
    return kept.width * (2 if preset.describe_patches else 1)


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


def read_candidates(store: TaskStore, record: TaskRecord) -> Memory:
    """A task's members as float32, and after them its reserve, if it has one."""
    arrays, kept = read_bank(store, record)
    memory = Memory(kept.vectors(), arrays["source"].astype(np.int32))
    if "reserve" not in record.files:
        return memory
    with _checking(record):
        reserve = store.arrays(record, "reserve")
        values = _named(reserve, "vectors" if kept.scale_HW is None else "codes")
        source_HWM = _whole_numbers(reserve, "source")
        if values.dtype != kept.values_HWMK.dtype or source_HWM.shape != values.shape[:3]:
            raise ValueError("its reserve does not fit its bank")
        if source_HWM.size and not 0 <= int(source_HWM.min()) <= int(source_HWM.max()) < len(learned_images(record)):
            raise ValueError("its reserve comes from images that it does not name")
        more = kept._replace(values_HWMK=values).vectors()
        if not np.isfinite(more).all():
            raise ValueError("its reserve holds values that are no numbers")
        return Memory(
            np.concatenate([memory.vectors_HWMC, more], axis=2),
            np.concatenate([memory.source_HWM, source_HWM], axis=2).astype(np.int32),
        )


def read_ladder(store: TaskStore, record: TaskRecord, form: Form) -> Ladder:
    """The smaller forms that a task of this form can be cut to, largest first; none if it was taught without budget."""
    if "ladder" not in record.files:
        return {}
    with _checking(record):
        arrays = store.arrays(record, "ladder")
        forms, scores, levels = _whole_numbers(arrays, "forms"), _named(arrays, "scores"), _named(arrays, "levels")
        if forms.ndim != 2 or forms.shape[1] != 2 or scores.ndim != 2 or scores.shape[0] != len(forms):
            raise ValueError("its ladder does not fit together")
        if levels.shape != scores.shape or (forms.size and int(forms.min()) < 1):
            raise ValueError("its ladder does not fit together")
        if not (np.isfinite(scores).all() and np.isfinite(levels).all()):
            raise ValueError("its ladder holds values that are no numbers")
        return {
            Form(members, channels, form.precision, form.rotated): (scores[rung].tolist(), levels[rung].tolist())
            for rung, (members, channels) in enumerate(forms.tolist())
        }


def ladder_arrays(ladder: Ladder) -> Arrays:
    """A ladder as a file holds it."""
    scores, levels = zip(*ladder.values(), strict=True) if ladder else ((), ())
    return {
        "forms": np.asarray([(form.members, form.channels) for form in ladder], np.int32).reshape(-1, 2),
        "scores": np.asarray(scores, np.float32).reshape(len(ladder), -1 if ladder else 0),
        "levels": np.asarray(levels, np.float32).reshape(len(ladder), -1 if ladder else 0),
    }


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
