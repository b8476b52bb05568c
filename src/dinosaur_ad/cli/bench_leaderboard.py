"""What ``dinosaur bench leaderboard`` does: results and submitted rows as one JSON file and one page."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from dinosaur_ad.cli import bench_options
from dinosaur_ad.cli._console import EXIT_OK, show
from dinosaur_ad.errors import InputError

DESCRIPTION = (
    "Write all results and submitted rows as one JSON file, its schema, and a page that can be sorted. Every number\n"
    "is computed again first; what does not follow from its scores is refused."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the results and the folder to write to."""
    parser.add_argument("results", metavar="DIR", nargs="+", help="folders or addresses of results, or submitted rows")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="where to")


def run(arguments: argparse.Namespace) -> int:
    """Write the three files and print where they are."""
    from dinosaur_ad._atomic import write_atomic
    from dinosaur_ad.bench.leaderboard import DOCUMENT, PAGE, SCHEMA, leaderboard, schema
    from dinosaur_ad.bench.report.leaderboard_page import leaderboard_page

    out = Path(bench_options.output_folder(str(arguments.out)))
    document = leaderboard(arguments.results)
    contents = {
        DOCUMENT: json.dumps(document, indent=1, allow_nan=False) + "\n",
        SCHEMA: schema(),
        PAGE: leaderboard_page(document, DOCUMENT),
    }
    for name, content in contents.items():
        try:
            write_atomic(out / name, content.encode())
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InputError(f"'{out / name}' could not be written ({reason}); choose another --out.") from error
        show(str(out / name))
    return EXIT_OK
