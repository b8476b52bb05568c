"""The pictures of a recorded part: as it was taken, small, its heat map, and the worst patch beside the nearest normal.

The heat map is a transparent layer on the absolute scale of :mod:`dinosaur_ad.images.drawing`, so that a good part
looks good.
"""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from PIL import Image
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from dinosaur_ad.images.drawing import close_up, heat_layer, nearest_normal
from dinosaur_ad.images.loading import read_image
from dinosaur_ad.inspection import Inspection
from dinosaur_ad.station.history.picture_files import thumbnail_name
from dinosaur_ad.station.tables import ViewRow
from dinosaur_ad.station.web.access import Viewer
from dinosaur_ad.station.web.pages_frame import PageRoute, RowId, missing, station_of
from dinosaur_ad.station.web.picture_shelf import LARGEST, PictureShelf, SentPicture

router = APIRouter(route_class=PageRoute, include_in_schema=False)

Kind = Literal["full", "shown", "small", "heat", "worst", "nearest"]
BROWSERS_SHOW = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}
LONGEST_HEAT = 768
"""Pixels of the longer side of a heat map; the browser scales it over the picture."""
SMALL = 256
SHOWN, SHOWN_BYTES = 1280, 200_000
"""Pixels of the longer side of a picture on the page Live, and of how many bytes a file is sent there as it is."""
KEPT = "private, max-age=3600"
GONE = "This picture is not kept any more."


@router.get("/parts/{part_id}/pictures/{number}/{kind}")
async def part_picture(request: Request, part_id: RowId, number: int, kind: Kind, person: Viewer) -> Response:
    """A picture of a view of a part."""
    history = station_of(request).history
    if kind not in ("full", "shown", "small"):
        return await run_in_threadpool(_drawn, history, part_id, number, kind)
    shelf: PictureShelf = request.app.state.pictures
    found = await shelf.picture((part_id, number, kind), partial(_as_sent, history, part_id, number, kind))
    if found.content is None:
        return FileResponse(found.path, media_type=found.media_type, headers={"Cache-Control": KEPT})
    return Response(found.content, media_type=found.media_type, headers={"Cache-Control": KEPT})


def _view(history: Any, part_id: int, number: int) -> ViewRow:
    found: ViewRow | None = history.view_of_part(part_id, number)
    if found is None:
        raise missing("There is no such picture.")
    return found


def _file(history: Any, view: ViewRow) -> Path:
    found: Path | None = history.pictures.path(view.picture) if view.picture else None
    if found is None or not found.is_file():
        raise missing(GONE)
    return found


def _as_sent(history: Any, part_id: int, number: int, kind: str) -> SentPicture:
    """The picture or a smaller one as the browser gets it; a format that browsers do not show becomes PNG."""
    path = _file(history, _view(history, part_id, number))
    if kind == "small":
        return SentPicture(path, "image/jpeg", small_jpeg(path))
    media_type = BROWSERS_SHOW.get(path.suffix.lower())
    try:
        size = path.stat().st_size
        if kind == "shown" and (media_type is None or size > SHOWN_BYTES):
            return SentPicture(path, "image/jpeg", _jpeg(read_image(path), SHOWN, quality=88))
        if media_type is None:
            return SentPicture(path, "image/png", _encoded(Image.fromarray(read_image(path)), "PNG"))
        content = path.read_bytes() if size <= LARGEST else None
    except FileNotFoundError:  # removed in this moment
        raise missing(GONE) from None
    return SentPicture(path, media_type, content)


def _drawn(history: Any, part_id: int, number: int, kind: str) -> Response:
    view = _view(history, part_id, number)
    if kind == "heat":
        return _heat(history, view)
    return _close_up(history, view, _file(history, view), kind)


def small_picture(path: Path) -> Response:
    """The thumbnail beside a picture; made now where there is none."""
    return Response(small_jpeg(path), media_type="image/jpeg", headers={"Cache-Control": KEPT})


def small_jpeg(path: Path) -> bytes:
    """The bytes of the thumbnail beside a picture; made now where there is none."""
    try:
        return path.with_name(thumbnail_name(path.name)).read_bytes()
    except OSError:
        return _jpeg(read_image(path), SMALL)


def _jpeg(pixels: NDArray[np.uint8], longest: int, **options: Any) -> bytes:
    image = Image.fromarray(pixels)
    image.thumbnail((longest, longest))
    return _encoded(image, "JPEG", **options)


def png_response(pixels: NDArray[np.uint8]) -> Response:
    """An array as a PNG file."""
    content = _encoded(Image.fromarray(pixels), "PNG")
    return Response(content, media_type="image/png", headers={"Cache-Control": KEPT})


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


def _encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()
