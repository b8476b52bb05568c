"""From a file to uint8 RGB, or to one sentence that says why not.

What comes in, and what it becomes (always uint8 (H, W, 3), EXIF orientation applied, first frame of several):

- 8-bit grey, colour, palette, CMYK, YCbCr, bi-level: the colours as displayed.
- With transparency: laid on black, as if no light came from the transparent part.
- 16-bit grey: ``round(value / 257)``, so that 0 stays 0 and 65535 becomes 255. The scale is fixed, never
  stretched to the image's own range, because two photographs of one part must stay comparable.
- 32-bit integer grey: taken as 16-bit counts; values outside 0..65535 are refused.
- float grey: taken as 0..1; values outside, and NaN, are refused.
- 16-bit colour: the high byte of each channel.
"""

from __future__ import annotations

import glob
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from dinosaur_ad.errors import InputError

Pixels: TypeAlias = npt.NDArray[np.uint8]
"""An image: uint8 (H, W, 3)."""

Mask: TypeAlias = npt.NDArray[np.bool_]
"""A yes or no for each pixel: bool (H, W)."""

MAX_PIXELS = 100_000_000
MAX_SIDE = 20_000

EXTENSIONS = frozenset(
    {
        *(".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpeg", ".jpg", ".pbm"),
        *(".pgm", ".png", ".pnm", ".ppm", ".tga", ".tif", ".tiff", ".webp"),
    }
)
"""What counts as an image inside a folder; a file named explicitly is tried whatever its extension."""

OVERLAY = ".overlay.png"
"""How the pictures that inspecting writes are called; in folders and globs they are passed over."""

_ORIENTATION = 0x0112  # the EXIF tag; values 5 to 8 swap width and height
_TRANSPARENT_MODES = frozenset({"RGBA", "RGBa", "LA", "La", "PA"})


def read_image(path: str | Path, max_pixels: int = MAX_PIXELS) -> Pixels:
    """Read one image file as uint8 (H, W, 3); see the module's docstring for what becomes of each format.

    The size is taken from the header and checked before a single pixel is decoded. Pillow's own limit (about
    179 million pixels) holds whatever ``max_pixels`` says.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (4, 2), 7).save(f"{folder}/grey.png")
    ...     pixels = read_image(f"{folder}/grey.png")
    >>> pixels.shape, int(pixels[0, 0, 2])
    ((2, 4, 3), 7)

    :raises InputError: missing, not an image, damaged, over ``max_pixels``, or over ``MAX_SIDE`` on a side.
    """
    path = Path(path)
    with _opened(path, max_pixels) as image:
        return _to_rgb(_decoded(image, path), path)


def image_size(path: str | Path) -> tuple[int, int]:
    """The (height, width) that :func:`read_image` would give, from the header alone."""
    path = Path(path)
    with _opened(path, MAX_PIXELS) as image:
        width, height = image.size
        try:
            turned = image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
        except Exception as error:
            raise _damaged(path, error) from error
        return (width, height) if turned else (height, width)


def read_mask(paths: Sequence[str | Path]) -> Mask:
    """The union of mask files as bool (H, W): where any channel of any of them is above zero.

    The raw values are compared, so that a mask whose grey value encodes a defect class is read whole.

    :raises InputError: a file cannot be read, or the files differ in size.
    """
    if not paths:
        raise ValueError("read_mask needs at least one path")
    union: Mask = read_mask_values(paths[0]) > 0
    for path in paths[1:]:
        mask = read_mask_values(path) > 0
        if mask.shape != union.shape:
            raise InputError(f"The masks '{paths[0]}' and '{path}' of one image differ in size; make them equal.")
        union |= mask
    return union


def read_mask_values(path: str | Path) -> npt.NDArray[Any]:
    """The raw values of one mask file, (H, W), the highest of the channels where there are several.

    :raises InputError: the file cannot be read.
    """
    with _opened(Path(path), MAX_PIXELS) as image:
        decoded = _decoded(image, Path(path))
        is_deep = decoded.mode == "F" or decoded.mode.startswith("I")
        values = np.asarray(decoded if is_deep else _flattened(decoded))
    return np.asarray(np.atleast_3d(values).max(axis=2))


def read_many(paths: Iterable[str | Path], threads: int = 2) -> Iterator[tuple[Path, Pixels | InputError]]:
    """Read images ahead of their use, in order; an unreadable file yields its error and the rest go on.

    At most ``2 * threads`` images wait in memory, however slow the consumer is.

    >>> [(path.name, type(result).__name__) for path, result in read_many(["no_such_file.png"])]
    [('no_such_file.png', 'InputError')]
    """
    if threads < 1:
        raise InputError(f"threads is {threads}; at least 1 is needed to read images.")
    remaining = (Path(path) for path in paths)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="read-image")
    waiting: deque[tuple[Path, Future[Pixels | InputError]]] = deque()
    try:
        waiting.extend((path, pool.submit(_read_or_error, path)) for path in islice(remaining, 2 * threads))
        while waiting:
            path, future = waiting.popleft()
            result = future.result()
            waiting.extend((next_, pool.submit(_read_or_error, next_)) for next_ in islice(remaining, 1))
            yield path, result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def find_images(arguments: Iterable[str | Path]) -> list[Path]:
    """The image files meant by ``arguments``: files, folders and globs, in the order given, each file once.

    A folder is searched to the bottom, sorted, without hidden files and links to folders, for the known
    extensions only. A file is taken whatever its extension. A glob (``**`` included) gives files with a known
    extension, or with the one that the pattern spells out, and searches the folders it matches.

    :raises InputError: an argument leads to no image; the sentence names it.
    """
    found: dict[Path, Path] = {}
    for argument in arguments:
        for path in _expand(argument):
            found.setdefault(path.resolve(), path)
    if not found:
        raise InputError("No images were given; name at least one file, folder or glob.")
    return list(found.values())


def is_image_name(path: Path) -> bool:
    """Whether a file inside a folder counts as an image: not hidden, no overlay, and with a known extension."""
    return not path.name.startswith(".") and not is_overlay_name(path) and path.suffix.lower() in EXTENSIONS


def is_overlay_name(path: Path) -> bool:
    """Whether a file is called as the pictures are that inspecting writes; they are no images to inspect."""
    return path.name.lower().endswith(OVERLAY)


# Files to pixels


def _opened(path: Path, max_pixels: int) -> Image.Image:
    """The image with only its header read, and a size that may be decoded."""
    _check_file(path)
    try:
        image = Image.open(path)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(
            f"'{path}' has too many pixels to be safe to open (the limit is {max_pixels:,}); make it smaller."
        ) from error
    except PermissionError as error:
        raise InputError(f"'{path}' may not be read by this user; change its permissions.") from error
    except Exception as error:  # Pillow's format plugins raise nearly anything on a broken header
        raise InputError(
            f"'{path}' is not an image that can be read; expected PNG, JPEG, TIFF, WebP, BMP or the like."
        ) from error
    width, height = image.size
    if width * height > max_pixels or max(width, height) > MAX_SIDE:
        image.close()
        raise InputError(
            f"'{path}' is {width} x {height} pixels; at most {max_pixels:,} in all and {MAX_SIDE:,} a side "
            "are read: make it smaller or cut it into tiles."
        )
    return image


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"'{path}' is a folder, not an image file; name the files in it.")
    if not path.exists():
        raise InputError(f"'{path}' does not exist; check the path.")
    if not path.is_file():
        raise InputError(f"'{path}' is not a regular file; an image file was expected.")
    if path.stat().st_size == 0:
        raise InputError(f"'{path}' is empty (0 bytes); copy the image again.")


def _decoded(image: Image.Image, path: Path) -> Image.Image:
    try:
        image.load()
        return ImageOps.exif_transpose(image)
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged data
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> InputError:
    reason = str(error).strip().rstrip(".") or type(error).__name__
    return InputError(f"'{path}' is damaged or cut short ({reason}); copy the image again.")


def _to_rgb(image: Image.Image, path: Path) -> Pixels:
    if image.mode == "F":
        return _grey_to_rgb(_in_range(np.asarray(image), 1.0, path) * 255.0)
    if image.mode == "I" or image.mode.startswith("I;16"):
        return _grey_to_rgb(_in_range(np.asarray(image), 65535, path) / 257.0)
    return np.array(_flattened(image), dtype=np.uint8)


def _in_range(values: npt.NDArray[Any], top: float, path: Path) -> npt.NDArray[Any]:
    # Written so that NaN fails too.
    if not bool(np.all((values >= 0) & (values <= top))):
        raise InputError(
            f"'{path}' holds {values.dtype} values outside 0..{top:g}, whose brightness cannot be known; "
            "save it as 8- or 16-bit."
        )
    return values


def _grey_to_rgb(grey: npt.NDArray[Any]) -> Pixels:
    return np.repeat(np.rint(grey).astype(np.uint8)[..., None], 3, axis=2)


def _flattened(image: Image.Image) -> Image.Image:
    """An 8-bit image as RGB, transparent parts on black."""
    if image.mode in _TRANSPARENT_MODES or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (0, 0, 0, 255)), image)
    return image.convert("RGB")


def _read_or_error(path: Path) -> Pixels | InputError:
    try:
        return read_image(path)
    except InputError as error:
        return error


# Arguments to files


def _expand(argument: str | Path) -> list[Path]:
    path = Path(argument)
    if path.is_dir():
        found = _images_below(path)
        if not found:
            raise InputError(f"The folder '{path}' holds no images; expected .png, .jpg, .tif, .webp or the like.")
        return found
    if path.exists():
        return [path]
    if not glob.has_magic(str(argument)):
        raise InputError(f"'{path}' does not exist; give an image file, a folder or a glob.")
    found = _glob(str(argument))
    if not found:
        raise InputError(f"The pattern '{argument}' matches no images; check it.")
    return found


def _glob(pattern: str) -> list[Path]:
    # Path.glob takes no absolute patterns and finds hidden files.
    matches = glob.iglob(pattern, recursive=True)  # noqa: PTH207
    spelled_out = Path(pattern).suffix.lower()
    found: list[Path] = []
    for match in sorted(Path(name) for name in matches):
        if match.is_dir():
            found += _images_below(match)
        elif is_overlay_name(match) and not is_overlay_name(Path(pattern)):
            continue
        elif is_image_name(match) or match.suffix.lower() == spelled_out != "":
            found.append(match)
    return found


def _images_below(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise InputError(f"'{error.filename}' cannot be listed ({error.strerror}); change its permissions.")

    found: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [path for path in (Path(parent, name) for name in files) if is_image_name(path)]
    return sorted(found)
