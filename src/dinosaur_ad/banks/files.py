"""What a task's files hold, read with suspicion: a damaged bank is refused in one sentence.

``bank`` holds what inspecting needs, ``reserve`` more candidates for later updates, and ``ladder``, where there is a
budget, what the calibration normals scored under smaller forms of the bank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.banks.budget import Form
from dinosaur_ad.banks.kept import Kept
from dinosaur_ad.core.memory import Memory
from dinosaur_ad.errors import StoreError
from dinosaur_ad.store import TaskRecord, TaskStore

Arrays = dict[str, NDArray[Any]]
Ladder = dict[Form, tuple[list[float], list[float]]]
"""By smaller form of a bank: the scores and the usual patch distances of the calibration normals."""


def read_bank(store: TaskStore, record: TaskRecord) -> tuple[Arrays, Kept]:
    """The arrays of a task's bank, and its members; a StoreError says what is wrong with them."""
    with _suspicion(record):
        arrays = store.arrays(record, "bank")
        kept = Kept.read(arrays)
        if _named(arrays, "source").shape != kept.values_HWMK.shape[:3]:
            raise ValueError("it does not say where each member came from")
        if not _named(arrays, "scores").size or _named(arrays, "levels").shape != arrays["scores"].shape:
            raise ValueError("it has no scores to take a threshold from")
        return arrays, kept


def read_candidates(store: TaskStore, record: TaskRecord) -> Memory:
    """A task's members as float32, and after them its reserve, if it has one."""
    arrays, kept = read_bank(store, record)
    memory = Memory(kept.vectors(), arrays["source"].astype(np.int32))
    if "reserve" not in record.files:
        return memory
    with _suspicion(record):
        reserve = store.arrays(record, "reserve")
        values = _named(reserve, "vectors" if kept.scale_HW is None else "codes")
        more = kept._replace(values_HWMK=values).vectors()
        return Memory(
            np.concatenate([memory.vectors_HWMC, more], axis=2),
            np.concatenate([memory.source_HWM, _named(reserve, "source")], axis=2),
        )


def read_ladder(store: TaskStore, record: TaskRecord, form: Form) -> Ladder:
    """The smaller forms that a task of this form can be cut to, largest first; none if it was taught without budget."""
    if "ladder" not in record.files:
        return {}
    with _suspicion(record):
        arrays = store.arrays(record, "ladder")
        forms, scores, levels = (_named(arrays, name) for name in ("forms", "scores", "levels"))
        if forms.ndim != 2 or forms.shape[1] != 2 or scores.shape[0] != len(forms) or levels.shape != scores.shape:
            raise ValueError("its ladder does not fit together")
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
def _suspicion(record: TaskRecord) -> Iterator[None]:
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
