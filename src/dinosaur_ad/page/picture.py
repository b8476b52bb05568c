"""A sequence in one picture, for a README: what was learned, what was caught, the matrix."""

from __future__ import annotations

import io
from collections.abc import Mapping

from PIL import Image, ImageDraw

from dinosaur_ad._text import percent
from dinosaur_ad.images.drawing import Colour, font
from dinosaur_ad.images.loading import Pixels
from dinosaur_ad.page.charts import strength
from dinosaur_ad.page.examples import Example, ShownRows
from dinosaur_ad.page.photo_cards import marks
from dinosaur_ad.page.sequence_results import SequenceRow, SequenceRun, Summary

_INK: Colour = (27, 31, 39)
_SOFT: Colour = (91, 100, 114)
_BLUE: Colour = (36, 99, 168)
_CELL, _GAP, _LEFT, _TOP = 140, 6, 66, 34
_SQUARE = (56, 40)


def sequence_picture(run: SequenceRun, choice: ShownRows, examples: Mapping[SequenceRow, Example]) -> bytes:
    """The picture as a PNG of 256 colours: the showcase to the left, matrix and numbers to the right."""
    summary = run.summary
    products = len(summary.products)
    matrix_left = _LEFT + products * (_CELL + _GAP) + 26
    width = matrix_left + 62 + max(5, products) * (_SQUARE[0] + 3) + 12
    height = _TOP + 3 * (_CELL + _GAP) + 10
    sheet = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(sheet)
    for column, (normal, defect) in enumerate(choice.showcase):
        _draw_product(sheet, pen, _LEFT + column * (_CELL + _GAP), examples[normal], examples[defect])
    for line, word in enumerate(("normal", "defect", "found")):
        middle = _TOP + line * (_CELL + _GAP) + _CELL // 2
        pen.text((_LEFT - 10, middle), word, fill=_SOFT, font=font(14), anchor="rm")
    bottom = _draw_matrix(pen, matrix_left, summary)
    _draw_numbers(pen, (matrix_left, bottom + 22), run, summary)
    buffer = io.BytesIO()
    # Maximum coverage keeps the few pixels of heat and outline, which a palette by frequency would lose.
    sheet.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=3).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _draw_product(sheet: Image.Image, pen: ImageDraw.ImageDraw, left: int, normal: Example, defect: Example) -> None:
    """One column: the normal as it was seen, the defect outlined, the defect as it was seen."""
    pen.text((left + _CELL // 2, _TOP - 8), normal.row.product, fill=_INK, font=font(15), anchor="ms")
    shown = ((normal, True, False), (defect, False, True), (defect, True, False))
    for line, (example, heat, truth) in enumerate(shown):
        mask = example.mask if truth else None
        zoom = _CELL / max(example.pixels.shape)
        layer = marks(example.pixels, example.inspection, mask, heat=heat, zoom=zoom)
        sheet.paste(_thumbnail(example.pixels, layer), (left, _TOP + line * (_CELL + _GAP)))


def _thumbnail(pixels: Pixels, layer: Pixels) -> Image.Image:
    size = (layer.shape[1], layer.shape[0])
    picture = Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS).convert("RGBA")
    picture.alpha_composite(Image.fromarray(layer))
    return picture.convert("RGB")


def _draw_matrix(pen: ImageDraw.ImageDraw, left: int, summary: Summary) -> int:
    """AUROCs on the fixed scale from 0.5 to 1; returns where the matrix ends."""
    pen.text((left, _TOP - 8), "AUROC, tested without naming the product", fill=_INK, font=font(15), anchor="ls")
    start, top = left + 62, _TOP + 26
    for t, (name, line) in enumerate(zip(summary.products, summary.matrix, strict=True)):
        y = top + t * (_SQUARE[1] + 3)
        pen.text(
            (start + t * (_SQUARE[0] + 3) + _SQUARE[0] // 2, top - 7), name, fill=_SOFT, font=font(13), anchor="ms"
        )
        pen.text((start - 8, y + _SQUARE[1] // 2), f"+ {name}", fill=_SOFT, font=font(13), anchor="rm")
        for j, value in enumerate(line):
            if value is not None:
                _draw_cell(pen, start + j * (_SQUARE[0] + 3), y, value)
    return top + len(summary.products) * (_SQUARE[1] + 3)


def _draw_cell(pen: ImageDraw.ImageDraw, x: int, y: int, value: float) -> None:
    share = strength(value)
    fill = tuple(int(255 + (band - 255) * share) for band in _BLUE)
    pen.rounded_rectangle((x, y, x + _SQUARE[0], y + _SQUARE[1]), 5, fill=fill)
    ink = "white" if share > 0.5 else _INK
    pen.text((x + _SQUARE[0] // 2, y + _SQUARE[1] // 2), f"{value:.3f}", fill=ink, font=font(15), anchor="mm")


def _draw_numbers(pen: ImageDraw.ImageDraw, at: tuple[int, int], run: SequenceRun, summary: Summary) -> None:
    lines = [
        (f"{run.seconds_per_product:.1f} s", f"to learn a product from {run.taught[0].images} normal images"),
        (f"{summary.ms_per_image:.0f} ms", f"an image, {run.software['machine'].rpartition(', ')[2]}, no GPU"),
    ]
    if summary.mean_auroc is not None:
        lines.insert(0, (f"{summary.mean_auroc:.3f}", "mean AUROC at the end"))
    if summary.forgetting is not None:
        lines.insert(1, (f"{summary.forgetting:.3f}", "forgetting"))
    if summary.false_alarms.rate is not None:
        lines.append((percent(summary.false_alarms.rate, 1), f"false alarms, {100 * run.asked:g} % asked for"))
    if summary.recall.rate is not None:
        lines.append((percent(summary.recall.rate, 0), f"of {summary.recall.total} defects caught"))
    for place, (value, words) in enumerate(lines):
        y = at[1] + place * 25
        pen.text((at[0] + 62, y), value, fill=_INK, font=font(17), anchor="rs")
        pen.text((at[0] + 72, y), words, fill=_SOFT, font=font(14), anchor="ls")
