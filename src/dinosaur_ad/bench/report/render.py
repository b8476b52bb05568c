"""A table as Markdown, LaTeX or HTML: the same entries, in the same order, every time."""

from __future__ import annotations

from collections.abc import Sequence

from dinosaur_ad.bench.report.table import Note, Table, TableBlock, TableCell
from dinosaur_ad.page.html import Html, element, join

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
# Only what LaTeX would misread or its default fonts lack; a backslash first becomes a mark that nothing else touches.
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
        "|": r"\textbar{}", "–": "--", "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "Δ": r"$\Delta$", "ρ": r"$\rho$",
        "σ": r"$\sigma$", "≤": r"$\leq$", "≥": r"$\geq$", "…": r"\ldots{}", "·": r"$\cdot$", "’": "'", "“": "``",
        "”": "''",
    }
)  # fmt: skip


def to_markdown(table: Table) -> str:
    """A heading, one GitHub table a block, and the notes as a list."""
    parts = [f"## {plain(table.title)}", plain(table.lead)]
    for block in table.blocks:
        parts += [f"**{plain(block.title)}**"] if block.title else []
        parts.append(_markdown_block(table, block))
    if table.notes:
        parts.append("\n".join(f"- {_markdown_note(note)}" for note in table.notes))
    return "\n\n".join(parts) + "\n"


def to_latex(table: Table) -> str:
    """A floating table for ``\\input``; needs the packages booktabs and graphicx, nothing else."""
    align = "".join("l" if column.words else "r" for column in table.columns)
    lines = [
        r"\begin{table}[tb]",
        rf"  \caption{{{_latex(table.title)}. {_latex(table.lead)}}}",
        rf"  \label{{tab:dinosaur-{table.key}}}",
        r"  \centering",
        r"  \resizebox{\linewidth}{!}{%",
        rf"  \begin{{tabular}}{{@{{}}{align}@{{}}}}",
        r"    \toprule",
        *_latex_groups(table),
        "    " + " & ".join(_latex(column.name) for column in table.columns) + r" \\",
    ]
    for block in table.blocks:
        lines += [r"    \midrule", *_latex_block(block, len(table.columns))]
    lines += [r"    \bottomrule", r"  \end{tabular}}"]
    if table.notes:
        notes = r" \\ ".join(_latex_note(note) for note in table.notes)
        lines += [r"  \par\smallskip", rf"  \parbox{{\linewidth}}{{\footnotesize {notes}}}"]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def to_html(table: Table) -> Html:
    """The table, scrolling on its own when it is wider than the page, and its notes."""
    body = join(_html_block(block, table) for block in table.blocks)
    grid = element("table", element("thead", *_html_head(table)), body, class_="results")
    notes = (element("li", *_html_mark(note.mark), note.text) for note in table.notes)
    below = element("ul", *notes, class_="notes") if table.notes else Html("")
    return join((element("div", grid, class_="scroll"), below))


def _markdown_block(table: Table, block: TableBlock) -> str:
    header = [plain(column.flat) for column in table.columns]
    ruler = [":--" if column.words else "--:" for column in table.columns]
    rows = [[_markdown_cell(cell) for cell in row] for row in block.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ruler, *rows))


def _markdown_cell(cell: TableCell) -> str:
    shown = plain(cell.text)
    shown = f"**{shown}**" if cell.bold else shown
    return shown + (f" {cell.mark.translate(_SUPERSCRIPTS)}" if cell.mark else "")


def _markdown_note(note: Note) -> str:
    return (f"{note.mark.translate(_SUPERSCRIPTS)} " if note.mark else "") + plain(note.text)


def plain(text: str) -> str:
    r"""Text that Markdown shows as it is.

    >>> print(plain("a_b | c"))
    a\_b \| c
    """
    escaped = "".join("\\" + letter if letter in "\\`*_[]<>|#" else letter for letter in text)
    return " ".join(escaped.split())


def _latex(text: str) -> str:
    return " ".join(text.split()).translate(_LATEX)


def _latex_groups(table: Table) -> list[str]:
    """The upper line of headers with rules below it, unless no column has a group."""
    if not any(column.group for column in table.columns):
        return []
    heads, rules, at = [], [], 1
    for group, count in table.groups():
        heads.append(rf"\multicolumn{{{count}}}{{c}}{{{_latex(group)}}}" if group else "")
        rules += [rf"\cmidrule(lr){{{at}-{at + count - 1}}}"] if group else []
        at += count
    return ["    " + " & ".join(heads) + r" \\", "    " + " ".join(rules)]


def _latex_block(block: TableBlock, width: int) -> list[str]:
    title = [rf"    \multicolumn{{{width}}}{{@{{}}l}}{{\textit{{{_latex(block.title)}}}}} \\"] if block.title else []
    return title + ["    " + " & ".join(_latex_cell(cell) for cell in row) + r" \\" for row in block.rows]


def _latex_cell(cell: TableCell) -> str:
    shown = rf"\textbf{{{_latex(cell.text)}}}" if cell.bold else _latex(cell.text)
    return shown + (rf"\textsuperscript{{{cell.mark}}}" if cell.mark else "")


def _latex_note(note: Note) -> str:
    return (rf"\textsuperscript{{{note.mark}}}~" if note.mark else "") + _latex(note.text)


def _html_head(table: Table) -> list[Html]:
    starts = _starts(table)
    names = [
        element("th", column.name, scope="col", class_=_classes("" if column.words else "number", index in starts))
        for index, column in enumerate(table.columns)
    ]
    if not any(column.group for column in table.columns):
        return [element("tr", *names)]
    spans, at = [], 0
    for group, count in table.groups():
        spans.append(element("th", group, colspan=count, class_=_classes("group", at in starts)))
        at += count
    return [element("tr", *spans), element("tr", *names)]


def _starts(table: Table) -> set[int]:
    """Where another group of columns begins: a little more room there keeps them apart."""
    pairs = enumerate(zip(table.columns, table.columns[1:], strict=False), start=1)
    return {at for at, (left, right) in pairs if left.group != right.group or right.words}


def _html_block(block: TableBlock, table: Table) -> Html:
    starts = _starts(table)
    title = element("tr", element("th", block.title, colspan=len(table.columns), scope="rowgroup", class_="block"))
    rows = (
        element(
            "tr",
            *(
                element("td", *_html_cell(cell), class_=_classes("" if column.words else "number", index in starts))
                for index, (cell, column) in enumerate(zip(row, table.columns, strict=True))
            ),
        )
        for row in block.rows
    )
    return element("tbody", title if block.title else "", *rows)


def _html_cell(cell: TableCell) -> Sequence[object]:
    return (element("b", cell.text) if cell.bold else cell.text, *_html_mark(cell.mark))


def _html_mark(mark: str) -> tuple[Html, ...]:
    return (element("sup", mark),) if mark else ()


def _classes(kind: str, starts: bool) -> str | None:
    return " ".join(part for part in (kind, "start" if starts else "") if part) or None
