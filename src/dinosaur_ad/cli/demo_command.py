"""The verb demo."""

from __future__ import annotations

import argparse
from pathlib import Path

from dinosaur_ad.cli._console import EXIT_OK, show
from dinosaur_ad.cli._parser import Subparsers, add_verb


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file."""
    parser = add_verb(
        verbs, "demo", demo, "Learn synthetic products one after another, test all of them, and write a report."
    )
    default = Path("runs", "demo")
    parser.add_argument("--out", metavar="DIR", type=Path, default=default, help=f"where to (default: {default})")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of the products (default: 0)")
    parser.add_argument("--quick", action="store_true", help="fewer products and images")


def demo(arguments: argparse.Namespace) -> int:
    """Run the demo and print what it measured and where its report is."""
    from dinosaur_ad.demo import run_demo

    def say(text: str) -> None:
        show(*text.split("\n"))

    run_demo(arguments.out, seed=arguments.seed, quick=arguments.quick, say=say)
    return EXIT_OK
