"""The gallery of a task: confirmed defects, asked again after every change.

An image is kept as the encoder gets it, as a PNG of the preset's size (of a task in tiles,
of the size that is cut), because features are many times larger. The file
``gallery`` of a version has the bytes of all of them, its manifest what they are called, and every later version of the
task takes both along.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dinosaur_ad._text import printable
from dinosaur_ad.bank.bank_files import Arrays, read_tiling
from dinosaur_ad.bank.image_features import PreparedImage
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.inspection import Rejected
from dinosaur_ad.store import TaskRecord, TaskStore

Pixels = NDArray[np.uint8]

NAMED = 3
"""Images that a refusal names."""
MOST_DEFECTS = 50
"""Defects that a task keeps: 60 to 170 kB each at 336 pixels a side (five products of MVTec AD), and one more image to
ask after every change."""


@dataclass(frozen=True)
class Defect:
    """A confirmed defect of a task: the name of its image, when it was kept, and a hash of its pixels."""

    image: str
    date: str
    digest: str


@dataclass(frozen=True)
class Gallery:
    """Confirmed defects, the oldest first, with the PNG file of each."""

    defects: tuple[Defect, ...] = ()
    pngs: tuple[bytes, ...] = ()

    def __len__(self) -> int:
        return len(self.defects)

    def with_images(self, images: Iterable[PreparedImage]) -> tuple[Gallery, tuple[str, ...]]:
        """The gallery with more images, and the names of the oldest, which had to make room; none is kept twice."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        known = {each.digest for each in self.defects}
        defects, pngs = list(self.defects), list(self.pngs)
        for image in images:
            if image.digest not in known:
                known.add(image.digest)
                defects.append(Defect(image.name, date, image.digest))
                pngs.append(_png(image.large.pixels if image.large else image.pixels))
        dropped = tuple(each.image for each in defects[:-MOST_DEFECTS])
        return Gallery(tuple(defects[-MOST_DEFECTS:]), tuple(pngs[-MOST_DEFECTS:])), dropped

    def without(self, names: Collection[str]) -> Gallery:
        """The gallery without those images; the last part of a path is enough of a name.

        :raises InputError: there is none of that name.
        """
        gone: set[int] = set()
        for name in names:
            found = {n for n, each in enumerate(self.defects) if name in (each.image, _last_part(each.image))}
            if not found:
                raise InputError(
                    f"The gallery has no defect '{printable(name, 80)}'; defect NAME --list shows what it has."
                )
            gone |= found
        kept = [n for n in range(len(self)) if n not in gone]
        return Gallery(tuple(self.defects[n] for n in kept), tuple(self.pngs[n] for n in kept))

    def pixels(self) -> list[Pixels]:
        """The images as the encoder gets them, (S, S, 3) each, or as they are cut into tiles."""
        return [np.asarray(Image.open(io.BytesIO(png))) for png in self.pngs]

    def files(self) -> dict[str, Arrays]:
        """What is stored in files, none without defects."""
        if not self.defects:
            return {}
        ends = np.cumsum([len(png) for png in self.pngs], dtype=np.int64)
        return {"gallery": {"png": np.frombuffer(b"".join(self.pngs), np.uint8), "ends": ends}}

    def manifest(self) -> dict[str, Any]:
        """What is stored in the manifest."""
        return {"gallery": [asdict(each) for each in self.defects]} if self.defects else {}


@dataclass(frozen=True)
class GalleryChange:
    """The result of changing a gallery: what it has now, how many are new, which had to make room (the oldest), and
    which images could not be read."""

    task: str
    defects: tuple[Defect, ...]
    added: int
    dropped: tuple[str, ...]
    rejected: tuple[Rejected, ...]


def refuse_normal(task: str, names: Sequence[str]) -> None:
    """Refuse to keep images as defects that a task calls normal: after the next change it would call them so again.

    :raises InputError: there are such images.
    """
    if names:
        named = ", ".join(f"'{printable(name, 80)}'" for name in names[:NAMED])
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        are, them = ("are", "them") if len(names) > 1 else ("is", "it")
        raise InputError(
            f"{named}{more} {are} called normal by '{task}', so that nothing was kept; leave {them} out, or keep "
            f"{them} all the same with --force (force=True)."
        )


def read_gallery(store: TaskStore, record: TaskRecord, size: int) -> Gallery:
    """The gallery of a task, of images of ``size`` pixels a side; empty where none was kept.

    :raises StoreError: it is damaged.
    """
    if "gallery" not in record.files:
        return Gallery()
    try:
        tiling = read_tiling(record)
        height, width = tiling.scaled if tiling else (size, size)
        return _checked(store.arrays(record, "gallery"), record.manifest.get("gallery"), (width, height))
    except (ValueError, OSError, SyntaxError, KeyError, TypeError) as error:  # what Pillow raises for damaged files
        raise StoreError(
            f"The gallery of the task '{record.name}' cannot be used ({printable(error, 100)}): "
            "restore it from a backup, or undo the last change of the task."
        ) from error


def _checked(arrays: Arrays, entries: Any, size: tuple[int, int]) -> Gallery:
    data, ends = arrays["png"], arrays["ends"]
    if data.dtype != np.uint8 or data.ndim != 1 or ends.dtype != np.int64 or ends.ndim != 1 or not len(ends):
        raise ValueError("its pictures are no bytes")
    if not isinstance(entries, Sequence) or len(entries) != len(ends):
        raise ValueError("it does not name its pictures")
    starts = np.concatenate([[0], ends[:-1]])
    if (starts >= ends).any() or int(ends[-1]) != len(data):
        raise ValueError("its pictures do not follow each other")
    pngs = tuple(data[start:end].tobytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True))
    for png in pngs:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as picture:
            if picture.size != size or picture.mode != "RGB":  # before anything is decoded
                raise ValueError("a picture is not of the size of the preset")
            picture.load()
    defects = tuple(Defect(*(str(entry[key]) for key in ("image", "date", "digest"))) for entry in entries)
    return Gallery(defects, pngs)


def _png(pixels: Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _last_part(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]
