"""The verbs that keep a task honest: recalibrate, defect, check."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dinosaur_ad._text import percent, printable
from dinosaur_ad.cli._console import EXIT_OK, EXIT_UNREADABLE, report_rejected, say, show, show_json, table
from dinosaur_ad.cli._overlays import say_overlays_left_out
from dinosaur_ad.cli._parser import (
    MOST_SHARE,
    Subparsers,
    add_encoder_options,
    add_false_alarms,
    add_images,
    add_settings,
    add_store,
    add_verb,
    encoder_options,
    open_store,
    task_name,
)
from dinosaur_ad.cli._progress import TEACHING, Progress
from dinosaur_ad.cli._suspects import refuse_place
from dinosaur_ad.cli.teach_commands import add_force, add_verbose, interruptible, report_learned, taught
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.bank.checking import Check, Rate
    from dinosaur_ad.bank.gallery import GalleryChange


def add_parser(verbs: Subparsers) -> None:
    """Add the verbs of this file."""
    parser = add_verb(
        verbs, "recalibrate", recalibrate, "Take a task's threshold from new normal images. What it remembers stays."
    )
    parser.add_argument("name", metavar="NAME", type=task_name, help="the task")
    add_images(parser)
    add_store(parser)
    add_force(parser, "take images too that do not seem to belong there, and a threshold that moves far")
    add_verbose(parser)

    parser = add_verb(
        verbs,
        "defect",
        defect,
        "Keep confirmed defects with a task. They are inspected again after every change of it.",
    )
    parser.add_argument("name", metavar="NAME", type=task_name, help="the task")
    parser.add_argument("images", metavar="IMAGES", nargs="*", help="image files, folders or globs")
    add_encoder_options(parser)
    add_settings(parser, "provider", "precision", "threads")
    add_store(parser)
    parser.add_argument("--list", action="store_true", help="show what is kept")
    parser.add_argument("--remove", metavar="IMAGE", action="append", default=[], help="keep this one no longer")
    parser.add_argument("--force", action="store_true", help="keep images too that the task calls normal")

    parser = add_verb(
        verbs,
        "check",
        check,
        "Say what a task misses and what it flags wrongly, from images that are known to be good and bad.",
    )
    parser.add_argument("name", metavar="NAME", type=task_name, help="the task")
    parser.add_argument("--good", metavar="DIR", nargs="+", required=True, help="good images that it has not learned")
    parser.add_argument(
        "--bad", metavar="DIR", nargs="+", required=True, help="bad images; a folder in it is a kind of defect"
    )
    add_encoder_options(parser)
    add_settings(parser, "provider", "precision", "threads", "false_alarms")
    add_store(parser)
    add_false_alarms(
        parser, "share of normal images that may be called anomalous, like 0.01 or 1%% (default: as the task is set)"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or one JSON object")


def recalibrate(arguments: argparse.Namespace) -> int:
    """Take the threshold of a task from new images."""
    refuse_place(arguments.suspects)
    detector = open_store(arguments, **encoder_options(arguments))
    detector.waiting = say
    say_overlays_left_out(arguments.images)
    with taught(arguments), Progress(detector, then=TEACHING) as progress:
        learned = detector.recalibrate(arguments.name, arguments.images, force=arguments.force, progress=progress)
    return report_learned(arguments, detector, learned, f"recalibrated '{learned.task}' with {learned.images} images")


def defect(arguments: argparse.Namespace) -> int:
    """Keep defects, remove some, or list them."""
    if bool(arguments.images) + bool(arguments.list) + bool(arguments.remove) != 1:
        raise InputError("Give the images of defects, or --list, or --remove IMAGE; one of the three.")
    detector = open_store(arguments, **encoder_options(arguments))
    detector.waiting = say
    if arguments.list:
        kept = detector.defects(arguments.name)
        if not kept:
            say(f"no defects are kept with '{arguments.name}' yet; add some with: dinosaur defect NAME IMAGES")
            return EXIT_OK
        show(*table(("image", "kept since"), [(each.image, each.date) for each in kept]))
        return EXIT_OK
    with interruptible(arguments):
        if arguments.remove:
            changed = detector.remove_defects(arguments.name, arguments.remove)
        else:
            say_overlays_left_out(arguments.images)
            with Progress(detector) as progress:
                changed = detector.add_defects(
                    arguments.name, arguments.images, force=arguments.force, progress=progress
                )
    return _report_gallery(changed)


def _report_gallery(changed: GalleryChange) -> int:
    from dinosaur_ad.bank.gallery import MOST_DEFECTS

    report_rejected(changed.rejected)
    if changed.dropped:
        named = ", ".join(printable(each, 80) for each in changed.dropped[:3])
        more = f" and {len(changed.dropped) - 3} more" if len(changed.dropped) > 3 else ""
        say(f"no longer kept, because {MOST_DEFECTS} are the most: {named}{more}")
    new = f"{changed.added} new, " if changed.added else ""
    count = len(changed.defects)
    show(f"'{changed.task}' keeps {new}{count} defect{'s' * (count != 1)} in all, inspected again after every change")
    return EXIT_UNREADABLE if changed.rejected else EXIT_OK


def check(arguments: argparse.Namespace) -> int:
    """Check a task with known images."""
    detector = open_store(arguments, **encoder_options(arguments))
    say_overlays_left_out([*arguments.good, *arguments.bad])
    with Progress(detector) as progress:
        checked = detector.check(
            arguments.name,
            arguments.good,
            arguments.bad,
            false_alarms=arguments.false_alarms,
            progress=progress,
        )
    report_rejected(checked.rejected)
    if known := len(checked.learned):
        say(f"left out: {known} image{'s' * (known != 1)} that the task has learned, which say nothing about others")
    if arguments.format == "json":
        show_json(checked.to_json())
    else:
        by_hand = arguments.false_alarms is None and detector.settings(arguments.name).fixed_threshold
        show(*_check_lines(checked, by_hand=by_hand))
    return EXIT_UNREADABLE if checked.rejected else EXIT_OK


def _check_lines(checked: Check, *, by_hand: bool) -> list[str]:
    """A check in words, a line each; ``by_hand``, the threshold is no rate that was asked for."""
    asked = "set by hand" if by_hand else f"{percent(checked.false_alarm_rate)} false alarms asked"
    lines = [
        f"{checked.task}: threshold {checked.threshold:.3f}, {asked}",
        f"missed:        {_words(checked.misses)} bad images",
        f"false alarms:  {_words(checked.false_alarms)} good images",
        f"AUROC:         {checked.auroc:.3f}",
    ]
    if checked.unknown:
        lines.append(f"unknown:       {checked.unknown}, counted as not called normal")
    for kind in checked.kinds if len(checked.kinds) > 1 or checked.misses.count else ():
        lowest = f"; lowest scores: {', '.join(printable(each, 80) for each in kind.lowest)}" if kind.lowest else ""
        lines.append(f"  {kind.name or 'bad'}: missed {kind.misses.count} of {kind.misses.total}{lowest}")
    if better := checked.suggestion:
        rate = better.false_alarm_rate
        how = (
            f"--false-alarms {100 * rate:.2g}% (threshold {better.threshold:.3f})"
            if rate and rate < MOST_SHARE
            else (f"a threshold of {better.threshold:.3f}")
        )
        lines.append(
            f"balanced:      {how} would have missed {better.misses.count} of {better.misses.total} and flagged "
            f"{better.false_alarms.count} of {better.false_alarms.total} good ones"
        )
    else:
        lines.append("balanced:      no other threshold does better on these images")
    return lines + _more_images(checked, by_hand=by_hand)


def _more_images(checked: Check, *, by_hand: bool) -> list[str]:
    """What more images would bring; a threshold that was set by hand, nothing."""
    promised = checked.promised_rate
    if promised is None or checked.images_needed is None:
        return []
    sentence = f"promised:      at most {percent(promised)} false alarms with 95 % confidence"
    if promised > checked.false_alarm_rate and not by_hand:
        sentence += (
            f"; half of that from {checked.halving_images} good images, {percent(checked.false_alarm_rate)} from "
            f"{checked.images_needed} (now {checked.calibrated})"
        )
    return [sentence]


def _words(rate: Rate) -> str:
    return f"{rate.count} of {rate.total}, {percent(rate.rate)} ({percent(rate.low)} to {percent(rate.high)}) of the"
