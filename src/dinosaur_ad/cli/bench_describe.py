"""What ``dinosaur bench describe`` does: one method's page, printed or written."""

from __future__ import annotations

import argparse
from pathlib import Path

from dinosaur_ad.cli import bench_options
from dinosaur_ad.cli._console import EXIT_OK, show, show_page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the method, the results and where the page goes."""
    parser.add_argument("name", metavar="NAME", help="a method, without its variant (see: dinosaur bench list)")
    parser.add_argument("results", metavar="DIR", nargs="*", help="folders or fsspec addresses of results")
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="write it there instead; between its marks, if the file has some"
    )
    bench_options.add_load(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the page, or write it and print where it is."""
    from dinosaur_ad.bench.provenance import describe, write_page
    from dinosaur_ad.bench.runner import load_plugins

    load_plugins(arguments.load)
    page = describe(arguments.name, arguments.results)
    if arguments.out is None:
        show_page(page)
    else:
        write_page(page, arguments.name, arguments.results, arguments.out)
        show(str(arguments.out))
    return EXIT_OK
