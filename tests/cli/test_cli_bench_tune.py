"""``dinosaur bench tune``: the table, the file it goes on from, and what cannot be tuned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench_helpers import make_mvtec
from cli_helpers import assert_refused

from dinosaur_ad.bench.tune_results import TuneResult
from dinosaur_ad.bench.tune_search import Measured, ProductChoice, start_for
from dinosaur_ad.cli import main
from dinosaur_ad.cli.bench_tune import print_tune
from dinosaur_ad.encoders import get_spec

Capture = pytest.CaptureFixture[str]
PRODUCTS = ("fabric", "gear", "blister", "steel", "board")


@pytest.fixture(autouse=True)
def _no_data_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DINOSAUR_DATA", raising=False)


def command(out: Path, *more: str) -> list[str]:
    given = ["bench", "tune", "--encoder", "tiny-dinov2", "--scenarios", "synthetic", "--images", "4"]
    return [*given, "--vary", "radius", "--out", str(out), "--cache", str(out.parent / "cache"), *more]


def test_the_table_has_every_product_their_mean_and_the_preset(capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "tune.json"
    assert main(command(out)) == 0
    shown, said = capsys.readouterr()
    lines = shown.splitlines()
    assert lines[0] == "image AUROC a product with three random DINOv2 blocks for tests: it has learned nothing"
    assert lines[2].split("  ")[0] == "product"
    for column in ("chosen without it", "AUROC", "false alarms", "recall", "default", "by hindsight", "hindsight"):
        assert column in lines[2]
    assert [line.split()[0] for line in lines[3:9]] == [*PRODUCTS, "mean"]
    document = json.loads(out.read_text())
    for line, product in zip(lines[3:8], document["products"], strict=True):
        assert f"{product['chosen']['auroc']:.3f}" in line
        assert f"{product['start']['auroc']:.3f}" in line
        assert line.endswith(f"{product['best']['auroc']:.3f}")
    assert f"{document['mean']['chosen']['auroc']:.3f}" in lines[8]
    assert lines[10].startswith("chosen on all products: ")
    assert lines[lines.index("[tiny-dinov2.preset]") + 1 :] == [
        f"{name} = {json.dumps(value)}" for name, value in document["preset"].items()
    ]
    assert document["preset"]["layers"] == [1]  # the default's blocks 4-8 are not there
    assert said.startswith("synthetic/fabric: the start: image AUROC 0.")
    assert said.endswith(f"All that was measured is in {out}\n")

    assert main(command(out)) == 0
    again = capsys.readouterr()
    assert again.out == shown
    assert again.err == f"All that was measured is in {out}\n"


@pytest.mark.parametrize("worse", [True, False])
def test_a_choice_that_is_worse_on_products_it_was_not_made_on_is_not_advised(worse: bool, capsys: Capture) -> None:
    spec = get_spec("dinov2s-focus")
    start = start_for(spec)
    other, low, high = replace(start, radius=2), Measured(0.90, 0.02, 0.6), Measured(0.94, 0.02, 0.7)
    chosen, usual = (low, high) if worse else (high, low)
    products = tuple(ProductChoice(name, other, chosen, usual, other, high) for name in "abc")
    result = TuneResult(spec, start, products, other)
    print_tune(result)
    shown = capsys.readouterr().out
    assert "chosen on all products: radius 2" in shown
    assert ("Keep the default: what is chosen without a product ranks it worse (0.900) than the" in shown) == worse
    assert ("radius = 2" in shown) != worse
    assert result.to_json()["preset"] == ({} if worse else {"radius": 2})


def test_the_file_is_named_after_the_encoder_unless_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    given = command(tmp_path / "x.json")
    at = given.index("--out")
    assert main(given[:at] + given[at + 2 :]) == 0
    assert (tmp_path / "runs" / "tune-tiny-dinov2.json").is_file()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--encoder", "tiny-dinov"], "There is no encoder 'tiny-dinov', did you mean tiny-dinov"),
        (["--encoder", "resnet50"], "'resnet50' is no token encoder: it gives feature maps; choose one of"),
        (["--scenarios", "synthetic-tiny"], "Leaving one product out needs at least 3 products, got 2 (fabric, gear);"),
        (["--scenarios", "synthetic-color"], "Leaving one product out needs at least 3 products, got 1 (fabric);"),
        (["--scenarios", "synthetic,synthetic"], "name each scenario once"),
        (["--scenarios", "mtd-color"], "download Magnetic Tile Defects from"),
        (
            ["--vary", "speed"],
            "What can be varied is readings, ratio, radius, copies, exposure, layers, size, got 'speed'",
        ),
        (["--images", "2"], "2 images a task are too few; give at least 4."),
        (["--data", "nowhere"], "The data folder 'nowhere' does not exist"),
        (["--out", "."], "'.' is a folder; give --out a file."),
    ],
)
def test_what_cannot_be_tuned_is_refused(more: list[str], sentence: str, tmp_path: Path, capsys: Capture) -> None:
    assert_refused(capsys, command(tmp_path / "tune.json", *more), sentence, tmp_path)
    assert not (tmp_path / "tune.json").exists()


def test_without_scenarios_those_whose_data_is_here_are_taken(tmp_path: Path, capsys: Capture) -> None:
    data = tmp_path / "data"
    data.mkdir()
    given = ["bench", "tune", "--encoder", "tiny-dinov2", "--data", str(data), "--out", str(tmp_path / "tune.json")]
    assert_refused(capsys, given, "none of mvtec-ad, mvtec-loco, mtd-color is in the data folder", tmp_path)
    make_mvtec(data)
    assert_refused(capsys, given, "needs at least 3 products, got 2 (bottle, cable)", tmp_path)
