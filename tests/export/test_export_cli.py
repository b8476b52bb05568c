"""The verb export, as a user types it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from export_helpers import taught

from dinosaur_ad import Dinosaur
from dinosaur_ad.cli import export_command as verb
from dinosaur_ad.encoders.backends.exported import read_manifest
from dinosaur_ad.errors import DinosaurError


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return taught(tmp_path, from_files=True)


def run(*words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    verb.add_parser(parser.add_subparsers(required=True))
    arguments = parser.parse_args(["export", *map(str, words)])
    code: int = arguments.run(arguments)
    return code


def test_it_says_what_was_exported_and_how_near_it_is(
    tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled = tmp_path / "images" / "test"
    words = ("--precision", "int8", "--task", "plate", "--with-bank", "--labelled", labelled)
    assert run("--out", tmp_path / "out", "--store", store, *words) == 0
    printed = capsys.readouterr()
    first, size, parity = printed.out.splitlines()
    assert first == f"exported 'tiny-dinov2' for onnx in int8, with the bank of 'plate' to {tmp_path / 'out'}"
    assert size.endswith("licence: Apache-2.0")
    assert parity.startswith("parity: token cosine at least 0.9")
    assert "AUROC 1.0000 (float32 1.0000, +0.0000)" in parity
    assert "bank in the graph: off by at most" in parity
    assert "comparing it with float32 on 12 images" in printed.err


def test_check_runs_the_gate_again_and_takes_nothing_that_belongs_to_making(
    tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("--out", tmp_path / "out", "--store", store, "--with-bank")
    capsys.readouterr()
    assert run("--check", tmp_path / "out", "--store", store) == 0
    assert "runs on onnx-cpu in float32 and may be used" in capsys.readouterr().out
    with pytest.raises(DinosaurError, match=r"leave out --precision, --with-bank\.$"):
        run("--check", tmp_path / "out", "--precision", "int8", "--with-bank")


def test_a_task_that_has_changed_since_is_not_compared(tmp_path: Path, store: Path) -> None:
    run("--out", tmp_path / "out", "--store", store, "--with-bank")
    Dinosaur.load(store).update("plate", tmp_path / "images" / "test" / "good")
    with pytest.raises(DinosaurError, match=r"has changed in .* since this export was made"):
        run("--check", tmp_path / "out", "--store", store)


def test_tensorrt_says_that_it_was_not_tried_here(
    tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dinosaur_ad.encoders.providers import why_not

    if why_not("tensorrt", "float32") is None:
        pytest.skip("TensorRT is here, so it was tried")
    run("--out", tmp_path / "out", "--store", store, "--format", "tensorrt", "--precision", "float16")
    assert "TensorRT is not here: the graph was compared on the CPU" in capsys.readouterr().err


def test_the_older_spellings_of_a_precision_are_accepted(
    tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--out", tmp_path / "out", "--store", store, "--precision", "fp16") == 0
    assert "for onnx in float16 to" in capsys.readouterr().out
    assert read_manifest(tmp_path / "out").precision == "float16"


def test_an_unknown_precision_is_answered_with_those_there_are(tmp_path: Path, store: Path) -> None:
    with pytest.raises(DinosaurError, match="no precision 'fp8'; choose one of: float32, bfloat16, float16, int8"):
        run("--out", tmp_path / "out", "--store", store, "--precision", "fp8")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [(), ("--out", "a", "--check", "b")])
def test_bad_usage_ends_with_the_usage(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        run(*words)
