"""An inspection as a picture, on an absolute colour scale: a good part looks good.

Colour says how far a patch is from normal in units that mean the same in every picture of a task: 0 is the usual
distance of patches in normal images, 1 is the threshold of the verdict. Most heat maps stretch every picture to its
own minimum and maximum, and so find something red in every good part.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad._text import odds, printable
from dinosaur_ad.core.upsampling import upsample
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.image_stream import read_prepared
from dinosaur_ad.images.loading import Mask, Pixels, digest, read_image

if TYPE_CHECKING:
    from dinosaur_ad.inspection import Inspection

Floats = NDArray[np.float32]
Colour = tuple[int, int, int]
Box = tuple[int, int, int, int]

# Heat, colour, opacity. Nothing below 0.6; then yellow, orange, magenta: ever darker, so that the order survives
# colour blindness and grey print, and never a colour that a dark image would swallow.
SCALE: tuple[tuple[float, Colour, float], ...] = (
    (0.6, (255, 232, 84), 0.00),
    (0.8, (255, 214, 64), 0.22),
    (1.0, (255, 160, 20), 0.50),
    (1.5, (236, 58, 84), 0.62),
    (2.0, (176, 0, 128), 0.72),
)
FAR = SCALE[-1][0]
TRUTH: Colour = (0, 224, 255)  # where a defect really is, in pictures that know it
DIMMED = 0.35  # how bright what is not inspected is drawn
LARGEST, SMALLEST = 1024, 480  # longest side of a displayed image, in pixels

_INK, _FAINT, _PAPER = (238, 240, 243), (150, 157, 168), (20, 22, 26)
_COLOURS = {
    "anomalous": (255, 122, 150),
    "normal": (96, 205, 190),
    "unknown": (190, 160, 255),
    "not ready": (240, 190, 90),
}
_CLOSE_UP, _MARGIN = 144, 12
_STRIP = 96


def heat(inspection: Inspection) -> Floats:
    """The map ``(H, W)`` on the absolute scale: 0 is usual for normal images of the task, 1 is the threshold.

    >>> from types import SimpleNamespace
    >>> heat(SimpleNamespace(map=np.float32([[0.2, 0.4, 0.6]]), normal_level=0.2, threshold=0.4)).round(2).tolist()
    [[0.0, 1.0, 2.0]]
    """
    relative: Floats = ((inspection.map - inspection.normal_level) / _unit(inspection)).astype(np.float32)
    return relative


def colours(heat_HW: Floats) -> Pixels:
    """Heat as a transparent layer, RGBA uint8 ``(H, W, 4)``.

    >>> colours(np.float32([[0.0, 0.5, 1.0]]))[..., 3].tolist()
    [[0, 0, 128]]
    """
    at = [stop[0] for stop in SCALE]
    bands = [np.interp(heat_HW, at, [stop[1][band] for stop in SCALE]) for band in range(3)]
    opacity = np.interp(heat_HW, at, [stop[2] * 255 for stop in SCALE])
    return np.stack([*bands, opacity], axis=-1).round().astype(np.uint8)


def heat_layer(inspection: Inspection, height: int, width: int) -> Pixels:
    """The map as a transparent layer over an image of that size, RGBA uint8 ``(height, width, 4)``."""
    relative = np.clip(heat(inspection), 0, 2 * FAR)  # an extreme patch must not bleed far over its neighbours
    return colours(upsample(relative, height, width))


def mask_above(inspection: Inspection, height: int, width: int) -> Mask:
    """Where the map, enlarged as in :func:`heat_layer`, lies above the threshold: bool ``(height, width)``.

    >>> from types import SimpleNamespace
    >>> seen = SimpleNamespace(map=np.float32([[0.2, 0.6]]), normal_level=0.2, threshold=0.4)
    >>> mask_above(seen, 1, 8).tolist()
    [[False, False, False, False, True, True, True, True]]
    """
    level, threshold = inspection.normal_level, inspection.threshold
    # The bounds of the heat layer, in distances; a threshold below the usual level must stay inside them.
    low, high = min(level, threshold), level + 2 * FAR * _unit(inspection)
    large = upsample(np.clip(inspection.map, low, high).astype(np.float32), height, width)
    above: Mask = ~(large <= threshold)  # written so that a distance that is no number counts as above
    return above


def paint(pixels: Pixels, inspection: Inspection) -> Pixels:
    """The image with its heat on it, uint8 ``(H, W, 3)``; pixels that look normal stay as they are."""
    rgb = _rgb(pixels)
    layer = heat_layer(inspection, *rgb.shape[:2]).astype(np.float32)
    alpha = layer[..., 3:] / 255
    return (rgb * (1 - alpha) + layer[..., :3] * alpha).round().astype(np.uint8)


def dim(pixels: Pixels, inspected_HW: Mask) -> Pixels:
    """The image with the patches dimmed that are not inspected, uint8 ``(H', W', 3)``."""
    rgb = _rgb(pixels)
    rows, columns = (
        np.arange(side) * count // side for side, count in zip(rgb.shape, inspected_HW.shape, strict=False)
    )
    outside = ~inspected_HW[rows[:, None], columns]
    dimmed = rgb.copy()
    dimmed[outside] = (rgb[outside] * DIMMED).astype(np.uint8)
    return dimmed


def outline(pixels: Pixels, mask: Mask) -> Pixels:
    """The image, RGB or RGBA uint8, with a thin line around ``mask``, bool ``(H, W)``."""
    grown = np.pad(mask, 1)
    around = grown[:-2, 1:-1] | grown[2:, 1:-1] | grown[1:-1, :-2] | grown[1:-1, 2:]
    drawn = pixels.copy()
    drawn[around & ~mask] = (*TRUTH, 255)[: pixels.shape[2]]
    return drawn


def close_up(pixels: Pixels, grid: tuple[int, ...], row: int, column: int) -> Pixels:
    """The patch at ``row``, ``column`` of the ``grid``, boxed, with one patch around it; uint8, at most 144 a side."""
    rgb = _rgb(pixels)
    height, width = rgb.shape[:2]
    top, left = (min(max(0, at - 1), max(0, count - 3)) for at, count in zip((row, column), grid, strict=True))
    x0, y0, x1, y1 = _cells((height, width), grid, top, left, 3)
    image = Image.fromarray(rgb[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)])
    zoom = _CLOSE_UP / max(image.size)
    inner = _cells((height, width), grid, row, column, 1)
    image = _resized(image, zoom)
    draw_box(image, (inner[0] - x0, inner[1] - y0, inner[2] - x0, inner[3] - y0), zoom)
    return np.asarray(image)


def nearest_normal(inspection: Inspection) -> Pixels | None:
    """A close-up of the normal patch the worst one was compared with; None when its image is no longer there.

    A file of that name that shows something else than what was learned is not shown.
    """
    worst = inspection.worst
    size, _, known = worst.like_digest.partition(":")
    try:
        if known and digest(read_prepared(worst.like_image, int(size))) != worst.like_digest:
            return None
        pixels = read_image(worst.like_image)
    except InputError:
        return None
    return close_up(pixels, inspection.map.shape, worst.like_row, worst.like_column)


def overlay(pixels: Pixels, inspection: Inspection) -> Pixels:
    """What a person should see of an inspection, uint8 ``(H', W', 3)``.

    The image, at most 1024 pixels a side, with its heat; below it the verdict, the numbers and the scale. The regions
    of an anomalous one are outlined, and its worst patch is shown beside the normal patch that it was compared with, if
    that training image is still there. Where there are no regions ("not ready") the worst patch has a box; in an image
    of no learned product ("unknown") no place is worse than the others, and none is marked. What lies outside the
    task's zones is dimmed.
    """
    rgb = Image.fromarray(_rgb(pixels))
    zoom = min(max(1.0, SMALLEST / max(rgb.size)), LARGEST / max(rgb.size))
    shown = _resized(rgb, zoom)
    visible = np.asarray(shown) if inspection.inspected is None else dim(np.asarray(shown), inspection.inspected)
    shown = Image.fromarray(paint(visible, inspection))
    panels: list[tuple[str, Pixels]] = []
    if inspection.verdict not in ("normal", "unknown"):
        for region in inspection.regions:
            draw_contour(shown, region.contour, zoom)
        if not inspection.regions:
            draw_box(shown, inspection.worst.box, zoom)
        like = nearest_normal(inspection)
        if like is not None:
            here = close_up(np.asarray(rgb), inspection.map.shape, inspection.worst.row, inspection.worst.column)
            panels = [("worst patch", here), ("compared with", like)]
    return np.asarray(_compose(shown, panels, inspection))


def save_overlay(
    path: str | Path, pixels: Pixels, inspection: Inspection, *, marks: Mapping[str, str] | None = None
) -> None:
    """Write :func:`overlay` to a PNG file, whole or not at all; ``marks`` are texts that the file carries."""
    buffer, texts = io.BytesIO(), PngInfo()
    for name, text in (marks or {}).items():
        texts.add_text(name, text)
    Image.fromarray(overlay(pixels, inspection)).save(buffer, "PNG", pnginfo=texts)
    try:
        write_atomic(Path(path), buffer.getvalue())
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"The overlay '{path}' could not be written ({reason}); choose another folder.") from error


@lru_cache(maxsize=16)
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font: the same on every machine."""
    return ImageFont.load_default(size)


def legend(width: int, height: int) -> Image.Image:
    """The colour scale from 0 to 2 as a bar, on the grey of an ordinary image."""
    ramp = colours(np.broadcast_to(np.linspace(0, FAR, width, dtype=np.float32), (height, width)))
    bar = Image.new("RGBA", (width, height), (176, 180, 186, 255))
    bar.alpha_composite(Image.fromarray(ramp))
    return bar.convert("RGB")


def _compose(shown: Image.Image, panels: list[tuple[str, Pixels]], inspection: Inspection) -> Image.Image:
    """The image, the close-ups to its right and the strip below, on one dark sheet."""
    aside = _CLOSE_UP + 2 * _MARGIN if panels else 0
    tall = len(panels) * (_CLOSE_UP + 2 * _MARGIN + 14)
    width, height = max(shown.width, SMALLEST - aside), max(shown.height, tall)
    sheet = Image.new("RGB", (width + aside, height + _STRIP), _PAPER)
    sheet.paste(shown, ((width - shown.width) // 2, (height - shown.height) // 2))
    pen = ImageDraw.Draw(sheet)
    for place, (title, picture) in enumerate(panels):
        y = _MARGIN + place * (_CLOSE_UP + 2 * _MARGIN + 14)
        pen.text((width + _MARGIN, y), title, fill=_INK, font=font(14))
        sheet.paste(Image.fromarray(picture), (width + _MARGIN, y + 20))
    _write_strip(sheet, pen, height, inspection)
    return sheet


def _write_strip(sheet: Image.Image, pen: ImageDraw.ImageDraw, top: int, inspection: Inspection) -> None:
    """Verdict and task, the numbers, the scale."""
    x, room = _MARGIN, sheet.width - 2 * _MARGIN
    verdict = inspection.verdict if inspection.verdict == "normal" else inspection.verdict.upper()
    pen.text((x, top + 8), verdict, fill=_COLOURS[inspection.verdict], font=font(20))
    after = x + pen.textlength(verdict, font=font(20)) + 12
    unknown = inspection.verdict == "unknown"
    task = f"nearest: {inspection.task}" if unknown else inspection.task
    pen.text((after, top + 12), elided(pen, task, 15, x + room - after), fill=_INK, font=font(15))
    numbers = f"score {inspection.score:.3g}   threshold {inspection.threshold:.3g}   p = {inspection.p_value:.2g}"
    if unknown:
        numbers = f"differs all over, {inspection.level_ratio:.1f} times as much as a good part"
    if inspection.verdict == "not ready":
        numbers = inspection.reason.rpartition("; ")[2].rstrip(".") or numbers  # what to do, for which there is room
    pen.text((x, top + 36), elided(pen, numbers, 14, room), fill=_INK, font=font(14))
    bar = legend(min(room, 300), 9)
    sheet.paste(bar, (x, top + 62))
    marks: tuple[tuple[float, str, Literal["la", "ma", "ra"]], ...] = (
        (0.0, "usual", "la"),
        (0.5, "threshold", "ma"),
        (1.0, "far beyond", "ra"),
    )
    for share, word, anchor in marks:
        pen.text((x + share * bar.width, top + 75), word, fill=_FAINT, font=font(12), anchor=anchor)
    pen.line([(x + bar.width / 2, top + 60), (x + bar.width / 2, top + 72)], fill=_INK)


def elided(pen: ImageDraw.ImageDraw, text: str, size: int, room: float) -> str:
    """``text``, or as much of its beginning as fits."""
    if pen.textlength(text, font=font(size)) <= room:
        return text
    while text and pen.textlength(text + "…", font=font(size)) > room:
        text = text[:-1]
    return text + "…"


def _unit(inspection: Inspection) -> float:
    """The distance between the usual level and the threshold.

    A threshold at the usual level would make everything infinitely far; the smallest step keeps the map finite.
    """
    return max(inspection.threshold - inspection.normal_level, 1e-6)


def _rgb(pixels: Pixels) -> Pixels:
    return np.repeat(pixels[..., None], 3, axis=2) if pixels.ndim == 2 else pixels


def _resized(image: Image.Image, zoom: float) -> Image.Image:
    size = (max(1, round(image.width * zoom)), max(1, round(image.height * zoom)))
    return image.resize(size, Image.Resampling.BICUBIC if zoom > 1 else Image.Resampling.BOX)


def _cells(shape: tuple[int, int], grid: tuple[int, ...], row: int, column: int, count: int) -> Box:
    """The pixels (left, top, right, bottom) of ``count`` by ``count`` grid cells from ``row``, ``column`` on."""
    (height, width), (rows, columns) = shape, grid
    bottom, right = min(rows, row + count), min(columns, column + count)
    return column * width // columns, row * height // rows, right * width // columns, bottom * height // rows


def draw_contour(image: Image.Image, contour: Sequence[tuple[int, int]], zoom: float) -> None:
    """A closed white line with a dark edge, along (x, y) points in pixels of the image before zooming."""
    most_x, most_y = image.width - 1, image.height - 1
    points = [(min(round(x * zoom), most_x), min(round(y * zoom), most_y)) for x, y in contour]
    pen = ImageDraw.Draw(image)
    pen.line([*points, points[0], points[1]], fill=(16, 16, 20), width=3)
    pen.line([*points, points[0]], fill=(255, 255, 255), width=1)


def draw_box(image: Image.Image, box: Box, zoom: float) -> None:
    """A white frame with a dark edge: visible on anything."""
    left, top, right, bottom = (round(value * zoom) for value in box)
    right, bottom = max(right - 1, left), max(bottom - 1, top)
    pen = ImageDraw.Draw(image)
    pen.rectangle((left - 1, top - 1, right + 1, bottom + 1), outline=(16, 16, 20))
    pen.rectangle((left, top, right, bottom), outline=(255, 255, 255))


# --- notebooks ---

# Dark enough on white, light enough on black: a notebook may be either.
_HTML_COLOURS = {"anomalous": "#d6336c", "normal": "#1a9c86", "unknown": "#7a5cd6", "not ready": "#c07a00"}


def card(inspection: Inspection, picture: Pixels | None) -> str:
    """The HTML of an inspection with its overlay, if there is one; every text in it is escaped."""
    colour = _HTML_COLOURS.get(inspection.verdict, _HTML_COLOURS["anomalous"])
    numbers = f"score {inspection.score:.3g}, threshold {inspection.threshold:.3g}"
    why = f"p = {inspection.p_value:.2g}: {odds(inspection.p_value)}"
    if inspection.reason:  # without a judgement the p-value would read like one
        why = _text(inspection.reason, 2000)
    task = f"nearest: {inspection.task}" if inspection.verdict == "unknown" else inspection.task
    image = "" if picture is None else f'<br><img src="{_data_uri(picture)}" alt="overlay" style="max-width: 100%">'
    return (
        f'<div><b style="color: {colour}">{_text(inspection.verdict)}</b> <b>{_text(task)}</b> '
        f"<small>{_text(inspection.path)}</small><br>{numbers}<br>{why}{image}</div>"
    )


def _text(text: str, limit: int = 400) -> str:
    return html.escape(printable(text, limit))


def _data_uri(pixels: Pixels) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
