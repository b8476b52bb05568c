"""The verb inspect: a line per image, as text or JSON, and overlays."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dinosaur_ad.cli._console import (
    EXIT_ANOMALOUS,
    EXIT_OK,
    EXIT_UNREADABLE,
    Progress,
    Subparsers,
    add_images,
    add_store,
    add_verb,
    encoder_options,
    open_store,
    report_rejected,
    say,
)
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.cluster import Fleet
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.inspection import Inspection, Rejected

_STEM_BYTES = 150  # of a file name's usual 255: leaves room for a number and the suffix
_COLOURS = {"anomalous": "\x1b[31m", "normal": "\x1b[32m"}


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
    parser.add_argument("--task", metavar="NAME", help="compare with this task only")
    parser.add_argument("--json", action="store_true", help="one JSON object a line per image, and nothing else")
    parser.add_argument("--overlays", metavar="DIR", type=Path, help="write a picture of where, one PNG per image")
    parser.add_argument(
        "--false-alarms",
        metavar="RATE",
        type=float,
        help="share of normal images that may be called anomalous (default: that of the preset, 0.025)",
    )
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 when an image is anomalous")
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="ray: on a cluster, for very large sets; IMAGES may then be fsspec addresses too (s3://bucket/folder)",
    )
    parser.add_argument("--address", metavar="ADDRESS", help="the Ray cluster (default: one on this machine)")


def inspect(arguments: argparse.Namespace) -> int:
    """Inspect images and print a line for each."""
    from dinosaur_ad.inspection import Rejected

    detector: Dinosaur | Fleet
    detector, paths = _on_ray(arguments) if arguments.engine == "ray" else _here(arguments)
    overlays = _Overlays(arguments.overlays, paths) if arguments.overlays else None
    names = _column_width(detector.store.names())
    anomalous, unreadable, milliseconds = 0, 0, 0.0
    with Progress(detector, len(paths)) as progress:
        results = detector.stream(paths, task=arguments.task, false_alarms=arguments.false_alarms)
        for done, result in enumerate(results, start=1):
            if isinstance(result, Rejected):
                unreadable += 1
            else:
                progress.announce()
                anomalous += result.anomalous
                milliseconds += result.ms["total"]
            with progress.writing():
                _print(result, names, as_json=arguments.json)
            if overlays and not isinstance(result, Rejected):
                overlays.save(result)
            progress.update(done)
    inspected = len(paths) - unreadable
    speed = f"; {milliseconds / inspected:.0f} ms an image" if inspected else ""
    count = "1 image" if len(paths) == 1 else f"{len(paths)} images"
    say(f"{count}: {anomalous} anomalous, {unreadable} unreadable{speed}")
    if unreadable:
        return EXIT_UNREADABLE
    return EXIT_ANOMALOUS if anomalous and arguments.exit_code else EXIT_OK


def _here(arguments: argparse.Namespace) -> tuple[Dinosaur, Sequence[Path | str]]:
    from dinosaur_ad.data import find_images

    if arguments.address is not None:
        raise InputError("--address names a Ray cluster; add --engine ray, or leave it out.")
    return open_store(arguments, **encoder_options(arguments)), find_images(arguments.images)


def _on_ray(arguments: argparse.Namespace) -> tuple[Fleet, Sequence[Path | str]]:
    from dinosaur_ad.cluster import Fleet, find_everywhere, is_address

    options = encoder_options(arguments)
    here_only = [f"--{name}" for name in ("provider", "precision", "strict", "export") if options[name]]
    if here_only:
        raise InputError(
            f"The workers of a cluster run onnx-cpu in float32; leave out {', '.join(here_only)}, or --engine ray."
        )
    fleet_options = {name: options[name] for name in ("weights", "backend", "threads")}
    fleet = Fleet(open_store(arguments, **options), address=arguments.address, **fleet_options)
    images = find_everywhere(arguments.images)
    remote = next(filter(is_address, images), None)
    if remote and arguments.overlays:
        raise InputError(f"Overlays are drawn here, from files, and '{remote}' is none; leave --overlays out.")
    return fleet, images


def _print(result: Inspection | Rejected, names: int, *, as_json: bool) -> None:
    from dinosaur_ad.inspection import Rejected

    if as_json:
        document = {"path": result.path, "error": result.reason} if isinstance(result, Rejected) else result.to_json()
        print(json.dumps(document, allow_nan=False), flush=True)
    elif isinstance(result, Rejected):
        report_rejected([result])
    else:
        print(_line(result, names), flush=True)


def _line(inspection: Inspection, names: int) -> str:
    verdict = f"{inspection.verdict:<9}"
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        verdict = f"{_COLOURS[inspection.verdict]}{verdict}\x1b[0m"
    return (
        f"{verdict}  {inspection.task:<{names}}  {inspection.score:7.3f} / {inspection.threshold:.3f}  "
        f"p {inspection.p_value:.4f}  {_one_line(inspection.path)}"
    )


def _column_width(names: Sequence[str]) -> int:
    return max(map(len, names), default=0)


def _one_line(path: str) -> str:
    """A path as it is, unless it would break the line or steer the terminal."""
    return path if path.isprintable() else path.encode("unicode_escape").decode("ascii")


class _Overlays:
    """The folder for overlays; each gets a name of its own, and none is that of an inspected image."""

    def __init__(self, folder: Path, images: Sequence[Path | str]) -> None:
        self._folder = folder
        self._images = {Path(path).resolve() for path in images}
        self._used: set[str] = set()

    def save(self, inspection: Inspection) -> None:
        from dinosaur_ad.data import read_image
        from dinosaur_ad.visual import save_overlay

        self._folder.mkdir(parents=True, exist_ok=True)
        save_overlay(self._new_path(Path(inspection.path).stem), read_image(inspection.path), inspection)

    def _new_path(self, stem: str) -> Path:
        safe = re.sub(r"[^\w.-]+", "_", stem).encode()[:_STEM_BYTES].decode(errors="ignore").lstrip(".") or "image"
        number = 1
        while True:
            path = self._folder / f"{safe}{f'-{number}' if number > 1 else ''}.overlay.png"
            # Compared without case, because not every file system knows it.
            if path.name.casefold() not in self._used and path.resolve() not in self._images:
                self._used.add(path.name.casefold())
                return path
            number += 1
