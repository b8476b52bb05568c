"""The option --position, and where a position is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import NEW_STORE, assert_refused, make_normals

from dinosaur_ad.cli import main

Capture = pytest.CaptureFixture[str]


def test_learn_and_tasks_say_the_position_that_was_found(capsys: Capture, tmp_path: Path) -> None:
    normals, store = make_normals(tmp_path / "normals", 8), str(tmp_path / "new")
    assert main(["learn", "plate", str(normals), "--store", store, *NEW_STORE]) == 0
    said = capsys.readouterr().out
    assert "position: aligned (found out: most parts lie within " in said
    assert main(["tasks", "plate", "--store", store]) == 0
    assert ", position aligned, inspects all of the image" in capsys.readouterr().out
    assert main(["tasks", "--json", "--store", store]) == 0
    assert json.loads(capsys.readouterr().out)["position"] == "aligned"


def test_a_position_can_be_given(capsys: Capture, tmp_path: Path) -> None:
    normals, store = make_normals(tmp_path / "normals", 8), str(tmp_path / "new")
    for position, words in {"free": "free", "moving": "moving, registered", "aligned": "aligned"}.items():
        options = ["--position", position, "--replace", "--store", store, *NEW_STORE]
        assert main(["learn", "plate", str(normals), *options]) == 0
        assert f"position: {words} (as given" in capsys.readouterr().out


def test_wrong_positions_are_one_sentence(capsys: Capture, tmp_path: Path, store: Path) -> None:
    normals = str(make_normals(tmp_path / "more", 6, pattern=5))
    to_store = ["--store", str(store)]
    learn, update = ["learn", "new", normals, *to_store], ["update", "screw", normals, *to_store]
    assert_refused(capsys, [*learn, "--position", "askew"], "There is no position 'askew'; choose one of: auto", store)
    assert_refused(capsys, [*update, "--position", "free"], "'screw' was learned as 'aligned'", store)
