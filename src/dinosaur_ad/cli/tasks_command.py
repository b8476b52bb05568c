"""The verb tasks: what a store has been taught."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dinosaur_ad._text import printable
from dinosaur_ad.cli._console import EXIT_ERROR, EXIT_OK, say, show, show_json, table
from dinosaur_ad.cli._parser import Subparsers, add_store, add_verb, open_store, task_name
from dinosaur_ad.cli._progress import counted
from dinosaur_ad.errors import StoreError

if TYPE_CHECKING:
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.inspection import TaskSettings
    from dinosaur_ad.store import TaskRecord


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file."""
    parser = add_verb(verbs, "tasks", tasks, "List what has been taught.")
    parser.add_argument("names", metavar="NAME", nargs="*", type=task_name, help="only these, and how they are set")
    add_store(parser)
    parser.add_argument("--verbose", action="store_true", help="also say how each task is set")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, with all details")
    parser.add_argument("--verify", action="store_true", help="read every file and compare it with its hash")
    parser.add_argument("--prune", action="store_true", help="first remove forgotten and undone tasks for good")


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
    rate = f"{settings.false_alarms * 100:.2g} % of normal images"
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
