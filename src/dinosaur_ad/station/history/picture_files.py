"""The pictures, thumbnails and maps of parts: from a judged part to bytes, and to files in dated folders."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dinosaur_ad._atomic import make_folder, sync_path
from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.formats import EXTENSIONS
from dinosaur_ad.inspection import Inspection, WorstPatch
from dinosaur_ad.station.history.moments import stamp
from dinosaur_ad.station.history.quick_png import quick_png
from dinosaur_ad.station.history.storable import storable_text
from dinosaur_ad.station.part import JudgedPart, Picture, View

PICTURES = "pictures"
FILES = ("picture", "thumbnail", "map")
"""What a view can have; in this order in the journal."""
THUMBNAIL_SIDE = 256
LARGEST_FILE = 512 * 1024 * 1024
_FEW = 64
"""So many files are flushed one by one; of more, everything is flushed at once, which is faster."""


@dataclass(frozen=True)
class PackedPart:
    """A part as the journal holds it: a JSON document, and the bytes of its files.

    Each view of the document has "picture", "thumbnail" and "map": the name of the file below the history's folder,
    empty for none. ``files`` are in the order of the names.
    """

    document: dict[str, Any]
    files: tuple[bytes, ...]

    def names(self) -> list[str]:
        """The names of the files."""
        return [view[kind] for view in self.document["views"] for kind in FILES if view.get(kind)]

    def written(self) -> set[str]:
        """The names of all files that are there once the part is recorded: also thumbnails that were made then."""
        pictures = [view["picture"] for view in self.document["views"] if view["picture"]]
        return {*self.names(), *map(thumbnail_name, pictures)}


def pack(part: JudgedPart, document: dict[str, Any] | None = None, *, hurry: bool = False) -> PackedPart:
    """A judged part with the bytes of its pictures and maps; ``document`` is its ``to_json()`` if that was made before.

    A picture that is a file is copied as it is, and pixels become a PNG; in a ``hurry`` one without compression. A file
    that cannot be read is left out: the verdict is recorded all the same.
    """
    document = dict(part.to_json() if document is None else document)
    files: list[bytes] = []
    views = []
    for view, described in zip(part.views, document["views"], strict=True):
        names = dict.fromkeys(FILES, "")
        stem = _stem(view.picture)
        picture = _picture_bytes(view.picture, hurry)
        if picture is not None:
            names["picture"] = stem + _extension(view.picture)
            files.append(picture)
        if view.picture.pixels is not None:  # quicker now than from the PNG later
            names["thumbnail"] = thumbnail_name(names["picture"])
            files.append(_thumbnail(Image.fromarray(np.ascontiguousarray(view.picture.pixels))))
        if view.inspection is not None:
            names["map"] = f"{stem}.npz"
            files.append(_map_bytes(view.inspection))
        views.append(described | names)
    return PackedPart(document | {"views": views, "total_ms": _total_ms(part.views)}, tuple(files))


def without_files(document: dict[str, Any]) -> PackedPart:
    """A part whose pictures could not be stored."""
    views = [view | dict.fromkeys(FILES, "") for view in document["views"]]
    return PackedPart(document | {"views": views, "total_ms": None}, ())


def thumbnail_name(picture: str) -> str:
    """The name of the thumbnail beside a picture."""
    return picture.rpartition(".")[0] + ".thumb.jpg"


class PictureFolder:
    """The files below the history's folder. Names come from the database and are checked before they are used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: set[Path] = set()

    def path(self, name: str) -> Path:
        """Where a file is.

        :raises InputError: the name leads out of the folder.
        """
        path = self.folder / name
        if not name.startswith(f"{PICTURES}/") or ".." in path.parts or "\\" in name or "\x00" in name:
            raise InputError(f"'{printable(name, 100)}' is no name of a picture in the history.")
        return path

    def write(self, name: str, content: bytes) -> None:
        """Write a file. It is on the disk for good after :meth:`flush`; until then the journal has its bytes too."""
        path = self.path(name)
        self._make(path.parent)
        try:
            path.write_bytes(content)
        except FileNotFoundError:  # the folder was removed since
            self._made.discard(path.parent)
            self._make(path.parent)
            path.write_bytes(content)

    def mend(self, name: str, content: bytes) -> None:
        """Write a file again if it is not as it should be, which a power cut can cause."""
        try:
            same = self.path(name).read_bytes() == content
        except OSError:
            same = False
        if not same:
            self.write(name, content)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; those that are gone are fine."""
        for name in names:
            if name:
                with suppress(FileNotFoundError):
                    self.path(name).unlink()

    def remove_empty_folders(self) -> None:
        """Remove the dated folders that nothing is left in."""
        root = self.folder / PICTURES
        for depth in ("*/*", "*"):
            for folder in root.glob(depth):
                with suppress(OSError):  # it has files
                    folder.rmdir()
                    self._made.discard(folder)

    def flush(self, names: Iterable[str]) -> None:
        """Wait until the disk has the files."""
        paths = [self.path(name) for name in names]
        if len(paths) > _FEW and hasattr(os, "sync"):
            os.sync()
            return
        for path in [*paths, *{path.parent for path in paths}]:
            with suppress(FileNotFoundError):  # retention was faster
                sync_path(path)

    def _make(self, folder: Path) -> None:
        if folder not in self._made:
            make_folder(folder)
            if len(self._made) > 100:
                self._made.clear()
            self._made.add(folder)


def thumbnail(content: bytes) -> bytes | None:
    """A small JPEG of a picture; None if it cannot be read."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            image.draft("RGB", (THUMBNAIL_SIDE, THUMBNAIL_SIDE))
            return _thumbnail(image)
    except Exception:  # Pillow raises nearly anything for damaged files, and a thumbnail is worth no alarm
        return None


def read_map(path: Path) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None] | None:
    """The patch map of an inspection, and which patches are inspected (None for all); None if the file is not there."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["map"], arrays.get("inspected")
    except (OSError, ValueError, KeyError, EOFError):
        return None


def restored(document: dict[str, Any], patches: NDArray[np.float32], inspected: NDArray[np.bool_] | None) -> Inspection:
    """The inspection that a document and a map were made of."""
    fields = {name: value for name, value in document.items() if name != "regions"}
    worst = fields["worst"] | {"box": tuple(fields["worst"]["box"])}
    return Inspection(
        **fields
        | {
            "worst": WorstPatch(**worst),
            "image_size": tuple(fields["image_size"]),
            "left_out": tuple(fields["left_out"]),
            "map": patches,
            "inspected": inspected,
        }
    )


def _thumbnail(image: Image.Image) -> bytes:
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.BILINEAR)
    return _encoded(_shown(image), "JPEG", quality=80)


def _picture_bytes(picture: Picture, hurry: bool) -> bytes | None:
    if picture.pixels is not None:
        return quick_png(picture.pixels, compressed=not hurry)
    try:
        if picture.path is None or picture.path.stat().st_size > LARGEST_FILE:
            return None
        return picture.path.read_bytes()
    except OSError:
        return None


def _map_bytes(inspection: Inspection) -> bytes:
    arrays: dict[str, NDArray[Any]] = {"map": np.asarray(inspection.map, np.float32)}
    if inspection.inspected is not None:
        arrays["inspected"] = inspection.inspected
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]  # one of its parameters is a bool
    return stream.getvalue()


def _encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def _shown(image: Image.Image) -> Image.Image:
    """As RGB; 16-bit grey is scaled, since Pillow would cut it off at 255."""
    if image.mode.startswith("I"):
        values = np.asarray(image, np.float32)
        return Image.fromarray((values * (255 / max(float(values.max()), 1.0))).astype(np.uint8)).convert("RGB")
    return image.convert("RGB")


def _stem(picture: Picture) -> str:
    text = stamp(picture.taken)
    name = hashlib.sha256(storable_text(picture.key).encode()).hexdigest()[:32]
    return f"{PICTURES}/{text[:10]}/{text[11:13]}/{name}"


def _extension(picture: Picture) -> str:
    if picture.path is None:
        return ".png"
    extension = picture.path.suffix.lower()
    return extension if extension in EXTENSIONS else ".bin"


def _total_ms(views: tuple[View, ...]) -> float | None:
    return max((view.ms["total"] for view in views if "total" in view.ms), default=None)
