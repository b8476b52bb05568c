"""Pictures that are sent to the station: read up to the limit, and checked before anything is done with them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import ImageFile, refuse_tiny
from dinosaur_ad.station.web.access import FORMS

MOST_FILES = 200
"""Pictures in one form."""
_LONGEST_NAME = 200
_decoding = CapacityLimiter(2)  # decoding competes with the judging

PICTURE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "image/*": {"schema": {"type": "string", "format": "binary"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["picture"],
                    "properties": {"picture": {"type": "string", "format": "binary"}},
                }
            },
        },
    }
}
"""How OpenAPI describes a picture: its bytes as the body, or as a file of a form."""


@dataclass(frozen=True)
class Upload:
    """A picture as it was sent, which can be read; ``name`` is what the sender calls it."""

    name: str
    data: bytes


async def one_picture(request: Request, name: str = "") -> Upload:
    """The picture that a request carries, as its body or as the one file of a form."""
    found = await all_pictures(request, name)
    if len(found) != 1:
        raise HTTPException(400, f"Send one picture at a time here, got {len(found)}.")
    return found[0]


async def all_pictures(request: Request, name: str = "") -> list[Upload]:
    """All pictures that a request carries, at least one.

    :raises HTTPException: there is none, or one has no proper name.
    :raises InputError: one cannot be read.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind in FORMS:
        files = [each for _, each in (await request.form()).multi_items() if isinstance(each, UploadFile)]
        if len(files) > MOST_FILES:
            raise HTTPException(413, f"Send at most {MOST_FILES} pictures at a time, got {len(files)}.")
        sent = [Upload(check_file_name(each.filename or ""), await each.read()) for each in files]
    elif kind.startswith("image/") or kind in ("application/octet-stream", ""):
        sent = [Upload(check_file_name(name), await request.body())]
    else:
        raise HTTPException(415, "Send a picture as the body (image/png and so on) or as a file of a form.")
    if not sent or not any(each.data for each in sent):
        raise HTTPException(400, "The request has no picture; send it as the body or as a file of a form.")
    for each in sent:
        await to_thread.run_sync(check_picture, each, limiter=_decoding)
    return sent


def check_file_name(name: str) -> str:
    """A name of a file without folders, or no name at all.

    >>> check_file_name("part-7.png")
    'part-7.png'
    """
    path_like = any(each in name for each in "/\\:") or name.startswith("..") or PurePath(name).name != name
    if name and (path_like or not name.isprintable() or len(name) > _LONGEST_NAME):
        raise HTTPException(400, f"'{printable(name, 60)}' is no name of a file; send it without folders.")
    return name


def check_picture(upload: Upload) -> None:
    """Decode a picture with the reader that the judging uses.

    :raises InputError: it is no image, damaged, too large or too small.
    """
    name = upload.name or "the picture"
    if not upload.data:
        raise InputError(f"'{printable(name)}' is empty (0 bytes); send it again.")
    file = ImageFile(Path(name), io.BytesIO(upload.data))
    try:
        refuse_tiny(*file.shape, file.name)
        file.decoded()
    finally:
        file.close()
