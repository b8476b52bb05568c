"""The frozen features that the published IUF reconstructs: maps of several resolutions, resized to one grid.

The original's are EfficientNet-B4's. Any registered backbone can stand in; the tokens of a token encoder are then
scaled to a root mean square of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dinosaur_ad.encoders import EncoderSpec, list_specs
from dinosaur_ad.encoders.base import check_layers, check_size
from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.methods.iuf.efficientnet import ARCHITECTURES, EfficientNetMaps, channels_and_parameters
from dinosaur_ad.methods.shared.backbone_maps import BackboneMaps
from dinosaur_ad.methods.shared.torch_tools import to_images

ORIGINAL = "efficientnet-b4"
STRIDE = 16  # pixels a cell of the grid, for convolutional networks


class AlignedFeatures:
    """Resized images (N, S, S, 3) uint8 in, features (N, H * W, C) out, row by row.

    ``blocks`` are those of a token encoder; convolutional networks ignore them.
    """

    def __init__(self, backbone: str, *, weights: str, blocks: Sequence[int], size: int, device: torch.device) -> None:
        self.backbone, self._weights, self._device = backbone, weights, device
        self.side = size // STRIDE
        self._maps: BackboneMaps | None = None
        if backbone in ARCHITECTURES:
            self.channels, self.parameters = channels_and_parameters(backbone)
        elif backbone in list_specs():
            self._maps = BackboneMaps(backbone, weights=weights, layers=blocks, size=size, device=str(device))
            self.channels, self.parameters = self._maps.channels, self._maps.spec.parameters
        else:
            known = ", ".join((*ARCHITECTURES, *list_specs()))
            raise EncoderError(f"There is no backbone '{backbone}' for IUF; choose one of: {known}.")
        if self._maps is not None and isinstance(self._maps.spec, EncoderSpec):
            check_size(size, self._maps.spec)
            check_layers(blocks, self._maps.spec.depth)
            self.side = size // self._maps.spec.patch
        elif size <= 0 or size % STRIDE:
            raise InputError(f"IUF's size must be a multiple of {STRIDE} with {backbone}, got {size}.")

    def __call__(self, pixels: NDArray[np.uint8]) -> torch.Tensor:
        """The features of a batch."""
        grid = (self.side, self.side)
        aligned = [
            each
            if each.shape[-2:] == grid
            # As the original resizes: corners on corners, without antialiasing.
            else torch.nn.functional.interpolate(each, size=grid, mode="bilinear", align_corners=True)
            for each in self._maps_of(pixels)
        ]
        return torch.cat(aligned, dim=1).flatten(2).transpose(1, 2).contiguous()

    def _maps_of(self, pixels: NDArray[np.uint8]) -> Sequence[torch.Tensor]:
        """Maps (N, C, H, W), the finest first."""
        if self._maps is None:
            return self._efficientnet(to_images(pixels, self._device))
        if isinstance(self._maps.spec, EncoderSpec):
            return [each * each.shape[1] ** 0.5 for each in self._maps(pixels)]
        return [each.clone() for each in self._maps(pixels)]  # inference tensors cannot be part of a backward pass

    def info(self) -> dict[str, Any]:
        """The description of the network, and whether it is the one of the original."""
        network = self._efficientnet if self._maps is None else self._maps.network
        stands_in = "" if self.backbone == ORIGINAL else f"{self.backbone} stands in for EfficientNet-B4"
        return dict(network.info()) | {"substitute": stands_in, "channels": self.channels}

    @cached_property
    def _efficientnet(self) -> EfficientNetMaps:
        return EfficientNetMaps(self.backbone, self._weights, self._device)
