"""The verb weights: list, fetch, verify, add."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dinosaur_ad.cli._console import EXIT_ERROR, EXIT_OK, say, show, table
from dinosaur_ad.cli._parser import Subparsers, add_verb
from dinosaur_ad.cli._steps import Steps
from dinosaur_ad.errors import EncoderError

if TYPE_CHECKING:
    from dinosaur_ad.encoders.weights.local import WeightStatus


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file and the verbs under it."""
    parser = add_verb(verbs, "weights", list_weights, "List, fetch, verify or add the weights of encoders.")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    add_verb(actions, "list", list_weights, "List the encoders there are and the state of their weights.")

    action = add_verb(actions, "fetch", fetch, "Download the weights of an encoder, check and keep them.")
    action.add_argument("name", metavar="NAME", help="the encoder; see: dinosaur weights list")
    action.add_argument("--accept-licence", action="store_true", help="accept the licence shown; asked for only once")

    action = add_verb(actions, "verify", verify, "Compare the weights on this machine with their hashes.")
    action.add_argument("name", metavar="NAME", nargs="?", help="the encoder (default: all that are here)")

    action = add_verb(actions, "add", add, "Take the weights of an encoder from a file or folder, check and keep them.")
    action.add_argument("name", metavar="NAME", help="the encoder; see: dinosaur weights list")
    action.add_argument("path", metavar="PATH", type=Path, help="in its original, transformers or safetensors form")


def list_weights(_: argparse.Namespace) -> int:
    """Print every encoder with the state of its weights."""
    from dinosaur_ad.encoders import DEFAULT_ENCODER, list_specs
    from dinosaur_ad.encoders.registry import known_pairs
    from dinosaur_ad.encoders.weights.local import status

    rows = [_row(status(name), is_default=name == DEFAULT_ENCODER) for name in list_specs()]
    show(*table(("name", "weights", "MB", "licence", "what it is"), rows, numeric=("MB",)))
    say(f"two of them together: --encoder FIRST+SECOND, for example {known_pairs()[0]}; both need their weights")
    return EXIT_OK


def fetch(arguments: argparse.Namespace) -> int:
    """Download weights; the licence of gated ones is shown first."""
    from dinosaur_ad.encoders import get_spec
    from dinosaur_ad.encoders.pair import part_names
    from dinosaur_ad.encoders.weights import local as cache

    get_spec(arguments.name)  # a pair that cannot be is refused as a whole
    for name in part_names(arguments.name):
        if get_spec(name).gated and arguments.accept_licence:
            say(*cache.licence_notice(name).split("\n"))
        with Steps(f"fetching {name}", quiet=True):
            status = cache.fetch(name, accept_licence=arguments.accept_licence)
        _print(status)
    return EXIT_OK


def verify(arguments: argparse.Namespace) -> int:
    """Check the weights of one encoder, or of all that are here; damaged ones are reported and the rest go on."""
    from dinosaur_ad.encoders import get_spec, list_specs
    from dinosaur_ad.encoders.pair import part_names
    from dinosaur_ad.encoders.weights import local as cache

    if arguments.name:
        get_spec(arguments.name)  # a pair that cannot be is refused as a whole
    here = [name for name in list_specs() if cache.status(name).state not in ("absent", "built in")]
    code = EXIT_OK
    for name in part_names(arguments.name) if arguments.name else here:
        try:
            with Steps(f"verifying {name}", quiet=True):
                status = cache.verify(name)
            _print(status, intact=True)
        except EncoderError as error:
            say(f"dinosaur: {error}")
            code = EXIT_ERROR
    if not arguments.name and not here:
        say("there are no weights here yet; see: dinosaur weights list")
    return code


def add(arguments: argparse.Namespace) -> int:
    """Keep weights from a local file."""
    from dinosaur_ad.encoders.weights import local as cache

    with Steps(f"adding {arguments.name}", quiet=True):
        status = cache.add(arguments.name, arguments.path)
    _print(status)
    return EXIT_OK


def _row(status: WeightStatus, *, is_default: bool) -> tuple[str, ...]:
    size = f"{status.bytes / 1e6:.0f}" if status.bytes else "-"
    name = f"{status.name} (default)" if is_default else status.name
    return name, status.state, size, status.licence, status.description


def _print(status: WeightStatus, *, intact: bool = False) -> None:
    state = "intact" if intact and status.state == "ready" else status.state
    size = f", {status.bytes / 1e6:.0f} MB, sha256 {status.sha256[:12]}" if status.bytes else ""
    show(f"{status.name}: {state}{size}, from {status.source}")
