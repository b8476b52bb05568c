"""The verb report: one's own images, inspected, as one HTML page."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dinosaur_ad.cli._console import EXIT_NOT_JUDGED, EXIT_OK, EXIT_UNREADABLE, report_rejected, say, show
from dinosaur_ad.cli._overlays import say_overlays_left_out
from dinosaur_ad.cli._parser import (
    Subparsers,
    add_encoder_options,
    add_false_alarms,
    add_store,
    add_verb,
    encoder_options,
    open_store,
)
from dinosaur_ad.cli._progress import SHORTLY, Progress
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.page.image_results import ImageResults

GOOD, BAD = 0, 1


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file."""
    parser = add_verb(
        verbs,
        "report",
        report,
        "Inspect images and write one self-contained HTML page: a summary, the scores, the worst images first.",
    )
    parser.add_argument("images", metavar="IMAGES", nargs="*", help="image files, folders or globs")
    add_encoder_options(parser)
    add_store(parser)
    parser.add_argument("--task", metavar="NAME", help="compare with this task only")
    parser.add_argument(
        "--out",
        metavar="FILE.html",
        type=Path,
        default=Path("report.html"),
        help="the page (default: report.html); an earlier report is replaced, any other file is left alone",
    )
    parser.add_argument("--good", metavar="DIR", action="append", default=[], help="images known to be good: a check")
    parser.add_argument("--bad", metavar="DIR", action="append", default=[], help="images known to be bad")
    add_false_alarms(
        parser, "share of normal images that may be called anomalous, like 0.01 or 1%% (default: as each task is set)"
    )


def report(arguments: argparse.Namespace) -> int:
    """Inspect images and write the page; its path is printed."""
    from dinosaur_ad._atomic import write_atomic
    from dinosaur_ad.bank.shifting import ShiftWatch
    from dinosaur_ad.cli._results import shifted_sentence
    from dinosaur_ad.inspection import Rejected
    from dinosaur_ad.page.image_page import headline, image_page
    from dinosaur_ad.page.image_results import ImageResults

    _refuse_place(arguments.out, arguments.store)
    labels = _labelled_images(arguments)
    detector = open_store(arguments, **encoder_options(arguments))
    say_overlays_left_out([*arguments.images, *arguments.good, *arguments.bad])
    results, watch = ImageResults(), ShiftWatch()
    with Progress(detector, len(labels)) as progress:
        stream = detector.stream(list(labels), task=arguments.task, false_alarms=arguments.false_alarms)
        for done, (result, label) in enumerate(zip(stream, labels.values(), strict=True), start=1):
            results.add(result, label)
            if label != BAD:
                watch.take(result)
            if isinstance(result, Rejected):
                with progress.writing():
                    report_rejected([result])
            else:
                progress.announce()
            progress.update(done)
    for name, notice in watch.notices(detector.store).items():
        results.warnings.append(f"Warning: {shifted_sentence(name, notice)}.")
    page = image_page(results, _made_by(detector, arguments.store), _drawing_bar())
    _refuse_place(arguments.out, arguments.store)  # again: inspecting may have taken hours
    write_atomic(arguments.out, page.encode())
    say(headline(results), *results.warnings)
    show(str(arguments.out))
    return _exit_code(results)


def _drawing_bar() -> Callable[[int, int], None]:
    """A second bar on a terminal, for the pictures."""
    from tqdm import tqdm

    bar = tqdm(desc="drawing", unit=" pictures", delay=SHORTLY, disable=None, leave=False)

    def update(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)
        if done == total:
            bar.close()

    return update


def _labelled_images(arguments: argparse.Namespace) -> dict[Path, int | None]:
    """Every image once, with its label: 0 good, 1 bad, None not known."""
    from dinosaur_ad.images.finding import find_images

    if not (arguments.images or arguments.good or arguments.bad):
        raise InputError("No images were given; name files, folders or globs, or use --good and --bad.")
    found: dict[str, tuple[Path, int | None]] = {}
    groups: Sequence[tuple[list[str], int | None]] = (
        (arguments.good, GOOD),
        (arguments.bad, BAD),
        (arguments.images, None),
    )
    for named, label in groups:
        for path in find_images(named) if named else ():
            known = found.setdefault(os.path.realpath(path), (path, label))
            if label is not None and known[1] != label:
                raise InputError(f"'{path}' is below both --good and --bad; give every image to one of them.")
    return dict(found.values())


def _refuse_place(out: Path, store: Path) -> None:
    """Refuse a place that cannot take the page, before the work: a folder, a foreign file, inside the store."""
    from dinosaur_ad.page.html import generator_mark
    from dinosaur_ad.page.image_page import TITLE

    if out.is_dir():
        raise InputError(f"'{out}' is a folder; give --out a file, such as {out / 'report.html'}.")
    if Path(os.path.realpath(out)).is_relative_to(os.path.realpath(store)):
        raise InputError(f"'{out}' lies in the store, which keeps only what is taught; choose another --out.")
    if os.path.lexists(out):
        try:
            with out.open("rb") as file:
                made_here = generator_mark(TITLE).encode() in file.read(2000)
        except OSError:
            made_here = False
        if not made_here:
            raise InputError(f"'{out}' was not made by dinosaur report and is left alone; choose another --out.")
    there = next(path for path in out.absolute().parents if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"'{there}' cannot be written to ({reason}); choose another --out.") from None


def _made_by(detector: Dinosaur, store: Path) -> dict[str, Any]:
    from dinosaur_ad import __version__

    info = detector.info()
    return {
        "encoder": f"{info['encoder']} ({info['description']})",
        **{name: info[name] for name in ("provider", "precision", "preset", "seed")},
        "store": store,
        "dinosaur-ad": __version__,
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    }


def _exit_code(results: ImageResults) -> int:
    if any(not row.judged for row in results.rows) or results.left_out:
        return EXIT_NOT_JUDGED
    return EXIT_UNREADABLE if results.rejected else EXIT_OK
