"""Photos as networks take them, and what is said when there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.contract import Photo
from dinosaur_ad.methods.parts.lazy import import_torch

if TYPE_CHECKING:
    import torch


def to_images(pixels_NHWC: NDArray[np.uint8], device: str | torch.device) -> torch.Tensor:
    """Prepared pixels as a network takes them: (N, 3, S, S), with ImageNet's mean and deviation taken out.

    In memory the channels stay last, which a training step's images do not: convolutions choose their way of
    computing by the layout, so the two are not the same to the last bit.
    """
    torch = import_torch()
    raw_NHWC = torch.from_numpy(np.ascontiguousarray(pixels_NHWC)).to(device).float() / 255
    mean_3, std_3 = (torch.tensor(each, device=device) for each in (IMAGE_MEAN, IMAGE_STD))
    return ((raw_NHWC - mean_3) / std_3).permute(0, 3, 1, 2)


def refuse_no_normals(task: str, photos: Sequence[Photo]) -> None:
    """A task without any image cannot be learned.

    >>> refuse_no_normals("bolts", [])
    Traceback (most recent call last):
        ...
    dinosaur_ad.errors.InputError: The task 'bolts' has no training images; give at least one normal.
    """
    if not photos:
        raise InputError(f"The task '{task}' has no training images; give at least one normal.")


def refuse_no_photos(photos: Sequence[Photo]) -> None:
    """No image has no score."""
    if not photos:
        raise InputError("Expected at least one image to score, got none.")
