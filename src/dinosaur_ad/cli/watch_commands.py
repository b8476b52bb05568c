"""The verbs for a stream that is not cut into products: watch, adopt, dismiss."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dinosaur_ad._text import percent, printable
from dinosaur_ad.cli._console import EXIT_OK, EXIT_UNREADABLE, say, show, show_json, table
from dinosaur_ad.cli._parser import (
    Subparsers,
    add_encoder_options,
    add_settings,
    add_store,
    add_verb,
    encoder_options,
    open_store,
    task_name,
)
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.watch.watch_event import WatchEvent


def add_parser(verbs: Subparsers) -> None:
    """Add the verbs of this file."""
    parser = add_verb(
        verbs,
        "watch",
        watch,
        "Inspect a stream of pictures and propose products that are not known yet. A watch that was ended goes on "
        "where it was.",
    )
    parser.add_argument("source", metavar="SOURCE", help="a folder or glob, in the order of names; - reads paths")
    add_encoder_options(parser)
    add_settings(parser, "provider", "precision", "threads")
    add_store(parser)
    parser.add_argument("--preset", metavar="NAME", help="settings of a new store (default: default)")
    parser.add_argument("--encoder", metavar="NAME", help="encoder of a new store; see: dinosaur weights list")
    parser.add_argument(
        "--adopt",
        choices=("ask", "auto"),
        default="ask",
        help="ask (default): a proposed product waits for dinosaur adopt; auto: it is learned as product-1 and so on",
    )
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="text (default) or one object a line"
    )

    parser = add_verb(
        verbs,
        "adopt",
        adopt,
        "Learn a product that watch proposed, or make one task of two. Without a number, open proposals are listed.",
    )
    parser.add_argument("proposal", metavar="PROPOSAL", nargs="?", type=_number, help="its number")
    parser.add_argument("--name", metavar="NAME", type=task_name, help="what the task is called")
    parser.add_argument(
        "--merge",
        metavar="TASK",
        nargs=2,
        type=task_name,
        help="instead of a proposal: learn the pictures of these two as one task and forget both; undo takes it back",
    )
    add_encoder_options(parser)
    add_settings(parser, "provider", "precision", "threads")
    add_store(parser)

    parser = add_verb(
        verbs, "dismiss", dismiss, "Leave out a product that watch proposed. Pictures like its own are not kept again."
    )
    parser.add_argument("proposal", metavar="PROPOSAL", type=_number, help="its number")
    add_store(parser)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InputError(f"A proposal is a number such as 1, got '{printable(text, 60)}'; see: dinosaur adopt")
    return int(text)


def watch(arguments: argparse.Namespace) -> int:
    """Watch a stream and print a line for each event."""
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.encoders.options import EncoderOptions
    from dinosaur_ad.images.finding import find_images

    source: str | Iterable[str] = arguments.source
    if source == "-":
        source = _lines()
    else:
        find_images([arguments.source])  # refused before a store is made
    detector = Dinosaur(
        arguments.store,
        encoder=arguments.encoder,
        preset=arguments.preset,
        options=EncoderOptions(**encoder_options(arguments)),
    )
    unreadable = seen = 0
    for event in detector.watch(source, adopt=arguments.adopt):
        unreadable += event.kind == "left out"
        seen += event.kind in ("inspected", "unknown", "left out")
        if arguments.format == "json":
            show_json(event.to_json())
        else:
            show(_line(event))
    say(
        f"{seen} picture{'s' * (seen != 1)} processed, {unreadable} left out; those of an earlier watch are passed over"
    )
    return EXIT_UNREADABLE if unreadable else EXIT_OK


def _lines() -> Iterator[str]:
    """The paths on standard input, a line each."""
    for line in sys.stdin:
        if path := line.rstrip("\r\n"):
            yield path


def _line(event: WatchEvent) -> str:
    """An event in words."""
    if event.inspection:
        found = event.inspection
        what = f"{found.verdict}  {found.task}  {found.score:.3f} / {found.threshold:.3f}"
        return f"{what}  {printable(event.path)}"
    if event.kind == "proposed":
        rate = "" if event.promised_rate is None else f"; at most {percent(event.promised_rate)} false alarms promised"
        suspects = "".join(f"; suspect: {printable(each.path, 80)} ({each.reason})" for each in event.suspects[:3])
        return f"proposed  {event.proposal}  {event.reason}{rate}{suspects}"
    if event.kind in ("merge proposed", "split proposed"):
        return f"{event.kind}  {event.proposal}  {event.reason}"
    place = f"  {printable(event.path)}" if event.path else ""
    return f"{event.kind}{place}  {event.reason}"


def adopt(arguments: argparse.Namespace) -> int:
    """Learn a proposal, or list those that are open."""
    detector = open_store(arguments, **encoder_options(arguments))
    if arguments.merge is not None:
        return _merge(arguments, detector)
    if arguments.proposal is None:
        if arguments.name is not None:
            raise InputError("Which proposal should get that name is missing; see: dinosaur adopt")
        return _list(detector.proposals())
    if arguments.name is None:
        raise InputError("A product needs a name; add --name NAME.")
    event = detector.adopt(arguments.proposal, arguments.name)
    if event.kind == "merged":
        show(event.reason)
        return EXIT_OK
    show(
        f"learned '{event.task}' from {len(event.pictures)} pictures; take it back with: dinosaur undo "
        f"{shlex.quote(event.task)}"
    )
    return EXIT_OK


def _merge(arguments: argparse.Namespace, detector: Dinosaur) -> int:
    """Make one task of two."""
    from dinosaur_ad.store import Store
    from dinosaur_ad.watch.regrouping import merge_tasks

    if arguments.proposal is not None:
        raise InputError("Give a proposal or two tasks to merge, not both.")
    if arguments.name is None:
        raise InputError("A product needs a name; add --name NAME.")
    assert isinstance(detector.store, Store)  # it was opened by its path
    show(merge_tasks(detector, detector.store.path, arguments.merge, arguments.name).reason)
    return EXIT_OK


def _list(proposals: list[WatchEvent]) -> int:
    if not proposals:
        say("no product is proposed; dinosaur watch proposes some")
        return EXIT_OK
    rows = [
        (
            str(each.proposal),
            str(len(each.pictures)),
            str(len(each.suspects)),
            each.pictures[0] if each.pictures else "",
        )
        for each in proposals
        if each.kind == "proposed"
    ]
    if rows:
        show(*table(("proposal", "pictures", "suspects", "first picture"), rows, numeric=("pictures", "suspects")))
    show(*(f"{each.kind}  {each.proposal}  {each.reason}" for each in proposals if each.kind != "proposed"))
    return EXIT_OK


def dismiss(arguments: argparse.Namespace) -> int:
    """Leave out a proposal."""
    open_store(arguments).dismiss(arguments.proposal)
    show(f"dismissed proposal {arguments.proposal}")
    return EXIT_OK
