"""One row of a cell's matrix as it is kept while the cell is not finished: what was found out after learning a task."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bench.foreign_results import array, indices, listed, maybe, number, read_arrays, record, text, whole
from dinosaur_ad.datasets.tasks import Task
from dinosaur_ad.methods.contract import Method


@dataclass(frozen=True)
class Row:
    """What was found out after learning one task: arrays by name, and the rest."""

    arrays: dict[str, NDArray[Any]]
    notes: dict[str, Any]

    def encode(self) -> bytes:
        """As one file."""
        buffer = io.BytesIO()
        notes = np.frombuffer(json.dumps(self.notes).encode(), np.uint8)
        np.savez_compressed(buffer, allow_pickle=False, notes=notes, **self.arrays)
        return buffer.getvalue()

    @classmethod
    def decode(cls, content: bytes) -> Row:
        """Read such a file; ValueError when it is damaged."""
        arrays = read_arrays(content)
        try:
            return cls(arrays, record(json.loads(arrays.pop("notes").tobytes())))
        except (KeyError, RecursionError) as error:
            raise ValueError("its notes cannot be read") from error


def check_row(row: Row, index: int, tasks: Sequence[Task], method: Method) -> None:
    """Whether a row read from a file is what this method writes after task ``index``; ValueError says why not."""
    last = index == len(tasks) - 1
    try:
        for column, task in enumerate(tasks):
            count = len(task.test)
            array(row.arrays[f"{column}/scores"], "f", count)
            if f"{column}/own_thresholds" in row.arrays:
                array(row.arrays[f"{column}/own_thresholds"], "f", count)
            if method.routes:
                indices(row.arrays[f"{column}/routes"], count, len(tasks))
            if method.routes and column <= index:
                array(row.arrays[f"{column}/oracle"], "f", count)
            if method.has_maps and last:
                array(row.arrays[f"{column}/maps"], "f", count, None, None)
    except KeyError as error:
        raise ValueError(f"the array {error} is missing") from error
    record(
        row.notes,
        {
            "task": text,
            "learn_seconds": number,
            "score_seconds": number,
            "images_scored": whole,
            "storage_bytes": whole,
            "peak_memory_bytes": maybe(whole),
            "peak_device_bytes": maybe(whole),
            "thresholds": lambda value: listed(value, _threshold, index + 1),
            "environment": record,
        },
    )
    if row.notes["task"] != tasks[index].name:
        raise ValueError("it is of another task")


def _threshold(value: Any) -> float:
    """A number; NaN and infinities too, which scores that are no numbers lead to."""
    if not isinstance(value, float):
        raise ValueError("a threshold is no number")
    return value
