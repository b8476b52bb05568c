"""What the verbs share: exit codes, where words go, options of the encoder, the progress bar."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dinosaur_ad.cluster import Fleet
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.inspection import Rejected

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

EXIT_OK, EXIT_ANOMALOUS, EXIT_ERROR, EXIT_UNREADABLE, EXIT_INTERRUPTED = 0, 1, 2, 3, 130

EPILOG = """\
exit codes:
  0    done
  1    anomalies were found (only from inspect with --exit-code)
  2    an error: a sentence on stderr says which, and the store is unchanged
  3    done, but some images could not be read and were left out (goes before 1)
  130  interrupted
"""


def say(sentence: str) -> None:
    """Print what is not a result."""
    print(sentence, file=sys.stderr, flush=True)


def add_verb(
    verbs: Subparsers, name: str, run: Callable[[argparse.Namespace], int], description: str
) -> argparse.ArgumentParser:
    """Add one verb; its first sentence is the line it has in the help of the whole command."""
    parser = verbs.add_parser(
        name,
        help=description.partition(".")[0],
        description=description,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the store."""
    parser.add_argument("--store", metavar="DIR", type=Path, required=True, help="the folder that keeps what is taught")


def add_images(parser: argparse.ArgumentParser) -> None:
    """Add the images, and the options of whatever encodes them."""
    parser.add_argument("images", metavar="IMAGES", nargs="+", help="image files, folders or globs")
    add_encoder_options(parser)


def add_encoder_options(parser: argparse.ArgumentParser) -> None:
    """Add what decides how the encoder runs; :func:`encoder_options` reads it."""
    group = parser.add_argument_group("encoder")
    group.add_argument("--weights", metavar="PATH", type=Path, help="weights from this file, not from the cache")
    group.add_argument("--backend", choices=("onnx", "torch"), default="onnx", help="what runs it (default: onnx)")
    group.add_argument("--threads", metavar="N", type=int, help="CPU threads (default: all cores)")
    group.add_argument(
        "--provider",
        metavar="NAME",
        help="what runs it: onnx-cpu (default), openvino, cuda, tensorrt, coreml, xnnpack, acl, torch; or auto: "
        "measure once and keep the fastest that is right",
    )
    group.add_argument("--precision", metavar="NAME", help="float32 (default), bfloat16, float16 or int8")
    group.add_argument("--strict", action="store_true", help="refuse what is not here instead of falling back")
    group.add_argument("--export", metavar="DIR", type=Path, help="run the encoder that dinosaur export wrote there")


ENCODER_OPTIONS = ("weights", "backend", "threads", "provider", "precision", "strict", "export")


def encoder_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of :func:`add_encoder_options`, for the detector."""
    return {key: getattr(arguments, key) for key in ENCODER_OPTIONS}


def open_store(arguments: argparse.Namespace, **options: Any) -> Dinosaur:
    """The detector of a store that is there."""
    from dinosaur_ad.detector import Dinosaur

    return Dinosaur.load(arguments.store, **options)


def report_rejected(rejected: Iterable[Rejected]) -> None:
    """Say which images were left out, a sentence each."""
    for each in rejected:
        say(f"skipped: {each.reason}")


class Progress(AbstractContextManager["Progress"]):
    """A bar on a terminal, for what takes more than a second; with the first image it says who encodes.

    Not before: a command that is refused should be refused at once, without loading an encoder.
    """

    def __init__(self, detector: Dinosaur | Fleet, total: int | None = None) -> None:
        from tqdm import tqdm

        self._detector = detector
        self._announced = False
        # disable=None: no bar where stderr is not a terminal.
        self._bar = tqdm(total=total, unit=" images", delay=1, disable=None, leave=False)

    def __call__(self, done: int, total: int | None) -> None:
        """So many images are done, of so many."""
        self._bar.total = total
        self.announce()
        self.update(done)

    def update(self, done: int) -> None:
        """So many images are done, and perhaps none of them was encoded."""
        self._bar.update(done - self._bar.n)

    def announce(self) -> None:
        """Say once which encoder makes the results, in its own words."""
        if not self._announced:
            self._announced = True
            with self.writing():
                say(_encoder_line(self._detector.info()))

    def writing(self) -> AbstractContextManager[None]:
        """Move the bar out of the way of a line on stdout or stderr."""
        writing: AbstractContextManager[None] = self._bar.external_write_mode(file=sys.stdout)
        return writing

    def __exit__(self, *error: object) -> None:
        self._bar.close()


def _encoder_line(info: dict[str, Any]) -> str:
    return (
        f"encoder: {info['description']} ({info['encoder']}); provider: {info['provider']}; "
        f"precision: {info['precision']}; preset: {info['preset']}; seed: {info['seed']}"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Collection[str] = ()) -> str:
    """Aligned columns under their names; those called ``numeric`` stand to the right.

    >>> print(table(("name", "images"), [("screw", "7"), ("nut", "120")], numeric=("images",)))
    name   images
    screw       7
    nut       120
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    aligned = [
        "  ".join(
            cell.rjust(width) if name in numeric else cell.ljust(width)
            for name, cell, width in zip(header, row, widths, strict=True)
        )
        for row in (header, *rows)
    ]
    return "\n".join(line.rstrip() for line in aligned)
