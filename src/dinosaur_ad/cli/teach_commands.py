"""The verbs that change a store: learn, update, forget, undo, redo, rename."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dinosaur_ad._promises import promises
from dinosaur_ad._text import did_you_mean, printable
from dinosaur_ad.cli._console import EXIT_OK, EXIT_UNREADABLE, report_rejected, say, show
from dinosaur_ad.cli._overlays import say_overlays_left_out
from dinosaur_ad.cli._parser import Subparsers, add_images, add_store, add_verb, encoder_options, open_store, task_name
from dinosaur_ad.cli._progress import TEACHING, Progress
from dinosaur_ad.cli._suspects import refuse_place, shown_if_refused, write_sheet
from dinosaur_ad.cli.tasks_command import say_removed
from dinosaur_ad.errors import DinosaurError, InputError, StoreError

if TYPE_CHECKING:
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.inspection import Changed, Learned
    from dinosaur_ad.store import TaskRecord

RECOMMENDED_IMAGES = 20
SUSPECTS_NAMED = 3


def add_parser(verbs: Subparsers) -> None:
    """Add the verbs of this file."""
    parser = add_verb(verbs, "learn", learn, "Teach a new task from normal images. The first one makes the store.")
    parser.add_argument("name", metavar="NAME", type=task_name, help="what the task is called")
    add_images(parser)
    add_store(parser)
    parser.add_argument(
        "--preset", metavar="default|fast|best|paper", help="settings of a new store (default: default)"
    )
    parser.add_argument("--encoder", metavar="NAME", help="encoder of a new store; see: dinosaur weights list")
    parser.add_argument("--seed", metavar="N", type=int, help="seed of a new store (default: 0)")
    parser.add_argument("--replace", action="store_true", help="learn a task of that name anew")
    add_force(parser)
    add_position(parser, "how parts lie in their photos (default: auto, found out from the images)")
    parser.add_argument(
        "--held-out",
        metavar="IMAGES",
        nargs="+",
        help="more normal images, for the threshold alone (default: some of IMAGES are held out in turn)",
    )
    parser.add_argument(
        "--tiles",
        metavar="COLUMNSxROWS",
        help="cut large photos into overlapping tiles, like 4x1, so that small defects are seen (auto: by their size)",
    )
    group = parser.add_argument_group("bank")
    group.add_argument(
        "--budget", metavar="SIZE", help="the most this task may take, like 2MB; precision and size follow"
    )
    group.add_argument("--bank-precision", metavar="NAME", help="float32, float16 or int8 (default: the preset's)")
    add_verbose(parser)

    parser = add_verb(verbs, "update", update, "Add normal images to a task. Those it has learned are not needed.")
    parser.add_argument("name", metavar="NAME", type=task_name, help="the task")
    add_images(parser)
    add_store(parser)
    add_force(parser)
    add_position(parser, "stays what it was; another one is refused")
    add_verbose(parser)

    parser = add_verb(verbs, "forget", forget, "Remove a task. undo brings it back.")
    parser.add_argument("name", metavar="NAME", type=task_name, help="the task")
    add_store(parser)

    parser = add_verb(verbs, "undo", undo, "Take back the last learn, update, set or forget of a task.")
    parser.add_argument("name", metavar="NAME", type=task_name, help="the task")
    parser.add_argument("--yes", action="store_true", help=argparse.SUPPRESS)  # was needed before there was redo
    add_store(parser)

    parser = add_verb(verbs, "redo", redo, "Make the change again that the last undo of a task took back.")
    parser.add_argument("name", metavar="NAME", type=task_name, help="the task")
    add_store(parser)

    parser = add_verb(verbs, "rename", rename, "Give a task another name. Its history, undo and redo stay with it.")
    parser.add_argument("name", metavar="OLD", type=task_name, help="the task")
    parser.add_argument("new", metavar="NEW", type=task_name, help="what it is called from now on")
    add_store(parser)


def add_force(
    parser: argparse.ArgumentParser, words: str = "learn images too that do not seem to belong there"
) -> None:
    """Add the option that overrules the guard."""
    parser.add_argument("--force", action="store_true", help=words)
    parser.add_argument(
        "--suspects",
        metavar="FILE.png",
        type=Path,
        help="write a sheet with the pictures that are refused or warned of; an earlier one is replaced",
    )


def add_position(parser: argparse.ArgumentParser, words: str) -> None:
    """Add the option that says how parts lie."""
    parser.add_argument("--position", metavar="auto|aligned|moving|free", default="auto", help=words)


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """Add the option that says more."""
    parser.add_argument("--verbose", action="store_true", help="also say what is kept, and where the time went")


def learn(arguments: argparse.Namespace) -> int:
    """Teach a new task."""
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.encoders.options import EncoderOptions

    refuse_place(arguments.suspects)
    _refuse_unknown(arguments)
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
    with taught(arguments), Progress(detector, then=TEACHING) as progress:
        learned = detector.learn(
            arguments.name,
            arguments.images,
            held_out=arguments.held_out,
            position=arguments.position,
            tiles=arguments.tiles,
            replace=arguments.replace,
            force=arguments.force,
            progress=progress,
        )
    return report_learned(arguments, detector, learned, f"learned '{learned.task}' from {learned.images} images")


def _refuse_unknown(arguments: argparse.Namespace) -> None:
    """Refuse the name of a preset or an encoder that does not exist, with the nearest one that does."""
    from dinosaur_ad.encoders.pair import part_names
    from dinosaur_ad.encoders.registry import list_specs
    from dinosaur_ad.presets import PRESETS

    encoders = part_names(arguments.encoder) if arguments.encoder is not None else ()
    asked = [("preset", arguments.preset, PRESETS), *(("encoder", name, list_specs()) for name in encoders)]
    for what, name, known in asked:
        if name is not None and name not in known and (guess := did_you_mean(name, known)):
            raise InputError(f"There is no {what} '{printable(name, 60)}'{guess}")


def update(arguments: argparse.Namespace) -> int:
    """Add images to a task."""
    refuse_place(arguments.suspects)
    detector = open_store(arguments, **encoder_options(arguments))
    detector.waiting = say
    say_overlays_left_out(arguments.images)
    with taught(arguments), Progress(detector, then=TEACHING) as progress:
        learned = detector.update(
            arguments.name, arguments.images, position=arguments.position, force=arguments.force, progress=progress
        )
    added = f"{learned.images} image{'s' * (learned.images != 1)}, now {learned.total_images},"
    return report_learned(arguments, detector, learned, f"updated '{learned.task}' with {added}")


def forget(arguments: argparse.Namespace) -> int:
    """Remove a task."""
    detector = open_store(arguments)
    with interruptible(arguments):
        detector.forget(arguments.name)
    say_removed(detector)
    show(f"forgot '{arguments.name}'; undo brings it back")
    return EXIT_OK


def undo(arguments: argparse.Namespace) -> int:
    """Take back the last change of a task."""
    detector = open_store(arguments)
    with interruptible(arguments):
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
    with interruptible(arguments):
        action = detector.redo(arguments.name)
    following = detector.store.redoable(arguments.name)
    more = f"redo can also make again: {following}" if following else "nothing is left to redo"
    show(f"made the {action} of '{arguments.name}' again; {more}")
    return EXIT_OK


def rename(arguments: argparse.Namespace) -> int:
    """Give a task another name."""
    detector = open_store(arguments)
    with interruptible(arguments):
        detector.rename(arguments.name, arguments.new)
    show(f"'{arguments.name}' is now called '{arguments.new}'")
    return EXIT_OK


def _left(changes: Sequence[tuple[str, bool]]) -> str:
    """What undo can still take back, in the order in which it would."""
    if not changes:
        return "nothing is left to undo"
    words = (action if stays else f"{action} (which removes the task)" for action, stays in changes)
    return f"undo can still take back: {', '.join(words)}"


def report_learned(arguments: argparse.Namespace, detector: Dinosaur, learned: Learned, what: str) -> int:
    """Print what became of a task that was taught, and return the exit code."""
    from dinosaur_ad.bank.budget import describe

    report_rejected(learned.rejected)
    say_removed(detector)
    if known := len(learned.duplicates):
        say(f"left out: {known} image{'s' * (known != 1)} that the task knew already, or that came twice")
    _warn_of_near_duplicates(learned)
    _warn_of_suspects(learned)
    write_sheet(arguments.suspects, [(each.path, each.reason) for each in learned.suspects])
    if learned.not_ready:
        say(f"warning: not ready to judge: {learned.not_ready}")
    if not learned.images:
        show(f"nothing new for '{learned.task}': the task is as it was, of {learned.total_images} images")
        return EXIT_UNREADABLE if learned.rejected else EXIT_OK
    if learned.total_images < RECOMMENDED_IMAGES:
        say(f"warning: only {learned.total_images} images: {RECOMMENDED_IMAGES} or more are recommended")
    warn_of_missed_defects(learned)
    record = detector.store.record(learned.task)
    before = "" if learned.threshold_before is None else f"{learned.threshold_before:.3f} -> "
    asked = detector.settings(learned.task)
    threshold = f"threshold {before}{asked.threshold:.3f}"
    if learned.threshold_ratio is not None:
        threshold += f", {learned.threshold_ratio:.2f} times that of before on its scale"
    rate = "set by hand" if asked.fixed_threshold else f"at most {asked.false_alarms * 100:.3g} % false alarms asked"
    show(f"{what} in {sum(learned.seconds.values()):.1f} s: {threshold} ({rate}), {learned.bytes / 1e6:.1f} MB")
    show(*promises(learned, None if asked.fixed_threshold else asked.false_alarms))
    if learned.position:
        show(position_line(record))
    chosen = describe(record.manifest)  # not empty where a budget or another precision was asked for
    if chosen or arguments.verbose:
        show(f"memory: {learned.members} normal patches kept for every place in the image{chosen}")
    if arguments.verbose:
        show("seconds: " + ", ".join(f"{step} {seconds:.1f}" for step, seconds in learned.seconds.items()))
    return EXIT_UNREADABLE if learned.rejected else EXIT_OK


def position_line(record: TaskRecord) -> str:
    """How the parts of a task lie, and how that is known."""
    from dinosaur_ad.bank.position import COPIES_REACH, Position

    position = Position.of(record)
    if position is None:
        return "position: not looked at"
    how = "as given" if position.given else "found out"
    if position.reach is not None:
        how += f": most parts lie within {100 * position.reach:.1f} % of the image side"
    elif position.clear is not None:
        how += f": only {position.clear:.0%} of the images lie clearly like the others, so none is registered"
    advice = ""
    if position.reach is not None and position.reach > COPIES_REACH and not position.registered:
        advice = "; that is more than moved copies allow for: use a fixture, or try learn --replace --position moving"
    return f"position: {position} ({how}{advice})"


def warn_of_missed_defects(learned: Learned | Changed) -> None:
    """Name the confirmed defects that the task would let pass from now on."""
    if missed := learned.gallery_missed:
        named = ", ".join(printable(each, 80) for each in missed[:SUSPECTS_NAMED])
        more = f" and {len(missed) - SUSPECTS_NAMED} more" if len(missed) > SUSPECTS_NAMED else ""
        say(
            f"warning: {len(missed)} confirmed defect{'s' * (len(missed) != 1)} of '{learned.task}' would pass now: "
            f"{named}{more}; undo takes the change back"
        )


def _warn_of_near_duplicates(learned: Learned) -> None:
    if twins := learned.near_duplicates:
        count, (image, first) = len(twins), twins[0]
        say(
            f"warning: {count} image{'s show' if count != 1 else ' shows'} nearly the same picture as another one "
            f"({printable(image, 80)} and {printable(first, 80)}), and what is promised holds only for different "
            "parts; take one photo of each part"
        )


def _warn_of_suspects(learned: Learned) -> None:
    for each in learned.suspects[:SUSPECTS_NAMED]:
        say(f"warning: perhaps not a normal image of '{learned.task}': {printable(each.path)} ({each.reason})")
    if (more := len(learned.suspects) - SUSPECTS_NAMED) > 0:
        say(f"warning: {more} more such image{'s' * (more != 1)}")


@contextmanager
def taught(arguments: argparse.Namespace) -> Iterator[None]:
    """As :func:`interruptible`, and a refusal shows its suspects where that is asked for."""
    with interruptible(arguments), shown_if_refused(arguments.suspects):
        yield


@contextmanager
def interruptible(arguments: argparse.Namespace) -> Iterator[None]:
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
