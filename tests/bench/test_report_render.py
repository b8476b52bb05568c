"""The same table three times: Markdown that GitHub shows, LaTeX that compiles, HTML that is safe."""

from __future__ import annotations

import re

import pytest
from report_factory import cell

from dinosaur_ad.bench.report import Column, Note, Table, TableBlock, TableCell, tables, to_html, to_latex, to_markdown

TABLE = Table(
    "demo",
    "50 % of a_b & c",
    "Read it <slowly> | or not.",
    (Column("Method", words=True), Column("measured", "AUROC"), Column("Δ", "AUROC"), Column("plain")),
    (
        TableBlock(
            "first_block",
            ((TableCell("a_b|c", mark="1"), TableCell("0.9 ± 0.1", bold=True), TableCell("−0.1"), TableCell()),),
        ),
    ),
    (Note("see $x#{y}~^\\", "1"), Note("no mark")),
)


def latex_cells(line: str) -> int:
    """How many columns a line of a tabular fills."""
    cells = re.split(r"(?<!\\)&", line.removesuffix(r"\\"))
    spans = [re.search(r"\\multicolumn\{(\d+)\}", entry) for entry in cells]
    return sum(int(span[1]) if span else 1 for span in spans)


def made_tables() -> list[Table]:
    results = [cell(method, scenario) for method in ("dinosaur", "patchcore") for scenario in ("mtd-geo", "synthetic")]
    return tables(results)


def test_markdown_lines_have_one_entry_a_column() -> None:
    for table in (TABLE, *made_tables()):
        rows = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
        assert rows
        for line in rows:
            assert len(re.split(r"(?<!\\)\|", line.strip("|"))) == len(table.columns)


def test_markdown_shows_text_as_it_is() -> None:
    shown = to_markdown(TABLE)
    assert r"| a\_b\|c ¹ | **0.9 ± 0.1** | −0.1 | – |" in shown
    assert r"Read it \<slowly\> \| or not." in shown
    assert "| Method | AUROC | AUROC Δ | plain |" in shown
    assert "- ¹ see" in shown


def test_latex_lines_fill_every_column() -> None:
    for table in (TABLE, *made_tables()):
        inside = re.search(r"\\toprule\n(.*)\\bottomrule", to_latex(table), re.DOTALL)
        assert inside is not None
        for line in inside[1].splitlines():
            if line.strip().endswith(r"\\"):
                assert latex_cells(line.strip()) == len(table.columns)


def test_latex_has_nothing_that_stops_it_from_compiling() -> None:
    for table in (TABLE, *made_tables()):
        text = to_latex(table)
        # What remains without commands and escaped letters must hold none that LaTeX reads as something else.
        bare = re.sub(r"\\[&%$#_{}\\]|\\[a-zA-Z]+", "", text.replace("{!}{%\n", "{!}{\n").replace("}~", "} "))
        assert not re.search(r"[%#_^~]", bare)
        assert bare.count("{") == bare.count("}")
        assert bare.count("$") % 2 == 0
        assert text.count(r"\begin{") == text.count(r"\end{")
        assert not set(text) & set("–−±×Δρ≤")


def test_latex_escapes_and_marks() -> None:
    text = to_latex(TABLE)
    assert r"a\_b\textbar{}c\textsuperscript{1} & \textbf{0.9 $\pm$ 0.1} & $-$0.1 & -- \\" in text
    assert r"\textsuperscript{1}~see \$x\#\{y\}\textasciitilde{}\textasciicircum{}\textbackslash{}" in text
    assert r"\cmidrule(lr){2-3}" in text


def test_html_escapes_and_spans() -> None:
    text = to_html(TABLE)
    assert "a_b|c<sup>1</sup>" in text
    assert '<th colspan="2" class="group start">AUROC</th>' in text
    assert "<b>0.9 ± 0.1</b>" in text
    evil = Table("x", "t", "l", (Column("<script>"),), (TableBlock("", ((TableCell("<img>"),),)),))
    assert "<script>" not in to_html(evil)
    assert "<img>" not in to_html(evil)


def test_a_row_of_the_wrong_length_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="2 columns"):
        Table("x", "t", "l", (Column("a"), Column("b")), (TableBlock("", ((TableCell("1"),),)),))
