"""Images in memory: which arrays are images, and the one sentence for what is not.

An image is uint8: (H, W) grey, (H, W, 1) grey, (H, W, 3) in the order red, green, blue, or (H, W, 4) with opacity, laid
on black as in files. A three-dimensional array whose last axis is 1, 3 or 4 is one image, never a stack; (N, H, W, 1),
(N, H, W, 3) and (N, H, W, 4) are N images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from dinosaur_ad._text import escaped
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.depth import Depth, displayed, stated_depth
from dinosaur_ad.images.loading import Pixels, refuse_huge, refuse_several

CHANNELS = (1, 3, 4)
EXPECTED = "give a path, a PIL image or a uint8 array (H, W) or (H, W, 3), red first"

_CONVERT = {
    "b": "make it np.uint8(image) * 255",
    "u": "scale it to 0..255 (16-bit values: image // 257, 12-bit values: image // 16) and convert it with np.uint8",
    "i": "bring it to 0..255 and convert it with np.uint8",
    "f": "bring it to 0..255 (values from 0 to 1: times 255) and convert it with np.uint8",
}


def pixels_of(image: object, name: str) -> Pixels:
    """One image that is in memory as uint8 (H, W) or (H, W, 3); ``name`` is what the errors call it.

    >>> pixels_of(np.zeros((20, 30, 4), np.uint8), "image-000000").shape
    (20, 30, 3)

    :raises InputError: it is not an image.
    """
    if isinstance(image, Image.Image):
        return _from_pillow(image, name)
    if not isinstance(image, np.ndarray):
        raise InputError(f"'{name}' is {described(image)}, not an image; {EXPECTED}.")
    check_array(image, f"'{name}'")
    if image.ndim == 3 and image.shape[2] == 4:
        return np.asarray(displayed(Image.fromarray(np.ascontiguousarray(image)), Depth(), name))
    return image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image


def from_bgr(image: npt.NDArray[Any]) -> Pixels:
    """An image of OpenCV, blue first, in the order that is used here: uint8 (H, W, 3), red first; a copy.

    The opacity of (H, W, 4) stays where it is. Grey images, (H, W) and (H, W, 1), have no order and stay as they are.

    >>> from_bgr(np.full((20, 30, 3), (255, 0, 7), np.uint8))[0, 0].tolist()
    [7, 0, 255]

    :raises InputError: it is not one image.
    """
    if image is None:  # what cv2.imread returns, in spite of its types
        raise InputError(
            "from_bgr was given None, which is what OpenCV returns for a file it cannot read; check the path."
        )
    if not isinstance(image, np.ndarray):
        raise InputError(f"from_bgr was given {described(image)}; give an array of OpenCV, uint8 (H, W, 3).")
    if image.ndim == 4:
        raise InputError(f"from_bgr was given the shape {image.shape}; give it one image (H, W, 3) at a time.")
    check_array(image, "The array given to from_bgr")
    bands = {3: [2, 1, 0], 4: [2, 1, 0, 3]}.get(image.shape[2] if image.ndim == 3 else 1)
    return image.copy() if bands is None else np.ascontiguousarray(image[..., bands])


def check_array(image: npt.NDArray[Any], subject: str) -> None:
    """Raise unless an array is one image; the sentence begins with ``subject``."""
    _check_dtype(image, subject)
    if image.ndim == 2 or (image.ndim == 3 and image.shape[2] in CHANNELS):
        if image.size == 0:
            raise InputError(f"{subject} has the shape {image.shape} and so not one pixel; {EXPECTED}.")
        return
    if image.ndim == 3 and image.shape[0] in CHANNELS:
        raise InputError(
            f"{subject} has the shape {image.shape}, with the channels first; put them last with "
            "np.transpose(image, (1, 2, 0))."
        )
    if image.ndim == 3:
        raise InputError(
            f"{subject} has the shape {image.shape}, which is no image; a stack of grey images is given as "
            "(N, H, W, 1) or as a list."
        )
    raise InputError(f"{subject} has the shape {image.shape}, which is no image; {EXPECTED}.")


def images_in(array: npt.NDArray[Any]) -> list[object]:
    """The images in an array that is given as a whole: N of (N, H, W, C), else the one that it is.

    :raises InputError: it is neither.
    """
    if array.dtype.kind == "U" and array.ndim == 1:
        return [str(path) for path in array]
    if array.ndim != 4:
        check_array(array, "The array given")
        return [array]
    _check_dtype(array, "The array given")
    if array.shape[3] in CHANNELS:
        if array.size == 0 and len(array):
            raise InputError(f"The array given has the shape {array.shape} and so not one pixel; {EXPECTED}.")
        return list(array)
    if array.shape[1] in CHANNELS:
        raise InputError(
            f"The array given has the shape {array.shape}, with the channels first; put them last with "
            "np.transpose(images, (0, 2, 3, 1))."
        )
    raise InputError(f"The array given has the shape {array.shape}; images are stacked as (N, H, W, 3).")


def described(thing: object) -> str:
    """What something is, in a word or two.

    >>> described(None), described({}), described([1])
    ('None', 'a dict', 'a list')
    """
    if thing is None:
        return "None"
    word = escaped(type(thing).__name__)
    return f"{'an' if word[:1].lower() in 'aeio' else 'a'} {word}"


def _check_dtype(image: npt.NDArray[Any], subject: str) -> None:
    if image.dtype != np.uint8:
        advice = _CONVERT.get(image.dtype.kind, EXPECTED)
        raise InputError(f"{subject} is an array of {image.dtype}, but uint8 with values 0..255 is expected; {advice}.")


def _from_pillow(image: Image.Image, name: str) -> Pixels:
    if 0 in image.size:
        raise InputError(f"'{name}' has the size {image.size} and so not one pixel; {EXPECTED}.")
    refuse_huge(image, name)
    try:
        if image.format != "MPO":
            refuse_several(image, name)
        depth = stated_depth(image)
        image.load()
        upright = ImageOps.exif_transpose(image)
    except InputError:
        raise
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged data
        reason = escaped(str(error).strip().rstrip(".")) or type(error).__name__
        raise InputError(f"'{name}' is a PIL image that cannot be decoded ({reason}); open it again.") from error
    return np.asarray(displayed(upright, depth, name))
