"""Pictures of suspects: a sheet of the images that do not seem to belong to what is learned, to be looked at."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad._text import printable
from dinosaur_ad.cli._console import say
from dinosaur_ad.errors import InputError, TeachingRefusedError

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

SIDE, LINE, SIZE, COLUMNS, MOST = 240, 20, 14, 4, 24
"""Pixels of a picture, of a line of text and of its letters, pictures a row, and pictures of a sheet."""
MARK = "dinosaur suspects"
"""What the PNG says of itself, so that an earlier sheet can be told from any other picture."""


def refuse_place(out: Path | None) -> None:
    """Refuse a place that cannot take the sheet before the work: a folder that is not there, or another file."""
    if out is None:
        return
    if out.suffix.lower() != ".png":
        raise InputError(f"'{out}' is no name of a PNG file; give --suspects one, such as suspects.png.")
    if not out.parent.is_dir():
        raise InputError(f"The folder of '{out}' does not exist; make it, or choose another place for --suspects.")
    if os.path.lexists(out) and not _made_here(out):
        raise InputError(f"'{out}' is not a sheet of suspects, and is left alone; choose another --suspects.")


def _made_here(out: Path) -> bool:
    from PIL import Image

    try:
        with Image.open(out, formats=["PNG"]) as image:
            return image.info.get("Software") == MARK
    except (OSError, ValueError, SyntaxError):
        return False


@contextmanager
def shown_if_refused(out: Path | None) -> Iterator[None]:
    """Write the sheet of a refusal; the refusal goes on."""
    try:
        yield
    except TeachingRefusedError as error:
        suspects = list(zip(error.paths, error.reasons, strict=False))
        write_sheet(out, suspects)
        if out is not None and not suspects:
            say(f"no sheet of suspects was written to {out}: this refusal is about no image in particular")
        raise


def write_sheet(out: Path | None, suspects: Sequence[tuple[str, str]]) -> None:
    """Write the pictures of suspects, each with its name and why it is one; nothing without ``out`` or suspects."""
    if out is None or not suspects:
        return
    from PIL import Image, ImageDraw

    from dinosaur_ad.images.drawing import elided, font

    shown = suspects[:MOST]
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    sheet = Image.new("RGB", (columns * (SIDE + LINE) + LINE, rows * (SIDE + 3 * LINE) + LINE), "white")
    pen = ImageDraw.Draw(sheet)
    for number, (path, reason) in enumerate(shown):
        left = LINE + number % columns * (SIDE + LINE)
        top = LINE + number // columns * (SIDE + 3 * LINE)
        _draw(sheet, pen, path, left, top)
        pen.text((left, top + SIDE + 2), elided(pen, printable(Path(path).name, 60), SIZE, SIDE), "black", font(SIZE))
        pen.text((left, top + SIDE + LINE), elided(pen, printable(reason, 80), SIZE, SIDE), "#a02050", font(SIZE))
    _save(sheet, out)
    more = f", the first {MOST} of {len(suspects)}" if len(suspects) > MOST else ""
    say(f"pictures of the suspects{more}: {out}")


def _draw(sheet: Image.Image, pen: ImageDraw.ImageDraw, path: str, left: int, top: int) -> None:
    from PIL import Image

    from dinosaur_ad.images.loading import read_image

    try:
        picture = Image.fromarray(read_image(Path(path)))
    except (InputError, OSError, ValueError):  # given as pixels, or gone
        pen.rectangle((left, top, left + SIDE, top + SIDE), outline="#888888")
        return
    picture.thumbnail((SIDE, SIDE))
    sheet.paste(picture, (left + (SIDE - picture.width) // 2, top + (SIDE - picture.height) // 2))


def _save(sheet: Image.Image, out: Path) -> None:
    """Whole or not at all."""
    from PIL.PngImagePlugin import PngInfo

    about, buffer = PngInfo(), io.BytesIO()
    about.add_text("Software", MARK)
    sheet.save(buffer, "PNG", pnginfo=about)
    write_atomic(out, buffer.getvalue())
