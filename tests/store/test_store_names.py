"""Task names are folder names, and nothing else."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_helpers import contents, teach

from dinosaur_ad.errors import InputError
from dinosaur_ad.store import Store, TaskStore, check_task_name


@pytest.mark.parametrize(
    "name",
    [
        *(
            "screw",
            "metal_nut",
            "v1.2-b",
            "_x",
            "7",
            "a" * 64,
            "metal nut",
            "Deckel groß",
            "螺丝",
            "🔩 M4",
            "5 % (a+b), é",
        ),
        *("a" * 128, "ß" * 64),
    ],
)
def test_plain_names_are_taken(name: str) -> None:
    assert check_task_name(name) == name


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        (" nut ", "nut"),
        ("a\u200db\u202e", "a-b"),
        ("a:b*c", "a-b-c"),
        ("CON .txt", "task-CON .txt"),
        ("../../etc", "etc"),
        (".hidden", "hidden"),
        ("end.", "end"),
        ("--store", "store"),
        ("Prüfling/3", "Prüfling-3"),
        ("con", "task-con"),
        ("nul.txt", "task-nul.txt"),
        ("", "task"),
        ("..", "task"),
        ("screw\n", "screw"),
        ("x" * 129, "x" * 123),
        ("ß" * 65, "ß" * 61),
    ],
)
def test_others_are_refused_with_one_that_would_do(name: str, suggestion: str) -> None:
    with pytest.raises(InputError, match=f"for example '{suggestion}'"):
        check_task_name(name)


def test_a_name_that_is_far_too_long_is_not_repeated_whole() -> None:
    with pytest.raises(InputError) as caught:
        check_task_name("x" * 300)
    assert "x" * 200 not in str(caught.value)


@given(st.text(max_size=80))
def test_every_suggestion_is_a_name(name: str) -> None:
    try:
        assert check_task_name(name) == unicodedata.normalize("NFC", name)
    except InputError as error:
        suggestion = str(error).rsplit("'", 2)[1]
        assert check_task_name(suggestion) == suggestion


def test_one_name_however_its_letters_are_composed(tasks: TaskStore) -> None:
    composed, apart = "Prüfling é", unicodedata.normalize("NFD", "Prüfling é")
    assert composed != apart
    teach(tasks, apart, 1)
    assert tasks.names() == [composed]
    assert apart in tasks
    assert tasks.record(apart).name == composed
    teach(tasks, composed, 2, "update")
    assert contents(tasks) == {composed: 2}
    assert (tasks.undo(apart), tasks.redo(apart)) == ("update", "update")
    tasks.drop(apart)
    assert contents(tasks) == {}


def test_a_crash_is_tidied_up_under_any_name(folder: Store) -> None:
    teach(folder, "螺丝 1", 1)
    folder.rename("螺丝 1", "螺丝 🔩")
    folder._files.note("螺丝 🔩", {7})
    (folder.path / "tasks/螺丝 🔩/v0007").mkdir()
    (folder.path / "tasks/螺丝 🔩/v0007/bank.safetensors").touch()
    target = Store.open(folder.path)
    teach(target, "other", 1)
    assert not (folder.path / "tasks/螺丝 🔩/v0007").exists()
    assert contents(target) == {"螺丝 🔩": 1, "other": 1}


@pytest.mark.parametrize("method", ["drop", "undo", "record", "verify"])
def test_a_name_cannot_reach_outside_the_store(folder: Store, method: str) -> None:
    teach(folder, "screw", 1)
    for name in ("..", "../..", "../tasks/screw", "/"):
        with pytest.raises(InputError, match="cannot be called"):
            getattr(folder, method)(name)
    assert contents(Store.open(folder.path)) == {"screw": 1}
