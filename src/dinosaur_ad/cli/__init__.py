"""The command line: one file a verb group; parses, calls, prints.

Results go to stdout and everything else to stderr. Here, and only here, errors become sentences and exit codes.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence

from dinosaur_ad import __version__
from dinosaur_ad.cli import bench, demo, export, health, inspect, profile, teach, weights
from dinosaur_ad.cli._console import EPILOG, EXIT_ERROR, EXIT_INTERRUPTED, say
from dinosaur_ad.errors import DinosaurError

__all__ = ["main"]

EXIT_BROKEN_PIPE = 141  # what a shell reports for a program that SIGPIPE ended

_ADVICE = {
    errno.ENOSPC: "free some space and try again",
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.EROFS: "choose a place that can be written to",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``--help``, ``--version`` and bad usage raise SystemExit.

    >>> main(["tasks", "--store", "no-such-folder"])
    2
    """
    arguments = _parser().parse_args(argv)
    if isinstance(
        sys.stdout, io.TextIOWrapper
    ):  # a file name must not end the run on a terminal that lacks its letters
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()  # here, where a full disk or a closed pipe still gets its answer
    except DinosaurError as error:
        return _failed(str(error), error.exit_code)
    except KeyboardInterrupt as interruption:
        return _failed("; ".join(["interrupted", *map(str, interruption.args)]), EXIT_INTERRUPTED)
    except BrokenPipeError:
        _let_go_of_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        return _failed(_explained(error), EXIT_ERROR)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dinosaur",
        description="Visual inspection from normal images only: teach a product, inspect anything, correct, forget.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dinosaur {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for group in (teach, inspect, weights, export, profile, health, bench, demo):
        group.add_parser(verbs)
    return parser


def _failed(sentence: str, code: int) -> int:
    _let_go_of_stdout()
    say(f"dinosaur: {sentence}")
    return code


def _explained(error: OSError) -> str:
    """What the operating system refused, as a sentence."""
    what = f"'{error.filename}'" if error.filename else "A file or the output"
    reason = error.strerror or type(error).__name__
    advice = _ADVICE.get(error.errno or 0, "check the path and the disk")
    return f"{what} could not be read or written ({reason}); {advice}."


def _let_go_of_stdout() -> None:
    """Write what is still to be written; if nobody takes it, keep the interpreter from trying again at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
