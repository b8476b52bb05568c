"""Average pooling for EfficientAD's networks; a file of its own because :mod:`pdn` must not import torch."""

from __future__ import annotations

import torch
from torch import nn

from dinosaur_ad.methods.shared.torch_tools import cell_means


class Halve(nn.Module):  # type: ignore[misc]
    """``AvgPool2d(2, 2, padding)``."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        self.padding = padding

    def forward(self, maps_NCHW: torch.Tensor) -> torch.Tensor:
        """The mean of every two by two places."""
        return cell_means(maps_NCHW, 2, padding=self.padding)
