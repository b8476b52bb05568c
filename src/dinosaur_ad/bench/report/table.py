"""The data of a table, independent of Markdown, LaTeX and HTML; and how numbers are formatted in one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

DASH = "–"
MEASURED = "measured"
"""The name of a column whose header in one line is its group alone."""

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class TableCell:
    """One entry; ``mark`` refers to a note below the table."""

    text: str = DASH
    bold: bool = False
    mark: str = ""


@dataclass(frozen=True)
class Column:
    """A header; columns side by side with the same ``group`` share one above them."""

    name: str
    group: str = ""
    words: bool = False
    """Whether it holds words, on the left, and not numbers, on the right."""

    @property
    def flat(self) -> str:
        """The header in one line.

        >>> Column("paper", "FM").flat, Column("measured", "FM").flat, Column("Method").flat
        ('FM paper', 'FM', 'Method')
        """
        return " ".join(
            part for part in (self.group, "" if self.name == MEASURED and self.group else self.name) if part
        )


@dataclass(frozen=True)
class TableBlock:
    """Rows that belong together, under a title of their own."""

    title: str
    rows: tuple[tuple[TableCell, ...], ...]


@dataclass(frozen=True)
class Note:
    """A sentence below a table; one with a ``mark`` belongs to the entries that carry it."""

    text: str
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """A table with its title, the sentence that says how to read it, and its notes."""

    key: str
    title: str
    lead: str
    columns: tuple[Column, ...]
    blocks: tuple[TableBlock, ...]
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        widths = {len(row) for block in self.blocks for row in block.rows}
        if widths - {len(self.columns)}:
            raise ValueError(f"{self.key} has {len(self.columns)} columns and rows of {sorted(widths)} entries")

    def groups(self) -> list[tuple[str, int]]:
        """The upper line of headers: every group with the number of columns below it."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and column.group and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return spans


@dataclass(frozen=True)
class Entry:
    """A cell with its value, by which the best of a column is found."""

    cell: TableCell
    value: float = math.nan


def words(text: str, mark: str = "") -> Entry:
    """An entry that is no number."""
    return Entry(TableCell(text, mark=mark))


def figure(value: float, spread: float = math.nan, digits: int = 3, mark: str = "") -> Entry:
    """A number, with its spread over seeds where there is one and the number of a note of its own, or a dash.

    >>> figure(0.9281).cell.text, figure(0.9281, 0.0034).cell.text, figure(math.nan).cell.text
    ('0.928', '0.928 ± 0.003', '–')
    """
    if math.isnan(value):
        return Entry(TableCell())
    text = _number(value, digits) + ("" if math.isnan(spread) else f" ± {spread:.{digits}f}")
    return Entry(TableCell(text, mark=mark), value)


def difference(value: float) -> Entry:
    """A signed number.

    >>> difference(0.0123).cell.text, difference(-0.5).cell.text, difference(-0.0001).cell.text
    ('+0.012', '−0.500', '0.000')
    """
    if math.isnan(value):
        return Entry(TableCell())
    text = _number(value, 3)
    return Entry(TableCell(text if text.startswith("−") or float(text) == 0 else f"+{text}"))


def span(low: float, high: float) -> Entry:
    """An interval.

    >>> span(0.91, 0.94).cell.text
    '0.910–0.940'
    """
    return Entry(TableCell()) if math.isnan(low) or math.isnan(high) else Entry(TableCell(f"{low:.3f}–{high:.3f}"))


def finish(rows: Sequence[Sequence[Entry]], better: dict[int, Better]) -> tuple[tuple[TableCell, ...], ...]:
    """The rows with the best of each column in ``better`` printed bold; with one number there is no best."""
    bold = {(line, column) for column, order in better.items() for line in _best(rows, column, order)}
    return tuple(
        tuple(replace(entry.cell, bold=(line, column) in bold) for column, entry in enumerate(row))
        for line, row in enumerate(rows)
    )


def _best(rows: Sequence[Sequence[Entry]], column: int, better: Better) -> Iterable[int]:
    values = {line: round(row[column].value, 3) for line, row in enumerate(rows) if not math.isnan(row[column].value)}
    if len(values) < 2:
        return ()
    best = max(values.values()) if better == "higher" else min(values.values())
    return (line for line, value in values.items() if value == best)


def _number(value: float, digits: int) -> str:
    text = f"{abs(value):.{digits}f}"
    return f"−{text}" if value < 0 and float(text) else text
