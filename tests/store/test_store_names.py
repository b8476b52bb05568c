"""Task names are folder names, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_helpers import contents, teach

from dinosaur_ad.errors import InputError
from dinosaur_ad.store import Store, check_task_name


@pytest.mark.parametrize("name", ["screw", "metal_nut", "v1.2-b", "_x", "7", "a" * 64])
def test_plain_names_are_taken(name: str) -> None:
    assert check_task_name(name) == name


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("metal nut", "metal-nut"),
        ("../../etc", "etc"),
        (".hidden", "hidden"),
        ("end.", "end"),
        ("--store", "store"),
        ("Prüfling/3", "Prufling-3"),
        ("con", "task-con"),
        ("nul.txt", "task-nul.txt"),
        ("", "task"),
        ("..", "task"),
        ("screw\n", "screw"),
        ("x" * 65, "x" * 64),
    ],
)
def test_others_are_refused_with_one_that_would_do(name: str, suggestion: str) -> None:
    with pytest.raises(InputError, match=f"for example '{suggestion}'"):
        check_task_name(name)


@given(st.text(max_size=80))
def test_every_suggestion_is_a_name(name: str) -> None:
    try:
        assert check_task_name(name) == name
    except InputError as error:
        suggestion = str(error).rsplit("'", 2)[1]
        assert check_task_name(suggestion) == suggestion


@pytest.mark.parametrize("method", ["drop", "undo", "record", "verify"])
def test_a_name_cannot_reach_outside_the_store(folder: Store, method: str) -> None:
    teach(folder, "screw", 1)
    for name in ("..", "../..", "../tasks/screw", "/"):
        with pytest.raises(InputError, match="cannot be called"):
            getattr(folder, method)(name)
    assert contents(Store.open(folder.path)) == {"screw": 1}
