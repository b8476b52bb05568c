"""The benchmark for people: tables beside the paper's, as Markdown, LaTeX and one self-contained page."""

from __future__ import annotations

from dinosaur_ad.bench.report.render import to_html, to_latex, to_markdown
from dinosaur_ad.bench.report.table import Column, Note, Table, TableBlock, TableCell
from dinosaur_ad.bench.report.write import ReportFiles, table_makers, tables, write_report

__all__ = [
    "Column",
    "Note",
    "ReportFiles",
    "Table",
    "TableBlock",
    "TableCell",
    "table_makers",
    "tables",
    "to_html",
    "to_latex",
    "to_markdown",
    "write_report",
]
