"""What a method's page says of the original publication: where a figure was read, and what stands beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from provenance_helpers import made, rows, stored

from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.provenance import describe
from dinosaur_ad.bench.provenance_originals import AUROC, OriginalFigure, original_section, originals
from dinosaur_ad.methods import list_methods

TITLE = "The original's figures, the paper's and ours"
PAPER = "the paper (this benchmark)"


def published(monkeypatch: pytest.MonkeyPatch, *figures: OriginalFigure) -> None:
    """IUF's original with these figures alone."""
    changed: Any = replace(originals()["iuf"], figures=figures)
    monkeypatch.setitem(originals(), "iuf", changed)  # type: ignore[arg-type]


def test_every_figure_has_a_source_and_data_of_the_paper() -> None:
    assert set(originals()) <= set(list_methods())
    names = {entry.name for entry in paper().scenarios.values()}
    for known in originals().values():
        for each in known.figures:
            assert each.source
            assert each.protocol
            assert each.data in names | {""}
            assert 0 < each.value <= 1 or not each.data  # fractions of one, as measured here


def test_a_figure_that_is_no_share_is_a_line_of_its_own() -> None:
    assert "- parameters, M: 26.6 (7.7 reconstruction, " in original_section("iuf")
    assert "; about; arithmetic on its code)." in original_section("iuf")


def test_where_no_auroc_is_known_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "image AUROC: none is given here" in original_section("dne")
    assert TITLE not in original_section("dne")
    assert "none is given" not in original_section("iuf")
    published(monkeypatch)
    assert "image AUROC: none is given here" in original_section("iuf")


def test_a_published_auroc_stands_beside_the_papers_and_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    published(monkeypatch, OriginalFigure(AUROC, 0.9, "all classes at once", "its Table 1", "MVTec-AD"))
    runs = [made("iuf", seed, scenario="mvtec-ad", settings={"epochs": 30}) for seed in (0, 1)]
    page = describe("iuf", [stored(tmp_path, *runs, made("iuf", scenario="mtd-color"))])
    section = page.partition(f"## {TITLE}")[2].partition("## Measured here")[0]
    assert "The protocols differ" in section
    assert "**image AUROC on MVTec-AD**" in section
    assert rows(section, "the original") == [["the original", "0.900", "all classes at once; its Table 1"]]
    assert rows(section, PAPER) == [[PAPER, "0.508", "15 tasks one by one"]]
    measured = rows(page.partition("## Measured here")[2], "mvtec-ad")[0][6]
    assert "±" in measured
    (ours,) = rows(section, "ours, iuf")
    assert ours == ["ours, iuf", measured, "3 of 15 tasks one by one; set by hand: epochs=30"]


def test_pixel_figures_and_forgetting_stand_beside_those_of_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    about = ("one by one", "its Table 2", "MVTec-AD")
    published(monkeypatch, OriginalFigure("pixel AUROC", 0.8, *about), OriginalFigure("FM", 0.1, *about))
    section = original_section("iuf")
    assert [row[1] for row in rows(section, PAPER)] == ["0.525", "−0.066"]
    assert rows(section, "ours") == [["ours", "–", "not measured here"]] * 2


def test_a_metric_that_is_not_measured_here_has_nothing_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    published(monkeypatch, OriginalFigure("pixel AUPR", 0.456, "one by one", "its Table 2", "MVTec-AD"))
    section = original_section("iuf")
    assert rows(section, "the original")[0][1] == "0.456"
    assert rows(section, "the paper (this benchmark), ours") == [
        ["the paper (this benchmark), ours", "–", "printed neither there nor here"]
    ]
    assert not rows(section, PAPER)


def test_what_was_not_read_in_the_publication_is_said_to_be_second_hand() -> None:
    """Only PatchCore's and the ported EfficientAD's own pages were read; a figure of a publication itself is quoted."""
    for name in ("iuf", "ucad", "efficientad"):
        figures = rows(original_section(name), "the original")
        assert figures
        assert all("second hand: " in row[2] for row in figures)
    assert not any("second hand" in row[2] for row in rows(original_section("patchcore"), "the original"))
