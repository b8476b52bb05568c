"""Budgets on the command line: what was chosen is printed, and what cannot be is refused before or after encoding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import NEW_STORE, assert_refused

from dinosaur_ad.cli import main

Capture = pytest.CaptureFixture[str]


def learn(name: str, images: Path, store: Path, *options: str) -> int:
    return main(["learn", name, str(images), "--store", str(store), *options])


def test_learn_says_what_it_chose(capsys: Capture, tmp_path: Path, normals: Path) -> None:
    assert learn("screw", normals, tmp_path / "new", *NEW_STORE, "--budget", "6kB") == 0
    out = capsys.readouterr().out
    assert "normal patches kept for every place in the image (of 20), 8 of 16 channels, int8, within 6.0 kB" in out
    assert main(["tasks", "--store", str(tmp_path / "new"), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["bytes"] <= 6000
    assert listed["bank"]["precision"] == "int8"


def test_a_bank_in_another_precision_is_named(capsys: Capture, tmp_path: Path, normals: Path) -> None:
    assert learn("screw", normals, tmp_path / "new", *NEW_STORE, "--bank-precision", "int8") == 0
    assert "20 normal patches kept for every place in the image, int8\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--budget", "lots"), "'lots' is no number of bytes; write one like 2MB"),
        (("--budget", "2kB"), "too small for this task"),
        (("--bank-precision", "int2"), "choose one of: float32, float16, int8"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    capsys: Capture, store: Path, normals: Path, options: tuple[str, ...], sentence: str
) -> None:
    capsys.readouterr()
    before = {path: path.read_bytes() for path in sorted(store.rglob("*.json"))}
    assert learn("bolt", normals, store, *options) == 2
    assert sentence in capsys.readouterr().err
    assert {path: path.read_bytes() for path in sorted(store.rglob("*.json"))} == before


def test_a_wrong_size_is_refused_in_one_line(capsys: Capture, store: Path, normals: Path) -> None:
    argv = ["learn", "bolt", str(normals), "--store", str(store), "--budget", "3 apples"]
    assert_refused(capsys, argv, "is no number of bytes", store)
