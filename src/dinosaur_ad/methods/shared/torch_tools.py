"""Tensor functions that several methods use; torch is imported by the functions, so that listing methods is fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD
from dinosaur_ad.errors import InputError, install_advice

if TYPE_CHECKING:
    import torch

LUMA = (0.299, 0.587, 0.114)
BRIGHTNESS, CONTRAST, SATURATION = range(3)


def import_torch(who: str = "This method") -> Any:
    """The torch module; where it is not installed, an error that says how to install it."""
    try:
        import torch
    except ImportError:
        raise InputError(f"{who} computes with torch; {install_advice('bench')}.") from None
    return torch


def to_images(pixels_NHWC: NDArray[np.uint8], device: str | torch.device) -> torch.Tensor:
    """Pixels as a network takes them: (N, 3, S, S) float32, normalised as for ImageNet.

    In memory the channels stay last, unlike in a training step: convolutions choose their algorithm by the layout, so
    the two are not the same to the last bit.
    """
    torch = import_torch()
    raw_NHWC = torch.from_numpy(np.ascontiguousarray(pixels_NHWC)).to(device).float() / 255
    mean_3, std_3 = (torch.tensor(each, device=device) for each in (IMAGE_MEAN, IMAGE_STD))
    return ((raw_NHWC - mean_3) / std_3).permute(0, 3, 1, 2)


def cell_means(maps_NCHW: torch.Tensor, side: int, *, padding: int = 0) -> torch.Tensor:
    """``avg_pool2d(maps, side, side, padding)`` as one reduction, for channels first or last in memory.

    The pooling of torch took 4.9 of 17.9 ms of a step of EfficientAD on an H200 (channels last, bfloat16), and 5.2 of
    33 ms for the gradient alone in IUF. The gradient of a mean over two axes is only a copy.
    """
    height, width = ((each + 2 * padding) // side for each in maps_NCHW.shape[2:])
    below, right = (
        count * side - each - padding for count, each in zip((height, width), maps_NCHW.shape[2:], strict=True)
    )
    if padding:
        maps_NCHW = import_torch().nn.functional.pad(maps_NCHW, (padding, right, padding, below))
    whole_NHWC = maps_NCHW[:, :, : height * side, : width * side].permute(0, 2, 3, 1)
    means_NHWC = whole_NHWC.unflatten(2, (width, side)).unflatten(1, (height, side)).mean((2, 4))
    return means_NHWC.permute(0, 3, 1, 2)


def adjust_colours(
    images_N3HW: torch.Tensor, kinds_N: torch.Tensor, factors_N: torch.Tensor, region_NHW: torch.Tensor | None = None
) -> torch.Tensor:
    """Images of values 0..1, each changed in brightness (kind 0), contrast (1) or saturation (2) by its factor.

    A factor blends the image with black, with the mean grey of the ``region`` (by default of the whole image), or with
    the grey image; 1 is no change.
    """
    torch = import_torch()
    kind, factor = (each.to(images_N3HW.device)[:, None, None, None] for each in (kinds_N, factors_N))
    grey_N1HW = (images_N3HW * images_N3HW.new_tensor(LUMA)[:, None, None]).sum(1, keepdim=True)
    if region_NHW is None:
        mean_N111 = grey_N1HW.mean((2, 3), keepdim=True)
    else:
        inside_N1HW = region_NHW[:, None]
        mean_N111 = (grey_N1HW * inside_N1HW).sum((2, 3), keepdim=True) / inside_N1HW.sum((2, 3), keepdim=True)
    base = torch.where(kind == BRIGHTNESS, 0.0, torch.where(kind == CONTRAST, mean_N111, grey_N1HW))
    return torch.clamp(base + factor * (images_N3HW - base), 0, 1)
