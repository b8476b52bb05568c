from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dinosaur_ad import Dinosaur, load_encoder
from dinosaur_ad.datasets import mvtec_scenario
from dinosaur_ad.datasets.synthetic import synthetic_scenario
from dinosaur_ad.demo import clear_folder, demonstrate, run_demo
from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.page import SequenceRow, choose, summarise
from dinosaur_ad.page.charts import histogram, matrix_table
from dinosaur_ad.page.html import element, page
from dinosaur_ad.presets import DEFAULT

VOID = {"img", "meta", "line", "rect"}


class Page(HTMLParser):
    """Reads a page, insisting that every element is closed in its turn."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A demo of two products with the tiny encoder, and what it said."""
    out = tmp_path_factory.mktemp("demo") / "out"
    said: list[str] = []
    clear_folder(out)
    scenario = synthetic_scenario(train=8, test_normal=6, test_per_kind=1, size=96, products=["fabric", "blister"])
    detector = Dinosaur(out / "store", encoder="tiny-dinov2", preset=replace(DEFAULT, layers=(0, 1), size=70))
    report = demonstrate(out, scenario, detector, say=said.append)
    assert report == out / "report.html"
    return out, said


def results(out: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / "results.json").read_text())
    return document


def pairwise_auroc(rows: list[dict[str, Any]]) -> float:
    normal = [row["score"] for row in rows if row["label"] == 0]
    wins = [(a["score"] > n) + (a["score"] == n) / 2 for a in rows if a["label"] == 1 for n in normal]
    return sum(wins) / len(wins)


def test_the_numbers_follow_from_the_rows(demo: tuple[Path, list[str]]) -> None:
    document = results(demo[0])
    rows, summary = document["rows"], document["summary"]
    for t, after in enumerate(summary["products"]):
        for j, product in enumerate(summary["products"]):
            part = [row for row in rows if row["after"] == after and row["product"] == product]
            assert bool(part) == (j <= t)  # a product is never tested before it was learned
            assert summary["matrix"][t][j] == (pytest.approx(pairwise_auroc(part)) if part else None)
    matrix = summary["matrix"]
    assert summary["forgetting"] == pytest.approx(matrix[0][0] - matrix[1][0])
    end = [row for row in rows if row["after"] == "blister"]
    assert all((row["verdict"] == "anomalous") == (row["score"] > row["threshold"]) for row in rows)
    assert summary["recall"]["count"] == sum(row["label"] and row["verdict"] == "anomalous" for row in end)
    assert summary["false_alarms"]["total"] == sum(row["label"] == 0 for row in end) == 12
    assert summary["routing"]["count"] == sum(row["task"] == row["product"] for row in end)


def test_the_results_say_what_made_them(demo: tuple[Path, list[str]]) -> None:
    document = results(demo[0])
    assert {"encoder", "description", "provider", "precision", "preset", "seed"} <= document["detector"].keys()
    assert {"dinosaur-ad", "python", "numpy"} <= document["software"].keys()
    said = "\n".join(demo[1])
    assert document["detector"]["description"] in said
    assert "2.5 % asked for" in said


def test_the_report_is_one_file_that_fetches_nothing(demo: tuple[Path, list[str]]) -> None:
    markup = (demo[0] / "report.html").read_text()
    read = Page(markup)
    sources = [value or "" for key, value in read.attributes if key in {"src", "href", "srcset", "data"}]
    assert sources
    assert all(source.startswith("data:image/") for source in sources)
    assert not re.search(r"https?:|url\(|@import|<script", markup)
    assert len(markup) < 4_000_000


def test_the_report_shows_every_number_of_the_matrix_and_every_defect_kind(demo: tuple[Path, list[str]]) -> None:
    document = results(demo[0])
    words = " ".join(Page((demo[0] / "report.html").read_text()).words)
    assert all(f"{value:.3f}" in words for line in document["summary"]["matrix"] for value in line if value is not None)
    assert all(row["kind"].replace("_", " ") in words for row in document["rows"] if row["label"])
    assert document["detector"]["description"] in words


def test_the_images_are_a_dataset_of_their_own(demo: tuple[Path, list[str]]) -> None:
    tasks = {task.name: task for task in mvtec_scenario(demo[0] / "images").tasks}
    assert {name: len(task.train) for name, task in tasks.items()} == {"fabric": 8, "blister": 8}
    defect = next(sample for sample in tasks["fabric"].test if sample.label)
    mask = defect.mask()
    assert mask is not None
    assert mask.any()


def test_what_was_learned_can_be_used_afterwards(demo: tuple[Path, list[str]]) -> None:
    row = results(demo[0])["rows"][-1]
    again = Dinosaur.load(demo[0] / "store").inspect(demo[0] / row["image"])
    assert (again.task, again.verdict) == (row["task"], row["verdict"])
    assert again.score == pytest.approx(row["score"], rel=1e-4)


def test_the_picture_is_small_enough_for_a_readme(demo: tuple[Path, list[str]]) -> None:
    assert (demo[0] / "picture.png").stat().st_size < 400_000
    with Image.open(demo[0] / "picture.png") as image:
        assert image.width > 600


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "precious").touch()
    with pytest.raises(InputError, match="not made by a demo"):
        run_demo(tmp_path)
    with pytest.raises(InputError, match="not made by a demo"):
        run_demo(tmp_path / "store" / "precious")
    assert [path.name for path in tmp_path.rglob("*")] == ["store", "precious"]


def test_an_earlier_demo_is_replaced_but_nothing_beside_it(tmp_path: Path) -> None:
    clear_folder(tmp_path / "out")
    (tmp_path / "out" / "store").mkdir()
    (tmp_path / "out" / "report.html").touch()
    (tmp_path / "out" / "my-notes.txt").touch()
    clear_folder(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".dinosaur-demo", "my-notes.txt"}


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"could not be written .* choose another folder"):
        run_demo(tmp_path / "file" / "out")


def row(product: str, kind: str, score: float, task: str | None = None, image: str = "") -> SequenceRow:
    verdict = "anomalous" if score > 1 else "normal"
    return SequenceRow("b", product, image, kind, int(kind != "good"), task or product, score, 1.0, 0.1, verdict, 5.0)


def test_galleries_hold_the_right_rows_and_start_with_the_worst() -> None:
    rows = [
        row("a", "good", 0.5),
        row("a", "good", 1.2),
        row("a", "crack", 3.0, image="first"),
        row("a", "crack", 2.0, image="second"),
        row("b", "good", 0.7),
        row("b", "good", 1.6),
        row("b", "dent", 0.9),
        row("b", "dent", 0.3),
    ]
    chosen = choose(rows)
    assert [(each.product, each.score) for each in chosen.false_alarms] == [("b", 1.6), ("a", 1.2)]
    assert [each.score for each in chosen.misses] == [0.3, 0.9]
    assert [each.image for each in chosen.hits] == ["first"]  # one of a kind is enough
    summary = summarise(rows)
    assert (summary.recall.count, summary.recall.total) == (2, 4)
    assert (summary.false_alarms.count, summary.false_alarms.total) == (2, 4)


def test_names_from_outside_cannot_become_markup() -> None:
    nasty = '<img src=x onerror="alert(1)">'
    made = page(nasty, element("p", nasty, title=nasty), matrix_table([nasty], [nasty], [[0.9]], nasty))
    made = page("ok", made, histogram(nasty, {nasty: [0.5]}, {nasty: [1.5]}, (0.5, 2.0)))
    assert "<img" not in made
    assert nasty in Page(element("p", nasty)).words[0]


@pytest.mark.slow
def test_the_quick_demo_shows_a_detector_that_works(tmp_path: Path) -> None:
    try:
        load_encoder()
    except EncoderError as error:
        pytest.skip(f"the default encoder's weights cannot be had: {error}")
    run_demo(tmp_path / "demo", quick=True, say=lambda line: None)
    summary = results(tmp_path / "demo")["summary"]
    assert summary["mean_auroc"] > 0.95
    assert abs(summary["forgetting"]) < 0.02
    assert summary["routing"]["rate"] == 1
    assert summary["recall"]["rate"] > 0.5
