"""The verb tasks: what a store has been taught."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dinosaur_ad._text import printable
from dinosaur_ad.cli._console import EXIT_ERROR, EXIT_OK, say, show, show_json, table
from dinosaur_ad.cli._parser import Subparsers, add_store, add_verb, open_store
from dinosaur_ad.cli._progress import counted
from dinosaur_ad.errors import StoreError

if TYPE_CHECKING:
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.store import TaskRecord


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file."""
    parser = add_verb(verbs, "tasks", tasks, "List what has been taught.")
    add_store(parser)
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
    elif code == EXIT_OK:
        say("no task has been taught yet; start with: dinosaur learn")
    return code


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
        "threshold": detector.threshold(record.name),
        "false_alarms": detector.preset.false_alarms,
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
