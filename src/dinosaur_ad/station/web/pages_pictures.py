"""The pictures of a recorded part: as it was taken, small, its heat map, and the worst patch beside the nearest normal.

The heat map is a transparent layer on the absolute scale of :mod:`dinosaur_ad.images.drawing`, so that a good part
looks good.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from PIL import Image
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from dinosaur_ad.images.drawing import close_up, heat_layer, nearest_normal
from dinosaur_ad.images.loading import read_image
from dinosaur_ad.inspection import Inspection
from dinosaur_ad.station.history.picture_files import thumbnail_name
from dinosaur_ad.station.tables import ViewRow
from dinosaur_ad.station.web.access import Viewer
from dinosaur_ad.station.web.pages_frame import PageRoute, RowId, missing, station_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)

Kind = Literal["full", "small", "heat", "worst", "nearest"]
BROWSERS_SHOW = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}
LONGEST_HEAT = 768
"""Pixels of the longer side of a heat map; the browser scales it over the picture."""
SMALL = 256
KEPT = "private, max-age=3600"
GONE = "This picture is not kept any more."


@router.get("/parts/{part_id}/pictures/{number}/{kind}")
def part_picture(request: Request, part_id: RowId, number: int, kind: Kind, person: Viewer) -> Response:
    """A picture of a view of a part."""
    history = station_of(request).history
    part = history.part(part_id)
    if part is None or not 0 <= number < len(part.views):
        raise missing("There is no such picture.")
    view = part.views[number]
    path = history.picture_path(view.id)
    if kind == "heat":
        return _heat(history, view)
    if path is None or not path.is_file():
        raise missing(GONE)
    if kind == "full":
        return picture_file(path)
    if kind == "small":
        return small_picture(path)
    return _close_up(history, view, path, kind)


def picture_file(path: Path) -> Response:
    """The file itself where browsers show its format, otherwise as PNG."""
    kind = BROWSERS_SHOW.get(path.suffix.lower())
    if kind:
        return FileResponse(path, media_type=kind, headers={"Cache-Control": KEPT})
    return png_response(read_image(path))


def small_picture(path: Path) -> Response:
    """The thumbnail beside a picture; made now where there is none."""
    thumbnail = path.with_name(thumbnail_name(path.name))
    if thumbnail.is_file():
        return FileResponse(thumbnail, media_type="image/jpeg", headers={"Cache-Control": KEPT})
    image = Image.fromarray(read_image(path))
    image.thumbnail((SMALL, SMALL))
    return _encoded(image, "JPEG", "image/jpeg")


def png_response(pixels: NDArray[np.uint8]) -> Response:
    """An array as a PNG file."""
    return _encoded(Image.fromarray(pixels), "PNG", "image/png")


def _heat(history: Any, view: ViewRow) -> Response:
    inspection = _inspection(history, view)
    height, width = inspection.image_size
    scale = min(1.0, LONGEST_HEAT / max(height, width, 1))
    return png_response(heat_layer(inspection, max(1, round(height * scale)), max(1, round(width * scale))))


def _close_up(history: Any, view: ViewRow, path: Path, kind: str) -> Response:
    inspection = _inspection(history, view)
    worst = inspection.worst
    if kind == "worst":
        return png_response(close_up(read_image(path), inspection.map.shape, worst.row, worst.column))
    pixels = nearest_normal(inspection)
    if pixels is None:
        raise missing("The picture of the nearest normal patch is not there any more.")
    return png_response(pixels)


def _inspection(history: Any, view: ViewRow) -> Inspection:
    found: Inspection | None = history.inspection(view.id)
    if found is None:
        raise missing("The map of this picture is not kept any more.")
    return found


def _encoded(image: Image.Image, form: str, kind: str) -> Response:
    buffer = io.BytesIO()
    image.save(buffer, form)
    return Response(buffer.getvalue(), media_type=kind, headers={"Cache-Control": KEPT})
