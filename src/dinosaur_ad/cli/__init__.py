"""The command line: one file a verb group; parses, calls, prints.

Results go to stdout and everything else to stderr. Here, and only here, errors become sentences and exit codes.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence

from dinosaur_ad import __version__
from dinosaur_ad.cli import bench_command as bench
from dinosaur_ad.cli import check_commands as check
from dinosaur_ad.cli import completion_command as completion
from dinosaur_ad.cli import demo_command as demo
from dinosaur_ad.cli import export_command as export
from dinosaur_ad.cli import health_command as health
from dinosaur_ad.cli import inspect_command as inspect
from dinosaur_ad.cli import profile_command as profile
from dinosaur_ad.cli import report_command as report
from dinosaur_ad.cli import settings_command as settings
from dinosaur_ad.cli import station_command as station
from dinosaur_ad.cli import tasks_command as tasks
from dinosaur_ad.cli import teach_commands as teach
from dinosaur_ad.cli import watch_commands as watch
from dinosaur_ad.cli import weights_command as weights
from dinosaur_ad.cli._console import (
    EPILOG,
    EXIT_BROKEN_PIPE,
    EXIT_ERROR,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    let_go,
    occupy_standard_streams,
    printable,
    say,
)
from dinosaur_ad.cli._extras import missing
from dinosaur_ad.cli._parser import Parser
from dinosaur_ad.cli._settings import apply_settings
from dinosaur_ad.errors import DinosaurError

__all__ = ["main"]

TRACEBACK = "DINOSAUR_TRACEBACK"
"""The variable that shows where an unexpected error came from."""

_ADVICE = {
    errno.ENOSPC: "free some space and try again",
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.EROFS: "choose a place that can be written to",
}
_REASON = 200  # characters of an unexpected error's own words


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``--help``, ``--version`` and bad usage raise SystemExit.

    >>> main(["tasks", "--store", "no-such-folder"])
    2
    """
    if not occupy_standard_streams():
        return _failed("Standard output is closed, and results go there; redirect it to a file or to /dev/null.")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file name must not end the run on a terminal that lacks its letters.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        arguments = _parsed(argv)
    except SystemExit:
        raise
    except BaseException as error:
        return _reported(error)
    try:
        apply_settings(arguments)
        code: int = arguments.run(arguments)
        sys.stdout.flush()  # here, where a full disk or a closed pipe is still reported
    except BaseException as error:
        return _reported(error)
    return code


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    try:
        return make_parser().parse_args(argv)
    finally:
        sys.stdout.flush()  # of a help text, before the interpreter tries at its exit


def _reported(error: BaseException) -> int:
    """Print the sentence for what ended a command, and return its exit code."""
    if isinstance(error, DinosaurError):
        return _failed(str(error), error.exit_code)
    if isinstance(error, KeyboardInterrupt):
        return _failed("; ".join(["interrupted", *map(str, error.args)]), EXIT_INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        let_go(sys.stdout)
        return EXIT_BROKEN_PIPE
    if os.environ.get(TRACEBACK):
        say(*"".join(traceback.format_exception(error)).rstrip("\n").split("\n"))
    if isinstance(error, OSError):
        return _failed(_refused_by_the_system(error))
    if isinstance(error, MemoryError):
        return _failed("There is not enough memory for this; use fewer --threads, smaller images, or fewer at a time.")
    if isinstance(error, ImportError):
        return _failed(missing(error))
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # of Path.expanduser
        return _failed("This user has no home folder; set HOME, or write the path without '~'.")
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return _failed(
        f"An unexpected error ended this command ({printable(what, _REASON)}); this is a bug in dinosaur-ad; run again "
        f"with {TRACEBACK}=1 for the details and report them.",
        EXIT_INTERNAL,
    )


def make_parser() -> Parser:
    """The parser of the whole command."""
    parser = Parser(
        prog="dinosaur",
        description="Visual inspection from normal images only: teach a product, inspect anything, correct, forget.\n"
        'Instead of --store DIR: set DINOSAUR_STORE, or write store = "DIR" into a dinosaur.toml here or above.',
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dinosaur {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    groups = (
        teach,
        check,
        tasks,
        inspect,
        watch,
        station,
        settings,
        report,
        weights,
        export,
        profile,
        health,
        bench,
        demo,
        completion,
    )
    for group in groups:
        group.add_parser(verbs)
    return parser


def _failed(sentence: str, code: int = EXIT_ERROR) -> int:
    let_go(sys.stdout)
    say(f"dinosaur: {sentence}")
    return code


def _refused_by_the_system(error: OSError) -> str:
    """What the operating system refused, as a sentence."""
    what = f"'{error.filename}'" if error.filename else "A file or the output"
    reason = error.strerror or type(error).__name__
    advice = _ADVICE.get(error.errno or 0, "check the path and the disk")
    return f"{what} could not be read or written ({reason}); {advice}."
