"""The verb profile: how fast this machine is; and profiles of several machines side by side."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from dinosaur_ad.cli import bench_options
from dinosaur_ad.cli._console import EXIT_ERROR, EXIT_OK, say, show, show_json, show_page
from dinosaur_ad.cli._parser import Subparsers, add_encoder_options, add_verb, encoder_options
from dinosaur_ad.cli._steps import Steps
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.methods import MethodChoice
    from dinosaur_ad.profile.profiling import ProfilePlan

ALL = "all"


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file, and the one below it."""
    parser = add_verb(
        verbs,
        "profile",
        profile,
        "Measure how fast this machine is. Prints speed, learning time, memory and encoder in five lines; --tables\n"
        "prints everything that was measured, beside the figures of the paper. Every method runs in processes of its\n"
        "own, in random order and repeatedly.",
    )
    listed = bench_options.names
    parser.add_argument(
        "--methods",
        metavar="all|A,B",
        type=listed,
        default=["dinosaur"],
        help="methods such as dinosaur,patchcore:vit; all: one of each, and dinosaur:paper (default: dinosaur)",
    )
    parser.add_argument("--store", metavar="DIR", type=Path, help="inspect with this store (it is not changed)")
    parser.add_argument(
        "--images", metavar="DIR", type=Path, help="normal images to measure with (default: drawn ones)"
    )
    parser.add_argument("--device-name", metavar="TEXT", help="what this machine is called (default: its board or CPU)")
    parser.add_argument(
        "--out", metavar="FILE.json", type=Path, help="write the profile, for: dinosaur profile compare"
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="write the tables as a page")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--tables", action="store_true", help="print all tables instead of five lines")
    form.add_argument("--json", action="store_true", help="print the profile as one JSON object, as --out writes it")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="a setting of a method: patchcore.dim=256"
    )
    parser.add_argument("--device", metavar="cpu|cuda", default="cpu", help="of the other methods (default: cpu)")
    _add_counts(parser)
    add_encoder_options(parser)
    parts = parser.add_subparsers(title="verbs", metavar="VERB")
    part = add_verb(parts, "compare", compare, "Show profiles of several machines side by side.")
    part.add_argument("profiles", metavar="FILE.json", nargs="+", type=Path, help="what profile --out wrote")
    part.add_argument("--html", metavar="FILE", type=Path, default=argparse.SUPPRESS, help="write the tables as a page")
    part.add_argument("--latex", action="store_true", help="print LaTeX instead of Markdown")
    part.add_argument("--print", metavar="TABLE", help="print this table alone, such as efficiency")


def _add_counts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how often")
    group.add_argument("--learn-images", metavar="D", type=int, help="images of the task to learn (default: 100)")
    group.add_argument("--learn-repeats", metavar="N", type=int, default=1, help="times to learn it (default: 1)")
    group.add_argument("--repeats", metavar="N", type=int, default=3, help="rounds over all methods (default: 3)")
    group.add_argument("--runs", metavar="N", type=int, default=40, help="timed images in each round (default: 40)")
    group.add_argument("--warm-up", metavar="N", type=int, default=5, help="images before them (default: 5)")


def profile(arguments: argparse.Namespace) -> int:
    """Measure, print the result, and write what was asked for."""
    from dinosaur_ad.profile.document import FAILED, MEASURED, write_page, write_profile
    from dinosaur_ad.profile.profile_tables import profile_page, to_text
    from dinosaur_ad.profile.profiling import Profiler
    from dinosaur_ad.profile.summary import summary

    _check_place(arguments.out, "--out")
    _check_place(arguments.html, "--html")
    plan = _plan(arguments)
    with Steps() as step, _terminated_like_interrupted():
        profiler = Profiler(plan, step)
        try:
            document = profiler.run()
        except KeyboardInterrupt:
            if arguments.out is None:
                raise
            write_profile(arguments.out, profiler.document(complete=False))
            raise KeyboardInterrupt(f"what was measured so far is in {arguments.out}") from None
    if arguments.out is not None:
        write_profile(arguments.out, document)
        say(f"profile: {arguments.out}")
    if arguments.html is not None:
        write_page(arguments.html, profile_page([document]))
        say(f"page: {arguments.html}")
    if arguments.json:
        show_json(document)
    elif arguments.tables:
        show_page(to_text([document]))
    else:
        show(*summary(document))
        more = f"dinosaur profile compare {arguments.out}" if arguments.out else "dinosaur profile --tables"
        say(f"all tables, beside the paper's figures: {more}")
    statuses = {method["status"] for method in document["methods"]}
    return EXIT_ERROR if FAILED in statuses or MEASURED not in statuses else EXIT_OK


def compare(arguments: argparse.Namespace) -> int:
    """Print profiles side by side."""
    from dinosaur_ad.profile.document import read_profile, write_page
    from dinosaur_ad.profile.profile_tables import profile_page, to_text

    _check_place(arguments.html, "--html")
    profiles = [read_profile(path) for path in arguments.profiles]
    text = to_text(profiles, latex=arguments.latex, only=arguments.print)
    if arguments.html is not None:
        write_page(arguments.html, profile_page(profiles))
        say(f"page: {arguments.html}")
    show_page(text)
    return EXIT_OK


def _plan(arguments: argparse.Namespace) -> ProfilePlan:
    from dinosaur_ad.profile.machine import machine_facts
    from dinosaur_ad.profile.profiling import ProfilePlan

    if arguments.store is not None and not arguments.store.is_dir():
        raise InputError(f"There is no store '{arguments.store}'; teach one with: dinosaur learn.")
    facts = machine_facts()
    counts = {
        name: getattr(arguments, name) for name in ("learn_images", "learn_repeats", "repeats", "runs", "warm_up")
    }
    return ProfilePlan(
        methods=_methods(arguments),
        device_name=arguments.device_name or facts["board"] or f"{facts['processor']}, {facts['cores']} cores",
        images=arguments.images,
        store=arguments.store,
        options=encoder_options(arguments),
        device=bench_options.read_device(arguments.device),
        **counts,
    )


def _methods(arguments: argparse.Namespace) -> tuple[MethodChoice, ...]:
    from dinosaur_ad.methods import choose_methods, list_methods

    names = arguments.methods
    if ALL in names:
        if len(names) > 1:
            raise InputError(f"--methods takes all or names, not both, got '{','.join(names)}'.")
        names = [*(name for name, spec in list_methods().items() if not spec.control), "dinosaur:paper"]
    return tuple(choose_methods(names, bench_options.read_settings(arguments.set)))


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Treat SIGTERM (a service that stops, ``timeout``) as Ctrl-C, so that children end and files are removed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_place(path: Path | None, option: str) -> None:
    """Refuse a file that could not be written, before the hours of work and not after them."""
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; give {option} a file.")
    bench_options.output_folder(str(path.parent), option)
