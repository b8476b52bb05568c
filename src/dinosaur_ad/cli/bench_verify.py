"""What ``dinosaur bench verify`` does: stored results are compared with their own scores."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dinosaur_ad.cli._console import EXIT_ERROR, EXIT_OK, say, show, show_json

if TYPE_CHECKING:
    from dinosaur_ad.bench.verify import Verified
    from dinosaur_ad.bench.verify_cell import CheckedCell
    from dinosaur_ad.bench.verify_row import CheckedRow

DESCRIPTION = (
    "Compute every number of stored results again from their scores, and name those that differ. Of a row that was\n"
    "submitted, hashes, names, sizes and images are checked too. Exit code 2 when something differs or cannot be read."
)
_SHOWN = 3  # differences of a cell that are spelled out; --json has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folders and the form of the answer."""
    parser.add_argument("results", metavar="DIR", nargs="+", help="folders or addresses of results, or submitted rows")
    parser.add_argument("--json", action="store_true", help="one JSON object, and nothing else")


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each cell that differs, and one for all."""
    from dinosaur_ad.bench.verify import verify

    found = verify(arguments.results)
    if arguments.json:
        show_json(_document(found))
    else:
        show(*(f"unreadable: {sentence}" for sentence in found.unreadable))
        show(*(_line(each) for each in found.checked if not each.equal))
        show(*map(_row_line, found.rows))
        show(_summary(found))
        _say_what_was_not_checked(found)
    return EXIT_OK if found.equal else EXIT_ERROR


def _row_line(row: CheckedRow) -> str:
    origin = "one commit a cell, no changes" if row.exact else "NOT exactly that of a commit"
    known = f"{row.tasks - row.unknown} of {_count(row.tasks, 'task')} on images with a published checksum"
    return f"row: {row.method} on {', '.join(row.scenarios) or 'nothing'}; source: {origin}; {known}"


def _line(checked: CheckedCell) -> str:
    words = [f"{each.what}: stored {each.stored!r}, the scores give {each.found!r}" for each in checked.differences]
    words += checked.faults
    more = [f"and {len(words) - _SHOWN} more (see --json)"] if len(words) > _SHOWN else []
    return f"differs: {checked.where}: {'; '.join(words[:_SHOWN] + more)}"


def _summary(found: Verified) -> str:
    counted = f"{_count(len(found.cells), 'cell')}, {_count(found.numbers, 'number')}"
    if found.equal:
        return f"{counted}: all equal"
    differing = sum(len(each.differences) for each in found.checked)
    places = sum(not each.equal for each in found.checked)
    parts = [f"{differing} {'differs' if differing == 1 else 'differ'}, in {_count(places, 'place')}"] if places else []
    parts += [f"{len(found.unreadable)} cannot be read"] if found.unreadable else []
    return f"{counted}: {', and '.join(parts)}"


def _say_what_was_not_checked(found: Verified) -> None:
    if found.grids:
        say(f"Among the numbers are the means of {_count(len(found.grids), 'grid')}.")
    if found.failed:
        say(f"{_count(found.failed, 'failed cell')} without numbers")
    if found.unchecked:
        say(
            f"{_count(found.unchecked, 'stored number')} not computed again, because the scores, masks or training "
            "images they come from are not stored (thresholds, pixel metrics, earlier rows of packed results, grids)."
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _document(found: Verified) -> dict[str, Any]:
    return {
        "equal": found.equal,
        "cells": len(found.cells),
        "grids": len(found.grids),
        "rows": [
            {
                "where": row.checked.where,
                "method": row.method,
                "scenarios": list(row.scenarios),
                "exact": row.exact,
                "tasks": row.tasks,
                "unknown": row.unknown,
            }
            for row in found.rows
        ],
        "failed": found.failed,
        "numbers": found.numbers,
        "unchecked": found.unchecked,
        "unreadable": list(found.unreadable),
        "differing": [
            {
                "where": each.where,
                "differences": [
                    {"what": entry.what, "stored": entry.stored, "found": entry.found} for entry in each.differences
                ],
                "faults": list(each.faults),
            }
            for each in found.checked
            if not each.equal
        ],
    }
