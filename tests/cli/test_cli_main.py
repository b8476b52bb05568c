"""Errors, interruptions and the small verbs, in this process."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_helpers import NEW_STORE, assert_refused, tree_hash
from safetensors.numpy import save_file

from dinosaur_ad import Dinosaur, __version__
from dinosaur_ad.cli import main
from dinosaur_ad.encoders import get_spec, registry
from dinosaur_ad.encoders.weights.sources import random_tensors
from dinosaur_ad.store import Store

Capture = pytest.CaptureFixture[str]


def test_version(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"dinosaur {__version__}\n"


@pytest.mark.parametrize("verb", ["learn", "forget", "redo", "rename", "tasks", "inspect", "weights", "completion"])
def test_every_verb_documents_its_exit_codes(capsys: Capture, verb: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([verb, "--help"])
    assert exit_.value.code == 0
    assert "3    done, but some images could not be read" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [[], ["teach"], ["tasks", "--store", "x", "--jsn"]])
def test_bad_usage_exits_with_two(capsys: Capture, argv: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(argv)
    assert exit_.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("dinosaur")
    assert err.count("\n") == 1
    assert err.rstrip().endswith("--help")


@pytest.mark.parametrize(("number", "advice"), [(errno.ENOSPC, "free some space"), (errno.EROFS, "permissions")])
def test_a_disk_that_takes_nothing_gets_a_sentence(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, store: Path, normals: Path, number: int, advice: str
) -> None:
    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    before = tree_hash(store)
    monkeypatch.setattr(os, "fsync", refuse)
    assert main(["learn", "nut", str(normals), "--store", str(store)]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"dinosaur: The store {store} could not be written ({os.strerror(number)})")
    assert advice in last
    assert tree_hash(store) == before


def test_a_file_where_the_store_should_be_gets_a_sentence(capsys: Capture, tmp_path: Path, normals: Path) -> None:
    (tmp_path / "file").write_text("precious")
    assert main(["learn", "nut", str(normals), "--store", str(tmp_path / "file"), *NEW_STORE]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("dinosaur: ")
    assert (tmp_path / "file").read_text() == "precious"


def test_an_interruption_before_the_change_says_so(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, store: Path, normals: Path
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dinosaur_ad.bank.building.BankBuilder.files", interrupt)
    assert main(["learn", "nut", str(normals), "--store", str(store)]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "dinosaur: interrupted; the store is unchanged"


def test_an_interruption_after_the_change_does_not_deny_it(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    def interrupt_afterwards(detector: Dinosaur, name: str) -> None:
        detector.store.drop(name)
        raise KeyboardInterrupt

    monkeypatch.setattr(Dinosaur, "forget", interrupt_afterwards)
    assert main(["forget", "screw", "--store", str(store)]) == 130
    assert "the change of 'screw' had been made already" in capsys.readouterr().err
    assert Store.open(store).names() == ["washer"]


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Dinosaur, "forget", fail)


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("division by zero"),
        RecursionError("maximum recursion depth exceeded"),
        UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"),
        KeyError("scores"),
        RuntimeError("x" * 5000 + "\x1b[2J\nnormal"),
        SystemExit(1),  # of a method of the user's, for example
    ],
)
def test_a_bug_is_one_sentence_and_never_the_code_of_a_finding(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, store: Path, error: BaseException
) -> None:
    monkeypatch.delenv("DINOSAUR_TRACEBACK", raising=False)
    fail_with(monkeypatch, error)
    assert main(["forget", "screw", "--store", str(store)]) == 70
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"dinosaur: An unexpected error ended this command ({type(error).__name__}: ")
    assert "this is a bug in dinosaur-ad; run again with DINOSAUR_TRACEBACK=1" in err
    assert len(err) < 500
    assert "\x1b" not in err


def test_a_bug_shows_its_traceback_on_request(capsys: Capture, monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    monkeypatch.setenv("DINOSAUR_TRACEBACK", "1")
    fail_with(monkeypatch, ZeroDivisionError("a\x1b[2J"))
    assert main(["forget", "screw", "--store", str(store)]) == 70
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last):\n")
    assert "ZeroDivisionError: a\\x1b[2J" in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError("std::bad_alloc"), "There is not enough memory for this; use fewer --threads"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "install it with: pip install '.[bench]'."),
        (ModuleNotFoundError("No module named 'ray.data'", name="ray.data"), "pip install '.[ray]'."),
        (ModuleNotFoundError("No module named 'numpy'", name="numpy"), "install dinosaur-ad again."),
        (RuntimeError("Could not determine home directory."), "This user has no home folder; set HOME"),
    ],
)
def test_what_the_machine_lacks_is_no_bug(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, store: Path, error: BaseException, sentence: str
) -> None:
    fail_with(monkeypatch, error)
    assert_refused(capsys, ["forget", "screw", "--store", str(store)], sentence, store)


def test_demo_passes_its_options_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[tuple[object, ...]] = []

    def run_demo(out: Path, *, seed: int, quick: bool, say: Callable[[str], None]) -> Path:
        calls.append((out, seed, quick))
        return out / "report.html"

    monkeypatch.setitem(sys.modules, "dinosaur_ad.demo", SimpleNamespace(run_demo=run_demo))
    assert main(["demo", "--out", str(tmp_path), "--seed", "3", "--quick"]) == 0
    assert calls == [(tmp_path, 3, True)]


def test_weights_list_shows_licence_and_state_but_no_path(capsys: Capture, tmp_path: Path) -> None:
    assert main(["weights", "list"]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("dinov3-small"))
    assert "absent" in row
    assert "DINOv3 License" in row
    assert str(tmp_path) not in out


def test_weights_of_a_gated_encoder_wait_for_the_licence(capsys: Capture) -> None:
    assert main(["weights", "fetch", "dinov3-small"]) == 2
    err = capsys.readouterr().err
    assert "DINOv3 License" in err
    assert "--accept-licence" in err


def test_weights_added_from_a_file_can_be_verified_and_damage_is_found(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = replace(get_spec("tiny-dinov2"), name="mine", source="hub:nobody/mine", file="model.safetensors")
    monkeypatch.setitem(registry._REGISTRY, "mine", spec)
    save_file(random_tensors(get_spec("tiny-dinov2")), tmp_path / "mine.safetensors")

    assert main(["weights", "verify"]) == 0
    assert "no weights here yet" in capsys.readouterr().err
    assert main(["weights", "add", "mine", str(tmp_path / "mine.safetensors")]) == 0
    assert main(["weights", "verify"]) == 0
    assert "mine: intact" in capsys.readouterr().out

    kept = next((tmp_path / "home").rglob("model.safetensors"))
    content = bytearray(kept.read_bytes())
    content[-1] ^= 1
    kept.write_bytes(content)
    assert main(["weights", "verify", "mine"]) == 2
    assert "dinosaur: The weights of 'mine' are damaged" in capsys.readouterr().err


def test_an_unknown_encoder_is_answered_with_those_there_are(capsys: Capture) -> None:
    assert main(["weights", "fetch", "resnet"]) == 2
    assert "choose one of: dinov2s-focus" in capsys.readouterr().err
