"""Completion in a real bash: verbs, options, values, task names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dinosaur_ad.cli import main
from dinosaur_ad.store import Store

ASK = r"""
dinosaur() { "$PYTHON" -m dinosaur_ad.cli "$@"; }
source /dev/stdin <<< "$(dinosaur completion bash)" || exit 1
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_dinosaur
printf '%s\n' "${COMPREPLY[@]}"
"""
BASH = shutil.which("bash")


def completed(*words: str) -> list[str]:
    """What bash offers for the last of these words."""
    assert BASH is not None
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": ":".join(sys.path)}
    command = [BASH, "-c", ASK, "bash", "dinosaur", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["insp"], ["inspect"]),
        (["re"], ["redo", "rename", "recalibrate", "report"]),
        (["bench", "ver"], ["verify"]),
        (["inspect", "x.png", "--fo"], ["--format"]),
        (["inspect", "--format", ""], ["text", "json", "csv"]),
        (["inspect", "--engine", "r"], ["ray"]),
        (["weights", "fet"], ["fetch"]),
        (["completion", ""], ["bash", "zsh"]),
        (["inspect", "some-fi"], []),  # left to bash, which knows files
    ],
)
def test_words_are_completed(words: list[str], offered: list[str]) -> None:
    assert [each for each in completed(*words) if each] == offered


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_task_names_are_completed_and_quoted(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(store).rename("washer", "screw cap $(x)")
    named = ["screw", r"screw\ cap\ \$\(x\)"]
    monkeypatch.setenv("DINOSAUR_STORE", str(store))
    assert completed("undo", "") == named
    assert completed("rename", "--store", str(store), "screw ") == named[1:]
    assert completed("inspect", "--store", str(store), "--task", "sc") == named
    assert completed("inspect", "--store", str(store), "--task", "screw ") == named[1:]
    assert completed("inspect", "--store", str(store / "none"), "--task", "sc") == [""]


def test_the_script_for_zsh_loads_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out.splitlines()[1]
