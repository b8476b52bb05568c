"""The verb inspect."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dinosaur_ad.cli._console import (
    EXIT_ANOMALOUS,
    EXIT_NOT_JUDGED,
    EXIT_OK,
    EXIT_UNREADABLE,
    say,
)
from dinosaur_ad.cli._overlays import Overlays, say_overlays_left_out
from dinosaur_ad.cli._parser import (
    Subparsers,
    add_false_alarms,
    add_images,
    add_settings,
    add_store,
    add_verb,
    encoder_options,
    open_store,
    task_name,
)
from dinosaur_ad.cli._progress import Progress
from dinosaur_ad.cli._results import ANOMALOUS, NORMAL, UNKNOWN, WRITERS, shifted_sentence
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.cluster import Fleet
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.inspection import Inspection


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file."""
    parser = add_verb(
        verbs,
        "inspect",
        inspect,
        "Inspect images of any task that was taught. Which task an image belongs to is found out, unless it is given.",
    )
    add_images(parser)
    add_store(parser)
    add_settings(parser, "false_alarms", "overlays")
    parser.add_argument("--task", metavar="NAME", type=task_name, help="compare with this task only")
    parser.add_argument(
        "--format", choices=tuple(WRITERS), help="text (default), json (one object a line per image), csv (one row)"
    )
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    parser.add_argument(
        "--overlays",
        metavar="DIR",
        type=Path,
        help="write a picture of where, one PNG per image: cam1/000.png becomes DIR/cam1/000.png.overlay.png",
    )
    add_false_alarms(
        parser, "share of normal images that may be called anomalous, like 0.01 or 1%% (default: as the task is set)"
    )
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 when an image is anomalous")
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="ray: on a cluster, for very large sets; IMAGES may then be fsspec addresses too (s3://bucket/folder)",
    )
    parser.add_argument("--address", metavar="ADDRESS", help="the Ray cluster (default: one on this machine)")


@dataclass
class _Count:
    """Counts of the results so far; ``left_out`` names the damaged tasks."""

    anomalous: int = 0
    unknown: int = 0
    not_ready: int = 0
    unreadable: int = 0
    unusual_light: int = 0
    judged: int = 0
    milliseconds: float = 0.0
    left_out: set[str] = field(default_factory=set)

    def take(self, result: Inspection) -> list[str]:
        """Count an inspection; the damaged tasks that are new are returned."""
        self.judged += 1
        self.anomalous += result.verdict == ANOMALOUS
        self.unknown += result.verdict == UNKNOWN
        self.not_ready += result.verdict not in (NORMAL, ANOMALOUS, UNKNOWN)
        self.unusual_light += bool(result.light)
        self.milliseconds += result.ms.get("total", 0.0)
        new = [name for name in result.left_out if name not in self.left_out]
        self.left_out.update(new)
        return new

    def sentence(self) -> str:
        """The summary; what cannot be judged is named only where there is some."""
        total = self.judged + self.unreadable
        parts = [f"{self.anomalous} anomalous", f"{self.unreadable} unreadable"]
        if self.not_ready:
            parts.insert(1, f"{self.not_ready} not ready")
        if self.unknown:
            parts.insert(1, f"{self.unknown} unknown")
        if self.unusual_light:
            parts.append(f"{self.unusual_light} in unusual light")
        damaged = f"; without {len(self.left_out)} damaged task{'s' * (len(self.left_out) != 1)}"
        speed = f"; {self.milliseconds / self.judged:.0f} ms an image" if self.judged else ""
        return f"{total} image{'s' * (total != 1)}: {', '.join(parts)}{damaged if self.left_out else ''}{speed}"

    def exit_code(self, *, tell_anomalies: bool) -> int:
        """A defect that was found goes before all else, and what could not be judged before what could not be read."""
        if tell_anomalies and self.anomalous:
            return EXIT_ANOMALOUS
        if self.unknown or self.not_ready or self.left_out:
            return EXIT_NOT_JUDGED
        return EXIT_UNREADABLE if self.unreadable else EXIT_OK


def inspect(arguments: argparse.Namespace) -> int:
    """Inspect images and print a line for each."""
    from dinosaur_ad.bank.shifting import ShiftWatch
    from dinosaur_ad.inspection import Rejected

    detector: Dinosaur | Fleet
    detector, paths = _on_ray(arguments) if arguments.engine == "ray" else _here(arguments)
    overlays = None
    if arguments.overlays:
        overlays = Overlays(arguments.overlays, arguments.images, paths, arguments.store)
    say_overlays_left_out(arguments.images)
    write = WRITERS[arguments.format or "text"](detector)
    count, watch, reasons = _Count(), ShiftWatch(), set[str]()
    with Progress(detector, len(paths)) as progress:
        results = detector.stream(paths, task=arguments.task, false_alarms=arguments.false_alarms)
        for done, result in enumerate(results, start=1):
            if isinstance(result, Rejected):
                count.unreadable += 1
                with progress.writing():
                    write.rejected(result)
            else:
                progress.announce()
                damaged = count.take(result)
                watch.take(result)
                overlay = overlays.save(result) if overlays else None
                with progress.writing():
                    if result.reason and result.verdict != UNKNOWN and result.reason not in reasons:
                        reasons.add(result.reason)
                        say(f"not ready: {result.reason}")
                    for name in damaged:
                        say(f"left out: {_why_left_out(detector, name)}")
                    write.inspection(result, overlay)
            progress.update(done)
    say(count.sentence())
    for name, notice in watch.notices(detector.store).items():
        say(f"warning: {shifted_sentence(name, notice)}")
    return count.exit_code(tell_anomalies=arguments.exit_code)


def _why_left_out(detector: Dinosaur | Fleet, name: str) -> str:
    """What is wrong with a damaged task; the workers of a cluster do not report the reason."""
    from dinosaur_ad.detector import Dinosaur

    reason = detector.damaged().get(name) if isinstance(detector, Dinosaur) else None
    return f"the task '{name}' is damaged and was left out; {reason or 'see: dinosaur tasks --verify'}"


def _here(arguments: argparse.Namespace) -> tuple[Dinosaur, Sequence[Path | str]]:
    from dinosaur_ad.images.loading import find_images

    if arguments.address is not None:
        raise InputError("--address names a Ray cluster; add --engine ray, or leave it out.")
    return open_store(arguments, **encoder_options(arguments)), find_images(arguments.images)


def _on_ray(arguments: argparse.Namespace) -> tuple[Fleet, Sequence[Path | str]]:
    from dinosaur_ad.cluster import Fleet, find_everywhere, is_address

    options = encoder_options(arguments)
    here_only = [f"--{name}" for name in ("precision", "strict", "export") if options[name]]
    if options["provider"] not in (None, "onnx-cpu", "torch"):
        here_only.insert(0, "--provider")
    if here_only:
        raise InputError(
            f"The workers of a cluster run onnx-cpu in float32; leave out {', '.join(here_only)}, or --engine ray."
        )
    fleet_options = {name: options[name] for name in ("weights", "provider", "threads")}
    fleet = Fleet(open_store(arguments, **options), address=arguments.address, **fleet_options)
    images = find_everywhere(arguments.images)
    remote = next(filter(is_address, images), None)
    if remote and arguments.overlays:
        raise InputError(f"Overlays are drawn here, from files, and '{remote}' is none; leave --overlays out.")
    return fleet, images
