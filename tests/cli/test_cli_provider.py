"""The options of the run time, through learn, update and inspect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import NEW_STORE, assert_refused

from dinosaur_ad.cli import main
from dinosaur_ad.encoders import auto

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])


def test_a_fallback_is_printed_and_in_every_line(capsys: Capture, store: Path, normals: Path) -> None:
    argv = ["inspect", str(normals / "001.png"), str(normals / "002.png"), "--store", str(store), "--json"]
    assert main([*argv, "--provider", "cuda"]) == 0
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert all(row["fallback"].startswith("cuda cannot run in float32 here (") for row in rows)
    assert {(row["provider"], row["precision"]) for row in rows} == {("onnx-cpu", "float32")}
    assert err.splitlines()[0] == f"fallback: {rows[0]['fallback']}"


def test_strict_refuses_it(capsys: Capture, store: Path, normals: Path) -> None:
    argv = ["inspect", str(normals / "001.png"), "--store", str(store), "--strict"]
    assert_refused(capsys, [*argv, "--provider", "cuda"], "cuda cannot run in float32 here: ", store)
    assert_refused(capsys, [*argv, "--provider", "onnx-cpu", "--precision", "float16"], "available: onnx-cpu", store)


def test_unknown_names_are_refused_even_when_not_strict(capsys: Capture, store: Path, normals: Path) -> None:
    argv = ["update", "screw", str(normals / "001.png"), "--store", str(store)]
    assert_refused(capsys, [*argv, "--provider", "onnx"], "no provider 'onnx'; choose one of: auto, onnx-cpu", store)
    assert_refused(capsys, [*argv, "--precision", "int4"], "no precision 'int4'; choose one of: float32", store)


def test_the_precision_is_announced(capsys: Capture, tmp_path: Path, normals: Path) -> None:
    argv = ["learn", "screw", str(normals), "--store", str(tmp_path / "new"), *NEW_STORE]
    assert main([*argv, "--provider", "onnx-cpu", "--precision", "int8", "--threads", "1"]) == 0
    assert "tiny-dinov2 on onnx-cpu, int8, " in capsys.readouterr().err


def test_auto_says_what_it_chose_and_why(
    capsys: Capture, store: Path, normals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "available", lambda: {"onnx-cpu": ("float32",)})
    assert main(["inspect", str(normals / "001.png"), "--store", str(store), "--provider", "auto"]) == 0
    assert "auto: onnx-cpu in float32, because nothing else is here." in capsys.readouterr().err


def test_a_cluster_runs_the_default_alone(capsys: Capture, store: Path, normals: Path) -> None:
    argv = ["inspect", str(normals / "001.png"), "--store", str(store), "--engine", "ray"]
    assert_refused(capsys, [*argv, "--provider", "auto", "--strict"], "leave out --provider, --strict, or", store)
    assert_refused(capsys, [*argv, "--precision", "int8"], "leave out --precision, or", store)
