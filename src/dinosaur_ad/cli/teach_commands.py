"""The verbs that change a store: learn, update, forget, undo, redo, rename."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dinosaur_ad.cli._console import (
    EXIT_ERROR,
    EXIT_OK,
    EXIT_UNREADABLE,
    printable,
    report_rejected,
    say,
    show,
    show_json,
    table,
)
from dinosaur_ad.cli._overlays import say_overlays_left_out
from dinosaur_ad.cli._parser import Subparsers, add_images, add_store, add_verb, encoder_options, open_store
from dinosaur_ad.cli._progress import TEACHING, Progress
from dinosaur_ad.errors import DinosaurError, StoreError

if TYPE_CHECKING:
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.inspection import Learned
    from dinosaur_ad.store import TaskRecord

RECOMMENDED_IMAGES = 20


def add_parser(verbs: Subparsers) -> None:
    """Add the verbs of this file."""
    parser = add_verb(verbs, "learn", learn, "Teach a new task from normal images. The first one makes the store.")
    parser.add_argument("name", metavar="NAME", help="what the task is called")
    add_images(parser)
    add_store(parser)
    parser.add_argument("--preset", metavar="default|paper", help="settings of a new store (default: default)")
    parser.add_argument("--encoder", metavar="NAME", help="encoder of a new store; see: dinosaur weights list")
    parser.add_argument("--seed", metavar="N", type=int, help="seed of a new store (default: 0)")
    parser.add_argument("--replace", action="store_true", help="learn a task of that name anew")
    parser.add_argument(
        "--held-out",
        metavar="IMAGES",
        nargs="+",
        help="more normal images, for the threshold alone (default: some of IMAGES are held out in turn)",
    )
    group = parser.add_argument_group("bank")
    group.add_argument(
        "--budget", metavar="SIZE", help="the most this task may take, like 2MB; precision and size follow"
    )
    group.add_argument("--bank-precision", metavar="NAME", help="float32, float16 or int8 (default: the preset's)")

    parser = add_verb(verbs, "update", update, "Add normal images to a task. Those it has learned are not needed.")
    parser.add_argument("name", metavar="NAME", help="the task")
    add_images(parser)
    add_store(parser)

    parser = add_verb(verbs, "forget", forget, "Remove a task. undo brings it back.")
    parser.add_argument("name", metavar="NAME", help="the task")
    add_store(parser)

    parser = add_verb(verbs, "undo", undo, "Take back the last learn, update or forget of a task.")
    parser.add_argument("name", metavar="NAME", help="the task")
    parser.add_argument("--yes", action="store_true", help=argparse.SUPPRESS)  # was needed before there was redo
    add_store(parser)

    parser = add_verb(verbs, "redo", redo, "Make the change again that the last undo of a task took back.")
    parser.add_argument("name", metavar="NAME", help="the task")
    add_store(parser)

    parser = add_verb(verbs, "rename", rename, "Give a task another name. Its history, undo and redo stay with it.")
    parser.add_argument("name", metavar="OLD", help="the task")
    parser.add_argument("new", metavar="NEW", help="what it is called from now on")
    add_store(parser)

    parser = add_verb(verbs, "tasks", tasks, "List what has been taught.")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--verify", action="store_true", help="read every file and compare it with its hash")
    parser.add_argument("--prune", action="store_true", help="first remove forgotten tasks for good")


def learn(arguments: argparse.Namespace) -> int:
    """Teach a new task."""
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.encoders.options import EncoderOptions

    detector = Dinosaur(
        arguments.store,
        encoder=arguments.encoder,
        preset=arguments.preset,
        seed=arguments.seed or 0,
        budget=arguments.budget,
        bank_precision=arguments.bank_precision,
        options=EncoderOptions(**encoder_options(arguments)),
    )
    if arguments.seed not in (None, detector.seed):
        raise StoreError(
            f"The store {arguments.store} was made with the seed {detector.seed}, not with {arguments.seed}; "
            "leave the seed out, or start a new store."
        )
    detector.waiting = say
    say_overlays_left_out([*arguments.images, *(arguments.held_out or [])])
    with _interruptible(arguments), Progress(detector, then=TEACHING) as progress:
        learned = detector.learn(
            arguments.name,
            arguments.images,
            held_out=arguments.held_out,
            replace=arguments.replace,
            progress=progress,
        )
    return _report(detector, learned, f"learned '{learned.task}' from {learned.images} images")


def update(arguments: argparse.Namespace) -> int:
    """Add images to a task."""
    detector = open_store(arguments, **encoder_options(arguments))
    detector.waiting = say
    say_overlays_left_out(arguments.images)
    with _interruptible(arguments), Progress(detector, then=TEACHING) as progress:
        learned = detector.update(arguments.name, arguments.images, progress=progress)
    added = f"{learned.images} images, now {learned.total_images}"
    return _report(detector, learned, f"updated '{learned.task}' with {added}")


def forget(arguments: argparse.Namespace) -> int:
    """Remove a task."""
    detector = open_store(arguments)
    with _interruptible(arguments):
        detector.forget(arguments.name)
    _say_removed(detector)
    show(f"forgot '{arguments.name}'; undo brings it back")
    return EXIT_OK


def undo(arguments: argparse.Namespace) -> int:
    """Take back the last change of a task."""
    detector = open_store(arguments)
    with _interruptible(arguments):
        action = detector.undo(arguments.name)
    if action == "damage":  # the store has put the task together again
        done = f"brought back the newest intact version of '{arguments.name}', whose record was damaged"
    else:
        done = f"took back the last {action} of '{arguments.name}'"
    again = "; redo makes it again" if detector.store.redoable(arguments.name) else ""
    show(f"{done}{again}; {_left(detector.store.undoable(arguments.name))}")
    return EXIT_OK


def redo(arguments: argparse.Namespace) -> int:
    """Make the last undone change of a task again."""
    detector = open_store(arguments)
    with _interruptible(arguments):
        action = detector.redo(arguments.name)
    following = detector.store.redoable(arguments.name)
    show(f"made the {action} of '{arguments.name}' again; redo can make again: {following or 'nothing more'}")
    return EXIT_OK


def rename(arguments: argparse.Namespace) -> int:
    """Give a task another name."""
    detector = open_store(arguments)
    with _interruptible(arguments):
        detector.rename(arguments.name, arguments.new)
    show(f"'{arguments.name}' is now called '{arguments.new}'")
    return EXIT_OK


def _left(changes: Sequence[tuple[str, bool]]) -> str:
    """What undo can still take back, in the order in which it would."""
    if not changes:
        return "nothing is left to undo"
    words = (action if stays else f"{action} (which removes the task)" for action, stays in changes)
    return f"undo can still take back: {', '.join(words)}"


def tasks(arguments: argparse.Namespace) -> int:
    """List the tasks; a damaged one is reported and the rest are listed."""
    detector = open_store(arguments)
    if arguments.prune:
        removed = detector.store.prune()
        say(f"removed for good: {', '.join(removed)}" if removed else "no forgotten task to remove")
        _say_removed(detector)
    code, facts = EXIT_OK, []
    for name in detector.store.names():
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
        header = ("name", "images", "members", "MB", "threshold", "learned", "last change")
        show(*table(header, [_row(each) for each in facts], numeric=header[1:5]))
    elif code == EXIT_OK:
        say("no task has been taught yet; start with: dinosaur learn")
    return code


def _say_removed(detector: Dinosaur) -> None:
    """Name what the change removed from the store: versions that undo no longer reaches, or what a crash left."""
    if removed := detector.store.removed:
        say(f"removed from the store: {', '.join(removed)}")


def _report(detector: Dinosaur, learned: Learned, what: str) -> int:
    from dinosaur_ad.bank.budget import describe

    report_rejected(learned.rejected)
    _say_removed(detector)
    if known := len(learned.duplicates):
        say(f"left out: {known} image{'s' * (known != 1)} that the task knew already, or that came twice")
    if learned.not_ready:
        say(f"warning: not ready to judge: {learned.not_ready}")
    if not learned.images:
        show(f"nothing new for '{learned.task}': the task is as it was, of {learned.total_images} images")
        return EXIT_UNREADABLE if learned.rejected else EXIT_OK
    if learned.total_images < RECOMMENDED_IMAGES:
        quality = "extrapolated" if detector.preset.calibration == "unseen" else "uncertain"
        say(
            f"warning: only {learned.total_images} images: the threshold is {quality}; "
            f"{RECOMMENDED_IMAGES} or more are recommended"
        )
    threshold = detector.threshold(learned.task)
    chosen = describe(detector.store.record(learned.task).manifest)
    steps = ", ".join(f"{step} {seconds:.1f}" for step, seconds in learned.seconds.items())
    show(
        f"{what}: {learned.members} members a location{chosen}, {learned.bytes / 1e6:.1f} MB, "
        f"threshold {threshold:.3f} at {detector.preset.false_alarms:.1%} false alarms; "
        f"{sum(learned.seconds.values()):.1f} s ({steps})"
    )
    return EXIT_UNREADABLE if learned.rejected else EXIT_OK


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
        "bank": record.manifest.get("bank", {}),
    }


def _row(facts: dict[str, Any]) -> tuple[str, ...]:
    return (
        facts["name"],
        str(facts["images"]),
        str(facts["members"]),
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


@contextmanager
def _interruptible(arguments: argparse.Namespace) -> Iterator[None]:
    """Let Ctrl-C say what became of the task: a change is one rename, so it has happened or it has not."""
    before = _version(arguments.store, arguments.name)
    try:
        yield
    except KeyboardInterrupt:
        unchanged = _version(arguments.store, arguments.name) == before
        made = f"the change of '{arguments.name}' had been made already"
        raise KeyboardInterrupt("the store is unchanged" if unchanged else made) from None


def _version(store: Path, name: str) -> str | None:
    from dinosaur_ad.store import Store

    try:
        return Store.open(store).record(name).id
    except DinosaurError:
        return None
