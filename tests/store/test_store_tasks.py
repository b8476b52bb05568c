"""What is put into a task comes out of it, from a folder and from memory alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
from store_helpers import bank, contents, manifest, teach, value_of

from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.store import TaskStore
from dinosaur_ad.store.codec import encode_arrays


def test_arrays_come_back_exact_and_cannot_be_written(tasks: TaskStore) -> None:
    files = {
        "bank": {
            "half": np.ones((2, 3), np.float16),
            "scalar": np.array(7, np.int32),
            "none": np.ones((0, 4)),
        },
        "reserve": {"bytes": np.arange(5, dtype=np.uint8), "turned": np.arange(6.0).reshape(2, 3).T},
    }
    tasks.put("screw", files, manifest(1), action="learn")
    for file, arrays in files.items():
        loaded = tasks.arrays("screw", file)
        assert loaded.keys() == arrays.keys()
        for key, array in arrays.items():
            np.testing.assert_array_equal(loaded[key], array, strict=True)
            with pytest.raises(ValueError, match="read-only"):
                loaded[key][...] = 0


def test_later_changes_to_what_was_given_change_nothing(tasks: TaskStore) -> None:
    files, given = bank(1), manifest(1) | {"layers": [6, 9]}
    tasks.put("screw", files, given, action="learn")
    files["bank"]["patches"][:] = 2
    given["layers"].append(12)
    assert value_of(tasks, "screw") == 1
    assert tasks.record("screw").manifest["layers"] == [6, 9]


def test_bytes_are_those_of_the_current_versions(tasks: TaskStore) -> None:
    teach(tasks, "screw", 1)
    teach(tasks, "screw", 2)
    teach(tasks, "bottle", 1)
    blob = len(encode_arrays(bank(1)["bank"]))
    assert (tasks.bytes("screw"), tasks.bytes()) == (blob, 2 * blob)


def test_numbers_that_json_lacks_survive(tasks: TaskStore) -> None:
    numbers = {"threshold": math.inf, "low": -math.inf, "scores": [1.5, math.nan]}
    tasks.put("screw", bank(1), manifest(1) | numbers, action="learn")
    loaded = tasks.record("screw").manifest
    assert (loaded["threshold"], loaded["low"], loaded["scores"][0]) == (math.inf, -math.inf, 1.5)
    assert math.isnan(loaded["scores"][1])


@pytest.mark.parametrize("name", ["screw", "Screw"])
def test_names_that_differ_in_case_only_are_refused(tasks: TaskStore, name: str) -> None:
    teach(tasks, "sCrew", 1)
    with pytest.raises(InputError, match="differs only in case"):
        teach(tasks, name, 2)
    assert contents(tasks) == {"sCrew": 1}


def test_an_unknown_task_is_answered_with_the_nearest_ones(tasks: TaskStore) -> None:
    with pytest.raises(InputError, match="no task has been learned yet"):
        tasks.record("screw")
    teach(tasks, "screw", 1)
    for ask in (tasks.record, tasks.drop, tasks.verify):
        with pytest.raises(InputError, match=r"no task 'scerw' .*, did you mean screw"):
            ask("scerw")
    with pytest.raises(StoreError, match="no file 'reserve'; it has bank"):
        tasks.arrays("screw", "reserve")


def test_what_cannot_be_stored_is_refused_before_anything_is_written(tasks: TaskStore) -> None:
    before = tasks.stamp()
    with pytest.raises(TypeError, match="cannot be stored"):
        tasks.put("screw", {"bank": {"a": np.array(["text"])}}, {}, action="learn")
    with pytest.raises(ValueError, match="lower-case"):
        tasks.put("screw", {"../bank": {}}, {}, action="learn")
    with pytest.raises(TypeError, match="serializable"):
        tasks.put("screw", bank(1), {"bad": object()}, action="learn")  # type: ignore[dict-item]
    assert tasks.stamp() == before
