"""The benchmark for people: tables beside the paper's, as Markdown, LaTeX and one self-contained page."""

from __future__ import annotations

from dinosaur_ad.bench.report.render import to_html, to_latex, to_markdown
from dinosaur_ad.bench.report.table import Block, Cell, Column, Note, Table
from dinosaur_ad.bench.report.tables import tables
from dinosaur_ad.bench.report.write import ReportFiles, write_report

__all__ = [
    "Block",
    "Cell",
    "Column",
    "Note",
    "ReportFiles",
    "Table",
    "tables",
    "to_html",
    "to_latex",
    "to_markdown",
    "write_report",
]
