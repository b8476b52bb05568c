"""Exit codes, messages on stderr, results on stdout, tables.

Everything a verb prints goes through :func:`say`, :func:`show`, :func:`show_page`, :func:`show_json` or
:func:`show_csv`, which escape foreign text. A test keeps ``print`` out of the verbs.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from dinosaur_ad._text import columns, printable, printable_line, printable_page

if TYPE_CHECKING:
    from dinosaur_ad.inspection import Rejected

__all__ = ["printable", "report_rejected", "say", "show", "show_json", "show_page", "table"]

EXIT_OK, EXIT_ANOMALOUS, EXIT_ERROR, EXIT_UNREADABLE, EXIT_NOT_JUDGED = 0, 1, 2, 3, 4
EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 70, 130, 141

EXIT_CODES = {
    EXIT_OK: "done",
    EXIT_ANOMALOUS: "anomalies were found (only from inspect with --exit-code)",
    EXIT_ERROR: "an error: a sentence on stderr says which and what to do, and the store is unchanged",
    EXIT_UNREADABLE: "done, but some images could not be read and were left out",
    EXIT_NOT_JUDGED: "done, but not all could be judged: an image is unknown or not ready, or a damaged task was left "
    "out",
    EXIT_INTERNAL: "an internal error: a bug in dinosaur-ad (DINOSAUR_TRACEBACK=1 shows the details)",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_BROKEN_PIPE: "the reader of the output went away",
}
"""The exit codes of every command; the help and docs/commands.md show the same table."""

PRECEDENCE = "if several apply to inspect: with --exit-code 1 goes before 4 before 3, without it 4 before 3"


def exit_codes(codes: Mapping[int, str] = EXIT_CODES) -> str:
    """The table of exit codes for the end of a help text."""
    rows = [f"  {code:<5}{meaning}" for code, meaning in codes.items()]
    return "\n".join(["exit codes:", *rows, *([f"  ({PRECEDENCE})"] if EXIT_ANOMALOUS in codes else [])])


EPILOG = exit_codes()


def say(*lines: str) -> None:
    """Print what is not a result, a line each. A line cannot contain another one: whatever would break it is escaped.

    Nothing is raised where stderr cannot be written to: a command must not fail for its remarks.
    """
    if sys.stderr is None:  # print would take stdout instead
        return
    try:
        sys.stderr.write("".join(f"{printable_line(line)}\n" for line in lines))
        sys.stderr.flush()
    except (OSError, ValueError):
        let_go(sys.stderr)


def show_status(text: str, columns: int) -> None:
    """Replace the line of the terminal with ``text``, escaped and cut to ``columns``; empty text clears the line.

    The cursor returns to the start of the line, so that the next message replaces the text.
    """
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"\r\x1b[K{printable(text, columns)}\r" if text else "\r\x1b[K")
        sys.stderr.flush()
    except (OSError, ValueError):
        let_go(sys.stderr)


def show(*lines: str, before: str = "") -> None:
    """Print results, a line each, escaped; ``before`` is our own and goes first as it is (a coloured word)."""
    _write(before + "".join(f"{printable_line(line)}\n" for line in lines))


def show_page(text: str) -> None:
    """Print a document of many lines; nothing in it is cut."""
    _write(printable_page(text))


def show_json(document: Any) -> None:
    """Print one JSON object on a line of its own; numbers that JSON has no form for become null."""
    _write(f"{json.dumps(_finite(document), allow_nan=False)}\n")


def show_csv(cells: Sequence[str]) -> None:
    """Print one row of a CSV file."""
    row = io.StringIO()
    csv.writer(row, lineterminator="\n").writerow(cells)
    _write(row.getvalue())


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()  # a reader in a pipe should not wait, and a full disk be found where it can be said


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def report_rejected(rejected: Iterable[Rejected]) -> None:
    """Say which images were left out, a sentence each."""
    for each in rejected:
        say(f"skipped: {each.reason}")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Collection[str] = ()) -> list[str]:
    """Aligned columns under their names, a line each; those called ``numeric`` stand to the right.

    >>> print(*table(("name", "images"), [("screw", "7"), ("nut", "120")], numeric=("images",)), sep="\\n")
    name   images
    screw       7
    nut       120
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(columns, column)) for column in zip(header, *cells, strict=True)]
    aligned = [
        "  ".join(
            cell.rjust(width) if name in numeric else cell + " " * (width - columns(cell))
            for name, cell, width in zip(header, row, widths, strict=True)
        )
        for row in (header, *cells)
    ]
    return [line.rstrip() for line in aligned]


# --- the streams themselves ---


def occupy_standard_streams() -> bool:
    """Keep files that are opened later off the numbers of closed streams; tell whether results can be written.

    Where stdout or stderr was closed (``>&-``), the next file opened would get its number, and a message that a
    library prints would be written into it.
    """
    writable = sys.stdout is not None
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - lives as long as the process
    return writable


def let_go(stream: TextIO | None) -> None:
    """Flush a stream; if that fails, keep the interpreter from trying again at its exit."""
    if stream is None:
        return
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
