"""The verb set: what is inspected of a task, and how strictly."""

from __future__ import annotations

import argparse
from pathlib import Path

from dinosaur_ad.cli._console import EXIT_OK, say, show
from dinosaur_ad.cli._parser import (
    Subparsers,
    add_encoder_options,
    add_false_alarms,
    add_settings,
    add_store,
    add_verb,
    encoder_options,
    number,
    open_store,
    task_name,
)
from dinosaur_ad.cli.tasks_command import described, say_removed
from dinosaur_ad.cli.teach_commands import warn_of_missed_defects
from dinosaur_ad.errors import InputError


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file."""
    parser = add_verb(
        verbs, "set", change, "Change what is inspected of a task, and how strictly. Its images are not needed."
    )
    parser.add_argument("name", metavar="NAME", type=task_name, help="the task")
    add_store(parser)
    zones = parser.add_mutually_exclusive_group()
    zones.add_argument(
        "--zones",
        metavar="FILE",
        type=Path,
        help="inspect only a part: a mask image (white: inspect), or polygons as JSON, in pixels of the photos",
    )
    zones.add_argument("--no-zones", action="store_true", help="inspect all of the image again")
    sensitivity = parser.add_mutually_exclusive_group()
    add_false_alarms(sensitivity, "share of normal images that may be called anomalous, like 0.01 or 1%%")
    sensitivity.add_argument("--threshold", metavar="SCORE", type=number, help="the score above which an image is one")
    sensitivity.add_argument(
        "--sensitivity",
        metavar="0..10",
        type=number,
        help="from 0 (cautious) to 10 (strict); 5 is the preset's rate, five steps are ten times as many alarms",
    )
    sensitivity.add_argument("--preset-sensitivity", action="store_true", help="the preset's rate again")
    parser.add_argument(
        "--smallest-area",
        metavar="PX",
        type=number,
        help="smaller regions do not count, in pixels of the photos; 0: all do",
    )
    add_encoder_options(parser)
    add_settings(parser, "provider", "precision", "threads")


def change(arguments: argparse.Namespace) -> int:
    """Change the settings of a task, and show them before and after."""
    given = {
        "zones": arguments.zones,
        "no_zones": arguments.no_zones,
        "false_alarms": arguments.false_alarms,
        "threshold": arguments.threshold,
        "sensitivity": arguments.sensitivity,
        "preset_sensitivity": arguments.preset_sensitivity,
        "smallest_area": arguments.smallest_area,
    }
    if all(value is None or value is False for value in given.values()):
        raise InputError(
            f"What shall be changed of '{arguments.name}'? Give --zones FILE, --false-alarms SHARE, "
            "--sensitivity 0..10, --threshold SCORE or --smallest-area PX; how it is set now says: dinosaur tasks NAME."
        )
    detector = open_store(arguments, **encoder_options(arguments))
    detector.waiting = say
    changed = detector.set(arguments.name, **given)
    say_removed(detector)
    if changed.note:
        say(f"note: {changed.note}")
    if changed.not_ready:
        say(f"warning: not ready to judge: {changed.not_ready}")
    warn_of_missed_defects(changed)
    show(f"before: {described(changed.before)}", f"after:  {described(changed.after)}")
    return EXIT_OK
