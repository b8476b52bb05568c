"""The options that verbs share, and a parser that refuses wrong usage in one line."""

from __future__ import annotations

import argparse
import math
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from dinosaur_ad._text import did_you_mean
from dinosaur_ad.cli._console import EPILOG, EXIT_ERROR, printable, say
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from dinosaur_ad.detector import Dinosaur

Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"

LEAST_SHARE, MOST_SHARE = 1e-6, 0.5
"""Shares of false alarms that can be meant: less than one in a million cannot be told from never, more than half the
normal images cannot be wanted."""
MOST_THREADS = 1024
_SHOWN = 60  # characters of a wrong value that are repeated


class Parser(argparse.ArgumentParser):
    """Bad usage is one line: what is wrong, what was perhaps meant, and where the help is."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse an unknown option here, where those that this verb knows can be offered instead."""
        args = sys.argv[1:] if args is None else list(args)
        if args and (inner := self._optional_verbs().get(args[0])):
            return inner.parse_known_args(args[1:], namespace)
        self._refuse_unknown_options(args)
        known, left = super().parse_known_args(args, namespace)
        if left:
            words = ", ".join(f"'{printable(each, _SHOWN)}'" for each in left[:3])
            named = len(left) == 1 and "--task" in self._option_string_actions and not left[0].startswith("-")
            advice = f"; a product is named by --task {words}" if named else ""
            self.error(f"it is not clear what {words} should mean{advice}")
        return known, left

    def _optional_verbs(self) -> dict[str, Parser]:
        """The verbs of a parser that takes names as well: its first word decides which is meant."""
        places = super()._get_positional_actions()
        verbs = [each for each in places if isinstance(each, argparse._SubParsersAction) and not each.required]
        if len(places) == len(verbs):  # no names: argparse itself knows what is meant
            return {}
        return {name: parser for each in verbs for name, parser in each.choices.items()}

    def _get_positional_actions(self) -> list[argparse.Action]:
        """All but optional verbs beside names, which :meth:`parse_known_args` has looked for before."""
        places = super()._get_positional_actions()
        if not self._optional_verbs():
            return places
        return [each for each in places if each.required or not isinstance(each, argparse._SubParsersAction)]

    def _refuse_unknown_options(self, args: Sequence[str]) -> None:
        verbs = {name for action in self._actions if isinstance(action.choices, dict) for name in action.choices}
        for word in args:
            if word == "--" or word in verbs:  # what follows is no option, or the verb's own
                return
            option = word.partition("=")[0]
            if option.startswith("--") and option not in self._option_string_actions:
                options = [each for each in self._option_string_actions if each.startswith("--")]
                self.error(f"there is no option {printable(option, _SHOWN)}{did_you_mean(option, options)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(each) for each in action.choices]
        shown, guess = printable(value, _SHOWN), did_you_mean(str(value), names)
        if isinstance(action.choices, dict):
            raise argparse.ArgumentError(None, f"there is no verb '{shown}'{guess or f'; choose from: {_list(names)}'}")
        option = "/".join(action.option_strings) or action.metavar
        raise argparse.ArgumentError(None, f"{option} cannot be '{shown}'; choose from: {_list(names)}")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Print a help text; unlike argparse, not silently into an output that takes nothing."""
        (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, in one line, and end."""
        joint = " See:" if message.endswith("?") else "; see:"
        say(f"{self.prog}: {message.rstrip('.')}{joint} {self.prog} --help")
        raise SystemExit(EXIT_ERROR)


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


def share(text: str) -> float:
    """A share of false alarms: ``0.05``, ``5%`` and ``5 %`` are the same.

    >>> share("0.05"), share("5%"), share("5 %")
    (0.05, 0.05, 0.05)
    """
    number, percent, after = text.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1) if not after else math.nan
    except ValueError:
        value = math.nan
    if not LEAST_SHARE <= value <= MOST_SHARE:  # written so that NaN fails too
        raise InputError(
            f"A false-alarm rate is a share such as 0.025 or 2.5%, from {LEAST_SHARE:f} to {MOST_SHARE:g}, got "
            f"'{printable(text, _SHOWN)}'."
        )
    return value


def number(text: str) -> float:
    """A number that is one; which numbers make sense is for the detector to say."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"Expected a number, got '{printable(text, _SHOWN)}'.")
    return value


def task_name(text: str) -> str:
    """The name of a task with its letters composed, as the store keeps it; the store checks it."""
    return unicodedata.normalize("NFC", text)


def thread_count(text: str) -> int:
    """A number of threads that a machine can have."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= MOST_THREADS:
        raise InputError(
            f"The number of threads must be at least 1 and at most {MOST_THREADS}, got '{printable(text, _SHOWN)}'."
        )
    return value


def add_verb(verbs: Subparsers, name: str, run: Callable[[argparse.Namespace], int], description: str) -> Parser:
    """Add one verb; its first sentence is the line it has in the help of the whole command."""
    parser = verbs.add_parser(
        name,
        help=description.partition(".")[0],
        description=description,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the store."""
    parser.add_argument(
        "--store",
        metavar="DIR",
        type=Path,
        help="the folder that keeps what is taught (default: DINOSAUR_STORE, or store in a dinosaur.toml)",
    )
    add_settings(parser, "store")


def add_settings(parser: argparse.ArgumentParser, *names: str) -> None:
    """Say which options of a verb the environment and a ``dinosaur.toml`` may give."""
    parser.set_defaults(settings=(*(parser.get_default("settings") or ()), *names))


def add_false_alarms(parser: argparse._ActionsContainer, help_: str) -> None:
    """Add the share of normal images that may be called anomalous."""
    parser.add_argument("--false-alarms", metavar="SHARE", type=share, help=help_)


def add_images(parser: argparse.ArgumentParser) -> None:
    """Add the images, and the options of whatever encodes them."""
    parser.add_argument("images", metavar="IMAGES", nargs="+", help="image files, folders or globs")
    add_encoder_options(parser)
    add_settings(parser, "provider", "precision", "threads")


def add_threads(parser: argparse._ActionsContainer) -> None:
    """Add the number of CPU threads."""
    parser.add_argument("--threads", metavar="N", type=thread_count, help="CPU threads (default: all cores)")


def add_encoder_options(parser: argparse.ArgumentParser) -> None:
    """Add what decides how the encoder runs; :func:`encoder_options` reads it."""
    group = parser.add_argument_group("encoder")
    group.add_argument("--weights", metavar="PATH", type=Path, help="weights from this file, not from the cache")
    # The older way to say --provider torch; the library that runs the graph follows from the provider.
    group.add_argument("--backend", choices=("onnx", "torch"), default="onnx", help=argparse.SUPPRESS)
    add_threads(group)
    group.add_argument(
        "--provider",
        metavar="NAME",
        help="what it runs on: onnx-cpu (default), openvino, cuda, tensorrt, coreml, xnnpack, acl, torch; or auto: "
        "measure once and keep the fastest that is right",
    )
    group.add_argument("--precision", metavar="NAME", help="float32 (default), bfloat16, float16 or int8")
    group.add_argument("--strict", action="store_true", help="refuse what is not here instead of falling back")
    group.add_argument("--export", metavar="DIR", type=Path, help="run the encoder that dinosaur export wrote there")


ENCODER_OPTIONS = ("weights", "threads", "provider", "precision", "strict", "export")


def encoder_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of :func:`add_encoder_options`, for the detector."""
    options = {key: getattr(arguments, key) for key in ENCODER_OPTIONS}
    return options | {"provider": "torch"} if arguments.backend == "torch" and not options["provider"] else options


def open_store(arguments: argparse.Namespace, **options: Any) -> Dinosaur:
    """The detector of a store that is there."""
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.encoders.options import EncoderOptions

    return Dinosaur.load(arguments.store, options=EncoderOptions(**options))
