"""DINOSAUR_STORE and dinosaur.toml: what they give, what goes first, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import tree_hash

from dinosaur_ad.cli import main
from dinosaur_ad.cli._settings import KEYS, find_file

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, two below the one of the settings."""
    folder = tmp_path / "line" / "camera"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def test_without_a_store_all_three_ways_are_named(capsys: Capture, here: Path) -> None:
    assert main(["tasks"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert all(way in err for way in ("--store DIR", "DINOSAUR_STORE", "dinosaur.toml"))


def test_an_option_goes_before_the_environment_and_that_before_the_file(
    capsys: Capture, here: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dinosaur.toml").write_text("store = 'store'\n")
    assert main(["tasks"]) == 0
    out, err = capsys.readouterr()
    assert "screw" in out
    assert err == f"store: {store} (from {tmp_path / 'dinosaur.toml'})\n"
    monkeypatch.setenv("DINOSAUR_STORE", str(tmp_path / "none"))
    assert main(["tasks"]) == 2
    assert capsys.readouterr().err.startswith(f"store: {tmp_path / 'none'} (from DINOSAUR_STORE)\n")
    assert main(["tasks", "--store", str(store)]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("DINOSAUR_STORE", "")
    assert main(["tasks"]) == 0


def test_every_key_is_used(capsys: Capture, here: Path, store: Path, defect: Path, tmp_path: Path) -> None:
    values = "false_alarms = '20%'\nprecision = 'int8'\nthreads = 1\nprovider = 'onnx-cpu'\noverlays = 'seen'\n"
    (here.parent / "dinosaur.toml").write_text(f"store = '../store'\n{values}")
    (tmp_path / "dinosaur.toml").write_text("threads = 'the nearest file counts'\n")
    assert main(["inspect", str(defect), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["false_alarms"], result["precision"]) == (0.2, "int8")
    assert Path(result["overlay"]).is_relative_to(here.parent / "seen")
    assert main(["inspect", str(defect), "--json", "--false-alarms", "0.1", "--precision", "float32"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["false_alarms"], result["precision"]) == (0.1, "float32")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("stor = 'x'", f"unknown key 'stor'; the known ones are {', '.join(KEYS)}."),
        ("[store]\npath = 'x'", "'store' is {'path': 'x'}; it takes the path of a folder."),
        ("store = 5", "'store' is 5; it takes the path of a folder."),
        ("store = ''", "it takes the path of a folder."),
        ("threads = '4'", "'threads' is '4'; it takes a whole number such as 4."),
        ("threads = true", "'threads' is True; it takes a whole number such as 4."),
        ("threads = 0", "'threads' cannot be used: The number of threads must be at least 1"),
        ("false_alarms = 5", "'false_alarms' cannot be used: A false-alarm rate is a share such as 0.025 or 2.5%"),
        ("false_alarms = [1]", "it takes a share such as 0.025"),
        ("provider = 1", "it takes a name such as"),
        ("store = ", "cannot be read ("),
        ("\x00", "cannot be read ("),
    ],
)
def test_a_wrong_file_is_one_sentence(capsys: Capture, here: Path, store: Path, text: str, sentence: str) -> None:
    (here / "dinosaur.toml").write_text(text)
    before = tree_hash(store)
    assert main(["tasks", "--store", str(store)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert str(here / "dinosaur.toml") in err
    assert sentence in err
    assert tree_hash(store) == before


def test_a_verb_without_a_store_reads_no_file(capsys: Capture, here: Path) -> None:
    (here / "dinosaur.toml").write_text("nonsense")
    assert main(["weights", "list"]) == 0


def test_the_search_ends_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    (tmp_path / "dinosaur.toml").write_text("store = 'x'")
    monkeypatch.setenv("HOME", str(home))
    assert find_file(home / "work") is None
    (home / "dinosaur.toml").write_text("store = 'x'")
    assert find_file(home / "work") == home / "dinosaur.toml"
