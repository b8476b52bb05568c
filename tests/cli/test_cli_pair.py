"""Two encoders on the command line: learned, inspected and looked after by one name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cli_helpers import TINY

from dinosaur_ad.cli import main
from dinosaur_ad.presets import PRESETS

Capture = pytest.CaptureFixture[str]
PAIR = "tiny-dinov2+tiny-resnet"


@pytest.fixture
def taught(tmp_path: Path, normals: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Path:
    monkeypatch.setitem(PRESETS, "tiny", replace(TINY, size=112))
    store = tmp_path / "pair-store"
    code = main(["learn", "screw", str(normals), "--store", str(store), "--encoder", PAIR, "--preset", "tiny"])
    assert (code, capsys.readouterr().err.count(f"{PAIR} on onnx-cpu, float32, preset tiny, seed 0")) == (0, 1)
    return store


def test_every_result_says_which_two_made_it(taught: Path, defect: Path, capsys: Capture) -> None:
    assert main(["inspect", str(defect), "--store", str(taught), "--json"]) == 0
    made_by = json.loads(capsys.readouterr().out)["made_by"]
    assert made_by["encoder"] == PAIR
    assert [part["encoder"] for part in made_by["parts"]] == PAIR.split("+")
    assert len({part["weights_sha256"] for part in made_by["parts"]}) == 2
    assert main(["tasks", "--store", str(taught), "--json"]) == 0
    assert PAIR in capsys.readouterr().out


def test_a_product_moves_to_a_store_of_the_same_pair_and_to_no_other(
    taught: Path, store: Path, tmp_path: Path, capsys: Capture
) -> None:
    bundle = tmp_path / "screw.bundle"
    assert main(["tasks", "export", "screw", "--store", str(taught), "--out", str(bundle)]) == 0
    capsys.readouterr()
    assert main(["tasks", "import", str(bundle), "--store", str(store)]) == 2
    said = capsys.readouterr().err
    assert PAIR in said
    assert said.count("\n") == 1
    assert main(["tasks", "import", str(bundle), "--store", str(tmp_path / "new")]) == 0


def test_health_looks_at_the_weights_of_both(taught: Path, capsys: Capture) -> None:
    assert main(["health", "--store", str(taught), "--json", "--verify"]) == 0
    found = json.loads(capsys.readouterr().out)["weights"]
    assert found["encoder"] == PAIR
    assert [(part["encoder"], part["state"]) for part in found["parts"]] == [
        ("tiny-dinov2", "built in"),
        ("tiny-resnet", "built in"),
    ]


def test_weights_are_looked_after_part_by_part(capsys: Capture, tmp_path: Path) -> None:
    for verb in ("fetch", "verify"):
        assert main(["weights", verb, PAIR]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(":")[0] for line in lines] == PAIR.split("+")
    assert main(["weights", "add", PAIR, str(tmp_path / "file")]) == 2
    assert "name its parts one by one: tiny-dinov2, then tiny-resnet." in capsys.readouterr().err
    assert main(["weights", "verify", "tiny-dinov2+vgg"]) == 2
    assert capsys.readouterr().out == ""
    assert main(["weights", "list"]) == 0
    assert "--encoder FIRST+SECOND, for example dinov2s-focus+resnet50-v1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        ("tiny-dinov2+tiny-resnett", "There is no encoder 'tiny-resnett', did you mean tiny-resnet?"),
        ("tiny-resnet+tiny-dinov2", "'tiny-resnet' gives feature maps"),
        ("tiny-dinov2+tiny-dinov2", "names the same encoder twice"),
        ("a+b+c", "name exactly two"),
    ],
)
def test_what_is_no_pair_is_refused_in_one_line_and_makes_no_store(
    encoder: str, words: str, tmp_path: Path, normals: Path, capsys: Capture
) -> None:
    store = tmp_path / "new"
    code = main(["learn", "screw", str(normals), "--store", str(store), "--encoder", encoder, "--preset", "tiny"])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert not store.exists()


def test_an_export_is_of_the_pair(taught: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    assert main(["export", "--store", str(taught), "--out", str(out)]) == 0
    assert json.loads((out / "manifest.json").read_text())["encoder"] == PAIR
    assert f"exported '{PAIR}'" in capsys.readouterr().out


def test_the_benchmark_takes_a_pair_for_the_method_that_can_and_refuses_it_for_others(
    tmp_path: Path, capsys: Capture
) -> None:
    pair, out = f"dinosaur.encoder={PAIR}", tmp_path / "runs"
    run = ["bench", "run", "--suite", "tiny", "--out", str(out)]
    assert main([*run, "--methods", "dinosaur", "--set", pair, "--set", "dinosaur.size=112"]) == 0
    (cell,) = out.rglob("result.json")
    assert [part["encoder"] for part in json.loads(cell.read_text())["info"]["parts"]] == PAIR.split("+")
    capsys.readouterr()
    pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
    assert main([*run, "--methods", "patchcore", "--set", f"patchcore.backbone={PAIR}"]) != 0
    assert f"'{PAIR}' is a pair, and one network is needed here" in "".join(capsys.readouterr())
