"""What ``dinosaur bench submit`` does: all cells of one method become one file that others can check."""

from __future__ import annotations

import argparse
from pathlib import Path

from dinosaur_ad.cli._console import EXIT_OK, say, show
from dinosaur_ad.errors import InputError

DESCRIPTION = (
    "Pack one row, all finished cells of one method, into one file with its scores, settings, versions and hashes.\n"
    "Anyone checks it in seconds with: dinosaur bench verify row.zip"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folders, the method and the file."""
    parser.add_argument("results", metavar="DIR", nargs="+", help="folders or fsspec addresses of results")
    parser.add_argument("--out", metavar="FILE", type=Path, required=True, help="where to, such as row.zip")
    parser.add_argument("--method", metavar="NAME", help="which method, where the folders hold several")
    parser.add_argument(
        "--allow-dirty", action="store_true", help="take cells that no single commit explains; the row says so"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the file and print what is in it."""
    from dinosaur_ad._atomic import write_atomic
    from dinosaur_ad.bench.submitted_row import pack_row

    out: Path = arguments.out
    if out.is_dir() or out.suffix != ".zip":
        raise InputError(f"--out takes the name of a file that ends in .zip, got '{out}'.")
    row = pack_row(arguments.results, method=arguments.method, allow_dirty=arguments.allow_dirty)
    try:
        write_atomic(out, row.content)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"The row '{out}' could not be written ({reason}); choose another --out.") from error
    scenarios = dict.fromkeys(cell.scenario for cell in row.cells)
    count = f"{len(row.cells)} cell{'s' * (len(row.cells) != 1)}"
    show(f"{out}: {row.method} on {', '.join(scenarios)}, {count}, {len(row.content)} bytes")
    if not row.exact:
        say("The row says that its source is not exactly that of a commit.")
    return EXIT_OK
