"""From a file to uint8 RGB, or to one sentence that says why not.

What comes in, and what it becomes (always uint8 (H, W, 3), EXIF orientation applied):

- 8-bit grey, colour, palette, CMYK, YCbCr, bi-level: the colours as displayed.
- With transparency: laid on black, as if no light came from the transparent part.
- 16-bit grey: ``round(value / 257)``, so that 0 stays 0 and 65535 becomes 255, unless the file says which value is
  white; see :mod:`dinosaur_ad.images.depth`, also for what is refused.
- 32-bit integer grey: taken as 16-bit counts; values outside 0..65535 are refused.
- float grey: taken as 0..1; values outside, and NaN, are refused.
- 16-bit colour: the high byte of each channel.
- Several pages or frames: refused, because which one is meant cannot be known. Of a JPEG with more pictures in it
  (phones keep previews and depth maps there) the main one is read, as every viewer does.

Which formats are read: :mod:`dinosaur_ad.images.formats`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from dinosaur_ad._text import escaped
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.depth import displayed, flattened, halvings, out_of_memory, stated_depth
from dinosaur_ad.images.finding import find_images, is_text, shown_path, unlistable, why_no_text
from dinosaur_ad.images.formats import is_image_name, pillow_formats, unread_kind

__all__ = [
    "MAX_PIXELS", "MAX_SIDE", "MIN_SIDE", "ImageFile", "Mask", "Pixels", "digest", "find_images", "image_size",
    "is_image_name", "read_image", "read_mask", "read_mask_values", "refuse_huge", "refuse_several", "refuse_tiny",
    "rgb_array",
]  # fmt: skip

Pixels: TypeAlias = npt.NDArray[np.uint8]
"""An image: uint8 (H, W, 3)."""

Mask: TypeAlias = npt.NDArray[np.bool_]
"""A yes or no for each pixel: bool (H, W)."""

MAX_PIXELS = 100_000_000
MAX_SIDE = 20_000
MIN_SIDE = 16
"""A product cannot be judged on fewer pixels a side: an encoder's smallest patch has about as many."""

# A file is decoded at a half, a quarter or an eighth of its sides as long as so many times the pixels remain that are
# needed: of JPEG, four times as many a side change no pixel of the result by more than 2 of 255, less than JPEG itself
# does; JPEG 2000 puts its small versions half a pixel aside, which eight times as many make up for (docs/data.md).
KEEP_JPEG, KEEP_JPEG_2000 = 4, 8

_ORIENTATION = 0x0112  # the EXIF tag; values 5 to 8 swap width and height


def read_image(path: str | Path, max_pixels: int = MAX_PIXELS) -> Pixels:
    """Read one image file as uint8 (H, W, 3); see the module's docstring for what becomes of each format.

    The size is taken from the header and checked before a single pixel is decoded. Pillow's own limit (about
    179 million pixels) holds whatever ``max_pixels`` says.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (4, 2), 7).save(f"{folder}/grey.png")
    ...     pixels = read_image(f"{folder}/grey.png")
    >>> pixels.shape, int(pixels[0, 0, 2])
    ((2, 4, 3), 7)

    :raises InputError: missing, not an image, damaged, over ``max_pixels``, or over ``MAX_SIDE`` on a side.
    """
    with ImageFile.opened(path, max_pixels) as file:
        return rgb_array(file.decoded())


def image_size(path: str | Path) -> tuple[int, int]:
    """The (height, width) that :func:`read_image` would give, from the header alone."""
    with ImageFile.opened(path) as file:
        return file.shape


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
    with ImageFile.opened(path) as file:
        decoded = file.raw()
        is_deep = decoded.mode == "F" or decoded.mode.startswith("I")
        values = np.asarray(decoded if is_deep else flattened(decoded))
    return np.asarray(np.atleast_3d(values).max(axis=2))


def digest(pixels: Pixels) -> str:
    """A hash of an image as it is encoded, uint8 (S, S, 3): equal digests mean equal pixels.

    >>> digest(np.zeros((14, 14, 3), np.uint8))
    '14:c7606d438ecce7eaef403d65064ab7cf'
    """
    return f"{pixels.shape[0]}:{hashlib.sha256(np.ascontiguousarray(pixels).data).hexdigest()[:32]}"


class ImageFile:
    """An image file of which the header has been read: it may be decoded, and how large it is is known."""

    def __init__(self, path: Path, file: IO[bytes], max_pixels: int = MAX_PIXELS) -> None:
        self.name = shown_path(path)
        self.path = path
        self._file = file
        self._max_pixels = max_pixels
        self._halvings = 0
        self._image = self._header()
        self.stored_size = self._image.size
        """Width and height as the header has them, before any turning or reduction."""

    @classmethod
    def open(cls, path: str | Path, max_pixels: int = MAX_PIXELS) -> ImageFile:
        """Open a file and read its header; :meth:`close` has to be called.

        :raises InputError: it is no image that may be decoded.
        """
        path = Path(path)
        file = _open_regular(path)
        try:
            return cls(path, file, max_pixels)
        except BaseException:
            file.close()
            raise

    @classmethod
    @contextmanager
    def opened(cls, path: str | Path, max_pixels: int = MAX_PIXELS) -> Iterator[ImageFile]:
        """The same for a ``with``."""
        file = cls.open(path, max_pixels)
        try:
            yield file
        finally:
            file.close()

    def close(self) -> None:
        """Give the file back."""
        self._image.close()
        self._file.close()

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width as displayed, before any reduction; a PNG is decoded for it."""
        width, height = self.stored_size
        try:
            turned = self._image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
        except Exception as error:
            raise self._damaged(error) from error
        return (width, height) if turned else (height, width)

    def reduce(self, side: int) -> None:
        """Let the decoder leave out what an image of ``side`` pixels a side will not show, where the format can."""
        if self._image.format in ("JPEG", "MPO"):
            self._image.draft(None, (KEEP_JPEG * side, KEEP_JPEG * side))
        elif self._image.format == "JPEG2000":
            possible = halvings(self._image)
            while self._halvings < possible and min(self.stored_size) >> (self._halvings + 1) >= KEEP_JPEG_2000 * side:
                self._halvings += 1
            if self._halvings:
                self._image.reduce = self._halvings  # type: ignore[method-assign, assignment]

    def bytes_needed(self) -> int:
        """About how much memory decoding and converting takes."""
        width, height = self._image.size
        pixels, mode, bands = (width * height) >> (2 * self._halvings), self._image.mode, len(self._image.getbands())
        stored = 1 if mode in ("1", "L", "P") else 2 if mode.startswith("I;16") else 4
        converted = 0 if mode in ("L", "RGB") else 1 if mode.startswith(("I", "F")) else 4
        if self._image.format == "JPEG2000":
            stored += 4 * bands  # the library decodes to whole numbers of 32 bits
        progressive = 2 * bands * self.stored_size[0] * self.stored_size[1] if "progressive" in self._image.info else 0
        return pixels * (stored + converted) + progressive

    def decoded(self) -> Image.Image:
        """As displayed, in the mode L or RGB; smaller than :attr:`shape` if :meth:`reduce` was called."""
        try:
            depth = stated_depth(self._image)
        except Exception as error:
            raise self._damaged(error) from error
        return displayed(self.raw(), depth, self.name)

    def raw(self) -> Image.Image:
        """With the values that are in the file, turned as displayed."""
        try:
            self._load()
            if self._image.size[0] > self.stored_size[0] or self._image.size[1] > self.stored_size[1]:
                raise ValueError("it is larger than its header says")
            is_turned = self._image.getexif().get(_ORIENTATION, 1) in range(2, 9)
            return ImageOps.exif_transpose(self._image) if is_turned else self._image
        except InputError:
            raise
        except MemoryError as error:
            raise out_of_memory(self.name) from error
        except Exception as error:  # Pillow's decoders raise nearly anything on damaged data
            raise self._damaged(error) from error

    def _load(self) -> None:
        try:
            self._image.load()
        except Exception:
            if not self._halvings:
                raise
            # Parts of the file have fewer small versions than its header promises: then all of it.
            self._halvings = 0
            self._file.seek(0)
            self._image = self._header()
            self._image.load()

    def _header(self) -> Image.Image:
        try:
            image = Image.open(self._file, formats=pillow_formats())
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise InputError(
                f"'{self.name}' has too many pixels to be safe to open (the limit is {self._max_pixels:,}); "
                "make it smaller."
            ) from error
        except Exception as error:  # Pillow's format plugins raise nearly anything on a broken header
            raise self._unreadable() from error
        refuse_huge(image, self.name, self._max_pixels)
        if image.format != "MPO":
            try:
                refuse_several(image, self.name)
            except InputError:
                raise
            except Exception as error:
                raise self._damaged(error) from error
        return image

    def _unreadable(self) -> InputError:
        self._file.seek(0)
        if kind := unread_kind(self.path, self._file.read(32)):
            return InputError(f"'{self.name}' is {kind.name}, which is not read; {kind.advice}.")
        return InputError(
            f"'{self.name}' is not an image that can be read; expected PNG, JPEG, TIFF, WebP, BMP or the like."
        )

    def _damaged(self, error: Exception) -> InputError:
        reason = escaped(str(error).strip().rstrip(".")) or type(error).__name__
        return InputError(f"'{self.name}' is damaged or cut short ({reason}); copy the image again.")


def rgb_array(image: Image.Image) -> Pixels:
    """An image in the mode L or RGB as uint8 (H, W, 3)."""
    values = np.asarray(image)
    return np.repeat(values[..., None], 3, axis=2) if values.ndim == 2 else np.array(values)


def refuse_huge(image: Image.Image, name: str, max_pixels: int = MAX_PIXELS) -> None:
    """Raise when an image has too many pixels to be decoded."""
    width, height = image.size
    if width * height > max_pixels or max(width, height) > MAX_SIDE:
        raise InputError(
            f"'{name}' is {width} x {height} pixels; at most {max_pixels:,} in all and {MAX_SIDE:,} a side are read: "
            "make it smaller or cut it into tiles."
        )


def refuse_several(image: Image.Image, name: str) -> None:
    """Raise when an image has several pages or frames."""
    if getattr(image, "is_animated", False):
        raise InputError(
            f"'{name}' holds several pages or frames, and which one is meant cannot be known; save each as an image of "
            "its own."
        )


def refuse_tiny(height: int, width: int, name: str) -> None:
    """Raise when an image has too few pixels to judge a product by."""
    if min(height, width) < MIN_SIDE:
        raise InputError(
            f"'{name}' is {width} x {height} pixels; at least {MIN_SIDE} a side are needed to judge it: give the "
            "image in full size."
        )


def _open_regular(path: Path) -> IO[bytes]:
    """The opened file; checked after it was opened, and without blocking if it is a pipe."""
    name = shown_path(path)
    if not is_text(path):
        raise InputError(f"'{name}' has a name that {why_no_text(path)}.")
    if kind := unread_kind(path):
        raise InputError(f"'{name}' is {kind.name}, which is not read; {kind.advice}.")
    try:
        if path.is_dir():
            with os.scandir(path):
                raise InputError(f"'{name}' is a folder, not an image file; name the files in it.")
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        file = os.fdopen(os.open(path, flags), "rb")
    except (OSError, ValueError) as error:
        raise _unopened(path, name, error) from error
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_size > 0:
        return file
    file.close()
    if stat.S_ISREG(status.st_mode):
        raise InputError(f"'{name}' is empty (0 bytes); copy the image again.")
    raise InputError(f"'{name}' is not a regular file; an image file was expected.")


def _unopened(path: Path, name: str, error: OSError | ValueError) -> InputError:
    if isinstance(error, ValueError):
        return InputError(f"'{name}' is no possible name of a file; check the path.")
    if os.path.lexists(path) and path.is_dir():
        return unlistable(path, error)
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        target = shown_path(os.readlink(path))  # noqa: PTH115
        return InputError(f"'{name}' is a link to '{target}', which does not exist; copy the image again.")
    if isinstance(error, FileNotFoundError):
        return InputError(f"'{name}' does not exist; check the path.")
    if isinstance(error, PermissionError):
        return InputError(f"'{name}' may not be read by this user; change its permissions.")
    reason = error.strerror or type(error).__name__
    return InputError(f"'{name}' cannot be opened ({reason}); an image file was expected.")
