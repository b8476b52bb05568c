"""Which image formats are read, and the names of kinds that are not.

:data:`FORMATS` is the one list: it decides what counts as an image in a folder and what Pillow may try, and
docs/data.md shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import Image


@dataclass(frozen=True)
class Format:
    """A format that is read: its name, the Pillow plugins that read it, its extensions in folders."""

    name: str
    plugins: tuple[str, ...]
    extensions: tuple[str, ...]


FORMATS = (
    Format("AVIF", ("AVIF",), (".avif",)),
    Format("BMP", ("BMP",), (".bmp",)),
    Format("GIF", ("GIF",), (".gif",)),
    Format("JPEG", ("JPEG", "MPO"), (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo")),
    Format("JPEG 2000", ("JPEG2000",), (".jp2", ".j2k")),
    Format("PNG", ("PNG",), (".png", ".apng")),
    Format("PNM", ("PPM",), (".pbm", ".pgm", ".pnm", ".ppm")),
    Format("TGA", ("TGA",), (".tga",)),
    Format("TIFF", ("TIFF",), (".tif", ".tiff")),
    Format("WebP", ("WEBP",), (".webp",)),
)

EXTENSIONS = frozenset(extension for each in FORMATS for extension in each.extensions)
"""What counts as an image inside a folder; a file named explicitly is tried whatever its extension."""


@dataclass(frozen=True)
class UnreadKind:
    """Pictures that are not read: what they are, what to do with them, and their extensions."""

    name: str
    advice: str
    extensions: tuple[str, ...]


_HEIC = UnreadKind("a HEIC photo", "convert it to PNG or JPEG", (".heic", ".heif", ".hif"))
_PDF = UnreadKind("a PDF document", "export its pages as PNG or TIFF", (".pdf",))
_POSTSCRIPT = UnreadKind("a PostScript file", "export it as PNG or TIFF", (".ps", ".eps", ".ai"))
_VIDEO = UnreadKind(
    "a video",
    "save its frames as PNG or JPEG",
    (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".wmv", ".mpg", ".mpeg"),
)

UNREAD_KINDS = (
    _HEIC,
    _PDF,
    _VIDEO,
    # Most of these open as a TIFF that holds nothing but a small preview.
    UnreadKind(
        "a camera's raw file",
        "develop it to PNG or TIFF, all images of a product alike",
        (".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".raw", ".rw2"),
    ),
    _POSTSCRIPT,
    UnreadKind("an SVG drawing", "export it as PNG", (".svg",)),
    UnreadKind("a Photoshop document", "export it as PNG or TIFF", (".psd",)),
    UnreadKind("a JPEG XL image", "convert it to PNG or JPEG", (".jxl",)),
    UnreadKind("an OpenEXR image", "convert it to 8- or 16-bit PNG or TIFF", (".exr",)),
    UnreadKind("a DICOM image", "convert it to 8- or 16-bit PNG or TIFF", (".dcm",)),
    UnreadKind("a FITS image", "convert it to 8- or 16-bit PNG or TIFF", (".fit", ".fits")),
)
"""Files in a folder that are reported as not read; any other file in it is ignored."""

_UNREAD_BY_EXTENSION = {extension: kind for kind in UNREAD_KINDS for extension in kind.extensions}
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")


OVERLAY = ".overlay.png"
"""How the pictures that inspecting writes are called; in folders and globs they are passed over."""


def is_overlay_name(path: Path) -> bool:
    """Whether a file is called as the pictures are that inspecting writes; they are no images to inspect."""
    return path.name.lower().endswith(OVERLAY)


def is_image_name(path: Path) -> bool:
    """Whether a file inside a folder counts as an image: not hidden, no overlay, and with a known extension."""
    return not path.name.startswith(".") and not is_overlay_name(path) and path.suffix.lower() in EXTENSIONS


def is_picture_name(path: Path) -> bool:
    """Whether a file inside a folder is an image, or a picture that is to be reported because it is not read."""
    return is_image_name(path) or (not path.name.startswith(".") and path.suffix.lower() in _UNREAD_BY_EXTENSION)


def unread_kind(path: Path, head: bytes = b"") -> UnreadKind | None:
    """What a file is by its extension, else by its first bytes (``head``), if that kind is not read.

    >>> unread_kind(Path("part.HEIC")).name, unread_kind(Path("part.jpg"), b"%PDF-1.7").name
    ('a HEIC photo', 'a PDF document')
    """
    if kind := _UNREAD_BY_EXTENSION.get(path.suffix.lower()):
        return kind
    if head[4:8] == b"ftyp" and head[8:12] not in (b"avif", b"avis"):
        return _HEIC if head[8:12] in _HEIC_BRANDS else _VIDEO
    if head.startswith(b"%PDF"):
        return _PDF
    if head.startswith((b"%!PS", b"\xc5\xd0\xd3\xc6")):
        return _POSTSCRIPT
    return _VIDEO if head.startswith(b"\x1a\x45\xdf\xa3") or head[8:12] == b"AVI " else None


@cache
def pillow_formats() -> tuple[str, ...]:
    """The Pillow plugins that may try a file: those of :data:`FORMATS` that this Pillow has."""
    Image.init()
    return tuple(plugin for each in FORMATS for plugin in each.plugins if plugin in Image.OPEN)
