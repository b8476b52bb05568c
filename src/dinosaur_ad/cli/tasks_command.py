"""The verb tasks: what a store has been taught, and moving a task to another store as one file."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dinosaur_ad._text import RAREST, percent, printable
from dinosaur_ad.cli._console import EXIT_ERROR, EXIT_OK, say, show, show_json, table
from dinosaur_ad.cli._parser import Parser, Subparsers, add_store, add_verb, open_store, task_name
from dinosaur_ad.cli._progress import counted
from dinosaur_ad.cli._steps import Steps
from dinosaur_ad.errors import StoreError

if TYPE_CHECKING:
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.inspection import TaskSettings
    from dinosaur_ad.store import TaskRecord


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file and the verbs under it."""
    parser = add_verb(verbs, "tasks", tasks, "List what has been taught, or move a task to another store as one file.")
    _add_moves(parser)
    parser.usage = "%(prog)s [NAME ...] [OPTIONS]\n       %(prog)s export NAME --out FILE\n       %(prog)s import FILE"
    parser.add_argument("names", metavar="NAME", nargs="*", type=task_name, help="only these, and how they are set")
    add_store(parser)
    parser.add_argument("--verbose", action="store_true", help="also say how each task is set")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, with all details")
    parser.add_argument("--verify", action="store_true", help="read every file and compare it with its hash")
    parser.add_argument("--prune", action="store_true", help="first remove forgotten and undone tasks for good")


def _add_moves(parser: Parser) -> None:
    moves = parser.add_subparsers(title="verbs", metavar="export|import", required=False)
    move = add_verb(moves, "export", export_one, "Write a task to one file, for another store.")
    move.add_argument("name", metavar="NAME", type=task_name, help="the task")
    move.add_argument("--out", metavar="FILE", type=Path, required=True, help="a new file, such as screw.zip")
    move.add_argument(
        "--without-paths",
        action="store_true",
        help="leave out the folders of its images, whose names travel with it",
    )
    add_store(move)
    move = add_verb(moves, "import", import_one, "Take a task out of a file that tasks export wrote.")
    move.add_argument("file", metavar="FILE", type=Path, help="the file; all of it is checked before anything changes")
    move.add_argument("--name", metavar="OTHER", type=task_name, help="call the task so (default: its own name)")
    move.add_argument("--replace", action="store_true", help="in place of a task of that name; undo brings it back")
    add_store(move)


def export_one(arguments: argparse.Namespace) -> int:
    """Write a task to a file, and say its hash, to be compared on the other box."""
    from dinosaur_ad.bank.transfer import export_task
    from dinosaur_ad.store import Store

    with Steps(f"exporting {arguments.name}", quiet=True):
        store = Store.open(arguments.store)
        written = export_task(store, arguments.name, arguments.out, paths=not arguments.without_paths)
    show(f"exported '{written.task}' to {written.path}: {written.bytes / 1e6:.1f} MB, sha256 {written.sha256}")
    return EXIT_OK


def import_one(arguments: argparse.Namespace) -> int:
    """Take a task out of a file; a store that is not there yet is made."""
    from dinosaur_ad.bank.transfer import import_task

    with Steps("importing", quiet=True):
        record = import_task(arguments.store, arguments.file, name=arguments.name, replace=arguments.replace)
    images = len(record.manifest["images"])
    show(f"imported '{record.name}' into {arguments.store}: {images} images; dinosaur undo takes it back")
    return EXIT_OK


def tasks(arguments: argparse.Namespace) -> int:
    """List the tasks; a damaged one is reported and the rest are listed."""
    detector = open_store(arguments)
    if arguments.prune:
        removed = detector.store.prune()
        say(f"removed for good: {', '.join(removed)}" if removed else "no forgotten task to remove")
        say_removed(detector)
    code, facts = EXIT_OK, []
    names = detector.store.names()
    if unknown := [name for name in arguments.names if name not in names]:
        detector.store.record(unknown[0])  # says that there is none, and which was perhaps meant
    names = [name for name in names if name in arguments.names] if arguments.names else names
    for name in counted(names, " tasks") if arguments.verify else names:
        try:
            if arguments.verify:
                detector.verify(name)
            facts.append(_facts(detector, detector.store.record(name)))
        except StoreError as error:
            say(f"dinosaur: {error}")
            code = EXIT_ERROR
    if arguments.json:
        for each in facts:
            show_json(each)
    elif facts:
        header = ("name", "images", "MB", "threshold", "learned", "last change")
        show(*table(header, [_row(each) for each in facts], numeric=header[1:4]))
        if arguments.verbose or arguments.names:
            show(*(f"{each['name']}: {described(detector.settings(each['name']))}" for each in facts))
    elif code == EXIT_OK:
        say("no task has been taught yet; start with: dinosaur learn")
    return code


def described(settings: TaskSettings) -> str:
    """How a task is set, for a line."""
    share = settings.false_alarms
    rate = f"{percent(share) if share >= RAREST else f'less than {RAREST * 100:.4f} %'} of normal images"
    sensitivity = f"set by hand, exceeded by {rate}" if settings.fixed_threshold else f"for {rate}"
    inspected = "all of the image" if settings.inspected == 1 else f"{settings.inspected:.0%} of the image"
    smallest = f", no region below {settings.smallest_area} pixels" if settings.smallest_area else ""
    lies = f", position {settings.position}" if settings.position else ""
    return f"threshold {settings.threshold:.3f} ({sensitivity}){lies}, inspects {inspected}{smallest}"


def say_removed(detector: Dinosaur) -> None:
    """Name what the change removed from the store: versions that undo no longer reaches, or what a crash left."""
    if removed := detector.store.removed:
        say(f"removed from the store: {', '.join(removed)}")


def _facts(detector: Dinosaur, record: TaskRecord) -> dict[str, Any]:
    latest = record.history[-1] if record.history else {"action": record.action, "date": record.date}
    return {
        "name": record.name,
        "images": len(record.manifest["images"]),
        "members": record.manifest["members"],
        "bytes": sum(info.bytes for info in record.files.values()),
        **asdict(detector.settings(record.name)),
        "learned": record.created,
        "changed": latest["date"],
        "last_change": latest["action"],
        "encoder": detector.store.header["encoder"]["encoder"],
        "preset": detector.preset.name,
        "seed": detector.seed,
        "made_by": record.manifest.get("encoder", {}),
        "bank": record.manifest.get("bank", {}),
    }


def _row(facts: dict[str, Any]) -> tuple[str, ...]:
    return (
        facts["name"],
        str(facts["images"]),
        f"{facts['bytes'] / 1e6:.1f}",
        f"{facts['threshold']:.3f}",
        _local(facts["learned"]),
        f"{facts['last_change']} {_local(facts['changed'])}",
    )


def _local(date: str) -> str:
    """A time of the store on the clock of this machine, with its zone; what is no time is shown as it is."""
    try:
        return datetime.fromisoformat(date).astimezone().strftime("%Y-%m-%d %H:%M %Z")
    except (TypeError, ValueError, OverflowError):
        return printable(date, 20)
