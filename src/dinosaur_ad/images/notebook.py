"""An inspection as a small piece of HTML, for notebooks: verdict, why, and the picture."""

from __future__ import annotations

import base64
import html
import io

from PIL import Image

from dinosaur_ad._text import odds, printable
from dinosaur_ad.images._drawable import Drawable
from dinosaur_ad.images.loading import Pixels

# Dark enough on white, light enough on black: a notebook may be either.
_COLOURS = {"anomalous": "#d6336c", "normal": "#1a9c86", "not ready": "#c07a00"}


def card(inspection: Drawable, picture: Pixels | None) -> str:
    """The HTML of an inspection with its overlay, if there is one; every text in it is escaped."""
    colour = _COLOURS.get(inspection.verdict, _COLOURS["anomalous"])
    numbers = f"score {inspection.score:.3g}, threshold {inspection.threshold:.3g}"
    why = f"p = {inspection.p_value:.2g}: {odds(inspection.p_value)}"
    if inspection.reason:  # of a task that cannot judge: its p-value would read like a verdict
        why = _text(inspection.reason, 2000)
    image = "" if picture is None else f'<br><img src="{_data_uri(picture)}" alt="overlay" style="max-width: 100%">'
    return (
        f'<div><b style="color: {colour}">{_text(inspection.verdict)}</b> <b>{_text(inspection.task)}</b> '
        f"<small>{_text(inspection.path)}</small><br>{numbers}<br>{why}{image}</div>"
    )


def _text(text: str, limit: int = 400) -> str:
    return html.escape(printable(text, limit))


def _data_uri(pixels: Pixels) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
