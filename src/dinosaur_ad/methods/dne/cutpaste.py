"""Two views of a normal image for DNE's original training: as it is, and with a piece of itself pasted elsewhere.

CutPaste as DNE's authors use it: the image is jittered in colour; a piece of 2 to 15 % of its area, of any shape
between 1:10 and 10:1, is jittered again and pasted at a random place; each view is turned by up to 90 degrees.
Everything is drawn from one generator on the CPU, so the same seed gives the same views on every device; the pixels are
computed where the images are. Images are (3, H, W) tensors of float32 between 0 and 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

AREA = (0.02, 0.15)
ASPECT = (0.1, 1.0)
JITTER = 0.1
TURN = 90.0
GREY = (0.299, 0.587, 0.114)


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


def cut_paste(image: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The image with a piece of it, a little recoloured, at another place."""
    patch = draw_patch(image.shape[1], image.shape[2], generator)
    (top, left), (to_top, to_left) = patch.cut, patch.paste
    piece = jitter(image[:, top : top + patch.height, left : left + patch.width], generator)
    pasted = image.clone()
    pasted[:, to_top : to_top + patch.height, to_left : to_left + patch.width] = piece
    return pasted


def two_views(images: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """The normal and the pasted view of each of ``images`` (B, 3, H, W), in the same range."""
    import torch

    plain = torch.stack([jitter(image, generator) for image in images])
    pasted = torch.stack([cut_paste(image, generator) for image in plain])
    turned = turn(torch.cat([plain, pasted]), (2 * torch.rand(2 * len(images), generator=generator) - 1) * TURN)
    return turned[: len(images)], turned[len(images) :]


def turn(images: torch.Tensor, degrees_B: torch.Tensor) -> torch.Tensor:
    """Each of ``images`` (B, 3, S, S) turned about its centre, nearest pixels, black where nothing was."""
    import torch

    angle_B = torch.deg2rad(degrees_B.double())
    rows = [[angle_B.cos(), -angle_B.sin()], [angle_B.sin(), angle_B.cos()]]
    matrix_B23 = torch.stack([torch.stack([*row, torch.zeros_like(angle_B)], dim=1) for row in rows], dim=1)
    grid = torch.nn.functional.affine_grid(
        matrix_B23.to(images.device, images.dtype), list(images.shape), align_corners=False
    )
    return torch.nn.functional.grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)


def jitter(image: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Brightness, contrast and saturation changed by up to 10 %, the hue by a tenth of the circle, in any order."""
    import torch

    factors = [_uniform(generator, 1 - JITTER, 1 + JITTER) for _ in range(3)]
    shift = _uniform(generator, -JITTER, JITTER)
    for change in torch.randperm(4, generator=generator).tolist():
        if change == 3:
            image = shift_hue(image, shift)
            continue
        grey_HW = (image * image.new_tensor(GREY)[:, None, None]).sum(0)
        # What is left when the factor is 0: black, the mean grey, the grey image.
        base = (image.new_zeros(()), grey_HW.mean(), grey_HW)[change]
        image = torch.clamp(base + factors[change] * (image - base), 0, 1)
    return image


def shift_hue(image: torch.Tensor, shift: float) -> torch.Tensor:
    """The image with its hue moved by ``shift`` of the colour circle; brightness and saturation (HSV) stay."""
    import torch

    red, green, blue = image
    value, low = image.amax(0), image.amin(0)
    range_HW = value - low
    safe = torch.where(range_HW > 0, range_HW, 1)
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
        channels.append(value - range_HW * torch.minimum(k, 4 - k).clamp(0, 1))
    return torch.stack(channels)


def _uniform(generator: torch.Generator, low: float, high: float) -> float:
    import torch

    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def _whole(generator: torch.Generator, most: int) -> int:
    """A number from 0 to ``most``, both included."""
    import torch

    return int(torch.randint(most + 1, (), generator=generator))
