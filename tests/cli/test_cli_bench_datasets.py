"""Public datasets on the command line: listed, run and reported, on miniatures of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_helpers import run_quick

from dataset_miniatures import MINIATURES, make_visa, real_iad_list
from dinosaur_ad.cli import main

Capture = pytest.CaptureFixture[str]


def test_list_says_what_is_here_and_where_the_rest_is_to_be_had(capsys: Capture, tmp_path: Path) -> None:
    for name in ("visa", "btad"):
        make, folder, categories = MINIATURES[name]
        make(tmp_path / folder, *categories)
    MINIATURES["btad"][0](tmp_path / "BTech_Dataset_transformed", "02")
    assert main(["bench", "list", "--data", str(tmp_path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "visa 2 of 12 tasks partial" in out
    assert f"partial: 2 of 12 categories in '{tmp_path}/VisA': candle, pcb1." in out
    assert "btad 3 tasks ready" in out
    assert "mpdd 6 tasks missing" in out
    assert "download MPDD from https://github.com/stepanje/MPDD (about 2 GB; licence: CC BY-NC-SA 4.0" in out


@pytest.mark.parametrize("name", MINIATURES)
def test_a_public_dataset_runs_from_its_files_to_the_report(capsys: Capture, tmp_path: Path, name: str) -> None:
    make, folder, categories = MINIATURES[name]
    make(tmp_path / "data" / folder, *categories)
    out = tmp_path / "out"
    assert run_quick(out, "--scenarios", name, "--data", str(tmp_path / "data")) == 0
    assert capsys.readouterr().err.startswith(f"{name}: 2 of ")
    result = json.loads((out / name / "dinosaur" / "seed-0" / "result.json").read_text())
    assert [task["name"] for task in result["tasks"]] == list(categories)
    assert result["auroc"] == [[1, 1], [1, 1]]  # any encoder tells these defects from the normals, and finds them
    assert min(pixel["auroc"] for pixel in result["pixel"]) > 0.9
    assert main(["bench", "verify", str(out)]) == 0
    assert main(["bench", "report", str(out), "--out", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert f"**{name} (2 tasks)**" in page


@pytest.mark.parametrize("path", ["../out\nside.jpg", "usb\x1b[2J.jpg"])
def test_a_hostile_list_is_answered_in_one_line(capsys: Capture, tmp_path: Path, path: str) -> None:
    root = MINIATURES["real-iad"][0](tmp_path / "Real-IAD", "usb")
    lines = real_iad_list(root, "usb")
    document = json.loads(lines.read_text())
    document["train"][0]["image_path"] = path
    lines.write_text(json.dumps(document))
    assert run_quick(tmp_path / "out", "--scenarios", "real-iad", "--data", str(tmp_path)) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert "usb.json" in err


def test_a_damaged_dataset_is_one_sentence(capsys: Capture, tmp_path: Path) -> None:
    (make_visa(tmp_path / "visa", "candle") / "candle/Data/Images/Normal/0000.JPG").unlink()
    assert run_quick(tmp_path / "out", "--scenarios", "visa", "--data", str(tmp_path)) == 2
    err = capsys.readouterr().err
    assert err.startswith("dinosaur: ")
    assert err.count("\n") == 1
    assert "lacks candle/Data/Images/Normal/0000.JPG, listed in " in err
