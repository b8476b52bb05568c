"""``dinosaur bench describe``: one method on every scenario in every variant, as a Markdown table."""

from __future__ import annotations

import argparse

from dinosaur_ad.cli import bench_options
from dinosaur_ad.cli._console import EXIT_OK, show_page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the method and the folders of results."""
    parser.add_argument("name", metavar="NAME", help="a method, without its variant (see: dinosaur bench list)")
    parser.add_argument("results", metavar="DIR", nargs="+", help="folders or fsspec addresses of results")
    bench_options.add_load(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    from dinosaur_ad.bench.method_table import method_table
    from dinosaur_ad.bench.runner import load_plugins

    load_plugins(arguments.load)
    show_page(method_table(arguments.name, arguments.results))
    return EXIT_OK
