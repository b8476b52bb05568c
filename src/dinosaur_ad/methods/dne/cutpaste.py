"""Two views of a normal image for DNE's original training: as it is, and with a piece of itself pasted elsewhere.

CutPaste as DNE's authors use it: the image is jittered in colour; a piece of 2 to 15 % of its area, of any shape
between 1:10 and 10:1, is jittered again and pasted at a random place; each view is turned by up to 90 degrees.
Everything is drawn from one generator on the CPU, image by image: the same seed gives the same views on every device.
The pixels are computed on the device of the images, a whole batch at a time: image by image, a GPU would run thousands
of tiny kernels. Images are (N, 3, H, W) tensors of float32 between 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dinosaur_ad.methods.shared.torch_tools import SATURATION, adjust_colours

AREA = (0.02, 0.15)
ASPECT = (0.1, 1.0)
JITTER = 0.1
TURN = 90.0
HUE = SATURATION + 1  # the one change of colour that is not a blend


@dataclass(frozen=True)
class Patch:
    """A piece of an image, in pixels: its size, where it is cut, and where it is pasted (top, left)."""

    height: int
    width: int
    cut: tuple[int, int]
    paste: tuple[int, int]


def draw_patch(height: int, width: int, generator: torch.Generator) -> Patch:
    """Draw a piece of an image of ``height`` x ``width`` pixels; one longer than the image is cut off at its side."""
    area = _uniform(generator, *AREA) * height * width
    flattest = math.log(_uniform(generator, *ASPECT))
    aspect = math.exp(_uniform(generator, flattest, -flattest))
    tall = min(height, max(1, round(math.sqrt(area / aspect))))
    wide = min(width, max(1, round(math.sqrt(area * aspect))))
    places = [(_whole(generator, height - tall), _whole(generator, width - wide)) for _ in range(2)]
    return Patch(tall, wide, *places)


@dataclass(frozen=True)
class Recolouring:
    """Brightness, contrast and saturation times a factor each, the hue moved by ``shift``, in this ``order``."""

    factors: tuple[float, float, float]
    shift: float
    order: tuple[int, ...]


def draw_recolouring(generator: torch.Generator) -> Recolouring:
    """Draw factors of up to 10 % either way, a shift of up to a tenth of the colour circle, and any order."""

    brightness, contrast, saturation = (_uniform(generator, 1 - JITTER, 1 + JITTER) for _ in range(3))
    shift = _uniform(generator, -JITTER, JITTER)
    order = tuple(torch.randperm(4, generator=generator).tolist())
    return Recolouring((brightness, contrast, saturation), shift, order)


def two_views(images: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """The normal and the pasted view of each of ``images`` (N, 3, H, W), in the same range."""

    height, width = images.shape[2:]
    plain = recoloured(images, [draw_recolouring(generator) for _ in images])
    drawn = [(draw_patch(height, width, generator), draw_recolouring(generator)) for _ in images]
    pasted = cut_paste(plain, [patch for patch, _ in drawn], [colours for _, colours in drawn])
    turned = turn(torch.cat([plain, pasted]), (2 * torch.rand(2 * len(images), generator=generator) - 1) * TURN)
    return turned[: len(images)], turned[len(images) :]


def cut_paste(images: torch.Tensor, patches: Sequence[Patch], colours: Sequence[Recolouring]) -> torch.Tensor:
    """Each of ``images`` (N, 3, H, W) with its patch, recoloured, at the place where it is to be pasted."""

    height, width = images.shape[2:]
    tops, lefts, to_tops, to_lefts, talls, wides = (
        torch.tensor(values, device=images.device)[:, None]
        for values in zip(*((*each.cut, *each.paste, each.height, each.width) for each in patches), strict=True)
    )
    row_H, column_W = (torch.arange(side, device=images.device) for side in (height, width))

    def rectangle(top_N1: torch.Tensor, left_N1: torch.Tensor) -> torch.Tensor:
        tall_NH = (row_H >= top_N1) & (row_H < top_N1 + talls)
        wide_NW = (column_W >= left_N1) & (column_W < left_N1 + wides)
        return tall_NH[:, :, None] & wide_NW[:, None, :]

    pieces = recoloured(images, colours, rectangle(tops, lefts))
    # Where each pixel of the pasted patch comes from; what lies outside of it is not used.
    from_NH = (row_H - to_tops + tops).clamp(0, height - 1)
    from_NW = (column_W - to_lefts + lefts).clamp(0, width - 1)
    number_N = torch.arange(len(images), device=images.device)
    moved_NHWC = pieces[number_N[:, None, None], :, from_NH[:, :, None], from_NW[:, None, :]]
    return torch.where(rectangle(to_tops, to_lefts)[:, None], moved_NHWC.permute(0, 3, 1, 2), images)


def turn(images: torch.Tensor, degrees_B: torch.Tensor) -> torch.Tensor:
    """Each of ``images`` (B, 3, S, S) turned about its centre, nearest pixels, black outside of the image."""

    angle_B = torch.deg2rad(degrees_B.double())
    rows = [[angle_B.cos(), -angle_B.sin()], [angle_B.sin(), angle_B.cos()]]
    matrix_B23 = torch.stack([torch.stack([*row, torch.zeros_like(angle_B)], dim=1) for row in rows], dim=1)
    grid = torch.nn.functional.affine_grid(
        matrix_B23.to(images.device, images.dtype), list(images.shape), align_corners=False
    )
    return torch.nn.functional.grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)


def recoloured(
    images: torch.Tensor, colours: Sequence[Recolouring], region_NHW: torch.Tensor | None = None
) -> torch.Tensor:
    """Each of ``images`` (N, 3, H, W) in other colours; the contrast is that of its ``region``, or of all of it."""

    shift_N111 = images.new_tensor([each.shift for each in colours])[:, None, None, None]
    for change in range(4):
        kinds = [each.order[change] for each in colours]
        factors = [(*each.factors, 1.0)[kind] for each, kind in zip(colours, kinds, strict=True)]
        changed = adjust_colours(images, torch.tensor(kinds), images.new_tensor(factors), region_NHW)
        hues = [number for number, kind in enumerate(kinds) if kind == HUE]
        if hues:
            changed[hues] = shift_hue(images[hues], shift_N111[hues])
        images = changed
    return images


def shift_hue(images: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """``images`` (N, 3, H, W) with their hues moved by ``shift`` (N, 1, 1, 1) of the colour circle.

    Brightness and saturation (HSV) stay.
    """

    red, green, blue = images.split(1, dim=1)
    value, low = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    span = value - low
    safe = torch.where(span > 0, span, 1)
    sixth = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    sixth = sixth + 6 * shift
    # Red is at its most within one sixth of 0, green of 2, blue of 4; each falls to its least beyond two sixths.
    channels = []
    for start in (5, 3, 1):
        k = (sixth + start) % 6
        channels.append(value - span * torch.minimum(k, 4 - k).clamp(0, 1))
    return torch.cat(channels, dim=1)


def _uniform(generator: torch.Generator, low: float, high: float) -> float:

    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def _whole(generator: torch.Generator, most: int) -> int:
    """A number from 0 to ``most``, both included."""

    return int(torch.randint(most + 1, (), generator=generator))
