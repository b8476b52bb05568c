"""Images in other colours, a batch at a time, as the augmentations of DNE and EfficientAD change them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dinosaur_ad.methods.parts.lazy import import_torch

if TYPE_CHECKING:
    import torch

LUMA = (0.299, 0.587, 0.114)
BRIGHTNESS, CONTRAST, SATURATION = range(3)


def blended(
    images_N3HW: torch.Tensor, kinds_N: torch.Tensor, factors_N: torch.Tensor, region_NHW: torch.Tensor | None = None
) -> torch.Tensor:
    """Images of values 0..1, each changed in brightness (kind 0), contrast (1) or saturation (2) by its factor.

    A factor blends the image with what is left when it is 0: black, the mean grey of the ``region`` (of the whole image
    unless told), or the grey image; 1 is no change.
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
