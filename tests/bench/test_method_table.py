"""The table of one method: which results share a row, what a row says of its training, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cell_helpers import PLUGIN
from report_factory import cell

from dinosaur_ad.bench.method_table import method_table, rows_of, training_length
from dinosaur_ad.bench.places import open_place
from dinosaur_ad.bench.results import CellResult
from dinosaur_ad.cli import main
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Lesson, Photo, Workbench, get_method, list_methods, unregister

TRAINED = ("dne", "iuf", "ucad", "efficientad")


def made(method: str = "dne", seed: int = 0, *, info: dict[str, Any] | None = None, **options: Any) -> CellResult:
    """A made-up result of a registered method with that method's own settings, but for those in ``settings``."""
    settings = get_method(method).config.identity() | options.pop("settings", {})
    result = cell(method, options.pop("scenario", "mtd-color"), seed, settings=settings, **options)
    return replace(result, info=result.info | (info or {}))


def stored(folder: Path, *results: CellResult) -> str:
    """The results on disk, each in a folder of its own, so that they may be of the same cell."""
    for number, result in enumerate(results):
        result.save(open_place(str(folder / str(number))).below(result.folder))
    return str(folder)


def lines(table: str) -> list[dict[str, str]]:
    """The rows of the table by column; of columns with equal names, the first."""
    header, _, *rows = [
        [entry.strip() for entry in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    return [dict(reversed(list(zip(header, row, strict=True)))) for row in rows]


def trained(epochs: int, images: int = 20) -> dict[str, Any]:
    """Records of three tasks as a method that trains writes them."""
    return {"tasks": {f"mtd-color-{n:02d}": {"epochs": epochs, "images": images} for n in (1, 2, 3)}}


def test_results_of_other_settings_are_rows_of_their_own(tmp_path: Path) -> None:
    short = [made(seed=seed, settings={"epochs": 30}, info=trained(30)) for seed in (0, 1)]
    usual, changed = lines(method_table("dne", [stored(tmp_path, *short, made(info=trained(300)), made("ucad"))]))
    assert (usual["Set by hand"], usual["Seeds"], usual["Steps a task"]) == ("–", "0", "600 of 12 images")
    assert (changed["Set by hand"], changed["Seeds"]) == ("epochs=30", "0, 1")
    assert changed["Steps a task"] == "60 of 12 images, 10 % of its schedule"
    assert "±" in changed["Image AUROC"]
    assert "±" not in usual["Image AUROC"]
    assert (changed["Tasks"], changed["paper"]) == ("3 of 10", "0.520")


def test_a_limit_of_steps_is_part_of_the_schedule() -> None:
    result = made("efficientad:original", settings={"epochs": 30, "batch": 12}, info=trained(30, images=188))
    (row,) = rows_of(list_methods()["efficientad"], [result])
    assert training_length(row) == "480 of 12 images, 0.7 % of its schedule"


def test_what_was_replaced_is_named_below_the_table(tmp_path: Path) -> None:
    result = made("ucad", info={"regions": "16 superpixels in place of masks", "penalty": "none"})
    table = method_table("ucad", [stored(tmp_path, result)])
    assert "- ¹ a tiny encoder of random numbers, for tests; regions: 16 superpixels in place of masks." in table


def test_one_cell_with_two_outcomes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found twice with different scores"):
        method_table("dne", [stored(tmp_path, made(), replace(made(), auroc=made().auroc / 2))])


def test_text_of_a_result_cannot_break_the_table(tmp_path: Path) -> None:
    result = made(info={"description": "a | b\n<script>"}, settings={"backbone": "x | y"})
    table = method_table("dne", [stored(tmp_path, result)])
    assert r"a \| b \<script\>" in table
    assert r"backbone=x \| y" in table


@pytest.mark.parametrize("name", TRAINED)
def test_the_training_of_every_method_that_trains_is_counted(name: str) -> None:
    pytest.importorskip("torch", reason="this method trains with torch, of the extra 'bench'")
    drawn_NHWC = np.random.default_rng(0).integers(0, 256, (4, 80, 80, 3)).astype(np.uint8)
    photos = tuple(Photo(str(n), lambda n=n: drawn_NHWC[n]) for n in range(4))  # type: ignore[misc]
    choice = get_method(name).tiny()
    method = choice.build(Workbench())
    method.learn(Lesson("mtd-color-01", photos))
    info = json.loads(json.dumps(method.info()))
    (row,) = rows_of(list_methods()[name], [made(name, info=info, settings=choice.config.identity())])
    assert f"of {choice.config.identity()['batch']} images" in training_length(row)


# --- the command ---


def test_a_wrong_name_is_answered_with_the_methods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "describe", "dne:original", str(tmp_path)]) == 2
    answer = capsys.readouterr().err
    assert "There is no method 'dne:original'" in answer
    assert "dinosaur, dne, efficientad, iuf, patchcore, photometer, ucad" in answer


def test_no_results_and_no_results_of_this_method_are_sentences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "describe", "dne", str(tmp_path)]) == 2
    assert "There are no results in" in capsys.readouterr().err
    assert main(["bench", "describe", "dne", stored(tmp_path, made("ucad"))]) == 2
    assert "no result of 'dne'; make one with: dinosaur bench run --methods dne" in capsys.readouterr().err


def test_a_method_of_ones_own_has_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    results = stored(tmp_path, cell("fragile", settings={}))
    try:
        assert main(["bench", "describe", "fragile", results, "--load", str(tmp_path / "mine.py")]) == 0
    finally:
        unregister("fragile")
    (row,) = lines(capsys.readouterr().out)
    assert (row["Scenario"], row["Steps a task"], row["paper"]) == ("mtd-color", "not trained", "–")
